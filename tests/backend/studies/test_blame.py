"""The search finds what was broken, keeps to its budget, and its two ends are dense and the method itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from backend.base.clock import Clock
from backend.base.errors import OptionError
from backend.cache.kv_cache import KVCache
from backend.cache.samples import SampleLog
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.lab import Lab
from backend.methods.dense import dense_plan
from backend.model.load import LoadedModel
from backend.records.blame import BlameRecord, BlameRequest, Part, cells, exact_parts, exact_text
from backend.records.request import Decoding, MethodChoice
from backend.records.run import RECOMPUTED
from backend.session.request_state import RequestState
from backend.session.session import LabSession
from backend.studies.blame import Mixed, Search

DECODING = Decoding(max_new_tokens=8)
ASKED = BlameRequest(tiny.request(), "naive", 1)


class Read:
    """One agent's prompt, read densely."""

    def __init__(self, model: LoadedModel) -> None:
        self.engine = Engine(model)
        flow = RequestState(tiny.pipeline(), self.engine, SampleLog("test", 1 << 40))
        flow.start({"user_question": tiny.QUESTIONS[0]})
        context = flow.context(1)
        self.prompt = context.prompt
        self.prefill = self.engine.execute(self.prompt, dense_plan(context.prompt, "test"), Clock())
        [self.answer] = self.engine.decode([self.prefill], DECODING)

    def broken(self, *parts: Part, size: float = 30.0) -> Prefill:
        """The same with noise in parts of the cache."""
        cache, noise = self.prefill.cache.copy(), torch.Generator().manual_seed(1)
        for part in parts:
            at = (slice(part.first, part.last + 1), slice(None), slice(None), slice(part.start, part.end))
            for name in ("keys", "values") if part.half == "keys and values" else (part.half,):
                held = getattr(cache, name)[at]
                held.copy_(size * torch.randn(held.shape, generator=noise))
        return replace(self.prefill, cache=cache)

    def search(self, used: Prefill, **asked: Any) -> BlameRecord:
        mixed = Mixed(self.engine, self.prompt, self.prefill, used, self.answer.ids, DECODING, "none")
        *_, record = Search(mixed, replace(ASKED, **asked), 1 << 30, None).events(0.0)
        assert isinstance(record, BlameRecord)
        return record

    def part(self, segment: int, layer: int, **more: Any) -> Part:
        span = self.prompt.spans[segment]
        return Part(span.name, span.start, min(span.end, len(self.prompt.ids) - 1), layer, layer, **more)


@pytest.fixture(scope="module")
def read(tiny_model: LoadedModel) -> Read:
    return Read(tiny_model)


@pytest.fixture(scope="module")
def found(tiny_model: LoadedModel) -> tuple[Any, BlameRecord]:
    """A run, and the search in its last agent under naive, whose text differs from dense's."""
    session = LabSession(tiny_model)
    record = tiny.run(session, tiny.request())
    *_, blamed = Lab(session).study(BlameRequest(record.request, "naive", 3))
    return record, blamed


@pytest.mark.parametrize(("segment", "layer"), [(0, 0), (1, 2), (1, 0)])
def test_a_planted_fault_is_found_as_exactly_that_part(read: Read, segment: int, layer: int) -> None:
    planted = read.part(segment, layer)
    record = read.search(read.broken(planted))
    assert record.found is not None
    assert record.found.parts == (planted,)
    assert record.share == planted.cells / (2 * record.tokens * 3)
    assert record.found.text == record.dense.text
    where = np.unravel_index(np.argmax(record.map), record.map.shape)
    assert (record.mapped[where[0]], where[1]) == (planted.segment, layer)
    assert record.recovered(float(record.map.max())) == pytest.approx(1, abs=1e-3)
    assert len(record.random) == ASKED.draws
    assert {cells(trial.parts) for trial in record.random} == {planted.cells}


@pytest.mark.parametrize("half", ["keys", "values"])
def test_a_fault_in_one_half_is_found_as_that_half(read: Read, half: Any) -> None:
    planted = read.part(1, 1, half=half)
    record = read.search(read.broken(planted))
    assert record.found is not None
    assert record.found.parts == (planted,)


@pytest.mark.slow
def test_two_faults_are_found_as_a_pair_or_not_at_all(read: Read) -> None:
    planted = (read.part(0, 1), read.part(1, 2))
    record = read.search(read.broken(*planted))
    assert record.found is not None
    assert record.found.parts == planted
    alone = read.search(read.broken(*planted), most_parts=1)
    assert alone.found is None
    assert np.isnan(alone.share)
    assert not alone.random
    assert alone.everything.restored
    assert not alone.spent


@pytest.mark.slow
def test_pairs_are_made_of_what_helps_most_alone(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three segments that differ one does no harm; with room for one pair it has to be the other two."""
    monkeypatch.setattr("backend.studies.blame.PAIRED", 2)
    planted, harmless = (read.part(0, 1), read.part(1, 2)), read.part(2, 0)
    used = read.broken(*planted)
    used.cache.keys[harmless.first, :, :, harmless.start : harmless.end] += 1e-5
    record = read.search(used, most_parts=2)
    assert len(record.mapped) == 3
    assert record.found is not None
    assert record.found.parts == planted


def test_all_repaired_is_dense_and_nothing_repaired_is_the_method(found: tuple[Any, BlameRecord]) -> None:
    record, blamed = found
    dense, naive = (record.outcome(3, label) for label in ("dense", "naive"))
    assert (blamed.dense.text, blamed.everything.text) == (dense.text, dense.text)
    assert blamed.nothing.text == naive.text != dense.text
    assert blamed.everything.log_odds == pytest.approx(blamed.dense.log_odds, abs=tiny.TOLERANCE)
    assert blamed.at == naive.fidelity.first_divergence
    assert (blamed.dense_token, blamed.method_token) == (dense.texts[blamed.at], naive.texts[blamed.at])
    assert blamed.recovered(blamed.nothing.log_odds) == 0
    assert blamed.found is not None
    assert 0 < blamed.share <= 1


def test_the_caches_are_those_of_the_two_ends_to_the_last_bit(read: Read) -> None:
    used = read.broken(read.part(0, 1), read.part(1, 2))
    mixed = Mixed(read.engine, read.prompt, read.prefill, used, read.answer.ids, DECODING, "none")
    last = len(read.prompt.ids) - 1

    def same(a: KVCache, b: KVCache) -> bool:
        return all(
            torch.equal(x[..., :last, :], y[..., :last, :])
            for x, y in ((a.keys, b.keys), (a.values, b.values))
        )

    assert same(mixed.read(()).cache, used.cache)
    assert same(mixed.read(tuple(mixed.whole())).cache, read.prefill.cache)
    assert not same(used.cache, read.prefill.cache), "what was given is left alone"


@pytest.mark.parametrize(("passes", "draws"), [(50, 20), (60, 40), (50, 0)])
def test_the_budget_is_kept(read: Read, passes: int, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, first = [], Mixed.read
    monkeypatch.setattr(Mixed, "read", lambda self, parts: (counted.append(parts), first(self, parts))[1])
    used = read.broken(*(read.part(s, n) for s in (0, 1) for n in range(3)))
    record = read.search(used, passes=passes, draws=draws)
    assert len(counted) == record.passes <= passes
    assert len(record.trials) <= passes - draws


def test_a_budget_that_is_too_small_says_so(read: Read) -> None:
    used = read.broken(*(read.part(s, n) for s in (0, 1) for n in range(3)))
    record = read.search(used, passes=6, draws=0)
    assert record.spent
    assert record.passes == 6
    assert np.isnan(record.map).any()


def test_the_record_goes_to_a_file_and_back(found: tuple[Any, BlameRecord]) -> None:
    _, blamed = found
    content = blamed.to_bytes()
    again = BlameRecord.from_bytes(content)
    assert again.to_bytes() == content
    assert again.found == blamed.found


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": "dense"}, "naive, kvcomm can be looked into"),
        ({"method": "epic"}, "naive, kvcomm can be looked into"),
        ({"agent": 9}, "this run has 1, 2, 3"),
        ({"passes": 1}, "50 to 5,000"),
        ({"run": tiny.request(question="Never asked?")}, "not remembered"),
        ({"run": tiny.request(mode="free")}, "Choose pinned"),
        ({"run": tiny.request(("dense", "prefix")), "method": "prefix"}, "another method"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_what_cannot_be_looked_into_is_refused(tiny_model: LoadedModel, changes: Any, said: str) -> None:
    session = LabSession(tiny_model)
    tiny.run(session, tiny.request())
    with pytest.raises(OptionError, match=said):
        list(Lab(session).study(replace(BlameRequest(tiny.request(), "naive", 3), **changes)))


def test_a_verdict_that_is_dense_s_has_nothing_to_repair(read: Read) -> None:
    with pytest.raises(OptionError, match="nothing to repair"):
        read.search(read.prefill)


def test_repaired_parts_as_a_column_give_what_the_search_found(
    tiny_model: LoadedModel, found: tuple[Any, BlameRecord]
) -> None:
    """In a run of its own, and in a run that is changed afterwards; without parts it is the method."""
    record, blamed = found
    assert blamed.found is not None
    exact = exact_text(3, blamed.found.parts)
    asked = replace(record.request, methods=(MethodChoice("naive"), MethodChoice("naive", {}, "own", exact)))
    session = LabSession(tiny_model)
    whole = tiny.run(session, asked)
    before = tiny.run(session, replace(asked, methods=asked.methods[:1]))
    *_, last = Lab(session).revise(before, asked)
    for made in (whole, last.record):
        assert made.outcome(3, "naive").text == blamed.nothing.text
        assert made.outcome(3, "own").text == blamed.found.text
        assert made.outcome(1, "own").text == made.outcome(1, "naive").text
    took = whole.outcome(3, "own").actions == RECOMPUTED
    [(part, *_)] = [blamed.found.parts]
    assert took[part.first : part.last + 1, part.start : part.end].all()
    assert not (whole.outcome(3, "naive").actions == RECOMPUTED).any()


def test_a_line_of_parts_is_read_back_and_a_wrong_one_refused(tiny_model: LoadedModel) -> None:
    parts = (Part("prefix 1", 0, 0, 0, 3), Part("agent_2_current", 0, 0, 2, 2, "values"))
    assert exact_parts(exact_text(4, parts)) == [(4, part) for part in parts]
    assert exact_parts("") == []
    for wrong in ("3", "3/a/1-0/keys", "3/a/1-2/all", "x/a/1-2/keys", "3/a/1-2/keys,4"):
        with pytest.raises(OptionError):
            exact_parts(wrong)
    for exact in ("3/nothing/0-0/keys", "3/agent_2_current/0-99/keys"):
        asked = replace(tiny.request(), methods=(MethodChoice("naive", {}, "own", exact),))
        with pytest.raises(OptionError, match="Remove the column"):
            tiny.run(LabSession(tiny_model), asked)
