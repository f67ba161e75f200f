"""The first token in fixed buffers is what the plain pass gives; a recording that is not is left."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import tiny
import torch
from test_model import FAMILIES, build

from backend import first_token
from backend.engine import Engine
from backend.first_token import FixedPass, Recordings, capacity_for, recordable
from backend.kv import KVCache
from backend.model import LoadedModel, wrap_model


def ids(count: int, seed: int = 0) -> list[int]:
    return torch.randint(5, 32, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def split(engine: Engine, tokens: list[int]) -> tuple[KVCache, torch.Tensor, torch.Tensor]:
    """A cache of all but the last token, that token, and its position."""
    cache, _ = engine.prefill(tokens[:-1])
    cache.reserve(len(tokens))
    return cache, engine.ids(tokens[-1:]), torch.tensor([len(tokens) - 1])


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> LoadedModel:
    return wrap_model(build(request.param), tiny.tokenizer(), name=request.param)


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


def test_a_token_may_stand_elsewhere_than_at_its_place(family: LoadedModel) -> None:
    """As behind copies with a gap before them."""
    engine, fixed = Engine(family), FixedPass(family, 32)
    cache, last, _ = split(engine, ids(20))
    cache.positions, cache.shifts = torch.arange(19) + 2, [2]
    twin, position = cache.copy(), torch.tensor([21])
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
        self.model, self.engine, self.recordings = model, Engine(model), Recordings.on(model)
        self.recorded = 0
        patch.setattr(first_token, "LEAST", 16)
        patch.setattr(first_token, "has_room", lambda *_: True)
        patch.setattr(first_token, "recordable", lambda *_: True)
        patch.setattr("backend.engine.recordable", lambda *_: True)
        patch.setattr(FixedPass, "record", self.record)
        patch.setattr(first_token, "_BY_MODEL", type(first_token._BY_MODEL)())

    def record(self, *_: Any) -> None:
        self.recorded += 1

    def ask(self, count: int, seed: int = 0) -> torch.Tensor:
        """The engine's first token, which has to be the plain one's."""
        tokens = ids(count, seed)
        cache, last, position = split(self.engine, tokens)
        before = self.engine.token_layers
        found = self.engine._first_token(last, cache, position)
        assert self.engine.token_layers - before == self.model.info.layers
        assert cache.length == count
        wanted, logits = self.engine.prefill(tokens)
        assert torch.allclose(found, logits, atol=2e-4)
        assert torch.allclose(cache.keys[..., :count, :], wanted.keys[..., :count, :], atol=2e-4)
        return found


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch, tiny.model())


def kept(recorder: Recorder) -> list[int]:
    return list(Recordings.on(recorder.model)._by_capacity)


def test_a_size_is_recorded_once_and_the_longest_unused_given_up(recorder: Recorder) -> None:
    for seed, (count, recorded, there) in enumerate(
        [(9, 1, [16]), (12, 1, [16]), (20, 2, [16, 32]), (9, 2, [32, 16]), (40, 3, [16, 64])]
    ):
        recorder.ask(count, seed)
        assert (recorder.recorded, kept(recorder)) == (recorded, there)
    found = Recordings.on(recorder.model)
    assert found.held == (16 + 64) * recorder.model.info.kv_bytes_per_token
    found.forget()
    assert found.held == 0


def test_a_recording_that_disagrees_is_left(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = FixedPass.run
    monkeypatch.setattr(FixedPass, "run", lambda self, model: honest(self, model).flip(0))
    recorder.ask(9)
    assert Recordings.on(recorder.model).off
    recorder.ask(9)
    assert recorder.recorded == 1, "no second try"
    assert kept(recorder) == []


def test_what_cannot_be_recorded_is_forwarded_plainly(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(FixedPass, "record", refuse)
    recorder.ask(9)
    assert Recordings.on(recorder.model).off
    assert kept(recorder) == []
    recorder.ask(9)


def test_without_room_nothing_is_recorded(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_token, "has_room", lambda *_: False)
    recorder.ask(9)
    assert recorder.recorded == 0
    assert not Recordings.on(recorder.model).off, "there may be room later"


def test_recordings_go_with_their_model(recorder: Recorder) -> None:
    recorder.ask(9)
    every = first_token._BY_MODEL
    assert len(every) == 1
    del recorder.model, recorder.engine, recorder.recordings
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
        found = engine._first_token(last, cache, position)
        _, wanted = engine.prefill(tokens)
        assert torch.allclose(found, wanted, atol=1e-3)
    recordings = Recordings.on(model)
    assert not recordings.off
    assert list(recordings._by_capacity) == [512]
