"""From a record and a selection to the parts of the results: verdict, comparison, strip and figures."""

from typing import Any

from backend.records.prompt import Prompt
from backend.records.run import RunRecord
from lab_app.ui import text
from lab_app.ui.types import Update
from viz.base import format as words
from viz.base.format import plural
from viz.run.tabs import Selection, default_selection


def read_selection(record: RunRecord, agent: Any, method: Any, span: Any) -> Selection:
    """A selection from widgets; what does not fit the record falls back to the default."""
    default = default_selection(record)
    try:
        number = int(agent)
    except (TypeError, ValueError):
        number = default.agent
    if number not in record.agents:
        number = default.agent
    label = method if method in record.labels else default.method
    names = [s.name for s in prompt_of(record, number, label).spans]
    return Selection(number, label, span if span in names else None)


def prompt_of(record: RunRecord, agent: int, method: str) -> Prompt:
    """The prompt that an agent read under a method."""
    return words.prompt_of(record, record.outcome(agent, method))


def span_of_token(record: RunRecord, agent: Any, method: Any, token: Any) -> str | None:
    """The name of the segment that holds a token."""
    try:
        span = words.span_at(prompt_of(record, int(agent), str(method)), int(token))
    except (KeyError, TypeError, ValueError):
        return None
    return span.name if span else None


def segments(record: RunRecord, selection: Selection) -> list[tuple[str, str]]:
    """Choices of the segment box: (words, span name)."""
    out = [(text.ALL_SEGMENTS, "")]
    for span in prompt_of(record, selection.agent, selection.method).spans:
        if span.end > span.start:
            name = words.segment_words(record.request.pipeline, span.name)
            out.append((f"{name} · {plural(span.end - span.start, 'token')}", span.name))
    return out


def marked(record: RunRecord, selection: Selection) -> tuple[int, int] | None:
    """The selected segment's tokens."""
    spans = prompt_of(record, selection.agent, selection.method).spans
    return next(((s.start, s.end) for s in spans if s.name == selection.span), None)


def choices(record: RunRecord, agent: Any, method: Any, segment: Any) -> Update:
    """The three selectors with their choices, and the selection itself."""
    selection = read_selection(record, agent, method, segment)
    styles = words.styles(record)
    return {
        "selection": selection,
        "pick_agent": (
            [(words.agent_name(record.request.pipeline, a), str(a)) for a in record.agents],
            str(selection.agent),
        ),
        "pick_method": ([(styles[label].name, label) for label in record.labels], selection.method),
        "pick_segment": (segments(record, selection), selection.span or ""),
    }
