"""A reproduction that was run: the paper's figure beside ours, as JSON and as Markdown. Free of torch."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backend.base.errors import RecordError
from backend.reproduce.spec import PAPERS, Form, Line, Measurement, Reproduction, Scale, Value

FORMAT = 1
NOT_MEASURED = "not measured in this run"


def report(
    entry: Reproduction,
    scale: Scale,
    measurements: Sequence[Measurement],
    notes: Sequence[str],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """What is saved: every line with the paper's figures and ours, or why there is none.

    Args:
        measurements: what was measured; of several that fit a line the first counts.
        notes: what has to be said of this run.
        facts: hardware, weights, versions, command, seconds, energy.
    """
    scaled = entry.scales[scale]
    return {
        "format": FORMAT,
        "name": entry.name,
        "paper": PAPERS[entry.paper],
        "place": entry.place,
        "asks": entry.sentence,
        "scale": scale,
        "setting_paper": entry.setting,
        "setting_ours": scaled.here,
        "caveat": entry.caveat.strip(),
        "notes": list(dict.fromkeys(notes)),
        "columns": [{"title": c.title, "form": c.form, "measured": c.measured(scale)} for c in entry.columns],
        "lines": [_line(entry, scale, line, measurements) for line in entry.lines],
        "picture": _picture(entry, scale),
        "measured": [
            {"where": dict(f.where), "values": {k: _plain(v) for k, v in f.values.items()}}
            for f in measurements
        ],
        **facts,
    }


def _line(
    entry: Reproduction, scale: Scale, line: Line, measurements: Sequence[Measurement]
) -> dict[str, Any]:
    where = line.at.get(scale)
    ours: list[Any] = []
    for column in entry.columns:
        metric = line.metrics.get(column.title, column.metric)
        value = None
        if where is not None and metric and column.measured(scale):
            place = {**where, **(column.at or {}).get(scale, {})}
            fitting = next((f for f in measurements if fits(f, place)), None)
            value = fitting.values.get(metric) if fitting else None
        ours.append(None if value is None or math.isnan(value.value) else _plain(value))
    why = ""
    if where is None:
        why = entry.scales[scale].absent or NOT_MEASURED
    elif not any(ours):
        why = NOT_MEASURED
    return {"label": line.label, "paper": list(line.paper), "ours": ours, "absent": why}


def _picture(entry: Reproduction, scale: Scale) -> dict[str, Any] | None:
    """What a drawing needs beside the lines: axes, columns, each line's number (None: it is left out). None
    where no line has a number."""
    if entry.drawn is None:
        return None
    places = [line.at.get(scale, {}).get(entry.drawn.over, "") for line in entry.lines]
    numbers = [int(place) if place.isdigit() else None for place in places]
    return asdict(entry.drawn) | {"places": numbers} if any(numbers) else None


def fits(measurement: Measurement, where: Mapping[str, str]) -> bool:
    """Is this the figure a line asks for?"""
    for name, expected in where.items():
        actual = measurement.where.get(name, "")
        if expected.lower() not in actual.lower() if name == "model" else expected != actual:
            return False
    return True


def _plain(value: Value) -> dict[str, Any]:
    """JSON knows neither NaN nor infinity."""
    numbers = {"value": value.value, "low": value.low, "high": value.high}
    return {k: v if math.isfinite(v) else None for k, v in numbers.items()} | {"of": value.of}


def read(path: Path) -> dict[str, Any]:
    """A saved report.

    Raises:
        RecordError: the file is none, or of another format.
    """
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        saved = None
    if not isinstance(saved, dict) or saved.get("format") != FORMAT or "lines" not in saved:
        raise RecordError(
            f"{path.name} is no report of a reproduction of format {FORMAT}. Run kvlab reproduce again.",
            field="reproduce",
        )
    return saved


# -- Markdown


def markdown(saved: Mapping[str, Any]) -> str:
    """A report for people."""
    energy = saved.get("energy", {})
    lines = [
        f"# {saved['name']}: {saved['place']}",
        "",
        f"{saved['asks']} Paper: {saved['paper']}.",
        "",
        "| | the paper | this run |",
        "|---|---|---|",
        f"| setting | {saved['setting_paper']} | {saved['setting_ours']} |",
        f"| model | | {_model(saved.get('model', {}))} |",
        f"| machine | | {saved.get('hardware', '-')}; {saved.get('busy', '')} |",
        f"| took | | {saved.get('seconds', 0):,.0f} s in this process |",
        f"| energy | | {_energy(energy)} |",
        "",
        *picture(saved, f"{saved['name']}.svg"),
        *table(saved),
        "",
        f"**Before comparing.** {saved['caveat']}",
        "",
    ]
    if saved["notes"]:
        lines += ["**Of this run.** " + " ".join(saved["notes"]), ""]
    versions = ", ".join(f"{name} {number}" for name, number in saved.get("versions", {}).items())
    lines += [f"`{saved.get('command', '')}`, {saved.get('created', '')}, {versions}.", ""]
    return "\n".join(lines)


def _model(model: Mapping[str, Any]) -> str:
    size = f"{model['parameters']:,} parameters, " if "parameters" in model else ""
    return (
        f"{model.get('name', '-')}, {size}{model.get('dtype', '-')} on {model.get('device', '-')}, weights "
        f"`{model.get('weights_hash', '-')}`"
    )


def _energy(energy: Mapping[str, Any]) -> str:
    if energy.get("joules") is None:
        return str(energy.get("absent") or "-")
    return f"{energy['joules']:,.0f} J of the GPU over the whole run"


def picture(saved: Mapping[str, Any], path: str) -> list[str]:
    """The drawing of a figure in Markdown; nothing of a table."""
    return [f"![{saved['asks']} The table has its figures.]({path})", ""] if saved.get("picture") else []


def table(saved: Mapping[str, Any], ours_only: bool = False) -> list[str]:
    """The table as Markdown; a column that both have becomes two.

    Args:
        ours_only: leave out lines without a figure of ours.
    """
    titles, places = _heads(saved)
    out = [f"| | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    for line in saved["lines"]:
        if ours_only and not any(line["ours"]):
            continue
        cells = []
        for index, side in places:
            column = saved["columns"][index]
            if side == "paper":
                cells.append(paper_figure(line["paper"][index], column["form"]))
            else:
                cells.append(our_figure(line["ours"][index], column["form"]) or "-")
        why = f" ({line['absent']})" if line["absent"] and not any(line["ours"]) else ""
        out.append(f"| {line['label']}{why} | {' | '.join(cells)} |")
    return out


def _heads(saved: Mapping[str, Any]) -> tuple[list[str], list[tuple[int, str]]]:
    titles: list[str] = []
    places: list[tuple[int, str]] = []
    for index, column in enumerate(saved["columns"]):
        if any(line["paper"][index] is not None for line in saved["lines"]):
            titles.append(f"{column['title']}, paper")
            places.append((index, "paper"))
        if column["measured"]:
            titles.append(f"{column['title']}, ours")
            places.append((index, "ours"))
    return titles, places


_UNITS: Mapping[Form, str] = {"percent": "%", "ms": " ms", "times": "x", "nats": " nats", "mb": " MB",
                              "joules": " J", "number": ""}  # fmt: skip


def paper_figure(value: float | str | None, form: Form) -> str:
    """As printed, with its unit."""
    if value is None:
        return "-"
    return f"{value}{_UNITS[form]}" if isinstance(value, str) else f"{value:g}{_UNITS[form]}"


def our_figure(value: Mapping[str, Any] | None, form: Form) -> str:
    """A measured figure with its interval; empty where there is none."""
    if value is None or value["value"] is None:
        return ""

    def number_text(number: float) -> str:
        if form == "percent":
            return f"{100 * number:.1f}"
        return f"{number:.3g}" if abs(number) < 1000 else f"{number:,.0f}"

    interval = ""
    if value["low"] is not None and value["high"] is not None and value["low"] != value["high"]:
        interval = f" ({number_text(value['low'])} to {number_text(value['high'])})"
    return f"{number_text(value['value'])}{_UNITS[form]}{interval}"
