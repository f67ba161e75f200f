"""``kvlab bench ttft``: time to first token of an agent that reads what others have read and written.

Both sides in one run, interleaved: *dense* is one plain prefill of the whole prompt with the model's own
attention (SDPA), logits for the last token only, and no mask where none is needed; *reuse* is KVCOMM's whole
path after the last upstream token: gate of the newest sample, matching, correction, rotation, and the last
prompt token's forward, with all eligible anchors and with the two heaviest. Medians of repeats after a
warm-up. Nothing is synchronised within a timed pass; the parts come from passes of their own. Beside each
time of reuse stands what its bytes need at the copy bandwidth of the same run: the weights read once for the
first token, and (2A + 4)u for the cache, where offsets in half precision count half. Beside dense stands what
its operations need at the rate of a large product of matrices.
"""

from collections.abc import Callable
from typing import Any

from backend.base.clock import Clock
from backend.bench.common import BenchRequest, check_reads, medians, stronger_dense, timed
from backend.bench.reading import Reading
from backend.bench.roofline import percent, prefill_operations, rates
from backend.cache.offset_packing import HALF
from backend.engine.engine import Engine
from backend.methods.kvcomm.options import KVCommOptions
from backend.model.load import LoadedModel

QUESTION_SHARE, ANSWER_SHARE = 0.4, 0.35  # of the prompt's tokens; the rest is template text


def reading_of(model: LoadedModel, tokens: int, anchors: int) -> Reading:
    """An agent whose prompt has so many tokens: a question, an upstream answer, and template text."""
    question, answer = int(tokens * QUESTION_SHARE), int(tokens * ANSWER_SHARE)
    rest = tokens - question - answer
    prefixes = (rest // 2, rest // 4, rest - rest // 2 - rest // 4)
    texts = {"user_question": question, "agent_1_current": answer}
    more = {}
    if model.dtype.itemsize > HALF.itemsize:
        more["half"] = KVCommOptions(capacity=anchors, gamma=1.0, codec="half")
    return Reading(model, 2, prefixes, texts, anchors, more)


def bench_ttft(request: BenchRequest) -> dict[str, Any]:
    """Measure; see the module's docstring."""
    model, tokens, repeats = request.model(), request.tokens, request.repeats
    check_reads(model, tokens)
    reading = reading_of(model, tokens, request.anchors)
    methods = reading.methods
    sides: dict[str, Callable[[], object]] = {"dense": reading.dense}
    precisions = {"dense": model.dtype}
    sides |= {name: (lambda name=name: reading.reuse(name, Clock())) for name in methods}  # type: ignore[misc]
    if stronger := stronger_dense(model):
        # Last in a turn: the pass after it has to ask for memory anew, which doubled the time of a reuse of
        # 3,500 tokens on smollm2-135m. That pass is dense, so long that it makes no difference.
        bf16 = Engine(stronger)
        precisions["dense_bf16"] = stronger.dtype
        sides["dense_bf16"] = lambda: bf16.prefill(reading.context.prompt.ids)
    times = timed(sides, repeats, model.device)
    ms = medians(times)
    roof = rates(model.device, precisions, repeats)
    least = reading.least_ms(roof)
    return request.report(
        "ttft",
        times,
        model.device,
        model.dtype,
        **{f"{name}_ms": value for name, value in ms.items()},
        **times.ratios("dense", "reuse"),
        **times.ratios("dense", "two_heaviest", "two_heaviest_ratio"),
        **(times.ratios("dense", "half", "half_ratio") if "half" in methods else {}),
        **(times.ratios("dense_bf16", "reuse", "bf16_ratio") if "dense_bf16" in sides else {}),
        **{f"{name}_parts_ms": reading.parts(name, repeats) for name in methods},
        copy_gb_s=roof.copy_gb_s,
        product_gflop_s=roof.product_gflop_s,
        operations={
            "dense": prefill_operations(model, tokens),
            "reuse": prefill_operations(model, tokens, 1),
        },
        least_ms=least,
        roofline_percent={name: percent(value, ms[name]) for name, value in least.items()},
    )
