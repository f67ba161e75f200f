"""The first token in fixed buffers is what the plain pass gives; a recording that is not is left."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import tiny
import torch
from families import FAMILIES, UNRECORDED, ids, loaded, split

from backend.engine import cuda_graph as first_token
from backend.engine.assembly import first_token as first_token_of
from backend.engine.cuda_graph import CudaGraphs, FixedPass, capacity_for, recordable
from backend.engine.engine import Engine
from backend.model.load import LoadedModel, wrap_model


@pytest.fixture(scope="module", params=[name for name in FAMILIES if name not in UNRECORDED])
def family(request: pytest.FixtureRequest) -> LoadedModel:
    return loaded(request.param)


@pytest.mark.slow
def test_fixed_buffers_give_what_the_plain_pass_does(family: LoadedModel) -> None:
    """Also after a longer prompt, whose KV still lies behind the shorter one's."""
    engine, fixed = Engine(family), FixedPass(family, 64)
    for tokens in (ids(41), ids(23, 1), ids(2, 2), ids(64, 3)):
        cache, last, position = split(engine, tokens)
        wanted_cache, wanted = engine.prefill(tokens)
        fixed.load(family, last, cache, position)
        assert torch.allclose(fixed.run(family), wanted, atol=2e-4)
        fixed.give(cache)
        assert cache.length == len(tokens)
        for mine, other in ((cache.keys, wanted_cache.keys), (cache.values, wanted_cache.values)):
            assert torch.allclose(mine[..., : len(tokens), :], other[..., : len(tokens), :], atol=2e-4)


@pytest.mark.parametrize("told", [False, True], ids=["not yet told", "told"])
@pytest.mark.slow
def test_a_token_may_stand_elsewhere_than_at_its_place(family: LoadedModel, told: bool) -> None:
    """As behind copies with a gap, of which the cache may not have been told yet. A window counts places."""
    engine, fixed = Engine(family), FixedPass(family, 32)
    cache, last, _ = split(engine, ids(20))
    if told:
        cache.positions, cache.shifts = torch.arange(19) + 4, [4]
    twin, position = cache.copy(), torch.tensor([23])
    wanted = engine.forward(last, twin, positions=position)[0, -1]
    fixed.load(family, last, cache, position)
    assert torch.allclose(fixed.run(family), wanted, atol=2e-4)


@pytest.mark.parametrize(
    ("tokens", "wanted"), [(1, 512), (512, 512), (513, 1024), (3500, 4096), (4096, 4096)]
)
def test_capacities_are_powers_of_two(tokens: int, wanted: int) -> None:
    assert capacity_for(tokens) == wanted


def test_on_a_cpu_nothing_is_recorded(tiny_model: LoadedModel) -> None:
    assert not recordable(tiny_model, tiny_model.new_cache(4))


# -- what is kept, with the recording itself left out: it needs a GPU


class Recorder:
    """Stands for the device: there is room, and recording takes nothing."""

    def __init__(self, patch: pytest.MonkeyPatch, model: LoadedModel) -> None:
        self.model, self.engine = model, Engine(model)
        self.recorded = 0
        patch.setattr(first_token, "LEAST", 16)
        patch.setattr(first_token, "has_room", lambda *_: True)
        patch.setattr(first_token, "recordable", lambda *_: True)
        patch.setattr("backend.engine.assembly.recordable", lambda *_: True)
        patch.setattr(FixedPass, "record", self.record)
        patch.setattr(first_token, "_BY_MODEL", type(first_token._BY_MODEL)())

    def record(self, *_: Any) -> None:
        self.recorded += 1

    def recordings_of(self) -> CudaGraphs:
        return CudaGraphs.on(self.model)

    def ask(self, count: int, seed: int = 0) -> torch.Tensor:
        """The engine's first token, which has to be the plain one's."""
        tokens = ids(count, seed)
        cache, last, position = split(self.engine, tokens)
        before = self.engine.token_layers
        found = first_token_of(self.engine, last, cache, position)
        assert self.engine.token_layers - before == self.model.info.layers
        found = self.recordings_of().learn(self.model, last, cache, position, found)
        assert cache.length == count
        wanted, logits = self.engine.prefill(tokens)
        assert torch.allclose(found, logits, atol=2e-4)
        assert torch.allclose(cache.keys[..., :count, :], wanted.keys[..., :count, :], atol=2e-4)
        return found


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch, tiny.model())


def kept(recorder: Recorder) -> list[int]:
    return list(CudaGraphs.on(recorder.model)._by_capacity)


def test_a_size_is_recorded_once(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents' prompts have several sizes in turn: none goes for another."""
    monkeypatch.setattr(first_token, "MOST", 2)
    for seed, (count, recorded, there) in enumerate(
        [
            (9, 1, [16]),
            (12, 1, [16]),
            (20, 2, [16, 32]),
            (9, 2, [16, 32]),
            (40, 2, [16, 32]),
            (20, 2, [16, 32]),
        ]
    ):
        recorder.ask(count, seed)
        assert (recorder.recorded, kept(recorder)) == (recorded, there)
    found = CudaGraphs.on(recorder.model)
    assert found.held == (16 + 32) * recorder.model.info.kv_bytes_per_token
    found.forget()  # as when a visit needs the room
    assert found.held == 0
    recorder.ask(9)
    assert recorder.recorded == 2, "it would be recorded anew for every run"


def test_who_records_reads_on_from_the_recording(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods with one plan in one run find the same numbers, whichever comes first."""
    honest = FixedPass.run
    monkeypatch.setattr(FixedPass, "run", lambda self, model: honest(self, model) * (1 + 1e-5))
    assert torch.equal(recorder.ask(9), recorder.ask(9))
    assert recorder.recorded == 1


def test_a_recording_that_disagrees_is_left(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = FixedPass.run
    monkeypatch.setattr(FixedPass, "run", lambda self, model: honest(self, model).flip(0))
    recorder.ask(9)
    assert CudaGraphs.on(recorder.model).off
    recorder.ask(9)
    assert recorder.recorded == 1, "no second try"
    assert kept(recorder) == []


@pytest.mark.parametrize("error", [RuntimeError, ValueError])
def test_what_cannot_be_recorded_is_forwarded_plainly(
    error: type[Exception], recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A family may synchronise."""

    def refuse(*_: Any) -> None:
        raise error("not while a stream is capturing")

    monkeypatch.setattr(FixedPass, "record", refuse)
    recorder.ask(9)
    assert CudaGraphs.on(recorder.model).off
    assert kept(recorder) == []
    recorder.ask(9)


@pytest.mark.parametrize("name", UNRECORDED)
def test_a_family_that_reads_no_such_mask_is_forwarded_plainly(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = FixedPass.forward
    recorder = Recorder(monkeypatch, loaded(name))
    monkeypatch.setattr(FixedPass, "record", lambda self, model: honest(self, model))
    recorder.ask(9)
    recorder.ask(9)
    assert CudaGraphs.on(recorder.model).off
    assert kept(recorder) == []


def test_without_room_nothing_is_recorded(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_token, "has_room", lambda *_: False)
    recorder.ask(9)
    assert recorder.recorded == 0
    assert not CudaGraphs.on(recorder.model).off, "there may be room later"


def test_recordings_go_with_their_model(recorder: Recorder) -> None:
    recorder.ask(9)
    every = first_token._BY_MODEL
    assert len(every) == 1
    del recorder.model, recorder.engine
    gc.collect()
    assert len(every) == 0


@pytest.mark.gpu
def test_a_recorded_graph_gives_what_the_plain_pass_does() -> None:
    """On the device, through the engine: the first ask records, the others replay."""
    model = wrap_model(tiny.llama(0).cuda(), tiny.tokenizer(), name="tiny")
    engine = Engine(model)
    for seed, count in enumerate((40, 40, 90, 23)):
        tokens = ids(count, seed)
        cache, last, position = split(engine, tokens)
        found = first_token_of(engine, last, cache, position)
        found = CudaGraphs.on(model).learn(model, last, cache, position, found)
        _, wanted = engine.prefill(tokens)
        assert torch.allclose(found, wanted, atol=1e-3)
    recordings = CudaGraphs.on(model)
    assert not recordings.off
    assert list(recordings._by_capacity) == [512]
