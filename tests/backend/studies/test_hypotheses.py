"""The hypotheses of segment reuse: the experiment on the tiny model, verdicts on made-up numbers."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backend.base.errors import OptionError
from backend.cache.kv_cache import KVSegment
from backend.methods.plan import Plan, Reuse, Step
from backend.methods.registry import make_options
from backend.model.load import LoadedModel
from backend.records.events import Progress
from backend.records.hypotheses import (
    BASE,
    KEPT,
    SKIPPED,
    HypothesesRecord,
    HypothesesRequest,
    LiveStep,
    LoneGraft,
    Moved,
    PinnedStep,
    Rerun,
    Setting,
    settings_of,
)
from backend.records.hypothesis_verdicts import precision_recall, verdicts
from backend.records.request import MethodChoice
from backend.studies.episodes import copied, entropy, levenshtein
from backend.studies.hypotheses import _options, hypotheses, moved_keys

METHODS = (
    MethodChoice("dense"),
    MethodChoice("prefix"),
    MethodChoice("segments", {"minimum_tokens": 8, "window_tokens": 16, "halo": 2}, "segments"),
)
REQUEST = HypothesesRequest(
    methods=METHODS, episodes=2, turns=3, memory=2, max_new_tokens=6, reruns=1, candidates=2, grid="none"
)


@pytest.fixture(scope="module")
def measured(
    tiny_model: LoadedModel, tmp_path_factory: pytest.TempPathFactory
) -> tuple[HypothesesRecord, Path]:
    path = tmp_path_factory.mktemp("hypotheses") / "out.rows.jsonl"
    *_, record = hypotheses(tiny_model, REQUEST, path)
    assert isinstance(record, HypothesesRecord)
    return record, path


@pytest.mark.slow
def test_the_record_holds_every_turn_of_every_method(measured: tuple[HypothesesRecord, Path]) -> None:
    record, path = measured
    assert len(path.read_text().splitlines()) == 2
    for episode in range(2):
        for choice in METHODS:
            steps = [s for s in record.live if (s.episode, s.method) == (episode, choice.label)]
            assert [s.turn for s in steps] == list(range(1, len(steps) + 1))
            assert [s.correct is None for s in steps] == [True] * (len(steps) - 1) + [False]
            for s in steps:
                assert s.exact_tokens + s.grafted_tokens < s.prompt_tokens
                if choice.name == "prefix":
                    assert s.exact_tokens == round(s.skipped * s.prompt_tokens)
    dense, prefix = ([s for s in record.live if s.method == m] for m in ("dense", "prefix"))
    assert [s.prompt_tokens for s in dense] == [s.prompt_tokens for s in prefix], (
        "an exact cache changes no text"
    )
    assert sum(s.exact_tokens for s in prefix) > sum(s.exact_tokens for s in dense) == 0
    assert {s.setting for s in record.pinned} == {BASE}
    assert {r.method for r in record.reruns} == {c.label for c in METHODS}
    assert all(s.along is not None and s.along >= 0 for s in record.pinned)
    assert all(c.along is not None and c.kept is not None for c in record.candidates)
    first, second, *_ = record.reruns
    assert (first.distance, first.entropy) == (second.distance, second.entropy)
    assert HypothesesRecord.from_bytes(record.to_bytes()) == record


@pytest.mark.slow
def test_a_killed_experiment_goes_on(
    tiny_model: LoadedModel, measured: tuple[HypothesesRecord, Path], tmp_path: Path
) -> None:
    _, path = measured
    first, second = path.read_text().splitlines()
    torn = tmp_path / "torn.rows.jsonl"
    torn.write_text(first + "\n" + second[:50])
    *_, again = hypotheses(tiny_model, REQUEST, torn)
    assert isinstance(again, HypothesesRecord)
    one, two = torn.read_text().splitlines()
    assert one == first
    for name in ("pinned", "candidates", "reruns"):
        assert json.loads(two)[name] == json.loads(second)[name], "stores are what they would have been"
    whole = list(hypotheses(tiny_model, REQUEST, torn))
    assert not any(isinstance(e, Progress) for e in whole), "nothing is left to do"


def test_what_segment_reuse_has_in_common_is_no_other_methods() -> None:
    """The prefix cache has a shortest length of its own."""
    request = HypothesesRequest(common={"minimum_tokens": 12, "maximum_tokens": 256, "window_tokens": 32})
    prefix, segments = (_options(choice, request) for choice in request.methods[1:3])
    assert prefix == make_options("prefix", {})
    assert (segments.minimum_tokens, segments.window_tokens) == (12, 32)  # type: ignore[attr-defined]
    with pytest.raises(OptionError, match="no option 'longest'"):
        _options(request.methods[2], replace(request, common={"longest": 3}))


def test_keys_move(tiny_model: LoadedModel) -> None:
    found = moved_keys(tiny_model)
    assert [m.shift for m in found] == [1, 16, 64, 256]
    assert max(m.error for m in found) < 1e-4


# -- verdicts


def made(**changes: Any) -> HypothesesRecord:
    """A record of forty episodes that supports everything, but that the probe caps something."""
    setting = Setting(KEPT, 0.5)
    live = [
        LiveStep(
            e,
            m,
            1,
            100,
            0,
            60 if m == "segments" else 0,
            0.6,
            "partial",
            1.0,
            ms + e % 3,
            10.0,
            e % 2 == 0,
        )
        for e in range(40)
        for m, ms in (("dense", 90.0), ("segments", 40.0))
    ]
    pinned = [
        PinnedStep(e, 1, s, 100, 0, 60, (0.01, 0.03), 0.02, 0.5) for e in range(40) for s in (BASE, setting)
    ]
    good = [LoneGraft(e, 1, 0.9, 0.9, 40, 0.01, 0.01) for e in range(40)]
    record = HypothesesRecord(
        REQUEST, tiny_info(), 1e-3, tuple(live), tuple(pinned), tuple(good),
        tuple(Rerun(0, m, 80.0, 0.2, 0.1) for m in ("dense", "segments")), (Moved(1, 1e-6), Moved(64, 1e-5)),
    )  # fmt: skip
    return replace(record, **changes)


def tiny_info() -> Any:
    import tiny

    return tiny.model().info


def words(record: HypothesesRecord) -> list[str]:
    return [v.word for v in verdicts(record)]


@pytest.mark.parametrize(("ms", "word"), [(69.0, "supported"), (75.0, "refuted"), (85.0, "refuted")])
def test_h1_asks_for_a_fifth_of_the_time(ms: float, word: str) -> None:
    """Of 91 ms a turn a fifth is 18."""
    live = tuple(replace(s, ttft_ms=90.0 if s.method == "dense" else ms, decode_ms=1.0) for s in made().live)
    assert words(replace(made(), live=live))[0] == word


@pytest.mark.parametrize("measure", ["last", "along"])
def test_h3_is_not_decided_where_nothing_moves_the_turn(measure: str) -> None:
    still = tuple(replace(c, **{measure: 1e-6}) for c in made().candidates)
    [h3] = [v for v in verdicts(replace(made(), candidates=still)) if v.name == "H3"]
    assert h3.word == "undecided"
    assert "tells nothing apart" in h3.reason


@pytest.mark.parametrize(("along", "kept"), [(0.5, True), (0.01, False)])
def test_h3_asks_for_the_turn_and_not_for_its_first_word(along: float, kept: bool) -> None:
    """The first word of a turn is fixed by the format, whatever was copied."""
    lost = tuple(replace(c, last=1e-6, along=along, kept=kept) for c in made().candidates)
    assert words(replace(made(), candidates=lost))[2] == "refuted"
    same = tuple(replace(c, along=0.01, kept=True) for c in lost)
    assert words(replace(made(), candidates=same))[2] == "supported"


def test_h4_is_open_where_the_probe_had_nothing_to_cap() -> None:
    [*_, h4] = verdicts(made())
    assert h4.word == "undecided"
    assert "nothing to cap" in h4.reason
    unseen = tuple(replace(s, last=1e-6, along=5.0) if s.episode == 3 else s for s in made().pinned)
    assert words(replace(made(), pinned=unseen))[3] == "refuted", "the turn is moved, its first word is not"


def test_good_numbers_support_and_bad_ones_refute() -> None:
    record = made()
    assert words(record) == ["supported"] * 3 + ["undecided"]
    slow = tuple(replace(s, ttft_ms=s.ttft_ms + 40) if s.method == "segments" else s for s in record.live)
    assert words(replace(record, live=slow))[0] == "refuted"
    wrong = tuple(replace(s, correct=False) if s.method == "segments" else s for s in record.live)
    assert words(replace(record, live=wrong))[0] == "refuted"
    some = tuple(
        replace(s, correct=False) if s.method == "segments" and s.episode in (0, 2) else s
        for s in record.live
    )
    assert words(replace(record, live=some))[0] == "undecided"
    far = tuple(replace(s, boundary=(0.5,)) for s in record.pinned)
    assert words(replace(record, pinned=far))[1] == "refuted"
    skipped = tuple(replace(s, setting=replace(s.setting, form=SKIPPED)) for s in far) + record.pinned
    assert words(replace(record, pinned=skipped))[1] == "supported", "the exhibit decides nothing"
    bare = tuple(replace(s, setting=replace(s.setting, halo=0)) for s in far) + record.pinned
    assert words(replace(record, pinned=bare))[1] == "supported", "grafts without a halo are not asked"
    mixed = tuple(replace(s, boundary=(0.0 if s.episode % 2 else 0.2,)) for s in record.pinned)
    assert words(replace(record, pinned=mixed))[1] == "undecided"
    few = tuple(replace(c, last=0.5) if c.episode % 2 else c for c in record.candidates)
    assert words(replace(record, candidates=few))[2] == "refuted"
    most = tuple(replace(c, last=0.5) if c.episode < 10 else c for c in record.candidates)
    assert words(replace(record, candidates=most))[2] == "undecided", "75% (60 to 86) holds the limit"
    behind = tuple(replace(c, context=0.4) for c in record.candidates)
    assert words(replace(record, candidates=(*few, *behind)))[2] == "refuted", "another context is no match"
    assert words(replace(record, moved=(Moved(1, 1.0),)))[3] == "refuted"
    unseen = tuple(replace(s, last=5.0) if s.episode == 3 else s for s in record.pinned)
    assert words(replace(record, pinned=unseen))[3] == "refuted", "the probe let a bad prompt pass"
    caught = tuple(replace(s, last=5.0, boundary=(3.0,)) if s.episode == 3 else s for s in record.pinned)
    assert words(replace(record, pinned=caught))[3] == "supported"


def test_episodes_of_one_store_are_one_draw() -> None:
    """All that one store held was good and all that the other held was not: two draws decide nothing."""
    apart = tuple(replace(s, boundary=(0.0 if s.episode < 25 else 0.4,)) for s in made().pinned)
    stores = replace(made(), pinned=apart, request=replace(made().request, memory=25))
    assert words(stores)[1] == "undecided"
    bad = tuple(replace(c, last=0.5) if c.episode >= 36 else c for c in made().candidates)
    one, ten = (replace(made().request, memory=memory) for memory in (100, 4))
    assert words(replace(made(), candidates=bad, request=one))[2] == "supported", "36 of 40 (77 to 96%)"
    assert words(replace(made(), candidates=bad, request=ten))[2] == "undecided", "nine stores of ten"


def test_too_little_decides_nothing() -> None:
    record = made()
    empty = replace(
        record, live=record.live[:20], pinned=record.pinned[:20], candidates=record.candidates[:9]
    )
    found = verdicts(empty)
    assert [v.word for v in found] == ["undecided"] * 4
    assert all("at least 30" in v.reason for v in found)


def test_precision_and_recall_by_hand() -> None:
    every = [(0.95, 0.01), (0.9, 0.5), (0.8, 0.02), (0.6, 0.03), (0.6, 0.9)]
    record = made(candidates=tuple(LoneGraft(0, 1, s, 1.0, 30, k, k) for s, k in every))
    found = {tau: (p, r, n) for tau, p, r, n in precision_recall(record)}
    assert found[0.5] == (3 / 5, 1.0, 5)
    assert found[0.8] == (2 / 3, 2 / 3, 3)
    assert found[0.95] == (1.0, 1 / 3, 1)
    assert found[1.0][2] == 0
    assert np.isnan(found[1.0][0])


def test_the_grid_holds_the_plans_ablations() -> None:
    once, full = settings_of("one at a time"), settings_of("full")
    assert once[0] == full[0] == BASE
    assert settings_of("none") == (BASE,)
    assert len(once) == len(set(once)) == 1 + 8 + 3 + 3 + 2 + 1
    assert len(full) == len(set(full)) == 5 * 4 * 4 * 3
    assert {s.form for s in once} == {"all layers", KEPT, SKIPPED}
    assert SKIPPED not in {s.form for s in full}
    for setting in (*once, *full):
        assert setting.name


@pytest.mark.parametrize("name", ["episodes", "turns", "memory", "reruns", "candidates"])
def test_numbers_out_of_range_are_refused_by_name(name: str) -> None:
    for value in (-1, 10_000, 1.5, True, None):
        with pytest.raises(OptionError) as refused:
            replace(REQUEST, **{name: value})
        assert refused.value.field == f"hypotheses.{name}"


# -- small measures


def test_levenshtein_is_the_textbooks() -> None:
    def slow(a: list[int], b: list[int]) -> int:
        if not a or not b:
            return len(a) + len(b)
        return min(slow(a[1:], b) + 1, slow(a, b[1:]) + 1, slow(a[1:], b[1:]) + (a[0] != b[0]))

    rng = random.Random(0)
    for _ in range(60):
        a, b = ([rng.randrange(3) for _ in range(rng.randrange(6))] for _ in range(2))
        assert levenshtein(a, b) == slow(a, b)


def test_the_last_token_is_never_counted_as_copied() -> None:
    base = KVSegment(torch.zeros(1), torch.zeros(1), 0, True, "x")
    exact, other = Step(0, 4, Reuse(base, exact=True)), Step(4, 10, Reuse(base))
    assert copied(Plan((exact, other), "reused", ""), 10) == (4, 5)
    assert copied(Plan((exact, replace(other, end=9)), "reused", ""), 10) == (4, 5)


def test_entropy_by_hand() -> None:
    assert entropy([(1, 2), (1, 2)]) == 0
    assert entropy([(1, 2), (1, 3)]) == pytest.approx(np.log(2) / 2)
    assert entropy([(1,), ()]) == pytest.approx(np.log(2))
