"""No finding says what the numbers beside it deny, over many records."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest
from fake_record import make_record
from hypothesis import given
from hypothesis import strategies as st

from backend.base.statistics import NOTHING, Share
from backend.methods.registry import method_names
from backend.records.run import RunRecord
from backend.records.sweep import Cell, SweepLine, Swept
from viz.base.theme import METHOD_NAMES, method_styles
from viz.judge.verdict_grid import _favourite
from viz.run.break_even import Line, _finding
from viz.run.cache_error import offset_by_layer
from viz.run.cache_error_facts import error_by_layer
from viz.run.divergence import kl_along_answer
from viz.studies.sweep import as_dense, sooner

CELL = Cell("math-2", "embedded", "pinned", "given", 0)
times = st.floats(0, 100)
slopes = st.sampled_from([0.0, 0.01, 0.02, 0.5])


@pytest.fixture(params=range(12), scope="module")
def record(request: pytest.FixtureRequest) -> RunRecord:
    methods = ("dense", "naive", "kvcomm", "prefix")[: 2 + request.param % 3]
    return make_record(
        layers=2 + request.param % 4, agents=2 + request.param % 2, seed=request.param, methods=methods
    )


def number_in(said: str) -> float:
    return float(re.findall(r"\d+\.\d+", said)[0])


@pytest.mark.slow
def test_the_largest_is_the_largest_of_the_table(record: RunRecord) -> None:
    for agent in record.agents:
        errors = error_by_layer(record, agent)
        worst = max(errors.rows, key=lambda r: max(r[2:]))
        assert number_in(errors.finding) == pytest.approx(max(worst[2:]), rel=0.06)
        assert f"layer {worst[1]} " in errors.finding
        assert ("keys" if worst[2] >= worst[3] else "values") in errors.finding
        offsets = offset_by_layer(record, agent)
        top = max(offsets.rows, key=lambda r: max(r[3:5]))
        assert f"layer {top[2]} " in offsets.finding
        assert number_in(offsets.finding) == pytest.approx(max(top[3:5]), rel=0.06)
        drift = kl_along_answer(record, agent)
        peak = max(drift.rows, key=lambda r: r[3])
        assert peak[2] in drift.finding


@given(times, slopes, times, slopes)
def test_length_pays_only_where_the_lines_say_so(
    here: float, each: float, there: float, dense_each: float
) -> None:
    longest = 400
    reuse, dense = Line(here, each, 4), Line(there, dense_each, 4)
    said = _finding("M", reuse, dense, longest)
    faster = here + each * longest < there + dense_each * longest
    if "takes more for each token" in said:
        assert each > dense_each
        assert not faster
    if "as much for each token" in said:
        assert each == dense_each
    if "was faster" in said or "at any length" in said:
        assert faster or here + each * longest == there + dense_each * longest
    if "does not pay" in said:
        assert not faster


def line(method: str, same: float, ratio: float) -> SweepLine:
    share = Share(same, same, same, 10)
    return SweepLine(
        CELL, "cell", method, 10, share, NOTHING, share, share, share, share, share, NOTHING, 0,
        Share(5, math.nan, math.nan, 10), Share(ratio, math.nan, math.nan, 10),
    )  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from([0.5, 0.9, 1.0]), st.floats(0.2, 3)), min_size=1, max_size=3))
@pytest.mark.slow
def test_a_sweep_calls_nothing_far_that_is_the_same_and_nothing_faster_that_is_slower(
    found: list[tuple[float, float]],
) -> None:
    lines = [line("dense", 1, 1), *(line(f"m{i}", *pair) for i, pair in enumerate(found))]
    swept = Swept("s", "s", tuple(lines), len(lines), True)
    assert ("Furthest" in as_dense(swept).finding) is any(same < 1 for same, _ in found)
    assert ("Fastest" in sooner(swept).finding) is any(ratio > 1 for _, ratio in found)


@given(st.dictionaries(st.sampled_from([1, 2, 3, None, 0]), st.integers(1, 4)))
def test_the_slot_taken_most_often_is_taken_more_often_than_any(counts: dict[int | None, int]) -> None:
    said = _favourite({"dense": Counter(counts)}, method_styles(("dense",), {}), 4)
    slots = sorted((n for slot, n in counts.items() if slot), reverse=True)
    assert ("most often" in said) is (bool(slots) and (len(slots) < 2 or slots[0] > slots[1]))


def test_every_method_has_its_name_in_figures() -> None:
    assert set(method_names()) <= METHOD_NAMES.keys()
