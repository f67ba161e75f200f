"""``kvlab xray --model``: a log's sampled calls under reuse, on a model."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backend.base.errors import OptionError
from backend.base.text import boundary_words
from lab_app.cli.common import parse_methods, path_of, print_lines, print_table, result_of

if TYPE_CHECKING:
    from backend.logs.advice import Advice
    from backend.logs.layouts import Layouts
    from backend.records.log_reading import ReadingRecord

SHOWN = 5  # changed answers, and agents
METHODS, SAMPLE = "naive,kvcomm", 50
HEAD = (
    "method, agent", "reused", "answers changed", "95%", "not by rounding", "tool calls changed", "KL first",
    "KL logged", "cache error",
)  # fmt: skip
LAID = (
    "layout", "method", "tokens saved", "share", "answers changed", "95%", "not by rounding",
    "tool calls changed", "KL first",
)  # fmt: skip


def check_reading(params: Mapping[str, Any]) -> None:
    """
    Raises:
        OptionError: an option of ``--model`` is named without it.
    """
    for flag in ("methods", "sample", "advice"):
        if params[flag] not in (None, False) and not params["model"]:
            raise OptionError(f"--{flag} is for --model, which is not there. Add it.", field="model")


def read_log(
    params: Mapping[str, Any], placement: Mapping[str, Any], xrayed: tuple[Layouts, Sequence[Advice]] | None
) -> ReadingRecord:
    """Read the log's calls on the model that ``--model`` names; ``xrayed``: their layouts and the X-ray's
    proposals, if these are tried."""
    from backend.logs.calls import by_time
    from backend.logs.reader import LogReader
    from backend.model.load import load_model
    from backend.records.log_reading import ReadingRecord, ReadingRequest
    from backend.studies.log_reading import read_log
    from backend.studies.logged_calls import MOST_CALLS

    request = ReadingRequest(
        tuple(m for m in parse_methods(params["methods"] or METHODS) if not m.reference),
        SAMPLE if params["sample"] is None else params["sample"], params["most_tokens"],
        params["blame_passes"], params["warmup"], params["max_new_tokens"], params["same"], params["seed"],
        params["advice"],
    )  # fmt: skip
    reader = LogReader(path_of(params["log"]), skip_bad=params["skip_bad"])
    calls = list(itertools.islice(reader, MOST_CALLS + 1))
    calls = [calls[place] for place in by_time([call.time for call in calls])]
    model = load_model(params["model"], **placement)
    return result_of(read_log(model, request, calls, params["budget_mb"] << 20, xrayed=xrayed), ReadingRecord)


def say_reading(record: ReadingRecord) -> None:
    """The tables."""
    count = len(record.of(record.request.methods[0].label))
    print(
        f"\n{count} of {record.calls:,} calls were read by {record.model.name}, densely and under reuse; "
        f"{record.warmed:,} only filled pools, {len(record.refused):,} could not be read"
        + ("; the budget of tokens ended it." if record.spent else ".")
    )
    if record.refused:
        print(f"  The first: {record.refused[0].where}: {record.refused[0].why}")
    rows: list[tuple[str, ...]] = [HEAD]
    for line in record.summary():
        if line["agent"] in (None, *record.agents[:SHOWN]) and line["flips"]["of"]:
            rows.append(_line(line, several=len(record.agents) > 1))
    print_table([row for row in rows if row], 1)
    print_lines(
        "KL in nats, dense to method, a token; logged: along the logged answers. Cache error: keys, values.",
        boundary_words(record.boundary_tax),
    )
    changed = [row for row in record.rows if row.flipped]
    for row in changed[:SHOWN]:
        print(f"  {row.where}, {row.agent[:40]}, {row.method}{' (near tie)' if row.near_tie else ''}:")
        print(f"    dense: {_short(row.dense)}\n    reuse: {_short(row.text)}")
        if row.blamed is not None:
            print(f"    {_blame(row.blamed)}")
    if len(changed) > SHOWN:
        print(f"  and {len(changed) - SHOWN} more (--json)")

    if record.proposed:
        _say_layouts(record)


def _say_layouts(record: ReadingRecord) -> None:
    print(f"\nLayouts that would share more, read by {record.model.name}:")
    rows = [LAID]
    for line in record.verdicts():
        flips, calls = line["flips"], line["tool_flips"]
        rows.append((
            line["layout"], line["method"], f"{line['saved']:,}", f"{line['saved'] / max(1, line['of']):.1%}",
            f"{flips['count']} of {flips['of']}", f"{flips['low']:.1%} to {flips['high']:.1%}",
            f"{line['real_flips']['count']}", f"{calls['count']} of {calls['of']}" if calls["of"] else "",
            f"{line['kl_first']:.2g}",
        ))  # fmt: skip
    print_table(rows, 2)
    print(
        "Saved: of the whole log. Changed: of the sampled calls, beside dense's answer to the call as sent. A"
        "\nlayout without a method is read in full: nothing but the order is another."
    )
    for row in [row for row in record.laid if row.flipped][:SHOWN]:
        print(f"  {row.where}, {row.layout}{' (near tie)' if row.near_tie else ''}:")
        print(f"    as sent: {_short(row.dense)}\n    so:      {_short(row.text)}")


def _line(line: dict[str, Any], several: bool) -> tuple[str, ...]:
    if line["agent"] is not None and not several:
        return ()
    flips, real, calls = line["flips"], line["real_flips"], line["tool_flips"]

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.2g}"

    return (
        line["method"] if line["agent"] is None else f"  {line['agent'][:30]}",
        f"{line['reused']:.0%}", f"{flips['count']} of {flips['of']}",
        f"{flips['low']:.1%} to {flips['high']:.1%}", f"{real['count']}",
        f"{calls['count']} of {calls['of']}" if calls["of"] else "",
        number(line["kl_first"]), number(line["kl_logged"]),
        ", ".join(filter(None, map(number, (line["key_error"], line["value_error"])))),
    )  # fmt: skip


def _blame(blamed: Any) -> str:
    if blamed.refused:
        return f"because of: not searched. {blamed.refused}"
    if not blamed.parts:
        return "because of: no small set of texts was found."
    parts = "; ".join(
        f"“{_short(p.text, 60)}” ({p.half}, layers {p.first} to {p.last})" for p in blamed.parts
    )
    return (
        f"because of: {parts}; {blamed.share:.1%} of the cache. Of {blamed.random} random sets as large "
        f"{blamed.random_restored} bring the answer back."
    )


def _short(text: str, most: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def plain(record: ReadingRecord) -> dict[str, Any]:
    """All of it as JSON."""
    from backend.base.serialization import as_json

    return {"summary": record.summary(), "verdicts": record.verdicts(), **as_json(record)}
