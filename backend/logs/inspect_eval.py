"""Inspect's logs (``.eval``), read through its own package, an extra; sample by sample.

A sample and its epoch are a session, its model events the calls. A call's agent is the innermost span of an
agent around it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.base.errors import OptionError, RecordError
from backend.logs.calls import BadLine, Call, Message, Tool, Usage, checked, text_of, tool, tool_call

NAME = "Inspect log"


def fits(start: bytes) -> bool:
    """Whether a file begins as such a log, which is a zip archive, does."""
    return start.startswith(b"PK\x03\x04")


def calls(path: Path) -> Iterator[Call | BadLine]:
    """Every call, and a :class:`BadLine` in the place of each that cannot be read.

    Raises:
        OptionError: the package is not installed.
        RecordError: the file is no such log.
    """
    try:
        from inspect_ai.log import read_eval_log_sample, read_eval_log_sample_summaries
    except ImportError:
        raise OptionError(
            "Inspect's logs need inspect_ai, which is not installed. Install it with pip install "
            "'kv-reuse-lab[inspect]', or choose a log of another format.",
            field="log",
        ) from None
    try:
        for row in read_eval_log_sample_summaries(str(path)):
            # Long texts stand apart from the events, and many calls name the same.
            sample = read_eval_log_sample(str(path), id=row.id, epoch=row.epoch, resolve_attachments=True)
            yield from _of_sample(sample, path.name)
    except Exception as error:  # its readers raise whatever zip, JSON or a type does
        raise RecordError(
            f"{path.name} cannot be read as Inspect's log ({type(error).__name__}). Choose another file.",
            field="log",
        ) from None


def _of_sample(sample: Any, file: str) -> Iterator[Call | BadLine]:
    session = f"{sample.id}/{sample.epoch}"
    spans = {e.id: e for e in sample.events if e.event == "span_begin"}
    for number, event in enumerate((e for e in sample.events if e.event == "model"), 1):
        where = f"{file}, sample {session}, call {number}"
        usage = event.output.usage
        try:
            answer = _message(event.output.choices[0].message).text if event.output.choices else ""
            yield Call(
                where,
                checked(_message(m) for m in event.input),
                agent=_agent(event.span_id, spans),
                session=session,
                id=str(event.uuid or ""),
                time=event.timestamp.timestamp(),
                tools=tuple(map(_tool, event.tools)),
                output=answer,
                usage=Usage(usage.input_tokens, usage.output_tokens, usage.input_tokens_cache_read)
                if usage
                else Usage(),
                model=str(event.model),
            )
        except BadLine as error:
            yield BadLine(f"{where}: {error}")


def _agent(span: str | None, spans: dict[str, Any]) -> str:
    visited: set[str] = set()
    while span in spans and span not in visited:
        visited.add(span)
        if spans[span].type == "agent":
            return str(spans[span].name)
        span = spans[span].parent_id
    return ""


def _message(message: Any) -> Message:
    content = message.content
    blocks = content if isinstance(content, str) else [b.model_dump() for b in content]
    tool_calls = [tool_call(c.function, c.arguments) for c in getattr(message, "tool_calls", None) or ()]
    return Message(str(message.role), "\n".join(filter(None, [text_of(blocks), *tool_calls])))


def _tool(info: Any) -> Tool:
    return tool(info.name, info.description, info.parameters.model_dump(exclude_none=True))
