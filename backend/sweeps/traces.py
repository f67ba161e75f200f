"""Prompts that agents of another system were sent, as a pipeline that can be replayed.

A trace is a file of JSON lines, one for each call of a model, in the order of the calls::

    {"request": "17", "agent": "Solver", "question": "...", "prompt": "...", "response": "..."}

``question`` is what the person asked, the same in all calls of a request; ``response`` may be missing in the
last call. What a prompt copied, the question or an earlier agent's response, is found in it word for word and
becomes a placeholder; what is left is the agent's template, which has to be the same in all requests.

Replayed, every agent reads what was recorded: its predecessors' recorded responses, whose KV is computed in
their writer's own context, as their decoding would have left it. What an agent writes now is compared with
dense's, and nobody reads it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.base.bounded_json import excess
from backend.base.errors import PromptError
from backend.base.text import check_text, common_prefix, show
from backend.cache.kv_cache import KVSegment
from backend.cache.samples import Sample
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import MAX_REQUEST_FILE_BYTES, read_text
from backend.prompts.template import QUESTION
from backend.records.request import RunRequest
from backend.session.prompt_run import own_context
from backend.session.request_state import RequestState
from backend.session.session import LabSession
from backend.session.streams import Stream

_EXAMPLE = '{"request": "17", "agent": "Solver", "question": "...", "prompt": "...", "response": "..."}'
_FIELDS = ("request", "agent", "prompt")
ANSWER_TOKENS = 256  # that each agent may write when it is replayed


@dataclass(frozen=True)
class TracedRequest:
    """``recorded``: the responses by agent number, from 1 in the order of the calls."""

    values: Mapping[str, str]
    recorded: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Call:
    where: str
    agent: str
    prompt: str
    question: str
    response: str


def read_trace(path: Path) -> tuple[Pipeline, list[TracedRequest]]:
    """A trace's pipeline and requests.

    Raises:
        PromptError: with the line that cannot be used.
    """
    requests = _calls(read_text(path, MAX_REQUEST_FILE_BYTES), path.name)
    first = next(iter(requests.values()))
    names = [call.agent for call in first]
    templates: list[str] | None = None
    traced = []
    for calls in requests.values():
        if [call.agent for call in calls] != names:
            raise PromptError(
                f"{calls[0].where}: the agents of this request are {', '.join(c.agent for c in calls)}, but "
                f"those of the first are {', '.join(names)}. Put requests of other agents into a file of "
                "their own.",
                field="trace",
            )
        agent_templates = [_template(calls, place) for place in range(len(calls))]
        templates = templates or agent_templates
        for call, template, expected in zip(calls, agent_templates, templates, strict=True):
            if template != expected:
                at = common_prefix(template, expected)
                raise PromptError(
                    f"{call.where}: apart from what it copies, {show(call.agent)}'s prompt is not that of "
                    f"the first request; they part at {show(template[at : at + 60])}. Give the question, or "
                    "put it into another file.",
                    field="trace",
                )
        recorded = {n: call.response for n, call in enumerate(calls, 1) if call.response}
        traced.append(TracedRequest({QUESTION: calls[0].question}, recorded))
    assert templates is not None
    agents = tuple(Agent(n, names[n - 1], "", text, ANSWER_TOKENS) for n, text in enumerate(templates, 1))
    name = re.sub(r"[^a-z0-9]+", "-", path.stem.casefold()).strip("-") or "trace"
    return Pipeline(name, path.stem, f"Replayed from {path.name}.", agents, scoring="none"), traced


def _calls(text: str, file: str) -> dict[str, list[_Call]]:
    by_request: dict[str, list[_Call]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            row: Any = None if excess(line.encode()) else json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or any(not isinstance(row.get(n), str | int) for n in _FIELDS):
            raise PromptError(
                f"{where}: this is no call. A line looks like {_EXAMPLE}. Correct it.", field="trace"
            )
        texts = {
            name: check_text(row.get(name) or "", f"{where}: the {name}", "trace")
            for name in ("prompt", "question", "response")
        }
        calls = by_request.setdefault(str(row["request"]), [])
        texts["question"] = texts["question"] or (calls[0].question if calls else "")
        if not texts["question"].strip() or (calls and texts["question"] != calls[0].question):
            raise PromptError(
                f"{where}: the question is {show(texts['question'])}; the first call of a request has to "
                "give it, and the others the same or none. Correct it.",
                field="trace",
            )
        calls.append(_Call(where, str(row["agent"]), texts["prompt"], texts["question"], texts["response"]))
    if not by_request:
        raise PromptError(f"{file} holds no call. A line looks like {_EXAMPLE}.", field="trace")
    return by_request


def _template(calls: list[_Call], place: int) -> str:
    """A call's prompt with what it copied made placeholders, the longest texts first."""
    call = calls[place]
    sources = {QUESTION: call.question} | {
        f"agent_{n}_current": earlier.response
        for n, earlier in enumerate(calls[:place], 1)
        if earlier.response
    }
    parts = [(call.prompt, "")]  # text, and the placeholder that stands there instead
    for name, text in sorted(sources.items(), key=lambda item: -len(item[1])):
        times = sum(part.count(text) for part, hole in parts if not hole)
        if times > 1:
            raise PromptError(
                f"{call.where}: {show(text)} stands {times} times in the prompt, so its place is not known. "
                "Shorten the prompt to one copy.",
                field="trace",
            )
        cut: list[tuple[str, str]] = []
        for part, hole in parts:
            before, copied, after = part.partition(text) if not hole else (part, "", "")
            cut += [(before, ""), (copied, name), (after, "")] if copied else [(part, hole)]
        parts = cut
    holes = [hole for _, hole in parts if hole]
    template = "".join("{" + hole + "}" if hole else part for part, hole in parts)
    if [h.name for h in Agent(1, "x", "", template).parsed().placeholders] != holes:
        raise PromptError(
            f"{call.where}: the prompt itself has a placeholder's name in braces, such as "
            f"{{user_question}}. Fill it.",
            field="trace",
        )
    return template


class TracedRequestState(RequestState):
    """A request state whose agents read the recorded answers, whatever is written now."""

    recorded: Mapping[int, str]

    def answer(self, agent: int, ids: tuple[int, ...], text: str, kv: KVSegment) -> Sample | None:
        """Take the recorded answer in; see :meth:`backend.session.request_state.RequestState.answer`."""
        recorded = self.recorded.get(agent)
        if recorded is not None:
            engine = self.engine_of(agent)
            ids, text = engine.model.tokens.encode(recorded), recorded
            prompt = engine.model.tokens.prompt(self.pipeline, agent, self.ids)
            engine.check_room(len(prompt.ids) + len(ids), 1, agent)
            kv = engine.encode(ids, prompt.ids, own_context(agent))
        return super().answer(agent, ids, text, kv)


class TraceSession(LabSession):
    """``recorded``: the next request's recorded answers by agent number."""

    recorded: Mapping[int, str] = {}

    def request_state(self, request: RunRequest, stream: Stream) -> RequestState:
        state = TracedRequestState(request.pipeline, self.engine, stream.log, engines=self.others)
        state.recorded = self.recorded
        return state
