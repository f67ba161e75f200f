"""The Agent loop page without a browser: questions, messages, episodes turn by turn, and a turn's figures."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import tiny
from fake_session import FakeModel, FakeSession

from backend.base.errors import LabError
from backend.prompts.template import QUESTION
from backend.records.agent_loop import LoopRequest
from lab_app.pages import registry as pages
from lab_app.pages.agent_loop import page as agent_loop
from lab_app.visits.visits import Visit, VisitStore

METHODS = ["prefix", "naive"]


def given(visit: Visit, **changes: Any) -> dict[str, Any]:
    asked = agent_loop.state_of(visit).example
    question = asked.values[QUESTION] if asked else "How much are pens?"
    return {"question": question, "methods": METHODS, "options": {}, "mode": "pinned", "turns": 3} | changes


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of a few tokens: a random model never stops by itself."""
    monkeypatch.setattr(agent_loop, "LoopRequest", partial(LoopRequest, max_new_tokens=6))


@pytest.fixture(scope="module")
def lab() -> VisitStore:
    return VisitStore(tiny.model, tiny.lab)


@pytest.fixture
def visit(lab: VisitStore) -> Visit:
    found = lab.open()
    agent_loop.next_example(found, {})
    return found


def merged(updates: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for update in updates:
        out |= update
    return out


def test_the_page_is_registered() -> None:
    assert agent_loop.PAGE in pages.PAGES
    assert "#kv-page-loop" in pages.stylesheet()


def test_next_goes_through_the_set_with_known_answers(visit: Visit) -> None:
    first = agent_loop.state_of(visit).example
    assert first is not None
    assert first.answer is not None
    assert agent_loop.read(visit, given(visit)).expected == first.answer
    assert first.answer in agent_loop.refresh(visit, given(visit))["expected"]
    assert agent_loop.read(visit, given(visit, question="What do dragons cost?")).expected is None
    assert agent_loop.refresh(visit, given(visit, question="What do dragons cost?"))["expected"] == ""
    assert agent_loop.next_example(visit, {})["question"] != first.values[QUESTION]


BAD = {
    "no question": ({"question": " "}, "question", "The question is empty"),
    "an odd character": ({"question": "a\x00"}, "question", "NUL"),
    "one turn": ({"turns": 1}, "turns", "allowed: 2 to 12"),
    "no number": ({"turns": "many"}, "turns", "allowed: 2 to 12"),
    "nothing": ({"turns": None}, "turns", "empty"),
    "no such method": ({"methods": ["magic"]}, "methods", "magic"),
    "an option": (
        {"methods": ["kvcomm"], "options": {"kvcomm": {"gamma": 7}}}, "methods", "allowed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_beside_its_place(name: str) -> None:
    lab = VisitStore(FakeModel, FakeSession)
    visit = lab.open()
    changes, slot, said = BAD[name]
    sent = given(visit, **changes)
    for update in (agent_loop.refresh(visit, sent), merged(agent_loop.run(lab, visit, sent))):
        assert said.lower() in update["errors"][slot].lower()
        assert "question" not in update, "typed text must stay"
    assert visit.engine.requests == []  # type: ignore[attr-defined]
    assert visit.cancel is None


def test_turns_appear_one_by_one_and_stay(lab: VisitStore, visit: Visit) -> None:
    updates = list(agent_loop.run(lab, visit, given(visit)))
    seen = [u["turns_shown"].count("kv-loop-turn") for u in updates if "turns_shown" in u]
    assert seen == sorted(seen)
    assert set(seen) >= {1, 2, 3}
    last = merged(updates)
    assert last["run.visible"] is True
    assert last["turn.choices"] == [("Turn 1", 1), ("Turn 2", 2), ("Turn 3", 3)]
    assert last["turn"] == 3
    assert last["closer-row.visible"] is True
    for word in ("exact-local", "semantic", "computed"):
        assert f"kv-prov-{word}" in last["turns_shown"]
    assert len(last["figures"]["views"]) == 5
    assert "Observation 1" in last["turns_shown"]
    assert agent_loop.refresh(visit, given(visit))["status"] == ""
    assert "Edited" in agent_loop.refresh(visit, given(visit, turns=4))["status"]
    asked = given(visit)
    agent_loop.next_example(visit, {})
    assert agent_loop.refresh(visit, asked)["status"] == "", "only its known answer is gone"
    assert agent_loop.open_in_pipeline(visit, {})["results.visible"] is True


def test_a_turn_is_looked_at(lab: VisitStore, visit: Visit) -> None:
    list(agent_loop.run(lab, visit, given(visit)))
    found = agent_loop.show_turn(visit, {"turn": 2})
    keys = [view["key"] for view in found["turn-figures"]["views"]]
    assert keys[0] == "loop_fragments"
    assert {"ttft"} < set(keys)
    assert 'data-agent="2"' in found["strip"]["html"]
    for wrong in (9, "x", None, [1]):
        with pytest.raises(LabError, match="There is no turn"):
            agent_loop.show_turn(visit, {"turn": wrong})
    visit.records.clear()
    assert "no longer" in agent_loop.show_turn(visit, {"turn": 1})["status"]
    assert "no longer" in agent_loop.open_in_pipeline(visit, {})["status"]


@pytest.mark.slow
def test_episodes_add_up_until_the_methods_change(lab: VisitStore, visit: Visit) -> None:
    def so_far(**changes: Any) -> int:
        last = merged(agent_loop.run(lab, visit, given(visit, turns=2, **changes)))
        found = re.search(r">(\d+) episode", last["so-far"])
        assert found
        return int(found[1])

    assert so_far() == 1
    agent_loop.next_example(visit, {})
    assert so_far() == 2
    assert so_far(mode="free") == 3
    assert agent_loop.open_in_pipeline(visit, {})["status"], (
        "a free-running episode is not whole on the other page"
    )
    assert so_far(methods=["naive"]) == 1
