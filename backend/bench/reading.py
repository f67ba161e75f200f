"""One agent that reads others' texts, with full anchor pools."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from backend.base.clock import Clock
from backend.base.errors import OptionError
from backend.bench.common import drawn_cache, medians, random_segment
from backend.bench.roofline import Rates, least_ms, prefill_operations, weight_bytes
from backend.cache.offset_packing import HALF
from backend.cache.samples import PromptInContext, Sample, SampleLog
from backend.engine.engine import Engine
from backend.methods.base import Arrived, Finished
from backend.methods.kvcomm.method import KVCommMethod
from backend.methods.kvcomm.options import KVCommOptions
from backend.methods.plan import Reuse
from backend.model.load import LoadedModel
from backend.records.prompt import Span, TokenizedPrompt
from backend.session.request_state import record_offsets

HEAVIEST = 2
MIXED = {"reuse": 0, "two_heaviest": HEAVIEST}  # by side; 0 mixes all


class Reading:
    """An agent's prompt and full pools, all of whose anchors are eligible.

    Template text and shared texts take turns, template text first and last. Tokens and KV are drawn at
    random: times do not depend on them.

    Attributes:
        context: the prompt that is measured; ``newest`` its last text, which has just arrived.
        methods: KVCOMM by the name of its side: ``reuse`` mixes all anchors, ``two_heaviest`` two.
        corrected: tokens to which offsets are added.
    """

    def __init__(
        self,
        model: LoadedModel,
        agent: int,
        prefixes: Sequence[int],
        texts: Mapping[str, int],
        anchors: int,
        more: Mapping[str, KVCommOptions] | None = None,
    ) -> None:
        """
        Args:
            agent: who reads.
            prefixes: tokens of each piece of template text, one more than there are texts.
            texts: tokens of each shared text, by its placeholder.
            anchors: pool size V.
            more: options of further sides; all anchors have to be eligible under them.
        """
        self.model, self.engine, self.agent, self.texts = model, Engine(model), agent, texts
        self.generator = torch.Generator().manual_seed(agent)
        self.fixed = {f"prefix {i}": self.draw(size) for i, size in enumerate(prefixes)}
        self.corrected = sum(prefixes[1:]) + sum(texts.values())
        self.log = SampleLog("bench", 1 << 62)
        options = {name: KVCommOptions(capacity=anchors, gamma=1.0, top_k=top) for name, top in MIXED.items()}
        options |= more or {}
        self.methods = {name: KVCommMethod(o) for name, o in options.items()}
        total = sum(prefixes) + sum(texts.values())
        self.room = random_segment(model, total)
        self.bases = {name: self.room.slice(0, len(ids)) for name, ids in self.fixed.items()}
        cache = drawn_cache(model, total)
        for _ in range(anchors):
            context = self.request()
            record_offsets(context, cache, self.engine)
            for sample in context.samples.values():
                for method in self.methods.values():
                    method.pool(sample.placeholder).insert(sample)
        for method in self.methods.values():
            method.on_event(Finished(), self.log)  # packs
        del cache
        self.context = self.request()
        self.newest = list(self.context.samples.values())[-1]
        for method in self.methods.values():
            for sample in self.context.samples.values():
                method.on_event(Arrived(sample), self.log)

    def draw(self, count: int) -> tuple[int, ...]:
        """Random token ids."""
        high = self.model.info.vocabulary - 1
        return tuple(torch.randint(5, high, (count,), generator=self.generator).tolist())

    def request(self) -> PromptInContext:
        """A prompt with new texts between the same template texts."""
        spans: list[Span] = []
        ids: list[int] = []
        samples: dict[str, Sample] = {}

        def add(kind: Literal["prefix", "placeholder"], name: str, part: tuple[int, ...]) -> None:
            spans.append(Span(kind, name, len(ids), len(ids) + len(part)))
            ids.extend(part)

        add("prefix", "prefix 0", self.fixed["prefix 0"])
        for number, (name, size) in enumerate(self.texts.items(), 1):
            part = self.draw(size)
            add("placeholder", name, part)
            samples[name] = self.log.add(name, part, "", self.room.slice(0, size), self.model.embed(part))
            add("prefix", f"prefix {number}", self.fixed[f"prefix {number}"])
        return PromptInContext(TokenizedPrompt(self.agent, tuple(ids), tuple(spans)), samples, self.bases)

    def least_ms(self, rates: Rates) -> dict[str, float]:
        """What each side needs at least, in milliseconds: ``dense`` (and ``dense_bf16`` where its rate is
        known) for its operations, each method's reuse for the bytes that :meth:`least_bytes` counts."""
        computed = prefill_operations(self.model, len(self.context.prompt.ids))
        least = {name: least_ms(self.least_bytes(name), rates.copy_gb_s) for name in self.methods}
        return least | {name: least_ms(computed, rate) for name, rate in rates.product_gflop_s.items()}

    def least_bytes(self, name: str) -> float:
        """What a method's path has to move: the weights once for the first token, each corrected token's
        offsets of all anchors that are mixed, and base and cache of the whole prompt."""
        options = self.methods[name].options
        mixed: float = min(options.top_k or options.capacity, options.capacity)
        if options.codec == "half":
            mixed *= min(1.0, HALF.itemsize / self.model.dtype.itemsize)
        each = self.model.info.kv_bytes_per_token
        return weight_bytes(self.model) + each * (mixed * self.corrected + 2 * len(self.context.prompt.ids))

    def dense(self) -> Tensor:
        """One plain prefill: the last token's logits (vocabulary,)."""
        return self.engine.prefill(self.context.prompt.ids)[1]

    def reuse(self, name: str, clock: Clock) -> Tensor:
        """KVCOMM's path after the last upstream token: the last prompt token's logits (vocabulary,).

        Raises:
            OptionError: the gate refused, so nothing of it was timed.
        """
        method = self.methods[name]
        with clock.part("gate"):
            method.on_event(Arrived(self.newest), self.log)
        plan = method.plan(self.context, self.log, clock)
        if not all(isinstance(step.action, Reuse) for step in plan.steps):
            raise OptionError(
                f"The gate refused reuse, so there is nothing to time: {plan.reason}", field="bench"
            )
        return self.engine.execute(self.context.prompt, plan, clock).logits

    def parts(self, name: str, repeats: int) -> dict[str, float]:
        """Medians of the path's parts, in milliseconds, from passes of their own."""
        times: dict[str, list[float]] = {}
        for _ in range(repeats):
            clock = self.engine.clock()
            self.reuse(name, clock)
            for part, value in clock.parts.items():
                times.setdefault(part, []).append(value)
        return medians(times)
