"""Answers touch only the widgets that they name, and are those of the framework."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from gradio.state_holder import SessionState

from lab_app.ui.blocks import UNREAD, UNREAD_PROPS, LabBlocks


def page(kind: type[gr.Blocks]) -> tuple[gr.Blocks, list[Any], Any]:
    with kind(analytics_enabled=False) as blocks:
        boxes = [gr.Textbox(label=str(n)) for n in range(4)] + [gr.HTML(), gr.Button("Run")]
        boxes[5].click(lambda: None, None, boxes, api_visibility="private")
    return blocks, boxes, next(iter(blocks.fns.values()))


@pytest.mark.parametrize(
    "named",
    [
        {0: "a"},
        {4: "<p>x</p>", 1: gr.update(visible=False)},
        {5: gr.update(value="Stop", interactive=False), 2: "b", 3: None},
        {n: str(n) for n in range(6)},
        {},
    ],
)
@pytest.mark.slow
def test_the_answer_is_the_frameworks_own(named: dict[int, Any]) -> None:
    answers = []
    for kind in (gr.Blocks, LabBlocks):
        blocks, boxes, event = page(kind)
        given = {boxes[n]: value for n, value in named.items()} or gr.skip()
        given = copy.deepcopy(given) if given == gr.skip() else {w: copy.copy(v) for w, v in given.items()}
        answers.append(asyncio.run(blocks.postprocess_data(event, given, SessionState(blocks))))
    for found in (*answers[0], *answers[1]):
        if isinstance(found, dict) and found.get("props") == gr.skip():
            del found["props"]  # what the framework says of HTML that it leaves as it is
    assert answers[0] == answers[1]
    assert len(answers[1]) == 6


def test_what_is_not_named_is_not_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks, boxes, event = page(LabBlocks)
    state = SessionState(blocks)
    made: list[str] = []
    monkeypatch.setattr(gr.Textbox, "postprocess", lambda self, value: made.append(self.label) or value)
    init = gr.Textbox.__init__
    monkeypatch.setattr(gr.Textbox, "__init__", lambda self, **k: (made.append("anew"), init(self, **k))[1])
    asyncio.run(blocks.postprocess_data(event, {boxes[1]: "x", boxes[4]: "y"}, state))
    assert made == ["1"]


@pytest.mark.parametrize(
    "path", ["http://example.com/x", " HTTPS://10.0.0.1/", "ftp://x", "//example.com/x", "data:,x"]
)
def test_an_address_is_no_file(path: str) -> None:
    blocks, _, event = page(LabBlocks)
    event.inputs = event.outputs[:2]
    for given in ({"path": path, "meta": {"_type": "gradio.FileData"}}, {"value": [{"path": path}]}):
        with pytest.raises(gr.Error, match="does not fetch addresses"):
            asyncio.run(
                blocks.preprocess_data(event, ["text http://example.com", given], SessionState(blocks))
            )
    assert asyncio.run(blocks.preprocess_data(event, ["http://example.com", "x"], SessionState(blocks)))


def test_no_message_of_a_run_is_made_of_edits_in_the_one_before() -> None:
    """The browser would lose of a fast run what it has not drawn yet: each message holds whole values."""
    blocks, _, event = page(LabBlocks)
    skip: dict[str, Any] = {"__type__": "update"}
    sent: list[list[Any]] = [
        [{**skip, "value": "rows"}, {**skip, "value": "verdict"}, skip, skip, skip, skip],
        [skip, {**skip, "value": "verdict, and more"}, skip, {**skip, "visible": True}, skip, skip],
    ]
    told: list[Any] = [[] for _ in sent[0]]
    for number, message in enumerate(sent):
        found = blocks.handle_streaming_diffs(
            event, copy.deepcopy(message), session_hash="s", run="r", final=False, simple_format=False
        )
        if number == 0:
            told = found
            continue
        for place, edits in enumerate(found):
            assert not edits or [edit[:2] for edit in edits] == [["replace", []]]
            told[place] = edits[0][2] if edits else told[place]
    assert told == sent[1]
    last = blocks.handle_streaming_diffs(event, [None] * 6, session_hash="s", run="r", final=True)
    assert last == sent[1]


def test_the_frameworks_client_reads_nothing_of_what_is_left_out() -> None:
    """Its scripts are minified, but names of properties stay. Where one comes up, it is asked for here."""
    folder = Path(gr.__file__).parent / "templates" / "frontend" / "assets"
    kinds = ("core", "Blocks", "HTML", "Index", "Button", "Dropdown", "index")
    scripts = [path for path in folder.glob("*.js") if path.name.split("-")[0] in kinds]
    assert len(scripts) > 50, "the framework keeps its scripts elsewhere now"
    read = {name for path in scripts for name in ("example_inputs", "skip_api", "preserved_by_key")
            if name in path.read_text(encoding="utf-8")}  # fmt: skip
    assert not read
    assert {"example_inputs", "skip_api"} < set(UNREAD)
    core = next(path for path in scripts if path.name.startswith("core-")).read_text(encoding="utf-8")
    assert not any(name in core for name in (*UNREAD_PROPS, "api_info"))
    assert "component_class_id||" in core, "without an id, a component is found by its type"
