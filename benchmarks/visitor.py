"""A visitor without a browser: speaks to the page's server as the page's script does, over plain HTTP."""

from __future__ import annotations

import copy
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

PATIENCE = 300.0  # seconds without a word from the server; it says something every 15 s


class RefusedError(Exception):
    """The server said no, with a status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message[:200]}")
        self.status, self.message = status, message


@dataclass
class Answer:
    """What came of one event: every message as it was sent, and the last output."""

    messages: list[str] = field(default_factory=list)
    output: Any = None
    success: bool | None = None  # None: left before the end
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """All that was sent."""
        return "\n".join(self.messages)


class Page:
    """The page's configuration, the same for every visitor."""

    def __init__(self, client: httpx.Client) -> None:
        self.config = client.get("/config").json()
        self.components = {part["id"]: part for part in self.config["components"]}
        self.events = {event["id"]: event for event in self.config["dependencies"]}
        self._ids = {
            part["props"].get("elem_id"): number
            for number, part in self.components.items()
            if part["props"].get("elem_id")
        }
        self.fields: dict[
            str, tuple[int, str]
        ] = {}  # by their id: a form's number, and the name in its value
        declared = re.search(r"^window\.KVForms = (.*);$", client.get("/lab/app.js").text, re.MULTILINE)
        for elem_id, spec in json.loads(declared[1] if declared else "{}").items():
            self._know(self.component(elem_id), spec)

    def _know(self, form: int, nodes: list[dict[str, Any]]) -> None:
        for node in nodes:
            if "id" in node:
                self.fields[node["id"]] = (form, node.get("name", ""))
            elif "ids" in node and "name" in node:  # cards, which have an id each
                self.fields[f"{node['ids']}-{node['name']}"] = (form, node["name"])
            self._know(form, node.get("items", []))

    def component(self, elem_id: str) -> int:
        """A component's number."""
        return int(self._ids[elem_id])

    def event(self, elem_id: str | None, kind: str) -> int:
        """The number of the event ``kind`` of an element; of the whole page for None."""
        component = None if elem_id is None else self.component(elem_id)
        for number, event in self.events.items():
            for source, name in event["targets"]:
                if name == kind and (component is None or source == component):
                    return int(number)
        raise KeyError((elem_id, kind))


class Visitor:
    """One tab."""

    def __init__(self, page: Page, client: httpx.Client) -> None:
        self.page, self.client = page, client
        self.tab = secrets.token_hex(8)
        self.values = {
            number: copy.deepcopy(part["props"].get("value")) for number, part in page.components.items()
        }
        self._streams: list[httpx.Response] = []

    def arrive(self) -> Answer:
        """Open the page: its heartbeat begins, and what stands in the boxes is taken over."""
        self.client.get("/")  # by which the server knows the browser
        request = self.client.build_request("GET", f"/gradio_api/heartbeat/{self.tab}", timeout=PATIENCE)
        self._streams.append(self.client.send(request, stream=True))
        return self.take(None, "load")

    def take(self, elem_id: str | None, kind: str = "click") -> Answer:
        """Set off an event, and let what comes of it stand in the boxes."""
        answer = self.do(elem_id, kind)
        written = self.page.events[self.page.event(elem_id, kind)]["outputs"]
        for number, value in zip(written, (answer.output or {}).get("data", ()), strict=False):
            if isinstance(value, dict) and value.get("__type__") == "update":
                if "value" in value:
                    self.values[number] = value["value"]
            else:
                self.values[number] = value
        return answer

    def leave(self) -> None:
        """Close the tab."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    def put(self, elem_id: str, value: Any) -> None:
        """Write into a box, or into a form's field."""
        if elem_id in self.page.fields:
            form, name = self.page.fields[elem_id]
            self.values[form] = {**self.values[form], name: value}
        else:
            self.values[self.page.component(elem_id)] = value

    def do(
        self, elem_id: str | None, kind: str = "click", until: Callable[[str], bool] = lambda message: False
    ) -> Answer:
        """Set off an event and read what comes of it, or leave once ``until`` holds of a message.

        Raises:
            RefusedError: the server said no.
        """
        return self.send(self.body(self.page.event(elem_id, kind)), until)

    def body(self, number: int) -> str:
        """The call of an event with the values of its boxes."""
        data = [
            None if self.page.components[widget]["type"] == "state" else self.values[widget]
            for widget in self.page.events[number]["inputs"]
        ]
        return json.dumps({"data": data, "fn_index": number, "session_hash": self.tab, "event_data": None})

    def send(self, body: str | bytes, until: Callable[[str], bool] = lambda message: False) -> Answer:
        """Send any body to the queue and read the answer."""
        began = time.monotonic()
        joined = self.client.post(
            "/gradio_api/queue/join", content=body, headers={"Content-Type": "application/json"}
        )
        if joined.status_code != 200:
            raise RefusedError(joined.status_code, joined.text)
        event_id, answer = joined.json()["event_id"], Answer()
        for raw in self._stream():
            answer.messages.append(raw)
            message = json.loads(raw)
            if message.get("event_id") == event_id and message["msg"] == "process_completed":
                answer.output, answer.success = message["output"], message["success"]
            if message["msg"] in ("close_stream", "unexpected_error") or until(raw):
                break
            if answer.success is not None:
                break
        answer.seconds = time.monotonic() - began
        return answer

    def _stream(self) -> Iterator[str]:
        with self.client.stream(
            "GET", "/gradio_api/queue/data", params={"session_hash": self.tab}, timeout=PATIENCE
        ) as stream:
            for line in stream.iter_lines():
                if line.startswith("data:"):
                    yield line.removeprefix("data:").strip()
