"""APE: what it equals where nothing is tuned, and that what is tuned is its algorithm."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import tiny
import torch
from tiny import QUESTIONS, request, run, walk

from backend.base.clock import Clock
from backend.cache.kv_cache import KVCache, Temper
from backend.engine.decoding import Decoded
from backend.engine.prefill import Prefill
from backend.methods.plan import Reuse
from backend.methods.registry import make_options, method_class
from backend.model.tempering import temper_mask
from backend.records.request import Decoding, MethodChoice
from backend.session.session import LabSession


@cache
def walked() -> tiny.Walk:
    return walk(tiny.model(), tiny.pipeline())


def execute(name: str, **options: Any) -> Prefill:
    one, method = walked(), method_class(name)(make_options(name, options))
    plan = method.plan(one.contexts[3], one.log, Clock())
    return one.engine.execute(one.contexts[3].prompt, plan, Clock(), spare_tokens=8)


PLAIN = {"temperature": 1.0, "scale": 1.0, "prefix": False, "positions": "own"}


def test_untuned_it_is_parallel_encoding_bit_for_bit() -> None:
    found, wanted = execute("ape", **PLAIN), execute("block_attention")
    assert torch.equal(found.logits, wanted.logits)
    total = found.cache.length
    assert torch.equal(found.cache.keys[..., :total, :], wanted.cache.keys[..., :total, :])


@pytest.mark.parametrize(
    "change", [{"temperature": 0.5}, {"scale": 0.5}, {"prefix": True}, {"positions": "shared"}]
)
def test_each_of_its_parts_changes_the_answer(change: dict[str, Any]) -> None:
    assert tiny.error(execute("ape", **PLAIN | change).logits, execute("ape", **PLAIN).logits) > 0.01


def test_contexts_share_their_places_and_what_follows_stands_behind_the_longest() -> None:
    """Each context begins where the first does, and the words behind all of them where the longest ends."""
    one, method = walked(), method_class("ape")(make_options("ape", {}))
    plan = method.plan(one.contexts[3], one.log, Clock())
    contexts = [s for s in plan.steps if isinstance(s.action, Reuse) and s.position is not None]
    assert len(contexts) == 2
    first = contexts[0].start
    begins = [first, *(step.end for step in contexts[:-1])]
    assert [step.position - (step.start - b) for step, b in zip(contexts, begins, strict=True)] == [first] * 2
    widest = first + max(step.end - b for step, b in zip(contexts, begins, strict=True))
    [behind] = [step for step in plan.steps if step.start == contexts[-1].end]
    assert behind.position == widest < behind.start


def test_tempered_attention_is_the_papers_algorithm() -> None:
    """Two groups, each attended to by itself, joined by their logarithms of sums."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, n, t, 8, generator=generator) for n, t in ((4, 3), (2, 9), (2, 9)))
    places = torch.tensor([False, True, True, True, False, False, True, False, False])
    temper = Temper(places, 0.6, 0.8)
    mask = temper_mask(query, key, None, 8**-0.5, [temper])
    keys, values = (x.repeat_interleave(2, dim=1) for x in (key, value))
    found = torch.nn.functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
    scores = query @ keys.transpose(-1, -2) * 8**-0.5
    scores = scores.masked_fill(~torch.ones(3, 9, dtype=torch.bool).tril(6), -torch.inf)
    context, other = scores[..., places] / 0.6, scores[..., ~places]
    sums = torch.stack([context.logsumexp(-1) * 0.8, other.logsumexp(-1)], dim=-1).softmax(-1)
    outs = context.softmax(-1) @ values[:, :, places], other.softmax(-1) @ values[:, :, ~places]
    wanted = sums[..., :1] * outs[0] + sums[..., 1:] * outs[1]
    assert tiny.error(found, wanted) <= 1e-6


def test_rows_of_a_batch_are_tempered_each_by_itself() -> None:
    one, decoding = walked(), Decoding(max_new_tokens=6)
    rows = [execute("ape"), one.dense[3], execute("ape", temperature=0.5)]

    def decode(some: list[Prefill]) -> list[Decoded]:
        return one.engine.decode(some, decoding, keep_logits=True)

    alone = [decode([row])[0] for row in rows]
    for mine, other in zip(decode(rows), alone, strict=True):
        assert mine.ids == other.ids
        assert mine.logits is not None
        assert other.logits is not None
        assert tiny.error(mine.logits, other.logits) <= tiny.TOLERANCE


@pytest.mark.slow
def test_a_recorded_attention_is_the_tempered_one() -> None:
    """Contexts get less of it the smaller the scale is; the run has other rows beside."""
    session = LabSession(tiny.model())
    asked = ["dense", *(MethodChoice("ape", {"scale": s}, f"{s}") for s in (0.2, 2.0))]
    record = run(session, request(asked, QUESTIONS[1], probe_attention=True))
    probes = [next(p for p in record.attention if (p.agent, p.method) == (3, at)) for at in ("0.2", "2.0")]
    texts = [s for s in record.prompts[record.outcome(3, "dense").prompt].spans if "agent" in s.name]
    little, much = (sum(p.tokens[0, s.start : s.end].sum() for s in texts) for p in probes)
    assert little < 0.8 * much


def test_a_cache_keeps_its_tempers() -> None:
    cache = execute("ape").cache
    joined, padding = KVCache.batch([cache, walked().dense[3].cache], 4)
    first = joined.tempers[0]
    assert first is not None
    assert joined.tempers[1] is None
    assert cache.tempers[0] is not None
    assert torch.equal(first.places[padding[0] :], cache.tempers[0].places)
    assert cache.copy().tempers == cache.tempers
