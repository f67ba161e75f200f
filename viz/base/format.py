"""Numbers and names in words, and escaping for HTML and figures."""

import math
import unicodedata
from collections.abc import Iterable
from html import escape as _escape
from typing import Any

import numpy as np

from backend.prompts.pipeline import Pipeline
from backend.prompts.template import Placeholder
from backend.records.blame import Part, exact_parts
from backend.records.prompt import Prompt, Span
from backend.records.run import ACTIONS, Outcome, RunRecord
from viz.base.theme import MethodStyle, method_styles

NONE = "–"
TINY = 1e-6  # smaller values are shown as smaller than this
#: What an outcome's state is called on the page.
STATE_WORDS = {
    "dense": "computed",
    "reused": "reused",
    "partial": "partly reused",
    "fallback": "gate refused",
}
#: Actions in the order in which shares are listed.
ACTION_ORDER = ("reused", "corrected", "recomputed", "computed")
GAP = "\u00a0"  # between a number and its unit, so that no line breaks there


def escape(text: object) -> str:
    """Any text, safe inside HTML text and attributes."""
    return _escape(str(text), quote=True)


def order_words(label: str) -> str:
    """A judge's order of candidates for a person."""
    return "as they stand" if label == "identity" else label.replace("shuffle ", "shuffled, seed ")


def plot_text(text: object) -> str:
    """Any text, safe inside a figure: Plotly interprets a few tags and entities."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def number(value: float | None, digits: int = 3) -> str:
    """``digits`` significant digits, without an exponent up to 10 million; tiny values as a bound."""
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    value = float(f"{value:.{digits - 1}e}")
    size = abs(value)
    if size < TINY:
        return "< 1e-6" if value > 0 else "> -1e-6"
    if size >= 1e7:
        return f"{value:.{max(0, digits - 2)}e}".replace("e-0", "e-").replace("e+0", "e")
    places = max(0, digits - 1 - math.floor(math.log10(size)))
    return f"{value:,.{places}f}"


def rounded(*values: Any, digits: int = 6) -> tuple[float | str, ...]:
    """Numbers for a table; empty where NaN."""
    return tuple("" if np.isnan(v) else round(float(v), digits) for v in values)


def milliseconds(value: float) -> str:
    """A time with a fitting unit."""
    return f"{number(value / 1000)}{GAP}s" if value >= 10_000 else f"{number(value)}{GAP}ms"


def size(count: float) -> str:
    """Bytes with a fitting binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{number(count)}{GAP}{unit}" if unit != "B" else f"{count:.0f}{GAP}B"
        count /= 1024
    return ""


def percent(part: float, whole: float) -> str:
    """``part`` of ``whole`` in percent."""
    if not whole:
        return f"0{GAP}%"
    share = 100 * part / whole
    text = "<1" if 0 < share < 1 else ">99" if 99 < share < 100 else f"{share:.0f}"
    return f"{text}{GAP}%"


def ratio(value: float, reference: float) -> str:
    """``0.42x`` of the reference."""
    return f"{number(value / reference, 2)}×" if reference else NONE


def grouped(count: int) -> str:
    """``1,234``."""
    return f"{count:,}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 token``, ``2 tokens``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listing(items: Iterable[str], last: str = "and") -> str:
    """``a, b and c``."""
    texts = list(items)
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} {last} {texts[-1]}" if texts else ""


def clip(text: str, length: int = 60) -> str:
    """One line of at most ``length`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def token_name(text: str) -> str:
    """A token's text as it can be quoted: spaces and line ends made visible."""
    line = text.replace("\n", "↵").replace("\t", "⇥")
    return line if line.strip() else line.replace(" ", "␣") or "(nothing)"


def visible(text: str) -> str:
    """A text with every blank, control and odd character made visible."""
    marks = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
    out = []
    for letter in text:
        kind = unicodedata.category(letter)
        if letter in marks:
            out.append(marks[letter])
        elif kind[0] in "CZ":
            out.append(f"\\u{ord(letter):04x}")
        else:  # a combining mark at the start gets a circle to combine with
            out.append(f"◌{letter}" if kind in ("Mn", "Me") and not out else letter)
    return "".join(out)


def styles(record: RunRecord) -> dict[str, MethodStyle]:
    """The look of every method of a record, by label."""
    return method_styles(record.labels, {m.label: m.name for m in record.request.methods})


def dense_label(record: RunRecord) -> str:
    """The reference's label: dense comes first in every record."""
    return record.labels[0]


def others(record: RunRecord) -> tuple[str, ...]:
    """All labels but dense's."""
    return record.labels[1:]


def agent_name(pipeline: Pipeline, agent: int) -> str:
    """An agent's name; a default if the pipeline does not have it."""
    return next((a.name for a in pipeline.agents if a.id == agent), f"Agent {agent}")


def agent_role(pipeline: Pipeline, agent: int) -> str:
    """An agent's role as the pipeline states it."""
    return next((a.role for a in pipeline.agents if a.id == agent), "")


def agent_weights(pipeline: Pipeline, agent: int) -> str:
    """The weights that an agent runs on, if not the model's own; else empty."""
    return next((a.model for a in pipeline.agents if a.id == agent), "")


def prompt_of(record: RunRecord, outcome: Outcome) -> Prompt:
    """The prompt that an outcome read."""
    return record.prompts[outcome.prompt]


def span_at(prompt: Prompt, start: int) -> Span | None:
    """The span that holds a token."""
    return next((s for s in prompt.spans if s.start <= start < s.end), None)


def slots(pipeline: Pipeline) -> dict[str, int]:
    """Colour index of every placeholder, in order of appearance."""
    return {hole.name: index % 6 for index, hole in enumerate(pipeline.placeholders)}


def segment_words(pipeline: Pipeline, name: str) -> str:
    """A segment in words: whose text fills the placeholder, or which part of the template it is."""
    if name.startswith("prefix "):
        return f"template part {int(name.removeprefix('prefix ')) + 1}"
    hole = Placeholder(name)
    writer = agent_name(pipeline, hole.agent) if hole.agent is not None else ""
    age = f", {-hole.turn} turn{'s' if hole.turn < -1 else ''} ago" if hole.turn else ""
    if hole.kind == "question":
        return "question"
    if name.startswith("condition_"):
        return f"tool result of {writer}{age}"
    return f"answer of {writer}{age}" if writer else name.replace("_", " ")


def part_words(pipeline: Pipeline, part: Part) -> str:
    """A part of a cache in words: whose text, at which layers, keys or values."""
    layers = f"layer {part.first}" if part.first == part.last else f"layers {part.first} to {part.last}"
    half = "" if part.half == "keys and values" else f" ({part.half} alone)"
    return f"{segment_words(pipeline, part.segment)}, {layers}{half}"


def exact_words(pipeline: Pipeline, exact: str) -> str:
    """A column's repaired parts in words, with the agent that reads them; empty without any."""
    parts = exact_parts(exact)
    if not parts:
        return ""
    reader = agent_name(pipeline, parts[0][0])
    return f"{listing(part_words(pipeline, part) for _, part in parts)}, in {reader}’s prompt"


def action_counts(outcome: Outcome) -> dict[str, int]:
    """Numbers of tokens by their action at most layers."""
    codes = main_actions(outcome)
    return {name: int(np.count_nonzero(codes == code)) for code, name in enumerate(ACTIONS)}


def cached_tokens(record: RunRecord, label: str) -> tuple[int, int]:
    """Prompt tokens that a method took from a cache, and all of them, over the agents."""
    counts = [action_counts(record.outcome(agent, label)) for agent in record.agents]
    return sum(c["reused"] + c["corrected"] for c in counts), sum(sum(c.values()) for c in counts)


def total_ttft(record: RunRecord, label: str) -> float:
    """A method's time to first token over the agents, in milliseconds."""
    return sum(record.outcome(agent, label).timing.ttft_ms for agent in record.agents)


def cached_ttft(record: RunRecord, label: str) -> float:
    """The same without encoding missing texts: the time once every text is cached."""
    timings = [record.outcome(agent, label).timing for agent in record.agents]
    return sum(max(0.0, t.ttft_ms - t.parts_ms.get("base", 0.0)) for t in timings)


def times_words(first: float, cached: float, reference: float, name: str = "the full read") -> str:
    """A method's times beside that of ``name``: once its texts are cached, and the first time."""
    first_words = f"{milliseconds(first)} ({ratio(first, reference)} {name})"
    if milliseconds(cached) == milliseconds(first):
        return first_words
    cached_words = f"{milliseconds(cached)} once cached ({ratio(cached, reference)} {name})"
    return f"{cached_words}, {milliseconds(first)} the first time"


def main_actions(outcome: Outcome) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """One action code per token: the most frequent over layers."""
    if outcome.actions.size == 0:
        return np.zeros(outcome.actions.shape[-1], dtype=np.uint8)
    votes = np.stack([(outcome.actions == code).sum(axis=0) for code in range(len(ACTIONS))])
    return np.asarray(votes.argmax(axis=0), dtype=np.uint8)


def reused_anything(outcome: Outcome) -> bool:
    """Whether any token's KV came from a cache."""
    return bool(((outcome.actions == 1) | (outcome.actions == 2)).any())


def duration(seconds: float) -> str:
    """About how long."""
    if seconds < 1:
        return "under 1 s"
    return f"{number(seconds, 2)} s" if seconds < 90 else f"{number(seconds / 60, 2)} min"
