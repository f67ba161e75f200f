"""KVCOMM *as shipped* against a reference written apart from it, on random tensors in fp32.

The tensors go the lab's whole way: into a cache, out of it position-free, into the log with the offsets that
a dense cache shows, through gate, weights and plan, and back into a cache. The reference gets the same
tensors as they stood in the caches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import kvcomm_shipped as reference
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import QUESTIONS, TOLERANCE, error, request, run
from torch import Tensor

from backend.base.clock import Clock
from backend.cache.kv_cache import KVSegment, made_cache
from backend.cache.rope import LayerRotation, Rotation
from backend.cache.samples import PromptInContext, Sample, SampleLog
from backend.engine.engine import Engine
from backend.methods.base import Arrived
from backend.methods.kvcomm.method import KVCommMethod
from backend.methods.kvcomm.options import PROFILES, KVCommOptions
from backend.methods.kvcomm.pool import AnchorPool, PoolRules
from backend.methods.kvcomm.weights import Match, Weighing
from backend.methods.plan import Reuse
from backend.model.load import LoadedModel
from backend.records.prompt import Span, TokenizedPrompt
from backend.records.request import MethodChoice
from backend.records.run import EARLIER
from backend.session.request_state import record_offsets
from backend.session.session import LabSession

LAYERS, HEADS, DIM = 3, 2, 16
SHIPPED = PROFILES["shipped"].options
AGENTS = (1, 2)  # whose first prefix segments have different lengths
FIRST = {1: 5, 2: 11}
TEXTS = {"user_question": 3, "agent_9_current": 0}  # where their bases were encoded: behind a lead-in, at 0
# Where the template's bases stood, among stand-ins that are as long as no text.
TEMPLATE = {"prefix 1": (4, 9), "prefix 2": (6, 17)}
FREQUENCIES = {
    "llama3": reference.llama3_frequencies(DIM, 10_000.0, 8.0, 1.0, 4.0, 256),
    "default": reference.default_frequencies(DIM, 10_000.0),
}
EACH_ROPE = pytest.mark.parametrize("rope", FREQUENCIES)
KV = tuple[Tensor, Tensor]


def random_kv(tokens: int, generator: torch.Generator, scale: float = 1.0) -> KV:
    shape = (LAYERS, HEADS, tokens, DIM)
    keys, values = (torch.randn(shape, generator=generator) * scale for _ in range(2))
    return keys, values


def cut(kv: KV, start: int, end: int) -> KV:
    return kv[0][:, :, start:end], kv[1][:, :, start:end]


@dataclass
class ReferenceSample:
    """One request as the reference sees it: bases as they stood, and each agent's dense cache."""

    bases: dict[str, KV]  # by placeholder
    dense: dict[int, KV]  # by agent
    starts: dict[int, dict[str, int]]  # where each segment stood


class World:
    """Random requests that went through the lab's code, and the same tensors for the reference."""

    def __init__(self, loaded: LoadedModel, rope: str, seed: int) -> None:
        if rope == "default":  # llama3's scaling is the tiny model's own, as the lab found it
            rule = LayerRotation(10_000.0 ** -(torch.arange(0, DIM, 2) / DIM))
            loaded = replace(loaded, rotation=Rotation((rule,) * LAYERS))
        self.frequencies = FREQUENCIES[rope]
        self.engine = Engine(loaded)
        self.log = SampleLog("test", 1 << 40)
        self.generator = torch.Generator().manual_seed(seed)
        self.template: dict[int, dict[str, KV]] = {}
        self.named_bases: dict[int, dict[str, KVSegment]] = {}
        self.prefix_bases: dict[int, dict[str, KVSegment]] = {}
        for agent in AGENTS:
            parts = {"prefix 0": (FIRST[agent], 0)} | TEMPLATE
            drawn = {name: random_kv(tokens, self.generator) for name, (tokens, _) in parts.items()}
            self.template[agent] = drawn
            self.named_bases[agent] = {n: self.segment(drawn[n], parts[n][1]) for n in parts}
            # another base, from which the lab sees offsets: taking it would show
            others = {name: random_kv(tokens, self.generator) for name, (tokens, _) in parts.items()}
            self.prefix_bases[agent] = {n: self.segment(others[n], parts[n][1]) for n in parts}

    def segment(self, kv: KV, start: int) -> KVSegment:
        """Tensors at positions from ``start`` on, taken out of a cache as the lab does it."""
        tokens = kv[0].shape[2]
        cache = self.engine.model.new_cache(start + tokens)
        cache.keys[:, 0, :, start:], cache.values[:, 0, :, start:] = kv
        return cache.segment(start, start + tokens, self.engine.model.rotation, exact=True, context="test")

    def request(
        self, lengths: Sequence[int], near: ReferenceSample | None = None, noise: float = 0.05
    ) -> tuple[ReferenceSample, dict[int, PromptInContext]]:
        """A request with texts of these lengths, its bases and a second one of each in the log.

        ``near``: a request whose texts' bases the new ones resemble, token for token from the first on.
        """
        bases, samples = {}, {}
        for (name, at), tokens in zip(TEXTS.items(), lengths, strict=True):
            keys, values = random_kv(tokens, self.generator, noise if near else 1.0)
            if near:
                like = near.bases[name]
                both = min(tokens, like[0].shape[2])
                keys[:, :, :both] += like[0][:, :, :both]
                values[:, :, :both] += like[1][:, :, :both]
            bases[name] = (keys, values)
            outside = name == "user_question"
            # of an outside text the base that is not asked for is another, so that taking it would show
            other = self.segment(random_kv(tokens, self.generator), 1)
            wanted = self.segment((keys, values), at)
            sample = self.log.add(
                name, (7,) * tokens, "text", other if outside else wanted, torch.randn(tokens, 8)
            )
            sample.lead_in_base = wanted if outside else None
            samples[name] = sample
        seen, contexts = ReferenceSample(bases, {}, {}), {}
        for agent in AGENTS:
            spans: list[Span] = []
            for name, tokens in (
                ("prefix 0", FIRST[agent]),
                ("user_question", lengths[0]),
                ("prefix 1", TEMPLATE["prefix 1"][0]),
                ("agent_9_current", lengths[1]),
                ("prefix 2", TEMPLATE["prefix 2"][0]),
            ):
                at = spans[-1].end if spans else 0
                kind = "prefix" if name.startswith("prefix") else "placeholder"
                spans.append(Span(kind, name, at, at + tokens))
            total = spans[-1].end
            prompt = TokenizedPrompt(agent, (7,) * total, tuple(spans))
            context = PromptInContext(
                prompt,
                samples,
                self.prefix_bases[agent],
                rotation=self.engine.model.rotation,
                named_bases=self.named_bases[agent],
            )
            seen.dense[agent] = random_kv(total, self.generator)
            seen.starts[agent] = {span.name: span.start for span in spans}
            cache = self.engine.model.new_cache(total)
            cache.keys[:, 0], cache.values[:, 0] = seen.dense[agent]
            cache.length = total
            record_offsets(context, cache, self.engine)
            contexts[agent] = context
        return seen, contexts

    # -- the reference's side

    def moved(self, name: str, sample: ReferenceSample, start: int) -> Tensor:
        """A text's base keys as a whole at another place."""
        return reference.rotate(sample.bases[name][0], start - TEXTS[name], self.frequencies)

    def weights(
        self, name: str, sample: ReferenceSample, anchors: list[ReferenceSample], agent: int
    ) -> dict[str, KV]:
        """Key and value weights, found by an agent: the sample stands in its prompt, each anchor in the one
        of the last agent that read it densely."""
        keys = [self.moved(name, sample, sample.starts[agent][name])]
        keys += [self.moved(name, anchor, anchor.starts[AGENTS[-1]][name]) for anchor in anchors]
        values = [s.bases[name][1] for s in (sample, *anchors)]
        return {
            "own": (
                reference.placeholder_weights(keys[0], keys[1:]),
                reference.placeholder_weights(values[0], values[1:]),
            ),
            "behind": (
                reference.prefix_weights(keys[0], keys[1:]),
                reference.prefix_weights(values[0], values[1:]),
            ),
        }

    def expected(
        self, name: str, sample: ReferenceSample, anchors: list[ReferenceSample], agent: int, first: int
    ) -> KV:
        """What a segment's keys and values should become; ``first`` is the agent whose weights are used."""
        template = name.startswith("prefix")
        text = {"prefix 1": "user_question", "prefix 2": "agent_9_current"}.get(name, name)
        base = self.template[agent][name] if template else sample.bases[name]
        base_start = TEMPLATE[name][1] if template else TEXTS[name]
        tokens, start = base[0].shape[2], sample.starts[agent][name]
        if not anchors:
            keys = reference.reused_keys(base[0], base_start, start, self.frequencies, None)
            return keys, reference.reused_values(base[1], None)
        weights = self.weights(text, sample, anchors, first)["behind" if template else "own"]
        offsets: list[KV] = []
        for anchor in anchors:
            theirs = base if template else anchor.bases[name]
            seen_at = anchor.starts[agent][name]
            real = cut(anchor.dense[agent], seen_at, seen_at + theirs[0].shape[2])
            key_offset = reference.recorded_key_offset(
                real[0], theirs[0], base_start, seen_at, self.frequencies
            )
            offsets.append((key_offset, real[1] - theirs[1]))
        mixed = []
        for side in range(2):
            own = [offset[side] for offset in offsets]
            if template:
                mixed.append(reference.prefix_offset(weights[side], own))
            else:
                mixed.append(reference.placeholder_offset(weights[side], own, tokens))
        keys = reference.reused_keys(base[0], base_start, start, self.frequencies, mixed[0])
        return keys, reference.reused_values(base[1], mixed[1])


def method_with(world: World, requests: list[dict[int, PromptInContext]], **options: Any) -> KVCommMethod:
    """KVCOMM as shipped, whose pools hold these requests."""
    method = KVCommMethod(KVCommOptions(**{**SHIPPED, **options}))
    for contexts in requests:
        for sample in contexts[AGENTS[0]].samples.values():
            method.pool(sample.placeholder).insert(sample)
    return method


# -- rotation


@EACH_ROPE
@pytest.mark.parametrize("tokens", [1, 7, 40])
@pytest.mark.parametrize("shift", [-300, -1, 0, 1, 17, 511])
def test_rotation(tiny_model: LoadedModel, rope: str, tokens: int, shift: int) -> None:
    world = World(tiny_model, rope, 0)
    keys, _ = random_kv(tokens, world.generator)
    rotation = world.engine.model.rotation
    found = rotation.rotate(keys, torch.full((tokens,), shift))
    assert error(found, reference.rotate(keys, shift, world.frequencies)) <= TOLERANCE
    # the other way: position-free, then each token to its own place
    free = world.segment((keys, keys), 3).keys
    there = rotation.rotate(free, torch.arange(3 + 20, 3 + 20 + tokens))
    assert error(there, reference.rotate(keys, 20, world.frequencies)) <= TOLERANCE


def test_the_two_scalings_differ() -> None:
    """Or the comparison would say nothing of llama3's."""
    ratio = torch.tensor(FREQUENCIES["default"]) / torch.tensor(FREQUENCIES["llama3"])
    assert float(ratio.min()) == pytest.approx(1)
    assert float(ratio.max()) == pytest.approx(8)
    assert bool(((ratio > 1.01) & (ratio < 7.99)).any()), "and one lies between"


# -- offsets and weights, all the way


@EACH_ROPE
@pytest.mark.parametrize(
    ("lengths", "anchors"),
    [((1, 1), 1), ((1, 1), 3), ((6, 3), 1), ((6, 3), 2), ((6, 3), 20), ((13, 8), 5), ((40, 2), 2)],
)
@pytest.mark.slow
def test_a_reused_prompt(tiny_model: LoadedModel, rope: str, lengths: tuple[int, int], anchors: int) -> None:
    """Weights, offsets, skipped layers and frames: every key and value that the lab puts into the cache."""
    world = World(tiny_model, rope, 100 * anchors + lengths[0])
    sample, contexts = world.request(lengths)
    others = [
        world.request([n + (3 * i + j) % 5 for j, n in enumerate(lengths)], near=sample if i % 2 else None)
        for i in range(anchors)
    ]
    if min(lengths) > 1:  # too short to be eligible
        others.insert(1, world.request([n - 1 for n in lengths]))
    eligible = [s for s, _ in others if s.bases["user_question"][0].shape[2] >= lengths[0]]
    assert len(eligible) == anchors
    # by length alone, so that every sample is reused; the gate has its own tests
    method = method_with(world, [c for _, c in others], gate="length", capacity=30)
    for text in contexts[1].samples.values():
        method.on_event(Arrived(text), world.log)
    for agent in AGENTS:
        context = contexts[agent]
        plan = method.plan(context, world.log, Clock())
        assert plan.state == "reused"
        cache = world.engine.execute(context.prompt, plan, Clock()).cache
        for span in context.prompt.spans[1:]:
            keys, values = world.expected(span.name, sample, eligible, agent, first=AGENTS[0])
            end = min(span.end, len(context.prompt.ids) - 1)  # the last token is read afresh
            at, kept = slice(span.start, end), end - span.start
            assert error(cache.keys[:, 0, :, at], keys[:, :, :kept]) <= TOLERANCE, span
            assert error(cache.values[:, 0, :, at], values[:, :, :kept]) <= TOLERANCE, span


def test_an_agent_that_no_anchor_knows_copies_the_moved_base(tiny_model: LoadedModel) -> None:
    world = World(tiny_model, "llama3", 7)
    sample, contexts = world.request((6, 4))
    others = [world.request((6, 4)) for _ in range(3)]
    for _, theirs in others:
        for text in theirs[2].samples.values():
            del text.offsets[2]
    method = method_with(world, [c for _, c in others], gate="length")
    for text in contexts[2].samples.values():
        method.on_event(Arrived(text), world.log)
    plan = method.plan(contexts[2], world.log, Clock())
    assert plan.state == "reused"
    cache = world.engine.execute(contexts[2].prompt, plan, Clock()).cache
    for span in contexts[2].prompt.spans[1:4]:
        keys, values = world.expected(span.name, sample, [], 2, first=2)
        assert error(cache.keys[:, 0, :, span.start : span.end], keys) <= TOLERANCE
        assert error(cache.values[:, 0, :, span.start : span.end], values) <= TOLERANCE


@EACH_ROPE
def test_weights_and_whose_they_are(tiny_model: LoadedModel, rope: str) -> None:
    """The numbers themselves; and both options that decide in whose frame they are found do something."""
    world = World(tiny_model, rope, 11)
    sample, contexts = world.request((7, 5))
    others = [world.request((7 + i, 5 + i), near=sample, noise=0.5) for i in range(4)]
    anchors = [s for s, _ in others]

    def found(agent: int, then: int, **options: Any) -> Match:
        """The weights that ``then`` mixes with when ``agent`` has been there before."""
        method = method_with(world, [c for _, c in others], **options)
        out = None
        for number in (agent, then):
            context, text = contexts[number], contexts[number].samples["user_question"]
            turn = method.turn(context, text)
            pool = method.pool("user_question")
            out = pool.match(text, number, context.followers("user_question"), world.log, turn)
        assert out is not None
        assert len(out.anchors) == len(anchors)
        return out

    def furthest(match: Match, agent: int) -> float:
        wanted = world.weights("user_question", sample, anchors, agent)
        errors = []
        for part, weights in (("own", match.own), ("behind", match.behind)):
            for side, name in enumerate(("keys", "values")):
                mine = torch.stack([getattr(w, name).squeeze() for w in weights], dim=-1)
                errors.append(float((mine - wanted[part][side]).abs().max()))
        return max(errors)

    first, second = AGENTS
    assert furthest(found(first, first), first) <= TOLERANCE
    assert furthest(found(first, second), first) <= TOLERANCE, "the first agent's, used again"
    assert furthest(found(second, first), second) <= TOLERANCE, "whichever agent is the first"
    assert furthest(found(first, second, weights_from="each agent"), second) <= TOLERANCE
    assert furthest(found(first, second, weights_from="each agent"), first) > 100 * TOLERANCE
    for elsewhere in ("position-free", "agent's position"):
        assert furthest(found(first, first, keys_at=elsewhere), first) > 100 * TOLERANCE


def test_the_first_agents_weights_need_its_anchors(tiny_model: LoadedModel) -> None:
    """Where an anchor does not know a later agent the public code stops; here the text counts as unknown."""
    world = World(tiny_model, "llama3", 12)
    _, contexts = world.request((4, 4))
    others = [world.request((4, 4))[1] for _ in range(3)]
    del others[1][2].samples["user_question"].offsets[2]
    for whose, anchors in (("first agent", None), ("each agent", 2)):
        pool = method_with(world, others, weights_from=whose, keys_at="position-free").pool("user_question")
        text = contexts[1].samples["user_question"]
        assert pool.match(text, 1, ["prefix 1"], world.log) is not None
        later = pool.match(text, 2, ["prefix 1"], world.log)
        assert (len(later.anchors) if later else None) == anchors
    # another text finds its own
    again = world.request((4, 4))[1][1].samples["user_question"]
    pool.rules = replace(pool.rules, weights_from="first agent")
    assert pool.match(text, 1, ["prefix 1"], world.log) is not None
    assert pool.match(again, 2, ["prefix 1"], world.log) is not None


# -- the gate


@pytest.mark.parametrize("gamma", [0.3, 0.7, 1.0])
@pytest.mark.parametrize("anchors", [0, 1, 2, 3, 8, 20])
def test_the_gate(tiny_model: LoadedModel, anchors: int, gamma: float) -> None:
    """Decision, entropy and threshold, over samples near to one anchor, to all and to none."""
    decided = set()
    for seed, noise in enumerate((0.0, 0.02, 0.05, 0.1, 0.2, 1.0)):
        world = World(tiny_model, "llama3", seed)
        sample, contexts = world.request((6, 3))
        others = [
            world.request((5 + i % 4, 3), near=sample, noise=noise * (1 + 0.3 * i)) for i in range(anchors)
        ]
        method = method_with(world, [c for _, c in others], gamma=gamma)
        found = method.pool("user_question").gate(contexts[1].samples["user_question"], world.log)
        becomes, entropy, threshold = reference.gate(
            sample.bases["user_question"][1], [s.bases["user_question"][1] for s, _ in others], gamma
        )
        if entropy is None or threshold is None:
            assert found.entropy is None
            assert found.threshold is None
        else:
            assert found.entropy is not None
            assert found.threshold is not None
            # bits there, nats here
            assert abs(found.entropy / math.log(2) - entropy) <= TOLERANCE
            assert abs(found.threshold / math.log(2) - threshold) <= TOLERANCE
            if abs(entropy - threshold) <= TOLERANCE:
                continue  # too near to call: rounding decides
        assert found.shareable == (not becomes)
        decided.add(becomes)
    if anchors >= 8 and gamma < 1:
        assert decided == {True, False}, "both decisions were seen"


def test_the_gates_measured_cases() -> None:
    """What was measured of the public code: contrast decides, not closeness."""
    sample = torch.zeros(1, 1, 1, 1)
    same = reference.gate(sample, [sample] * 3, 0.3)
    far = reference.gate(sample, [torch.full_like(sample, d) for d in (32.0, 63.0, 128.0)], 0.3)
    assert (same[0], far[0]) == (True, False)
    for values, shareable in (((0.0,) * 3, False), ((32.0, 63.0, 128.0), True)):
        log = SampleLog("test", 1 << 30)
        pool = AnchorPool("q", PoolRules(gate="shipped"))
        for value in values:
            pool.insert(made_sample(log, torch.full_like(sample, value)))
        assert pool.gate(made_sample(log, sample), log).shareable == shareable


def made_sample(log: SampleLog, values: Tensor) -> Sample:
    tokens = values.shape[2]
    base = KVSegment(torch.zeros_like(values), values, 0, True, "test")
    return log.add("q", (7,) * tokens, "text", base, torch.zeros(tokens, 1))


# -- counts and eviction


@settings(max_examples=60)
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=20, unique=True))
def test_counts(shares: list[float]) -> None:
    """Which anchors a shared text counts, whatever the weights."""
    weights = [share / sum(shares) for share in shares]
    log = SampleLog("test", 1 << 30)
    pool = AnchorPool("q", PoolRules(eviction="shipped", gate="shipped", gamma=1.0, capacity=30))
    for _ in weights:
        pool.read_afresh(made_sample(log, torch.zeros(1, 1, 1, 1)))
    decision = pool.gate(made_sample(log, torch.zeros(1, 1, 1, 1)), log)
    running = torch.tensor(sorted(weights, reverse=True), dtype=torch.float64).cumsum(0)
    if float((running - reference.TOP_P).abs().min()) < 1e-9:
        return  # rounding decides
    pool.count_gated(replace(decision, shareable=True, weights=tuple(weights)))
    assert [bool(n) for n in pool.uses.values()] == reference.activated(weights)


@settings(max_examples=60)
@given(
    limit=st.integers(5, 9),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(1, 3)), min_size=20, max_size=40),
)
def test_eviction(limit: int, steps: list[tuple[bool, int, int]]) -> None:
    """New texts with one to three readers, and uses, in any order: the same anchors stay, the same go."""
    log = SampleLog("test", 1 << 30)
    pool = AnchorPool("q", PoolRules(capacity=limit, eviction="shipped"))
    counts: dict[str, int] = {}
    for uses, pick, readers in steps:
        if uses and counts:
            name = list(counts)[pick % len(counts)]
            counts[name] += 1
            pool.uses[int(name)] += 1
            continue
        new = made_sample(log, torch.zeros(1, 1, 1, 1))
        for _ in range(readers):
            gone = reference.dense_turn(counts, str(new.number), limit)
            assert pool.read_afresh(new) == (int(gone) if gone else None)
            assert {str(n): uses for n, uses in pool.uses.items()} == counts
            assert list(map(str, pool.uses)) == list(counts)
        assert len(counts) <= limit + (readers == 1)


# -- options that stand for what the public code does


def test_each_option_of_the_profile_is_free_by_itself() -> None:
    for name in ("text_base", "keys_at", "weights_from", "repeated", "prefix_base"):
        alone = KVCommOptions(**{name: SHIPPED[name]})
        assert getattr(alone, name) != getattr(KVCommOptions(), name)
        assert replace(alone, **{name: getattr(KVCommOptions(), name)}) == KVCommOptions()


def test_the_lead_in_is_on_the_texts_own_line(tiny_model: LoadedModel) -> None:
    tokens, flow = tiny_model.tokens, tiny.pipeline()
    words = tokens.encode("The task is: ")
    assert tokens.lead_in(flow, "user_question") == (*tokens.opening, *words)
    plain = replace(flow, chat=False)
    assert tokens.lead_in(plain, "user_question") == (*tokens.bos, *words)
    assert tokens.lead_in(flow, "agent_1_current") == tokens.opening, "a line of its own"
    assert tokens.lead_in(flow, "nobody reads this") == tokens.opening


def test_the_base_behind_the_lead_in(tiny_model: LoadedModel) -> None:
    """What the forward pass gives behind the lead-in, for every request in the log; and it is copied."""
    session = LabSession(tiny_model)
    for question in QUESTIONS[:2]:
        run(session, request(["dense", "kvcomm"], question))
    [stream] = session.streams.values()
    assert all(o.lead_in_base is None for o in stream.log.samples.values()), "nobody asked for it"
    held = stream.log.bytes
    led = MethodChoice("kvcomm", {"text_base": "lead-in", "gate": "length"}, "led")
    alone = MethodChoice("kvcomm", {"gate": "length"}, "alone")
    record = run(session, request(["dense", led, alone], QUESTIONS[0]))
    tokens = tiny_model.tokens
    lead = tokens.lead_in(tiny.pipeline(), "user_question")
    for sample in stream.log.samples.values():
        if sample.placeholder != "user_question":
            assert sample.lead_in_base is None, "an answer has its producer's base alone"
            continue
        assert sample.lead_in_base is not None
        ids = torch.tensor([[*lead, *sample.ids]])
        with torch.inference_mode():
            whole = made_cache(tiny_model.module(input_ids=ids, use_cache=True))
        for layer, (keys, values) in enumerate(
            (x.keys[0, :, len(lead) :], x.values[0, :, len(lead) :]) for x in whole.layers
        ):
            places = torch.arange(len(lead), len(lead) + sample.tokens)
            placed = tiny_model.rotation.rotate(sample.lead_in_base.keys, places)[layer]
            assert error(placed, keys) <= TOLERANCE
            assert error(sample.lead_in_base.values[layer], values) <= TOLERANCE
        assert float((sample.lead_in_base.values - sample.base.values).abs().max()) > 100 * TOLERANCE
    assert stream.log.bytes > held
    for agent in record.agents:
        sources = {}
        for label in ("led", "alone"):
            outcome = record.outcome(agent, label)
            assert outcome.state == "reused"
            question = next(s for s in record.prompts[outcome.prompt].spans if s.name == "user_question")
            sources[label] = next(s.source for s in outcome.spans if s.start == question.start)
        # the same question as in the first request, so its base was there already
        assert sources == {"led": "encoded behind its lead-in", "alone": f"encoded alone, {EARLIER}"}
    # asked for the pools after a run that did not need the second base, it is there too
    run(session, request(["dense", alone], QUESTIONS[2]))
    session.pools(request([led], QUESTIONS[2]))
    assert all(
        (o.lead_in_base is not None) == (o.placeholder == "user_question")
        for o in stream.log.samples.values()
    )


def test_one_anchor_that_is_the_text_itself_gives_dense_from_either_base(tiny_model: LoadedModel) -> None:
    """Base plus true offset is the real cache, whichever base the offset is taken from."""
    session = LabSession(tiny_model)
    options = {"gate": "length", "approximation": "nearest"}
    choices = [MethodChoice("kvcomm", options | {"text_base": base}, base) for base in ("alone", "lead-in")]
    for _ in range(2):
        record = run(session, request(["dense", *choices], QUESTIONS[0]))
    for agent in record.agents:
        for base in ("alone", "lead-in"):
            outcome = record.outcome(agent, base)
            assert outcome.state == "reused"
            assert outcome.key_error is not None
            assert outcome.value_error is not None
            assert outcome.key_error.max() <= 10 * TOLERANCE
            assert outcome.value_error.max() <= 10 * TOLERANCE


def test_channel_weights_act_where_the_keys_stand(tiny_model: LoadedModel) -> None:
    """As shipped, key offsets are weighed in the turned frame: a weight per channel does not commute with a
    rotation. (Weights per token do, so placeholders are the same in either order.)"""
    world = World(tiny_model, "llama3", 21)
    sample, contexts = world.request((6, 4))
    others = [world.request((6 + i, 4), near=sample, noise=0.5) for i in range(4)]
    method = method_with(world, [c for _, c in others], gate="length")
    for text in contexts[1].samples.values():
        method.on_event(Arrived(text), world.log)
    context = contexts[1]
    plan = method.plan(context, world.log, Clock())
    steps = []
    for step in plan.steps:
        assert isinstance(step.action, Reuse)
        assert step.action.in_place == bool(step.action.terms)
        steps.append(replace(step, action=replace(step.action, in_place=False)))
    right = world.engine.execute(context.prompt, plan, Clock()).cache
    other = world.engine.execute(context.prompt, replace(plan, steps=tuple(steps)), Clock()).cache
    for span in context.prompt.spans[1:4]:
        at = slice(span.start, span.end)
        apart = error(other.keys[:, 0, :, at], right.keys[:, 0, :, at])
        assert (apart > 100 * TOLERANCE) == (span.kind == "prefix"), span
        assert error(other.values[:, 0, :, at], right.values[:, 0, :, at]) <= TOLERANCE


def test_the_published_profile_is_untouched() -> None:
    """None of it is on unless asked for."""
    assert Weighing().text_base == "alone"
    assert PoolRules().weights_from == "each agent"
    assert not KVCommOptions().wants_lead_in
    assert KVCommOptions(**SHIPPED).wants_lead_in
    assert not Reuse(KVSegment(torch.empty(0), torch.empty(0), 0, True, "")).in_place
