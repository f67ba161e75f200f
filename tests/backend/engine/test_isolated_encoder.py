"""What encoding texts by themselves costs: charged to every method that needs it, and once."""

from __future__ import annotations

import pytest
import tiny
import torch

from backend.base.clock import Clock
from backend.cache.samples import SampleLog
from backend.engine import runner
from backend.engine.engine import Engine
from backend.engine.isolated_encoder import IsolatedEncoder
from backend.model.load import LoadedModel
from backend.session.request_state import RequestState

ONE, OTHER = (11, 12, 13), (14, 15)


def test_who_comes_later_is_charged_what_the_first_one_spent(tiny_model: LoadedModel) -> None:
    log, spent = SampleLog("t", 1 << 30), dict[tuple[str, tuple[int, ...]], float]()
    first, second = (IsolatedEncoder(Engine(tiny_model), log, costs=spent) for _ in range(2))
    mine, theirs = Clock(), Clock()
    kv = first.encode(ONE, mine)
    assert mine.parts == {"base": spent["", ONE]}
    assert spent["", ONE] > 0
    assert second.encode(ONE, theirs).keys is kv.keys, "encoded once"
    assert theirs.parts == mine.parts
    second.encode(OTHER, theirs)
    assert theirs.parts["base"] == spent["", ONE] + spent["", OTHER]
    before = dict(mine.parts)
    first.encode(ONE, mine)
    second.encode(ONE, theirs)
    assert (mine.parts, theirs.parts["base"]) == (before, sum(spent.values())), "a text twice is paid once"


def test_what_was_known_before_the_request_costs_nothing(tiny_model: LoadedModel) -> None:
    log = SampleLog("t", 1 << 30)
    IsolatedEncoder(Engine(tiny_model), log).encode(ONE, Clock())
    later, clock = IsolatedEncoder(Engine(tiny_model), log, earlier=frozenset(log.isolated)), Clock()
    assert "earlier" in later.encode(ONE, clock).context
    assert clock.parts == {}


def test_whoever_reads_after_the_first_agent_is_not_charged_again(tiny_model: LoadedModel) -> None:
    log = SampleLog("t", 1 << 30)
    flow = RequestState(tiny.pipeline(), Engine(tiny_model), log)
    flow.start({"user_question": tiny.QUESTIONS[0]})
    context = flow.context(1)
    assert context.encoder is not None
    context.encoder.encode(ONE, Clock())
    beside, same = flow.context(1).encoder, Clock()
    assert beside is not None
    beside.encode(ONE, same)
    assert same.parts["base"] > 0, "another method, at the same agent"
    flow.charge(context)
    following, clock = flow.context(1).encoder, Clock()
    assert following is not None
    following.encode(ONE, clock)
    assert clock.parts == {}


def test_texts_encoded_together_are_those_encoded_one_by_one(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, lead = Engine(tiny_model), (1, 7, 8)
    texts = [ONE, OTHER, (21,), tuple(range(30, 50)), ONE]
    monkeypatch.setattr(runner, "TOGETHER", 30)  # several batches, of rows of unlike lengths
    together = engine.encode_together(texts, lead, "together")
    for ids, kv in zip(texts, together, strict=True):
        alone = engine.encode(ids, lead, "alone")
        assert (kv.start, kv.exact, kv.tokens) == (len(lead), True, len(ids))
        assert torch.allclose(kv.keys, alone.keys, atol=1e-5)
        assert torch.allclose(kv.values, alone.values, atol=1e-5)
