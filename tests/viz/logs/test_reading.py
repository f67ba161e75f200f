"""What stands on the page of a model's reading is what the record says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import tiny

from backend.records.log_reading import (
    Blamed,
    BlamedPart,
    LayoutRow,
    Proposed,
    ReadingRecord,
    ReadingRequest,
    ReadingRow,
    Refused,
)
from backend.records.request import MethodChoice
from viz.logs.reading import MOST_CHANGED, answers_html, verdict_html

NAIVE, EPIC = MethodChoice("naive"), MethodChoice("epic")


def row(n: int, method: str, flipped: bool, near: bool = False, blamed: Blamed | None = None) -> ReadingRow:
    return ReadingRow(
        f"log, line {n}", "ab"[n % 2], method, 100, 40, f"dense {n}", f"{method} {n}", flipped, near, "", "",
        0.25, 0.5, blamed=blamed,
    )  # fmt: skip


def record(naive: int, epic: int, of: int = 20, near: int = 0, blamed: Blamed | None = None) -> ReadingRecord:
    rows = [row(n, "naive", n < naive, n < near, blamed if n < naive else None) for n in range(of)]
    rows += [row(n, "epic", n < epic, n < near) for n in range(of)]
    return ReadingRecord(ReadingRequest((NAIVE, EPIC)), tiny.model().info, 50, 3, rows=tuple(rows))


def words(found: ReadingRecord) -> str:
    return " ".join(re.sub("<[^>]*>", " ", str(verdict_html(found) + answers_html(found))).split())


@pytest.mark.parametrize(
    ("found", "tone", "said"),
    [
        (record(0, 0), "same", "All of 20 answers stayed. With 95% certainty at most 17% of all calls"),
        (record(3, 0), "changed", "Copy and reposition changed 3 answers of 20; EPIC changed none. Of all "
         "calls of this kind it changes 3% to 38%, with 95% certainty. 3 of them cannot be rounding."),
        (record(1, 2), "changed", "EPIC changed 2 answers of 20."),
        (record(1, 0, near=1), "unclear", "Copy and reposition changed 1 answer of 20; EPIC changed none. Of "
         "all calls of this kind it changes 0% to 25%, with 95% certainty. 0 of them"),
        (replace(record(0, 0), rows=(), refused=(Refused("line 1", "a", "Too long."),)), "neutral",
         "No call could be read. Too long."),
    ],
)  # fmt: skip
def test_the_verdict_is_of_the_method_that_changed_most(found: ReadingRecord, tone: str, said: str) -> None:
    assert f"kv-verdict-{tone}" in verdict_html(found)
    assert said in words(found)
    assert "3 filled pools alone" in words(found)


def test_methods_agents_and_layouts_are_rows_of_their_own() -> None:
    layout = "move it"
    rows = tuple(
        LayoutRow("", "a", layout, "", True, 9, 1, "x", "y", n < 3, n < 1, kl_first=0.125) for n in range(8)
    )
    plain = record(3, 0)
    laid = replace(plain, proposed=(Proposed(layout, 30, 120, 8),), laid=rows)
    assert "Would another layout" not in words(plain)
    assert "Move it 30 (25%) 3 of 8 9% to 76% 2 0.12" in words(laid)
    assert "Copy and reposition 40% 3 of 20 3% to 38% 3" in words(plain)
    for line in ("– a 40% 2 of 10", "– b 40% 1 of 10", "EPIC 40% 0 of 20"):
        assert line in words(plain)
    alone = replace(plain, rows=tuple(replace(r, agent="a") for r in plain.rows))
    assert "– a" not in words(alone)


def test_a_changed_answer_stands_beside_denses_with_its_cause() -> None:
    part = BlamedPart("Gwen has 62 shells", 2, 5, "values")
    said = words(record(1, 0, blamed=Blamed((part,), 0.041, 4, 10)))
    assert "a under Copy and reposition log, line 0 read in full dense 0 with reuse naive 0" in said
    assert "With 4.1% of the cache from the full read its answer is back: Gwen has 62 shells" in said
    assert "(values, layers 2 to 5). Of 10 random parts as large, 4 do." in said
    assert "near tie" in words(record(1, 0, near=1))
    assert "No small part" in words(record(1, 0, blamed=Blamed()))
    assert "not searched: Only words" in words(record(1, 0, blamed=Blamed(refused="Only words")))
    many = words(record(MOST_CHANGED + 2, 0))
    assert many.count("read in full dense") == MOST_CHANGED
    assert "2 changed answers more" in many
