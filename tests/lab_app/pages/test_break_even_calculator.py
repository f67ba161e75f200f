"""The calculator of the Timing tab: its boxes, its answers, the page around it."""

from __future__ import annotations

from typing import Any

import pytest
from fake_session import FakeModel, FakeSession

from backend.base.errors import BudgetError
from backend.records.break_even import Case
from backend.records.hardware import given_machine
from lab_app.pages.pipeline.sections.break_even import (
    HERE,
    SECTION,
    SHEET,
    first_hardware,
    hardware,
    read_case,
)
from lab_app.ui.validation import Problems
from lab_app.visits.visits import VisitStore


def asked(**changes: Any) -> dict[str, Any]:
    """The boxes as they stand at first but for these, on a data sheet's hardware."""
    return SECTION.usual | {f"pays_{name}": value for name, value in ({"hardware": SHEET} | changes).items()}


def test_boxes_become_a_case_or_messages_beside_them() -> None:
    given = asked(
        prompt=2000, shared=50, outside=10, readers=3, anchors=8, mixed=4, shape="smollm2-135m", tflops=10,
        gb_s=100,
    )  # fmt: skip
    figures, case = read_case(given, None)
    assert case == Case(2000, 1000, 100, 3, 8, 4)
    assert figures is not None
    assert figures.machine == given_machine("smollm2-135m", 10, 100)
    assert read_case(asked(hardware=HERE), None)[0] is None
    wrong = asked(
        prompt=0, shared=101, outside=None, readers=1.5, anchors="x", shape="gpt", tflops=-1,
        gb_s=float("nan"),
    )  # fmt: skip
    update = SECTION.errors(problems_of(wrong))
    said = {name: message for name, message in update.items() if message}
    assert set(said) == {
        f"error_pays_{n}"
        for n in ("prompt", "shared", "outside", "readers", "anchors", "shape", "tflops", "gb_s")
    }
    assert "allowed: 0 to 100" in said["error_pays_shared"]
    assert "is empty" in said["error_pays_outside"]
    few = SECTION.errors(problems_of(asked(anchors=3, mixed=4)))
    assert "more than the pool’s 3" in few["error_pays_mixed"]
    elsewhere = SECTION.errors(problems_of(asked(hardware="../x")))
    assert "no hardware &#x27;../x&#x27;" in elsewhere["error_pays_hardware"]


def problems_of(given: dict[str, Any]) -> Problems:
    with pytest.raises(Problems) as found:
        read_case(given, None)
    return found.value


def test_the_calculator_answers_measures_and_stays_on_its_feet() -> None:
    lab = VisitStore(FakeModel, FakeSession)
    visit = lab.open()
    shown = SECTION.edited(visit, asked())
    assert [v["key"] for v in shown["view_pays"]["views"]] == ["pays", "pays_length", "pays_part"]
    assert (shown["pays_sheet.visible"], shown["pays_measure.visible"]) == (True, False)
    wrong = SECTION.edited(visit, asked(prompt=None))
    assert "cannot be reckoned with" in wrong["view_pays"]["views"][0]["title"]
    assert "is empty" in wrong["error_pays_prompt"]
    here = asked(hardware=HERE)
    before = SECTION.edited(visit, here)
    assert before["pays_measure.visible"] is True
    assert "not been measured" in before["view_pays"]["views"][0]["title"]
    last: dict[str, Any] = {}
    for update in SECTION.measure(lab, visit, here):
        last |= update
    assert last["pays_status"] == ""
    assert "made-up" in last["view_pays"]["views"][0]["html"]
    assert visit.measuring is None
    assert "made-up" not in str(SECTION.edited(lab.open(), here)["view_pays"]), (
        "another visit measures for itself"
    )

    def breaks() -> Any:
        raise BudgetError("Two anchors take 9 MiB.")

    visit.engine.machine_figures = breaks  # type: ignore[method-assign]
    for update in SECTION.measure(lab, visit, here):
        last |= update
    assert "Two anchors" in last["error_pays_measure"]
    assert (last["pays_status"], visit.measuring) == ("", None)


def test_measured_hardware_stands_there_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = dict(map(reversed, hardware()))  # type: ignore[arg-type]
    assert {HERE, SHEET} < set(choices)
    assert choices[first_hardware()].startswith("Measured before: embedded on ")
    monkeypatch.setattr(
        "lab_app.pages.pipeline.sections.break_even.shipped", dict
    )  # as in an image that holds no measurements
    assert first_hardware() == SHEET
    assert [value for _, value in hardware()] == [HERE, SHEET]
