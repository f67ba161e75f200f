"""The judge that reads densely where two verdicts disagree, counted by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_record import make_model

from backend.records.disagreement import disagreement, disagreement_rows
from backend.records.judge import Candidate, Judged, JudgedProblem, JudgeOutcome, JudgeProblem, JudgeRequest
from backend.records.request import MethodChoice
from backend.records.risk import GateTest, RiskRecord, RiskRequest
from backend.records.risk_gate import EVERY, TEXT_FEATURES

DENSE = (1, 1, 1, 1, None)  # the last one cannot be read, so its problem does not count
FIRST = (1, 2, 2, None, 1)
SECOND = (1, 2, 1, None, 2)


def outcome(problem: int, order: str, method: str, selected: int | None, tokens: int) -> JudgeOutcome:
    fields: dict[str, Any] = dict.fromkeys(JudgeOutcome.__dataclass_fields__)
    dense = DENSE[problem - 1]
    fields |= {
        "problem": problem, "order": order, "method": method, "forwarded_tokens": tokens,
        "selected": None if selected is None else (selected,),
        "consistent": None if dense is None else selected == dense,
    }  # fmt: skip
    return JudgeOutcome(**fields)


def judged(orders: tuple[str, ...] = ("identity",)) -> Judged:
    rows = []
    for number in range(1, 6):
        made = []
        for order in orders:
            first, second = (FIRST, SECOND) if order == "identity" else (SECOND, FIRST)
            made += [
                outcome(number, order, "dense", DENSE[number - 1], 100),
                outcome(number, order, "a", first[number - 1], 20),
                outcome(number, order, "b", second[number - 1], 30),
            ]
        rows.append(JudgedProblem("", JudgeProblem(number, "?", (Candidate("x", "1"),)), tuple(made)))
    return Judged(JudgeRequest(methods=(MethodChoice("naive"),)), make_model(6), tuple(rows))


def test_two_methods_are_counted() -> None:
    [line] = disagreement(judged())
    assert line.verdicts == (("identity", "a"), ("identity", "b"))
    assert (line.dense.value, line.dense.of) == (0.5, 4)
    assert (line.jcr.value, line.flips) == (0.75, 1), "both were wrong alike once"
    assert line.cost == pytest.approx(0.2 + 0.3 + 0.5)
    assert (line.alone, line.alone_cost) == (0.5, 0.3)
    assert line.at_random == pytest.approx(1 - 0.5 * 0.3)
    assert line.trained is None
    assert len(disagreement_rows([line])[1]) == len(disagreement_rows([line])[0])


def test_two_orders_of_one_method_are_counted_in_the_first() -> None:
    lines = {line.verdicts: line for line in disagreement(judged(("identity", "shuffle 0")))}
    assert len(lines) == 2 + 2
    line = lines[("identity", "a"), ("shuffle 0", "a")]
    assert line.flips == 1
    assert line.cost == pytest.approx(0.2 + 0.2 + 0.5)


def test_a_trained_gate_stands_beside_it_at_its_cost() -> None:
    same = np.array([[True, True], [False, False], [False, True], [False, False]])
    flat = np.zeros(4)

    def test(target: str, score: list[float]) -> GateTest:
        every = np.ones(4, dtype=bool)
        nothing = math.nan
        known: Any = object()
        return GateTest(
            target, tuple(TEXT_FEATURES), every, every, np.array(score), flat.astype(np.int64), nothing,
            nothing, nothing, known,
        )  # fmt: skip

    study = RiskRecord(
        RiskRequest(), make_model(6), ("1", "2", "3", "4"), ("a", "b"), same, np.ones((4, 2)),
        (test(EVERY, [0.0] * 4), test("a", [0.0] * 4), test("b", [0.1, 0.9, 0.2, 0.3])), 0.0,
    )  # fmt: skip
    [line] = disagreement(judged(), study)
    # 0.7 dense reads: one set of four is kept, the most trusted one, which is wrong.
    assert line.trained == pytest.approx(0.75)
    better = replace(study, tests=(*study.tests[:2], test("b", [0.9, 0.1, 0.2, 0.3])))
    assert disagreement(judged(), better)[0].trained == 1.0


def test_nothing_readable_is_no_line() -> None:
    rows = judged().rows[4:]
    assert disagreement(replace(judged(), rows=rows)) == ()
