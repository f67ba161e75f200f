"""``kvlab break-even``: when does reuse pay, by lengths, pool and hardware?"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from typer import Context, Option

from backend.base.errors import OptionError
from backend.records.break_even import LONGEST, Answer, Case, Machine, answer, plain
from backend.records.hardware import OF_SHEET, SHAPES, Figures, given_machine, measured_figures, saved_figures
from lab_app.cli.common import named_file, path_of, result_of, write_json

MODEL, SHAPE, LENGTHS, REPEATS = "embedded", "llama-8b", (200, 400, 800), 5
#: Options that one source of figures reads alone; with another source they are an error.
MEASURING, SHEET = ("model", "lengths", "repeats", "device"), ("tflops", "gb_s", "shape")


def break_even(
    context: Context,
    prompt: int = Option(1000, help="tokens of the reader's prompt"),
    shared: float = Option(0.75, help="share of it that is reused texts"),
    outside: float = Option(
        0.0, help="share of these whose base has to be encoded first, such as a new question (0)"
    ),
    readers: int = Option(1, help="agents that read them and share that cost"),
    anchors: int = Option(20, help="in each pool"),
    mixed: int | None = Option(None, help="of them into each text; else all"),
    model: str | None = Option(None, help="measured: a model, smollm2-135m or llama-8b (embedded)"),
    shape: Literal["smollm2-135m", "llama-8b"] | None = Option(
        None, help="of the model on given hardware (llama-8b)"
    ),
    tflops: float | None = Option(None, help="given: 1e12 operations a second that a prefill reaches"),
    gb_s: float | None = Option(None, help="given: 1e9 bytes a second that it copies"),
    machine: str | None = Option(
        None, metavar="FILE.json", help="figures that an earlier run measured and saved"
    ),
    lengths: list[int] | None = Option(None, help="measured prompts (200 400 800)"),
    repeats: int | None = Option(None, help="measured: of each side (5)"),
    device: Literal["cpu", "cuda", "mps"] | None = Option(None, help="measured: else the best there is"),
    json: str | None = Option(None, metavar="FILE", help="where figures and answer are saved"),
) -> int:
    """When does reuse pay? By prompt, shared texts, readers and pool, on hardware measured here or given."""
    for name, value in (("shared", shared), ("outside", outside)):
        if not 0 <= value <= 1:
            raise OptionError(
                f"--{name} is {value:g}; a share from 0 to 1 is allowed, such as 0.5. Change it.",
                field=f"break_even.{name}",
            )
    tokens = round(Case(prompt, 0).prompt * shared)  # a number too large for shares is refused first
    case = Case(
        prompt, tokens, round(tokens * outside), readers, anchors, anchors if mixed is None else mixed
    )
    out = named_file("json", json, "break-even.json") if json else None
    figures, measured = _figures(context.params)
    for line in [*answer_lines(figures, case, answer(figures.machine, case)), *_measured_lines(measured)]:
        print(line)
    if out is not None:
        report = {"bench": "break-even", **plain(figures.machine, case), **measured}
        write_json(out, report)
        print(f"Saved as {out}; --machine {out} uses its figures again")
    return 0


def _figures(params: Mapping[str, Any]) -> tuple[Figures, dict[str, Any]]:
    """The hardware's figures, from a file, from the options or measured; and the measurement, if any."""
    if params["machine"] is not None:
        _refuse(
            params, (*SHEET, *MEASURING), "the figures are those of --machine. Name one source of figures"
        )
        return saved_figures(path_of(params["machine"])), {}
    if params["tflops"] is not None or params["gb_s"] is not None:
        return _sheet(params), {}
    why = "this machine is measured. Say what to measure with --model, add --tflops and --gb-s"
    _refuse(params, ("shape",), why)
    measured = _measure_machine(params)
    return measured_figures(*measured), measured[1]


def _refuse(params: Mapping[str, Any], names: Sequence[str], why: str) -> None:
    """Refuse options that the source of figures does not read."""
    for name in names:
        value = params[name]
        if value not in (None, ()):  # a flag of several values is () if it was not given
            text = " ".join(map(str, value)) if isinstance(value, list) else value
            flag = f"--{name.replace('_', '-')}"
            raise OptionError(
                f"{flag} is {text}, but {why}, or leave {flag} out.", field=f"break_even.{name}"
            )


def _sheet(params: Mapping[str, Any]) -> Figures:
    """The figures of given hardware."""
    shapes = ", ".join(SHAPES)
    why = f"on hardware given by --tflops and --gb-s nothing is measured. Name a --shape ({shapes})"
    _refuse(params, MEASURING, why)
    if params["tflops"] is None or params["gb_s"] is None:
        raise OptionError(
            "Given hardware needs both --tflops and --gb-s, as in --tflops 600 --gb-s 2500. Add the other.",
            field="break_even.tflops",
        )
    for name, (low, high) in OF_SHEET.items():
        value = params[name]
        if not low <= value <= high:
            raise OptionError(
                f"--{name.replace('_', '-')} is {value:g}; {low:g} to {high:,.0f} are allowed. Change it.",
                field=f"break_even.{name}",
            )
    machine = given_machine(params["shape"] or SHAPE, params["tflops"], params["gb_s"])
    return Figures(machine, machine.name)


def _measure_machine(params: Mapping[str, Any]) -> tuple[Machine, dict[str, Any]]:
    """This machine, and the timed cases with their conditions."""
    from backend.bench.break_even import Measured, measure
    from backend.bench.group import shape_or_model

    model = shape_or_model(MODEL if params["model"] is None else params["model"], params["device"])
    repeats = REPEATS if params["repeats"] is None else params["repeats"]
    events = measure(model, params["lengths"] or LENGTHS, max(2, params["anchors"]), repeats)
    result = result_of(events, Measured)
    return result.machine, {"measured": list(result.cases), **result.conditions}


def answer_lines(figures: Figures, case: Case, result: Answer) -> list[str]:
    """The answer in words."""
    pool = f"{case.mixed} of {case.anchors} anchors mixed" if case.anchors else "no anchors"
    lines = [
        f"On {figures.machine.name}: {case.prompt:,} tokens, {case.shared:,} of them in reused texts, "
        f"{pool}.",
        f"The full read {result.dense_ms:,.1f} ms, reuse {result.reuse_ms:,.1f} ms to the first token: "
        f"{result.ratio:.2f} times as fast. Of reuse: "
        + ", ".join(f"{name} {ms:,.1f}" for name, ms in result.parts_ms.items())
        + ".",
        *_extrapolated(figures, case, result),
    ]
    if result.least_share is None:
        lines.append("Reuse does not pay here, even if every request passes the gate.")
    else:
        lines.append(f"It pays from {result.least_share:.0%} of the requests passing the gate on.")
    if result.least_tokens is None:
        lines.append("With these shares no length of the prompt pays.")
    elif result.least_tokens == 1:
        lines.append("With these shares any length of the prompt pays.")
    else:
        lines.append(f"With these shares a prompt pays from {result.least_tokens:,} tokens on.")
    if result.most_anchors is not None:
        most = "Any number of" if result.most_anchors >= LONGEST else f"Up to {result.most_anchors:,}"
        lines.append(f"{most} anchors could be mixed before the full read is as fast.")
    return [*lines, _paid_off(case, result)]


def _extrapolated(figures: Figures, case: Case, result: Answer) -> list[str]:
    """Which of the answer's lengths lie beyond the prompts that were timed."""
    prompts = [timing.tokens for timing in figures.timed]
    lengths = sorted({case.prompt, result.least_tokens or case.prompt})
    beyond = [f"{tokens:,}" for tokens in lengths if prompts and not min(prompts) <= tokens <= max(prompts)]
    if not beyond:
        return []
    return [
        f"Beyond the measured prompts of {min(prompts):,} to {max(prompts):,} tokens, so extrapolated: "
        f"what is said of {' and '.join(beyond)}."
    ]


def _paid_off(case: Case, result: Answer) -> str:
    """The pool's memory, and after how many requests it is paid off."""
    if not case.anchors:
        return "Without anchors there is no pool to be filled and paid off."
    memory = f"A reader's anchors take {result.pool_bytes / 2**20:,.1f} MiB"
    if result.pays_after is None:
        return f"{memory} and are never paid off."
    return f"{memory} and are paid off after {result.pays_after:,} requests, its own included."


def _measured_lines(measured: dict[str, Any]) -> list[str]:
    """Each measured case beside the formula's ratio."""
    return [
        f"  measured at {row['case']['prompt']:,} tokens: the full read {row['dense_ms']:.1f}, reuse "
        f"{row['reuse_ms']:.1f} ms ({row['ratio']:.2f}); the formula says {row['formula_ratio']:.2f}"
        for row in measured.get("measured", ())
    ]
