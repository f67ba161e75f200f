"""The section that asks which part of the cache changed an answer: from the boxes to the figure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
import tiny

from backend.lab import Lab
from backend.model.load import LoadedModel
from backend.records.blame import exact_text
from backend.session.session import LabSession
from lab_app.pages.pipeline.method_options import read_copies
from lab_app.pages.pipeline.sections import blame
from lab_app.visits.visits import Visit, VisitStore


@pytest.fixture(scope="module")
def visit(tiny_model: LoadedModel) -> tuple[VisitStore, Visit]:
    session = LabSession(tiny_model)
    lab = VisitStore(lambda: tiny_model, lambda _: Lab(session))  # type: ignore[arg-type, return-value]
    return lab, lab.open()


def said(steps: Iterator[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for step in steps for name, value in step.items()}


def given(**changes: Any) -> dict[str, Any]:
    boxes = {"blame_most_parts": 2, "blame_passes": 60, "blame_draws": 3}
    return boxes | {"pick_agent": "3", "pick_method": "naive"} | changes


def test_without_a_run_there_is_nothing_to_look_into(visit: tuple[VisitStore, Visit]) -> None:
    lab, who = visit
    assert "no run" in said(blame.SECTION.measure(lab, who, given()))["error_blame_measure"]


@pytest.mark.slow
def test_the_chosen_agent_is_looked_into(visit: tuple[VisitStore, Visit]) -> None:
    lab, who = visit
    engine: Any = who.engine
    record = tiny.run(engine.session, tiny.request())
    who.records["now"], who.shown = record, "now"
    update = said(blame.SECTION.measure(lab, who, given()))
    found = who.result("blame")
    assert (found.request.agent, found.request.method, found.request.passes) == (3, "naive", 60)
    assert f"lab/measured/blame/{who.results['blame'].token}" in update["blame_status"]
    [view] = update["view_blame"]["views"]
    assert "%" in str(view) or "No set of at most 2 parts" in str(view)
    dense = said(blame.SECTION.measure(lab, who, given(pick_method="dense")))
    assert "can be looked into" in dense["error_blame_measure"]
    wrong = said(blame.SECTION.measure(lab, who, given(blame_passes=1)))
    assert "50 to 5000" in wrong["error_blame_passes"]


def test_what_was_found_can_become_a_column(visit: tuple[VisitStore, Visit]) -> None:
    """The button says which column, and the page's own reader takes it as it was meant."""
    lab, who = visit
    engine: Any = who.engine
    record = tiny.run(engine.session, tiny.request())
    who.records["now"], who.shown = record, "now"
    shown = said(blame.SECTION.measure(lab, who, given(blame_passes=300)))["blame_status"]
    found = who.result("blame")
    assert "Judge under Copy and reposition" in shown
    [column] = re.findall('data-act="repair" data-label="naive" data-column="([^"]*)"', shown)
    [read] = read_copies([{**json.loads(unescape(column)), "number": 2}])
    assert read["exact"] == exact_text(3, found.found.parts)
    assert read["values"]["naive:prefix_base"] == "template"
    nothing = replace(found, found=None)
    assert not blame.repair_button(nothing)
