"""``kvlab certify``: can a model's keys be moved? With a log: does reuse keep the answers of its calls?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Context, Option

from backend.base.errors import OptionError
from backend.base.text import boundary_words
from lab_app.cli.common import (
    Device,
    DeviceMap,
    Dtype,
    Quantise,
    loading,
    named_file,
    one_method,
    path_of,
    print_lines,
    result_of,
    write_json,
)

if TYPE_CHECKING:
    from backend.model.load import LoadedModel
    from backend.records.log_gate import GateRecord

#: Flags of the gate: calls are sampled, read densely and under a method, and their answers compared.
gate_option = partial(Option, rich_help_panel="A gate for logged calls")


def certify(
    context: Context,
    model: str = Argument(..., metavar="MODEL"),
    device: Device = None,
    device_map: DeviceMap = None,
    quantise: Quantise = None,
    dtype: Dtype = None,
    log: str | None = gate_option(
        None, metavar="FILE", help="calls of your agents, one a line, in any format known"
    ),
    method: str = gate_option("kvcomm", help="one, as in --methods of run"),
    max_flips: str = gate_option("2%", help="share of answers that may change: 2% or 0.02"),
    certainty: str = gate_option("95%", help="of what is said, such as 95%"),
    calls: int = gate_option(300, help="most calls that are sampled"),
    warmup: int = gate_option(8, help="first calls of a template: they fill pools alone"),
    max_new_tokens: int = gate_option(64, help="the longest answer"),
    same: str = gate_option("none", help="what has to be equal: none (all of it), number, text, ..."),
    stop_early: bool = gate_option(False, "--stop-early", help="look after every call; stop once certain"),
    seed: int = gate_option(0),
    skip_bad: bool = gate_option(False, "--skip-bad", help="pass over lines of the log that hold no call"),
    budget_mb: int = gate_option(4096),
    json: str | None = gate_option(
        None, metavar="OUT", help="where to write the verdict and every compared call"
    ),
    badge: str | None = gate_option(
        None, metavar="OUT", help="where to write it as a badge: .svg, or .json of shields.io"
    ),
) -> int:
    """Probe whether a model's keys can be moved; with --log, whether reuse keeps logged calls' answers.

    Exit status with --log: 0: at most --max-flips of the sampled calls' answers change, for certain; 1: not
    certain; 2: it could not be told.
    """
    from backend.model.load import load_model

    placement = loading(device, device_map, quantise)
    if log:
        return gate(context.params, partial(load_model, model, dtype=dtype, **placement))
    if json or stop_early or badge:
        raise OptionError(
            "--json, --badge and --stop-early are for --log, which is not there. Add it.", field="log"
        )
    info = load_model(model, dtype=dtype, **placement).info
    certificate = info.certificate
    print(
        f"{info.name}: {info.parameters:,} parameters, {info.layers} layers, {info.device}, "
        f"{info.dtype}, weights {info.weights_hash}"
    )
    print(certificate.reason)
    print(f"{'layer':>5}  {'kind':<18} {'turned':>6}  {'key error':>9}  {'value error':>11}")
    for index, layer in enumerate(certificate.layers):
        print(
            f"{index:>5}  {layer.kind:<18} {layer.rotated_dims:>6}  {layer.key_error:>9.1e}  "
            f"{layer.value_error:>11.1e}"
        )
    print(
        f"Rounding noise (one piece against two): keys {certificate.floor:.1e} relative, logits "
        f"{certificate.logit_floor:.1e} absolute"
    )
    return 0 if certificate.relocatable else 1


def gate(params: Mapping[str, Any], load: Callable[[], LoadedModel]) -> int:
    """``kvlab certify --log``; the exit status."""
    from backend.logs.reader import LogReader
    from backend.records.log_gate import GateRecord, GateRequest
    from backend.studies.log_gate import log_gate
    from backend.studies.logged_calls import MOST_CALLS

    out = named_file("json", params["json"], "gate.json") if params["json"] else None
    badge = named_file("badge", params["badge"], "badge.svg") if params["badge"] else None
    if badge and badge.suffix not in (".svg", ".json"):
        raise OptionError(
            f"--badge is {params['badge']!r}; its name has to end in .svg or .json.", field="badge"
        )
    request = GateRequest(
        one_method(params["method"]), share("max-flips", params["max_flips"]),
        share("certainty", params["certainty"]), params["calls"], params["warmup"], params["max_new_tokens"],
        params["same"], params["stop_early"], params["seed"],
    )  # fmt: skip
    reader = LogReader(path_of(params["log"]), skip_bad=params["skip_bad"])
    calls = list(itertools.islice(reader, MOST_CALLS + 1))
    record = result_of(log_gate(load(), request, calls, params["budget_mb"] << 20), GateRecord)
    verdict, why = record.decision
    print_lines(f"{verdict}: {why}.\n{facts(record)}.", boundary_words(record.boundary_tax))
    if reader.skipped:
        print(f"{reader.skipped} bad lines of the log were passed over; the first: {reader.bad[0]}")
    if out:
        write_json(out, report(record, reader.skipped))
        print(f"The verdict and {len(record.rows)} calls are in {out}")
    if badge:
        write_badge(badge, record)
        print(f"The badge is {badge}")
    return record.code


def write_badge(path: Path, record: GateRecord) -> None:
    """The verdict as a picture, or as shields.io's JSON."""
    from viz.logs.badge import badge, badge_svg

    if path.suffix == ".json":
        write_json(path, badge(record))
    else:
        path.write_text(badge_svg(record), encoding="utf-8")


def share(flag: str, text: str) -> float:
    """``2%`` or ``0.02``.

    Raises:
        OptionError: it is neither.
    """
    number, percent, tail = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = float("nan")
    if tail or not -1e9 < value < 1e9:
        raise OptionError(f"--{flag} is {text!r}; write a share, such as 2% or 0.02.", field=flag)
    return value


def facts(record: GateRecord) -> str:
    """The counts behind the verdict."""
    rows = record.read
    reused, tokens = (sum(getattr(row, name) for row in rows) for name in ("reused_tokens", "prompt_tokens"))
    part = f", {reused / tokens:.0%} of their prompt tokens reused" if tokens else ""
    ties = sum(row.near_tie for row in rows)
    what = f"{record.model.name}, {record.request.method.label}"
    unread = len(record.rows) - len(rows)
    return (
        f"{what}: {len(rows)} of {record.calls} calls compared{part}; {record.warmed} only filled pools, "
        f"{unread} could not be read; in {ties} of {record.flips} changes rounding alone could have changed "
        "the answer"
    )


def report(record: GateRecord, skipped: int) -> dict[str, Any]:
    """The verdict and every call as JSON."""
    from backend.base.machine import versions
    from backend.base.serialization import as_json

    verdict, why = record.decision
    low, high = record.limits
    return {
        "verdict": verdict, "why": why, "code": record.code, "flips": record.flips,
        "compared": len(record.read), "low": low, "high": high, "needed": record.request.needed,
        "bad_lines": skipped, "versions": versions(), **as_json(record),
    }  # fmt: skip
