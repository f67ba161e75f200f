"""Opening the page: what is on it before any event, and how little the first event sends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from fake_record import make_record
from fake_session import FakeModel, FakeSession

from backend.base.errors import ModelError
from lab_app.app import build_app
from lab_app.server.index_cache import MOST_ADDRESSES, IndexCache
from lab_app.ui import initial_state as first_paint
from lab_app.visits.visits import VisitStore

MOST_OUTPUTS_AT_LOAD = 3  # the visit's id and the link that saves its run, of some 250 widgets
MOST_BYTES_AT_LOAD = 4096
MOST_BYTES_OF_A_FIGURE = 400_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[gr.Blocks, VisitStore]:
    folder = tmp_path_factory.mktemp("first")
    return build_app(
        FakeModel, engine=FakeSession, first_run=make_record(layers=4).save(folder / "first.kvrun"),
        gallery=folder / "none.json",
    )[:2]  # fmt: skip


def load_events(blocks: gr.Blocks) -> list[Any]:
    """What the browser asks the server when the page opens, with all that follows from it."""
    asked = [f for f in blocks.fns.values() if any(name == "load" for _, name in f.targets)]
    for event in asked:
        asked += [f for f in blocks.fns.values() if f.trigger_after == event._id]
    return [event for event in asked if event.fn is not None]  # the others run in the browser


def first_answer(blocks: gr.Blocks) -> dict[Any, Any]:
    [event] = load_events(blocks)
    return event.fn("", SimpleNamespace(session_hash="", client=None))  # type: ignore[no-any-return]


def shown(blocks: gr.Blocks, elem_id: str) -> Any:
    """The value of a widget as the page is served."""
    [found] = [c for c in blocks.config["components"] if c["props"].get("elem_id") == elem_id]
    return found["props"]["value"]


def test_without_a_folder_for_shared_runs_none_is_offered(built: tuple[gr.Blocks, VisitStore]) -> None:
    components = built[0].config["components"]
    [share] = [c for c in components if c["props"].get("elem_id") == "kv-share"]
    assert share["props"]["visible"] is False


def test_opening_the_page_costs_one_small_event(built: tuple[gr.Blocks, VisitStore]) -> None:
    blocks, lab = built
    answer = first_answer(blocks)
    assert len(answer) <= MOST_OUTPUTS_AT_LOAD
    [(session, visit_id)] = [(w, v) for w, v in answer.items() if isinstance(w, gr.State)]
    assert lab.visit(visit_id).record is not None, "the visit holds the run that the page shows"
    sent = json.dumps([v for w, v in answer.items() if w is not session])
    assert len(sent) < MOST_BYTES_AT_LOAD
    assert lab.visit(visit_id).shown in sent, "every visit saves its run by a link of its own"


def test_the_page_is_served_with_a_finished_run_on_it(built: tuple[gr.Blocks, VisitStore]) -> None:
    blocks, _ = built
    assert "What would repair it" in shown(blocks, "kv-verdict")
    assert "kv-cell" in shown(blocks, "kv-comparison")
    assert "kv-band" in shown(blocks, "kv-strip")["html"]
    assert "tokens to read" in shown(blocks, "kv-cost")
    [picture] = shown(blocks, "kv-view-play")["views"]
    assert "<svg" in picture["html"]
    assert len(picture["html"]) < MOST_BYTES_OF_A_FIGURE


def test_no_two_visits_share_what_the_page_was_made_with(built: tuple[gr.Blocks, VisitStore]) -> None:
    blocks, lab = built
    one, two = (next(v for w, v in first_answer(blocks).items() if isinstance(w, gr.State)) for _ in range(2))
    assert one != two
    assert lab.visit(one).shown != lab.visit(two).shown
    page = json.dumps(blocks.config["components"], default=str)
    assert one not in page
    assert str(lab.visit(one).shown) not in page


def test_events_report_their_progress_to_one_widget(built: tuple[gr.Blocks, VisitStore]) -> None:
    """The client updates every widget named here, several times an event, each by a walk over the page."""
    blocks, _ = built
    assert {len(d["show_progress_on"] or d["outputs"]) for d in blocks.config["dependencies"]} == {1}


def test_what_changed_since_the_page_was_made_is_sent() -> None:
    box, other = gr.Textbox("a"), gr.Textbox("b")
    served = first_paint.props_of({box: gr.update(value="1", visible=True), other: "2"})
    now = first_paint.props_of({box: gr.update(value="1", visible=True)}, {box: gr.update(visible=False)})
    assert first_paint.missing(now, served) == {box: {"__type__": "update", "visible": False}}
    assert first_paint.missing(served, served) == {}
    first_paint.put(served)
    assert (box.value, box.visible, other.value) == ("1", True, "2")
    assert box.constructor_args["visible"] is True, "a visit's own widget is made of these"


def test_a_lab_without_a_model_still_serves_and_says_why(tmp_path: Path) -> None:
    def refuse() -> FakeModel:
        raise ModelError("There is no model here. Name another.")

    blocks, *_ = build_app(refuse, engine=FakeSession, first_run=None, gallery=tmp_path / "none.json")
    assert any("There is no model here" in str(v) for v in first_answer(blocks).values())


class Page:
    """A framework that counts how often it renders."""

    def __init__(self, status: int = 200) -> None:
        self.rendered, self.status = 0, status

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.rendered += 1
        number = self.rendered
        await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % number})


async def get(app: Any, path: str = "/", query: str = "", **headers: str) -> bytes:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http", "method": "GET", "path": path, "query_string": query.encode(), "scheme": "http",
        "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()],
    }  # fmt: skip
    await app(scope, None, send)
    return b"".join(m.get("body", b"") for m in said)


def test_the_page_is_rendered_once_for_each_address() -> None:
    async def visit() -> None:
        page = Page()
        app = IndexCache(page)
        together = await asyncio.gather(*(get(app, host="a", x_forwarded_for=str(n)) for n in range(5)))
        assert together == [b"1"] * 5
        assert await get(app, query="c=abc", host="a") == b"1"
        assert await get(app, host="b") == b"2"
        assert await get(app, host="a", x_forwarded_proto="https") == b"3"
        assert await get(app, query="deep_link=x", host="a") == b"4"
        assert await get(app, path="/config", host="a") == b"5"
        for number in range(MOST_ADDRESSES):
            await get(app, host=f"guessed-{number}")
        assert await get(app, host="a") == str(6 + MOST_ADDRESSES).encode(), "what is kept has a limit"

    asyncio.run(visit())


def test_a_failed_rendering_is_not_kept() -> None:
    async def visit() -> None:
        page = Page(status=500)
        app = IndexCache(page)
        assert [await get(app, host="a") for _ in range(2)] == [b"1", b"2"]

    asyncio.run(visit())
