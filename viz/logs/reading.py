"""A model's reading of a log's sampled calls: the verdict, then methods, layouts and changed answers."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from backend.base.text import boundary_words
from backend.records.log_reading import Blamed, ReadingRecord, ReadingRow
from viz.base.format import clip, plural
from viz.base.html import joined, render, table
from viz.base.theme import shown_name

MOST_CHANGED = 6
LONGEST = 400  # characters of an answer


def verdict_html(record: ReadingRecord) -> Markup:
    """Whether the answers stay."""
    lines = [line for line in lines_of(record) if line["agent"] is None]
    return render(
        "logs/reading.html", record=record, read=lines[0]["flips"]["of"] if lines else 0,
        worst=max(lines, key=lambda line: line["flips"]["count"], default=None),
        kept=[line["method"] for line in lines if not line["flips"]["count"]],
    )  # fmt: skip


def answers_html(record: ReadingRecord) -> Markup:
    """What each method and each layout changed, and the changed answers with their causes; nothing where no
    call could be read."""
    lines = lines_of(record)
    changed = [row for row in record.rows if row.flipped]
    if not lines:
        return Markup("")
    return render(
        "logs/answers.html", methods=methods_html(lines, len(record.agents) > 1),
        layouts=layouts_html(record),
        changed=[changed_html(row, name_of(record, row.method)) for row in changed[:MOST_CHANGED]],
        more=max(0, len(changed) - MOST_CHANGED), tax=boundary_words(record.boundary_tax),
    )  # fmt: skip


def name_of(record: ReadingRecord, label: str) -> str:
    """A method's name on the page."""
    return shown_name(label, {m.label: m.name for m in record.request.methods}.get(label, label))


def lines_of(record: ReadingRecord) -> list[dict[str, Any]]:
    """What each method changed, of all agents and of each."""
    lines = (line | {"method": name_of(record, line["method"])} for line in record.summary())
    return [line for line in lines if line["flips"]["of"]]


def of_interval(share: dict[str, Any]) -> Markup:
    """A count with the interval of its share."""
    return Markup('{} of {} <span class="kv-log-limits">{} to {}</span>').format(
        share["count"], share["of"], f"{share['low']:.0%}", f"{share['high']:.0%}"
    )


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def methods_html(lines: Sequence[dict[str, Any]], several: bool) -> Markup:
    """A row for each method, and for each agent under it."""
    heads = (
        "Method, agent", "reused", "answers changed (95%)", "not by rounding", "tool calls changed",
        "KL at the first token", "KL along the logged answer",
    )  # fmt: skip
    rows = [
        (
            line["method"] if line["agent"] is None else f"– {clip(line['agent'], 28)}",
            f"{line['reused']:.0%}", of_interval(line["flips"]), line["real_flips"]["count"],
            of_interval(line["tool_flips"]) if line["tool_flips"]["of"] else "none called",
            number(line["kl_first"]), number(line["kl_logged"]),
        )
        for line in lines
        if line["agent"] is None or several
    ]  # fmt: skip
    return table(heads, [("", rows)], look="kv-log-reading", row_heads=True)


def layouts_html(record: ReadingRecord) -> Markup:
    """A row for each layout that was tried; nothing where none was."""
    rows = [
        (
            f"{line['layout'][0].upper()}{line['layout'][1:]}"
            f"{line['method'] and ': ' + name_of(record, line['method'])}",
            f"{line['saved']:,} ({line['saved'] / max(1, line['of']):.0%})", of_interval(line["flips"]),
            line["real_flips"]["count"], number(line["kl_first"]),
        )
        for line in record.verdicts()
    ]  # fmt: skip
    heads = (
        "Layout", "tokens saved in the log", "answers changed (95%)", "not by rounding",
        "KL at the first token",
    )  # fmt: skip
    return table(heads, [("", rows)], look="kv-log-reading", row_heads=True) if rows else Markup("")


def changed_html(row: ReadingRow, method: str) -> Markup:
    """One changed answer beside dense's."""
    return render(
        "logs/changed.html", row=row, method=method, dense=clip(row.dense, LONGEST),
        text=clip(row.text, LONGEST), because=blamed_html(row.blamed) if row.blamed else "",
    )  # fmt: skip


def blamed_html(blamed: Blamed) -> Markup:
    """Which part of the cache changed the answer."""
    if blamed.refused:
        return Markup("What changed it was not searched: {}").format(blamed.refused)
    if not blamed.parts:
        return Markup("No small part of the cache was found that brings the answer back.")
    parts = joined(
        [
            Markup("<q>{}</q> ({}, layers {} to {})").format(p.text, p.half, p.first, p.last)
            for p in blamed.parts
        ],
        ", ",
    )
    restored = plural(blamed.random_restored, "does", "do")
    return Markup(
        "With {} of the cache from the full read its answer is back: {}. Of {} random parts as large, {}."
    ).format(f"{blamed.share:.1%}", parts, blamed.random, restored)
