"""``kvlab bench ttft``: time to first token of an agent that reads what others have read and written.

Both sides in one run, interleaved: *dense* is one plain prefill of the whole prompt with the model's own
attention (SDPA), logits for the last token only, and no mask where none is needed; *reuse* is KVCOMM's whole
path after the last upstream token: gate of the newest sample, matching, correction, rotation, and the last
prompt token's forward, with all eligible anchors and with the two heaviest. Medians of repeats after a
warm-up. Nothing is synchronised within a timed pass; the parts come from passes of their own. Beside each
time stands what its bytes need at the copy bandwidth of the same run: the weights read once for the first
token, and (2A + 4)u for the cache, where offsets in half precision count half.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from backend.bench.common import (
    SHAPES,
    check,
    conditions,
    copy_gb_s,
    drawn,
    drawn_cache,
    least_ms,
    medians,
    random_model,
    spreads,
    timed,
)
from backend.engine import Engine, Prefill
from backend.errors import OptionError
from backend.flow import see_offsets
from backend.methods.base import Arrived, Blend, Clock, Finished
from backend.methods.kvcomm import KVCommMethod, KVCommOptions
from backend.model import load_model
from backend.offset_codec import HALF
from backend.records import Span
from backend.store import Observation, ObservationLog, PromptInContext
from backend.tokens import TokenizedPrompt

QUESTION_SHARE, ANSWER_SHARE = 0.4, 0.35  # of the prompt's tokens; the rest is template text
HEAVIEST = 2


def bench_ttft(
    shape: str, tokens: int, anchors: int, repeats: int, device: str | None = None
) -> dict[str, Any]:
    """Measure; see the module's docstring.

    Args:
        shape: ``embedded``, ``smollm2-135m``, ``llama-8b`` (random weights) or a model's name or folder.
        tokens: prompt length of the measured agent: its first prefix, a question, a prefix, an upstream
            answer, a last prefix.
        anchors: pool size V; every pool is full and all its anchors are eligible.
        repeats: timed repetitions of each side.
    """
    check(tokens, anchors, repeats)
    model = random_model(shape, device) if shape in SHAPES else load_model(shape, device=device)
    engine = Engine(model)
    generator = torch.Generator().manual_seed(1)

    def draw(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(5, model.info.vocabulary - 1, (count,), generator=generator).tolist())

    question, answer = int(tokens * QUESTION_SHARE), int(tokens * ANSWER_SHARE)
    rest = tokens - question - answer
    sizes = {"prefix 0": rest // 2, "prefix 1": rest // 4, "prefix 2": rest - rest // 2 - rest // 4}
    fixed = {name: draw(size) for name, size in sizes.items()}
    log = ObservationLog("bench", 1 << 40)
    options = {"reuse": KVCommOptions(capacity=anchors, gamma=1.0)}
    options["two_heaviest"] = KVCommOptions(capacity=anchors, gamma=1.0, top_k=HEAVIEST)
    if model.dtype.itemsize > HALF.itemsize:
        options["half"] = KVCommOptions(capacity=anchors, gamma=1.0, codec="half")
    methods = {name: KVCommMethod(o) for name, o in options.items()}
    room = drawn(model, tokens)
    bases = {name: room.slice(0, len(ids)) for name, ids in fixed.items()}

    def request() -> tuple[PromptInContext, list[Observation]]:
        parts = [
            ("prefix 0", fixed["prefix 0"]),
            ("user_question", draw(question)),
            ("prefix 1", fixed["prefix 1"]),
            ("agent_1_current", draw(answer)),
            ("prefix 2", fixed["prefix 2"]),
        ]
        spans: list[Span] = []
        ids: list[int] = []
        samples: dict[str, Observation] = {}
        for name, part in parts:
            spans.append(
                Span(
                    "prefix" if name.startswith("prefix") else "placeholder",
                    name,
                    len(ids),
                    len(ids) + len(part),
                )
            )
            ids += part
            if not name.startswith("prefix"):
                samples[name] = log.add(name, part, "", room.slice(0, len(part)), model.embed(part))
        return PromptInContext(TokenizedPrompt(2, tuple(ids), tuple(spans)), samples, bases), list(
            samples.values()
        )

    cache = drawn_cache(model, tokens)
    for _ in range(anchors):
        context, samples = request()
        see_offsets(context, cache, engine)
        for sample in samples:
            for method in methods.values():
                method.pool(sample.placeholder).insert(sample)
    for method in methods.values():
        method.observe(Finished(), log)  # packs
    del cache
    context, samples = request()

    def dense() -> object:
        return engine.prefill(context.prompt.ids)

    def reuse(name: str, clock: Clock) -> Prefill:
        method = methods[name]
        with clock.part("gate"):
            method.observe(Arrived(samples[-1]), log)
        plan = method.plan(context, log, clock)
        if not all(isinstance(step.action, Blend) for step in plan.steps):
            raise OptionError(
                f"The gate refused reuse, so there is nothing to time: {plan.reason}", field="bench"
            )
        return engine.execute(context.prompt, plan, clock)

    for method in methods.values():
        for sample in samples:
            method.observe(Arrived(sample), log)
    sides: dict[str, Callable[[], object]] = {"dense": dense}
    sides |= {name: (lambda name=name: reuse(name, Clock())) for name in methods}  # type: ignore[misc]
    times = timed(sides, repeats, model.device)
    parts: dict[str, dict[str, list[float]]] = {name: {} for name in methods}
    for _ in range(repeats):
        for name, found in parts.items():
            clock = engine.clock()
            reuse(name, clock)
            for part, value in clock.parts.items():
                found.setdefault(part, []).append(value)
    ms, gb_s = medians(times), copy_gb_s(model.device, repeats)
    corrected = sum(o.tokens for o in samples) + sizes["prefix 1"] + sizes["prefix 2"]
    weight_bytes = sum(p.numel() * p.element_size() for p in model.module.parameters())
    read: dict[str, float] = {
        "reuse": anchors,
        "two_heaviest": min(HEAVIEST, anchors),
    }  # offsets of each corrected token
    read["half"] = anchors * HALF.itemsize / model.dtype.itemsize
    least = {
        name: least_ms(
            weight_bytes + model.info.kv_bytes_per_token * (read[name] * corrected + 2 * tokens), gb_s
        )
        for name in methods
    }
    return {
        "bench": "ttft",
        "shape": shape,
        "tokens": tokens,
        "anchors": anchors,
        "repeats": repeats,
        **{f"{name}_ms": value for name, value in ms.items()},
        **times.ratios("dense", "reuse"),
        **times.ratios("dense", "two_heaviest", "two_heaviest_ratio"),
        **(times.ratios("dense", "half", "half_ratio") if "half" in methods else {}),
        **{f"{name}_parts_ms": medians(found) for name, found in parts.items()},
        "spread": spreads(times),
        "copy_gb_s": gb_s,
        "copy_ms": least,
        "roofline_percent": {name: round(100 * value / ms[name], 1) for name, value in least.items()},
        **conditions(model.device, model.dtype),
    }
