"""A log, read call by call whatever its format, line by line in bounded memory.

A line's format is recognised by its content, so a file may hold several. A line is checked before it is
parsed (:mod:`backend.base.bounded_json`); secrets are masked in every text. A bad line stops the reading with
its number, or is counted and skipped with ``skip_bad``.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from backend.base.bounded_json import JSON_BYTES, excess
from backend.base.errors import RecordError
from backend.base.redaction import redacter
from backend.logs import anthropic_messages, inspect_eval, openai_chat, otlp, plain
from backend.logs.calls import BadLine, Call, Message, Tool

FORMATS = (otlp, anthropic_messages, openai_chat, plain)  # the first that fits
BAD_KEPT = 20  # messages of skipped lines
_HALVES = re.compile("[\ud800-\udfff]")
_EXAMPLES = '{"messages": [...]}, {"prompt": "..."} or {"resourceSpans": [...]}'


class LogReader:
    """Iterate over it for the calls, in the file's order.

    Args:
        path: JSON lines (``.gz`` too), one JSON document, or an Inspect log (``.eval``).
        skip_bad: count lines that hold no call, and go on.

    Attributes:
        bad: messages of skipped lines, the first ``BAD_KEPT``; ``skipped`` of them in all.
        formats: names of the formats found so far.
    """

    def __init__(self, path: Path, *, skip_bad: bool = False) -> None:
        self.path, self.skip_bad = path, skip_bad
        self.bad: list[str] = []
        self.skipped = 0
        self.formats: set[str] = set()
        self._redact = redacter()
        self._clean: set[int] = set()  # hashes of texts without a secret

    def __iter__(self) -> Iterator[Call]:
        """
        Raises:
            RecordError: the file cannot be read, holds no call, or has a bad line that is not to be skipped.
        """
        count = 0
        try:
            for call in self._calls():
                count += 1
                yield self._masked(call)
        except (OSError, EOFError, zlib.error) as error:
            why = getattr(error, "strerror", None) or "it is damaged"
            raise RecordError(
                f"{self.path.name} cannot be read: {why}. Choose another file.", field="log"
            ) from None
        if not count:
            raise RecordError(
                f"{self.path.name} holds no call of a model. A line looks like {_EXAMPLES}.", field="log"
            )

    def _calls(self) -> Iterator[Call]:
        with self.path.open("rb") as file:
            start = file.read(4)
        if inspect_eval.fits(start):
            self.formats.add(inspect_eval.NAME)
            for item in inspect_eval.calls(self.path):
                if isinstance(item, Call):
                    yield item
                else:
                    self._reject(f"{item}.")
            return
        with self._open() as file:
            number = 0
            while line := file.readline(JSON_BYTES + 1):
                number += 1
                where = f"{self.path.name}, line {number}"
                if line.strip():
                    try:
                        if len(line) > JSON_BYTES:
                            raise BadLine(f"this line is longer than {JSON_BYTES:,} bytes")
                        if number == 1 and (whole := self._one_document(file, line)) is not None:
                            yield from self._of_row(whole, self.path.name)
                            return
                        yield from self._of_row(_parsed(line), where)
                    except BadLine as error:
                        self._reject(f"{where}: {error}.")
                while len(line) > JSON_BYTES and not line.endswith(b"\n"):
                    line = file.readline(JSON_BYTES + 1)  # what is left of a line that is too long

    def _open(self) -> IO[bytes]:
        return gzip.open(self.path, "rb") if self.path.suffix == ".gz" else self.path.open("rb")  # type: ignore[return-value]

    def _one_document(self, file: IO[bytes], first: bytes) -> Any:
        """A JSON document over several lines, if its first line is none by itself."""
        if first.strip() not in (b"{", b"["):
            return None
        return _parsed(first + file.read(JSON_BYTES + 1 - len(first)))

    def _of_row(self, row: Any, where: str) -> Iterator[Call]:
        if isinstance(row, list):
            for number, entry in enumerate(row, 1):
                try:
                    yield from self._of_row(entry, f"{where}, entry {number}")
                except BadLine as error:
                    self._reject(f"{where}, entry {number}: {error}.")
            return
        if not isinstance(row, dict):
            raise BadLine("this is no JSON object")
        kind = next((k for k in FORMATS if k.fits(row)), None)
        if kind is None:
            raise BadLine(f"this is no call of a model. A line looks like {_EXAMPLES}")
        self.formats.add(kind.NAME)
        yield from kind.calls(row, where)

    def _reject(self, message: str) -> None:
        if not self.skip_bad:
            raise RecordError(f"{message} Correct it, or skip bad lines (--skip-bad).", field="log")
        self.skipped += 1
        if len(self.bad) < BAD_KEPT:
            self.bad.append(message)

    def _masked(self, call: Call) -> Call:
        """The call with every text masked; what is no character becomes the sign for that."""
        safe = self._safe
        output = safe(call.output)
        return Call(
            safe(call.where),
            tuple(Message(safe(m.role), safe(m.text)) for m in call.messages),
            safe(call.agent),
            safe(call.session),
            safe(call.id),
            safe(call.parent),
            call.time,
            tools=tuple(Tool(safe(t.name), safe(t.text)) for t in call.tools),
            output=output,
            usage=call.usage,
            model=safe(call.model),
            chances=call.chances if output == call.output else (),  # a secret may be spread over tokens
        )

    def _safe(self, text: str) -> str:
        if (key := hash(text)) in self._clean:
            return text
        safe = self._redact(_HALVES.sub("\ufffd", text))
        if safe == text:
            self._clean.add(key)
        return safe


def _parsed(line: bytes) -> Any:
    if problem := excess(line):
        raise BadLine(f"this {problem}")
    try:
        return json.loads(line.decode("utf-8-sig"), parse_constant=lambda _: None)
    except UnicodeDecodeError:
        raise BadLine("this is not UTF-8 text") from None
    except (ValueError, RecursionError):
        raise BadLine("this is not valid JSON") from None
