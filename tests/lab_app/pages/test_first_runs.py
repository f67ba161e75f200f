"""What a first visit finds on the pages beside Compare: finished runs that Run repeats, verdict first."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_session import FakeModel, FakeSession
from own_scripts import script

from backend.records.request import Mode
from lab_app.app import FIRST_RUN
from lab_app.pages.agent_loop import page as loop
from lab_app.pages.documents import page as documents
from lab_app.pages.judge import page as judge
from lab_app.pages.judge.layout import METHODS_AT_FIRST
from lab_app.pages.sweeps import page as sweeps
from lab_app.ui import text
from lab_app.ui.first_runs import KINDS, first_run
from lab_app.visits.visits import VisitStore
from viz.base.format import milliseconds
from viz.run.facts import facts

FOLDER = FIRST_RUN.parent / "pages"
#: What stands on the pages at first, beside what they are told on arrival.
GIVEN: dict[str, Any] = {
    "options": {}, "mode": "pinned", "turns": loop.TURNS_AT_FIRST, "criterion": "right", "protocol": "joint",
    "slots_only": False, "order": "shuffle", "shuffles": 1, "seed": 0, "repair": False, "gated": False,
    "budget": 25,
    "warm": 4, "own_numbers": False, "source": "typed", "temperature": 1, "lines": "",
}  # fmt: skip
MODULES = {"documents": documents, "loop": loop, "judge": judge}
AT_FIRST = {name: getattr(module, "METHODS_AT_FIRST", METHODS_AT_FIRST) for name, module in MODULES.items()}


def arrived(name: str, folder: Path | None = FOLDER) -> tuple[Any, Any, dict[str, Any]]:
    lab = VisitStore(FakeModel, FakeSession)
    lab.first_runs = folder
    visit = lab.open()
    if name == "sweep":
        return lab, visit, sweeps.arrive(lab, visit)
    page: Any = SimpleNamespace(lab=lab)
    return lab, visit, MODULES[name].arrive(page, visit)


@pytest.mark.parametrize("name", KINDS)
def test_a_first_visit_finds_a_finished_run(name: str) -> None:
    assert first_run(FOLDER, name) is not None, "renew it with scripts/record_pages.py"
    _, _, update = arrived(name)
    assert "kv-verdict-sentence" in update["verdict"]
    assert "kv-verdict-empty" not in update["verdict"]
    for missing in (None, Path("/nowhere")):
        assert "verdict" not in arrived(name, missing)[2]


@pytest.mark.parametrize("name", MODULES)
def test_run_repeats_it_and_an_edit_says_that_it_is_old(name: str) -> None:
    module = MODULES[name]
    _, visit, update = arrived(name)
    given = GIVEN | {"methods": AT_FIRST[name]} | update
    assert text.FIRST_RUN_HERE in module.refresh(visit, given)["status"]
    assert 'data-state="edited"' in module.refresh(visit, given | {"question": "Who eats rice?"})["status"]


@pytest.mark.parametrize("name", MODULES)
def test_the_program_that_renews_them_asks_for_one_example_after_the_other(name: str) -> None:
    """An untouched page's request, as :mod:`scripts.record_pages` makes it."""
    first, second = script("record_pages").requests_of(MODULES[name], 2, AT_FIRST[name])
    assert first != second


def test_the_saved_sweep_is_of_the_text_that_stands_there() -> None:
    _, visit, update = arrived("sweep")
    assert text.FIRST_RUN_HERE in update["status"]
    assert [view["key"] for view in update["figures"]["views"]][:2] == ["sweep_right", "sweep_as_dense"]
    assert sweeps.refresh(visit, {"text": sweeps.SMALL, "lines": ""}).get("status", "") == ""
    assert 'data-state="edited"' in sweeps.refresh(visit, {"text": "name: x", "lines": ""})["status"]


@pytest.mark.parametrize("mode", ["pinned", "free"])
def test_an_episode_has_a_verdict_also_where_some_ended_earlier(mode: Mode) -> None:
    record = first_run(FOLDER, "loop")
    cut = tuple(o for o in record.outcomes if (o.agent, o.method) != (record.agents[-1], "naive"))
    request = dataclasses.replace(record.request, mode=mode)
    for outcomes in (record.outcomes, cut):
        said = loop.verdict_of(dataclasses.replace(record, outcomes=outcomes, request=request))
        assert "kv-verdict-head" in said
    assert f"after {len(record.agents) - 1} turn" in said


def test_times_are_told_the_first_time_and_once_cached() -> None:
    record = first_run(FOLDER, "documents")
    timing = record.outcome(record.agents[-1], "naive").timing
    cached = milliseconds(timing.ttft_ms - timing.parts_ms["base"])
    [said] = [point for point in facts(record) if "first token" in point]
    assert f"Copy and reposition {cached} once cached" in said
    assert f"{milliseconds(timing.ttft_ms)} the first time" in said
    known = dataclasses.replace(timing, parts_ms={k: v for k, v in timing.parts_ms.items() if k != "base"})
    outcomes = tuple(dataclasses.replace(o, timing=known) for o in record.outcomes)
    assert not any("once cached" in point for point in facts(dataclasses.replace(record, outcomes=outcomes)))
