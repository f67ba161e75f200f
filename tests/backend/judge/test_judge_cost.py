"""What judging is foreseen to take, beside what it then reads and writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.judge.cost import BATCH, CANDIDATE, READING, judging_seconds
from backend.judge.judge_lab import JudgeLab
from backend.lab import Lab
from backend.model.load import LoadedModel
from backend.records.judge import Candidate, JudgeProblem, JudgeRequest, Order
from backend.records.request import Decoding, MethodChoice
from backend.session.session import LabSession
from backend.sweeps.page_sweep import SweepDesk

READ, STEP = (1.0, 0.0), (0.0, 1.0)  # as if tokens, or steps, took all the time
TEXTS = ("36. The answer is 36", "41. The answer is 41", "7. The answer is 7")
PROBLEM = JudgeProblem(
    1, "What is 30 + 6?", tuple(Candidate(t, f"agent {i}") for i, t in enumerate(TEXTS, 1))
)
REQUEST = JudgeRequest(
    "parallel", (PROBLEM,), 1, candidates=3, orders=(Order(), Order("shuffle", 0)),
    methods=(MethodChoice("dense"), MethodChoice("naive")), max_new_tokens=4, sampling=Decoding(4),
)  # fmt: skip


@pytest.mark.parametrize("protocol", ["joint", "pairwise", "rewriting"])
def test_what_is_read_is_what_is_foreseen(tiny_model: LoadedModel, protocol: Any) -> None:
    asked = replace(REQUEST, protocol=protocol)
    judged = JudgeLab(tiny_model, orders=2).judged(replace(PROBLEM, regime="typed"), asked)
    read = sum(outcome.prompt_tokens for outcome in judged.outcomes)
    assert judging_seconds(tiny_model, asked, PROBLEM, READ) == pytest.approx(READING * read, rel=0.02)


def test_steps_are_those_of_the_batches(tiny_model: LoadedModel) -> None:
    def steps(request: JudgeRequest, problem: JudgeProblem = PROBLEM, **more: int) -> float:
        return judging_seconds(tiny_model, request, problem, STEP, **more)

    assert steps(REQUEST) == BATCH * 4
    assert steps(replace(REQUEST, methods=(), orders=(Order(),))) == 4, "one row is no batch"
    assert steps(replace(REQUEST, protocol="pairwise")) == 3 * BATCH * 4
    many = tuple(Order("shuffle", seed) for seed in range(25))
    assert steps(replace(REQUEST, orders=many)) == 2 * BATCH * 4, "50 rows are two batches"
    assert steps(REQUEST, count=5, taken_in=7) == 5 * BATCH * 4, "candidates that are there are not written"
    bare = replace(PROBLEM, candidates=())
    assert steps(REQUEST, bare) == BATCH * 4 + 3 * 4
    assert steps(REQUEST, bare, count=5, taken_in=7) == 5 * BATCH * 4 + 12 * 3 * 4
    assert steps(replace(REQUEST, sampling=Decoding(500)), bare) == BATCH * 4 + 3 * CANDIDATE


def test_who_reads_the_others_reads_more(tiny_model: LoadedModel) -> None:
    def read(regime: Any, longest: int) -> float:
        asked = replace(REQUEST, sampling=Decoding(longest))
        return judging_seconds(tiny_model, asked, replace(PROBLEM, candidates=(), regime=regime), READ)

    alone, chain = (read(regime, 40) - read(regime, 4) for regime in ("parallel", "progressive"))
    assert chain - alone == pytest.approx(36 * (0 + 1 + 2)), "each reads the answers of those before it"


@pytest.mark.slow
def test_a_sweep_foresees_its_judges(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    calls: list[tuple[int, int, int]] = []

    def judging(request: JudgeRequest, count: int, taken_in: int) -> float:
        calls.append((len(request.methods), count, taken_in))
        return Lab(session).estimate_judging(request, count, taken_in)

    desk = SweepDesk(tiny_model, session.estimate, judging, 64 << 20)
    text = (
        "name: j\ntasks: [{judge: {regime: parallel, candidates: 2, orders: [identity], answer_tokens: 3, "
        "max_new_tokens: 3}}]\nmethods: [dense, naive]\nproblems: 2\nwarmup: 1\n"
    )
    first = desk.plan(text, "").seconds
    assert first is not None
    assert first > 0
    assert calls == [(2, 2, 1)]
    list(desk.run(text, ""))
    assert desk.plan(text, "").seconds == 0
    desk.plan(text.replace("problems: 2", "problems: 5"), "")
    assert calls[1:] == [(2, 3, 3)], "what is done is taken in again"
