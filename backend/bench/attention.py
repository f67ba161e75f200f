"""``kvlab bench attention``: what recording costs a run, beside the same run without it.

Four sides in one run, interleaved: a whole pinned run of a preset under dense, position-only reuse and
KVCOMM, with nothing recorded, with offsets (and errors, and the model's surprise at each prompt), with
attention, and with both. Each side has a session of its own that was warmed up with the same requests and is
sent the same ones, so at every turn all sides have the same pools. Beside each time stands what the run needs
at least at the rates of the same run: the operations of every prefill, and the weights read once for every
token written, by all methods together.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from backend.base.errors import OptionError
from backend.bench.common import BenchRequest, medians, timed
from backend.bench.roofline import Rates, least_ms, percent, prefill_operations, rates, weight_bytes
from backend.model.load import LoadedModel
from backend.prompts.presets import load_preset, preset_requests
from backend.records.events import RunDone
from backend.records.hardware import SHAPES
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import RunRecord
from backend.session.session import LabSession

PRESET = "math-4"
MAX_NEW_TOKENS = 24
WARM_UP_REQUESTS = 2
ALLOWED_PERCENT = 10.0
SIDES = {"off": (False, False), "offsets": (True, False), "attention": (False, True), "both": (True, True)}


def bench_attention(request: BenchRequest) -> dict[str, Any]:
    """Measure; see the module's docstring. ``tokens`` play no part: the preset's prompts are what they are.

    Raises:
        OptionError: ``shape`` is random weights, which write no text.
    """
    if request.shape in SHAPES:
        raise OptionError(
            f"The shape {request.shape!r} has random weights and no tokenizer, and a whole run needs both. "
            "Give 'embedded', a model's folder or a hub id.",
            field="bench.shape",
        )
    model = request.model()
    preset = load_preset(PRESET)
    examples = preset_requests(preset, WARM_UP_REQUESTS + 1)
    reuse = MethodChoice("kvcomm", {"capacity": request.anchors, "gamma": 1.0})
    methods = (MethodChoice("dense"), MethodChoice("naive"), reuse)
    plain = RunRequest(
        preset.pipeline, dict(examples[-1].values), methods, "pinned", Decoding(MAX_NEW_TOKENS)
    )
    records: dict[str, RunRecord] = {}

    def side(name: str) -> Callable[[], object]:
        session = LabSession(model, budget_bytes=1 << 34)
        offsets, attention = SIDES[name]
        run = replace(plain, probe_offsets=offsets, probe_attention=attention)
        for _ in session.warm_up(run, examples[:-1]):
            pass

        def act() -> None:
            for event in session.run(run):
                if isinstance(event, RunDone):
                    records[name] = event.record

        return act

    times = timed({name: side(name) for name in SIDES}, request.repeats, model.device)
    ms = medians(times)
    ratios = {name: times.ratios(name, "off") for name in SIDES if name != "off"}
    roof = rates(model.device, {"run": model.dtype}, request.repeats)
    least = run_least_ms(model, records["off"], roof)
    return request.report(
        "attention",
        times,
        model.device,
        model.dtype,
        ("anchors",),
        preset=PRESET,
        methods=[choice.label for choice in methods],
        prompt_tokens=[len(prompt.token_ids) for prompt in records["off"].prompts],
        **{f"{name}_ms": value for name, value in ms.items()},
        ratio={name: ratio["ratio"] for name, ratio in ratios.items()},
        processor_ratio={name: ratio.get("processor_ratio") for name, ratio in ratios.items()},
        allowed_percent=ALLOWED_PERCENT,
        offsets_percent=round(100 * (ratios["offsets"]["ratio"] - 1), 1),
        # Off means that nothing was recorded, not that it was thrown away.
        recorded={
            name: {"offsets": len(record.offsets), "attention": len(record.attention)}
            for name, record in records.items()
        },
        copy_gb_s=roof.copy_gb_s,
        product_gflop_s=roof.product_gflop_s["run"],
        least_ms=least,
        roofline_percent={name: percent(least, value) for name, value in ms.items()},
    )


def run_least_ms(model: LoadedModel, record: RunRecord, roof: Rates) -> float:
    """What a run needs at least, in milliseconds, with nothing recorded: the operations of each method's
    prefill of what it read afresh, and one pass over the weights for every token behind the first of the
    longest answer to a prompt, as the methods write together. ``roof`` names the rate ``run``."""
    bytes_read = operations = 0
    for number, prompt in enumerate(record.prompts):
        outcomes = [outcome for outcome in record.outcomes if outcome.prompt == number]
        tokens = len(prompt.token_ids)
        for outcome in outcomes:
            operations += prefill_operations(model, tokens, min(outcome.timing.forwarded_tokens, tokens))
        written = max((len(outcome.token_ids) for outcome in outcomes), default=1)
        bytes_read += (written - 1) * weight_bytes(model)
    return round(least_ms(operations, roof.product_gflop_s["run"]) + least_ms(bytes_read, roof.copy_gb_s), 4)
