"""The state of one request in a pipeline: its texts so far, as token ids and as samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from backend.cache.kv_cache import KVCache, KVSegment
from backend.cache.samples import PromptInContext, Sample, SampleLog
from backend.engine.engine import Engine
from backend.engine.isolated_encoder import IsolatedEncoder
from backend.model.low_rank import LowRank
from backend.prompts.pipeline import Pipeline
from backend.prompts.template import Placeholder
from backend.records.prompt import TokenizedPrompt
from backend.records.run import EARLIER


@dataclass
class RequestState:
    """The texts and samples of one request, as one method (or, pinned, every method) sees them.

    ``base_ms`` holds the time of encoding a sample's base until its first reader has been charged;
    ``lead_in_ms`` that of its second base, where some method wants one (:meth:`lead_in`), and ``isolated_ms``
    that of texts encoded with nothing before them (:mod:`backend.engine.isolated_encoder`).
    """

    pipeline: Pipeline
    engine: Engine
    log: SampleLog
    ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    samples: dict[str, Sample] = field(default_factory=dict)
    base_ms: dict[str, float] = field(default_factory=dict)
    lead_in_ms: dict[str, float] = field(default_factory=dict)
    isolated_ms: dict[tuple[str, tuple[int, ...]], float] = field(default_factory=dict)
    with_lead_ins: bool = False
    before: frozenset[tuple[str, tuple[int, ...]]] = frozenset()  # texts that the log held alone before
    engines: Mapping[str, Engine] = field(default_factory=dict)  # by the name of other weights

    def encode_lead_ins(self) -> None:
        """Encode the bases that the public code has as well: of outside texts, those in the log now and
        others as they arrive, and of template text.

        A question or a tool's result is encoded behind the user header and the words that lead in to it,
        whose KV is dropped; a template with its placeholders' names in braces, quotes and a space in its
        holes.
        """
        self.with_lead_ins = True
        tokens = self.engine.model.tokens
        name_ids = {hole.name: tokens.encode(f"{{{hole.name!r}}} ") for hole in self.pipeline.placeholders}
        for agent in self.pipeline.order:
            if not self.log.named_bases.get(agent):
                agent_bases = self.log.named_bases.setdefault(agent, {})
                where = "the template with its holes filled by their names"
                agent_bases.update(self._template_bases(agent, name_ids, where)[1])
        unencoded: dict[str, list[Sample]] = {}
        for sample in self.log.samples.values():
            outside = Placeholder(sample.placeholder).kind in ("question", "tool", "declared")
            if outside and sample.lead_in_base is None:
                unencoded.setdefault(sample.placeholder, []).append(sample)
        for name, samples in unencoded.items():
            bases = self._encode_lead_in(name, [sample.ids for sample in samples])
            for sample, base in zip(samples, bases, strict=True):
                sample.lead_in_base = base

    def _encode_lead_in(self, name: str, texts: Sequence[tuple[int, ...]]) -> list[KVSegment]:
        """The bases of a placeholder's texts behind its lead-in."""
        lead = self.engine.model.tokens.lead_in(self.pipeline, name)
        self.outside.check_room(len(lead) + max(map(len, texts)), 1, self.pipeline.order[0])
        return self.outside.encode_together(texts, lead, "encoded behind its lead-in")

    def engine_of(self, agent: int) -> Engine:
        """The engine of an agent's weights."""
        return self.engines.get(self.pipeline.agent(agent).model, self.engine)

    @property
    def outside(self) -> Engine:
        """The engine of the weights that encode what comes from outside."""
        return self.engines.get(self.pipeline.outside_model, self.engine)

    @property
    def low_ranks(self) -> dict[str, LowRank]:
        """Those adapters that agents of this pipeline run on, by the name of their weights."""
        named = {name: self.engines[name] for a in self.pipeline.agents if (name := a.model) in self.engines}
        return {name: e.model.low_rank for name, e in named.items() if e.model.low_rank is not None}

    def start(self, values: Mapping[str, str]) -> list[Sample]:
        """Tokenise the outside values and encode their bases; returns the samples that arrived.

        A base is encoded behind the begin-of-sequence token alone, whose KV is dropped: independent of
        any context (Section 3.3), yet with the attention sink that these models need.
        """
        self.before = frozenset(self.log.isolated)
        return self._take(values)

    def _take(self, values: Mapping[str, str]) -> list[Sample]:
        tokens = self.engine.model.tokens
        samples = []
        for name, text in values.items():
            ids = self.ids[name] = tokens.encode(text)
            if not ids:
                continue
            self.engine.check_room(len(ids), 1, self.pipeline.order[0])
            samples.append(self._add_sample(name, ids, text, self._base(name, ids)))
            if self.with_lead_ins:
                clock = self.engine.clock()
                with clock.part("led"):
                    (self.samples[name].lead_in_base,) = self._encode_lead_in(name, [ids])
                self.lead_in_ms[name] = clock.parts["led"]
        self.log.bases.update({sample.ids: sample.base for sample in samples})
        return samples

    def _base(self, name: str, ids: tuple[int, ...]) -> KVSegment:
        """An outside text's base: encoded once, for whatever request, place and order."""
        base = self.log.bases.get(ids)
        if base is not None:
            return replace(base, context=f"encoded alone, {EARLIER}")
        clock = self.engine.clock()
        with clock.part("base"):
            base = self.outside.encode(ids, self.engine.model.tokens.bos, "encoded alone")
        self.base_ms[name] = clock.parts["base"]
        return base

    def answer(self, agent: int, ids: tuple[int, ...], text: str, kv: KVSegment) -> Sample | None:
        """Add an agent's answer with the KV of its decoding; None when no agent reads it or it is empty."""
        name = self.pipeline.output(agent)
        self.ids[name] = ids
        read = any(hole.name == name for hole in self.pipeline.placeholders)
        return self._add_sample(name, ids, text, kv) if read and ids else None

    @property
    def answers(self) -> dict[int, tuple[int, ...]]:
        """The token ids that each agent has answered so far."""
        names = {agent: self.pipeline.output(agent) for agent in self.pipeline.order}
        return {agent: self.ids[name] for agent, name in names.items() if name in self.ids}

    def tool_result(self, agent: int, text: str) -> Sample | None:
        """Add the result of an agent's tool, an outside text; None when no agent reads it or it is empty."""
        name = self.pipeline.output(agent, "condition")
        if not any(hole.name == name for hole in self.pipeline.placeholders):
            return None
        return next(iter(self._take({name: text})), None)

    def _add_sample(self, name: str, ids: tuple[int, ...], text: str, base: KVSegment) -> Sample:
        sample = self.log.add(name, ids, text, base, self.outside.model.embed(ids))
        self.samples[name] = sample
        return sample

    def context(self, agent: int) -> PromptInContext:
        """An agent's prompt with everything known about its segments."""
        prompt = self.engine.model.tokens.prompt(self.pipeline, agent, self.ids)
        names = [s.name for s in prompt.spans if s.kind == "placeholder"]
        samples = {n: self.samples[n] for n in names if n in self.samples}
        self._encode_template(agent)
        weights = self.pipeline.agent(agent).model
        return PromptInContext(
            prompt,
            samples,
            self.log.prefix_bases[agent],
            self.log.isolated_bases[agent],
            self.engine.model.rotation,
            weights,
            self.low_ranks,
            IsolatedEncoder(self.engine_of(agent), self.log, weights, self.before, self.isolated_ms),
            named_bases=self.log.named_bases.setdefault(agent, {}),
        )

    def _encode_template(self, agent: int) -> None:
        """Base KV of an agent's prefix segments, once, before any request (step 0): in its template with
        stand-ins in the holes, and each by itself."""
        if agent not in self.log.prefix_bases:
            engine = self.engine_of(agent)
            tokens = engine.model.tokens
            filled = {n: tokens.encode(t) for n, t in self.pipeline.stand_ins.items()}
            where = "the template with its holes filled by stand-ins"
            prompt, bases = self._template_bases(agent, filled, where)
            self.log.prefix_bases[agent] = bases
            self.log.isolated_bases[agent] = {
                s.name: bases[s.name]
                if s.start == 0
                else engine.encode(prompt.span_ids(s), tokens.bos, "encoded alone")
                for s in prompt.spans
                if s.kind == "prefix"
            }

    def _template_bases(
        self, agent: int, filled: Mapping[str, tuple[int, ...]], where: str
    ) -> tuple[TokenizedPrompt, dict[str, KVSegment]]:
        """An agent's template with its holes filled, and the KV of its prefix segments there."""
        engine = self.engine_of(agent)
        prompt = engine.model.tokens.prompt(self.pipeline, agent, dict(filled))
        engine.check_room(len(prompt.ids), 1, agent)
        cache, _ = engine.prefill(prompt.ids)
        return prompt, {
            s.name: cache.segment(s.start, s.end, engine.model.rotation, exact=True, context=where)
            for s in prompt.spans
            if s.kind == "prefix"
        }

    def charge(self, context: PromptInContext) -> float:
        """Milliseconds of encoding bases that this agent is the first to read."""
        self.isolated_ms.clear()
        for name in context.samples:
            self.lead_in_ms.pop(name, None)
        return sum(self.base_ms.pop(name, 0.0) for name in context.samples)


@torch.inference_mode()
def record_offsets(
    context: PromptInContext, cache: KVCache, engine: Engine, only: set[int] | None = None
) -> None:
    """Write the offsets that a dense pass over ``context`` shows into its samples (Algorithm 1).

    Args:
        context: the prompt; its samples' ``offsets`` gain an entry for its agent.
        cache: the dense cache of the whole prompt.
        engine: for the rotation.
        only: observation numbers to write; all when absent.
    """
    places = {s.name: s for s in context.prompt.spans}

    def pair(name: str, base: KVSegment) -> tuple[KVSegment, KVSegment]:
        span = places[name]
        return cache.segment(span.start, span.end, engine.model.rotation, exact=True, context=""), base

    for name, sample in context.samples.items():
        if only is not None and sample.number not in only:
            continue
        pairs = {name: pair(name, sample.base)}
        pairs |= {f: pair(f, context.prefix_bases[f]) for f in context.followers(name)}
        sample.add_offsets(context.prompt.agent, pairs, {segment: places[segment].start for segment in pairs})
