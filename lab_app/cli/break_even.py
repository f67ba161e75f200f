"""``kvlab break-even``: when does reuse pay, by lengths, pool and hardware?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from backend.base.errors import OptionError
from backend.records.break_even import LONGEST, Answer, Case, Machine, answer, plain
from backend.records.hardware import OF_SHEET, SHAPES, Figures, given_machine, measured_figures, saved_figures
from lab_app.cli.common import named_file, path_of, show_progress, write_json

MODEL, SHAPE, LENGTHS, REPEATS = "embedded", "llama-8b", (200, 400, 800), 5
#: Options of one source of figures alone; under another they would be dropped without a word.
MEASURING, SHEET = ("model", "lengths", "repeats", "device"), ("tflops", "gb_s", "shape")


def add_break_even(add: Any) -> None:
    """Register the command; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add(
        "break-even",
        break_even,
        "When does reuse pay? By prompt, shared texts, readers and pool, on hardware measured here or given.",
    )
    sub.add_argument("--prompt", type=int, default=1000, help="tokens of the reader's prompt (1000)")
    sub.add_argument("--shared", type=float, default=0.75, help="share of it that is reused texts (0.75)")
    sub.add_argument(
        "--outside", type=float, default=0.0,
        help="share of these whose base has to be encoded first, such as a new question (0)",
    )  # fmt: skip
    sub.add_argument("--readers", type=int, default=1, help="agents that read them and share that cost (1)")
    sub.add_argument("--anchors", type=int, default=20, help="in each pool (20)")
    sub.add_argument("--mixed", type=int, help="of them into each text; else all")
    sub.add_argument("--model", help=f"measured: a model, smollm2-135m or llama-8b ({MODEL})")
    sub.add_argument("--shape", choices=tuple(SHAPES), help=f"of the model on given hardware ({SHAPE})")
    sub.add_argument("--tflops", type=float, help="given: 1e12 operations a second that a prefill reaches")
    sub.add_argument("--gb-s", type=float, help="given: 1e9 bytes a second that it copies")
    sub.add_argument("--machine", metavar="FILE.json", help="figures that an earlier run measured and saved")
    sub.add_argument(
        "--lengths", type=int, nargs="+", help=f"measured prompts ({' '.join(map(str, LENGTHS))})"
    )
    sub.add_argument("--repeats", type=int, help=f"measured: of each side ({REPEATS})")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"), help="measured: else the best there is")
    sub.add_argument("--json", metavar="FILE", help="where figures and answer are saved")


def break_even(args: argparse.Namespace) -> int:
    """Handler of the command."""
    for name in ("shared", "outside"):
        value = getattr(args, name)
        if not 0 <= value <= 1:
            raise OptionError(
                f"--{name} is {value:g}; a share from 0 to 1 is allowed, such as 0.5. Change it.",
                field=f"break_even.{name}",
            )
    shared = round(
        Case(args.prompt, 0).prompt * args.shared
    )  # a number too large for shares is refused first
    mixed = args.anchors if args.mixed is None else args.mixed
    case = Case(args.prompt, shared, round(shared * args.outside), args.readers, args.anchors, mixed)
    out = named_file("json", args.json, "break-even.json") if args.json else None
    figures, measured = _figures(args)
    for line in [*said(figures, case, answer(figures.machine, case)), *_beside(measured)]:
        print(line)
    if out is not None:
        report = {"bench": "break-even", **plain(figures.machine, case), **measured}
        write_json(out, report)
        print(f"Saved as {out}; --machine {out} uses its figures again")
    return 0


def _figures(args: argparse.Namespace) -> tuple[Figures, dict[str, Any]]:
    """The hardware's figures: of a file, given, or measured now; and what was measured now."""
    if args.machine is not None:
        _refuse(args, (*SHEET, *MEASURING), "the figures are those of --machine. Name one source of figures")
        return saved_figures(path_of(args.machine)), {}
    if args.tflops is not None or args.gb_s is not None:
        return _sheet(args), {}
    why = "this machine is measured. Say what to measure with --model, add --tflops and --gb-s"
    _refuse(args, ("shape",), why)
    measured = _measured(args)
    return measured_figures(*measured), measured[1]


def _refuse(args: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Refuse options that the source of figures does not read."""
    for name in names:
        value = getattr(args, name)
        if value is not None:
            given = " ".join(map(str, value)) if isinstance(value, list) else value
            flag = f"--{name.replace('_', '-')}"
            raise OptionError(
                f"{flag} is {given}, but {why}, or leave {flag} out.", field=f"break_even.{name}"
            )


def _sheet(args: argparse.Namespace) -> Figures:
    """The figures of given hardware."""
    shapes = ", ".join(SHAPES)
    why = f"on hardware given by --tflops and --gb-s nothing is measured. Name a --shape ({shapes})"
    _refuse(args, MEASURING, why)
    if args.tflops is None or args.gb_s is None:
        raise OptionError(
            "Given hardware needs both --tflops and --gb-s, as in --tflops 600 --gb-s 2500. Add the other.",
            field="break_even.tflops",
        )
    for name, (low, high) in OF_SHEET.items():
        value = getattr(args, name)
        if not low <= value <= high:
            raise OptionError(
                f"--{name.replace('_', '-')} is {value:g}; {low:g} to {high:,.0f} are allowed. Change it.",
                field=f"break_even.{name}",
            )
    machine = given_machine(args.shape or SHAPE, args.tflops, args.gb_s)
    return Figures(machine, machine.name)


def _measured(args: argparse.Namespace) -> tuple[Machine, dict[str, Any]]:
    """This machine, and the timed cases with their conditions."""
    from backend.bench.break_even import Measured, measure
    from backend.bench.group import shape_or_model

    model = shape_or_model(MODEL if args.model is None else args.model, args.device)
    repeats = REPEATS if args.repeats is None else args.repeats
    for event in measure(model, args.lengths or LENGTHS, max(2, args.anchors), repeats):
        if isinstance(event, Measured):
            return event.machine, {"measured": list(event.cases), **event.conditions}
        show_progress(event.text)
    raise AssertionError("a measurement ends with its figures")


def said(figures: Figures, case: Case, result: Answer) -> list[str]:
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
    timed = [one.tokens for one in figures.timed]
    lengths = sorted({case.prompt, result.least_tokens or case.prompt})
    beyond = [f"{tokens:,}" for tokens in lengths if timed and not min(timed) <= tokens <= max(timed)]
    if not beyond:
        return []
    return [
        f"Beyond the measured prompts of {min(timed):,} to {max(timed):,} tokens, so extrapolated: what is "
        f"said of {' and '.join(beyond)}."
    ]


def _paid_off(case: Case, result: Answer) -> str:
    """What the pool takes, and when that has come back."""
    if not case.anchors:
        return "Without anchors there is no pool to be filled and paid off."
    held = f"A reader's anchors take {result.pool_bytes / 2**20:,.1f} MiB"
    if result.pays_after is None:
        return f"{held} and are never paid off."
    return f"{held} and are paid off after {result.pays_after:,} requests, its own included."


def _beside(measured: dict[str, Any]) -> list[str]:
    """The cases that were measured now beside the formula."""
    return [
        f"  measured at {one['case']['prompt']:,} tokens: the full read {one['dense_ms']:.1f}, reuse "
        f"{one['reuse_ms']:.1f} ms ({one['ratio']:.2f}); the formula says {one['formula_ratio']:.2f}"
        for one in measured.get("measured", ())
    ]
