"""A file of rows that survives a kill: JSON lines, appended to and never rewritten. Free of torch.

Each row has a ``key`` made of all that decides its result. A measurement reads the rows, computes the missing
ones and appends them; so it can be resumed, and no row is written twice. A row is on the disk before the next
one begins; a kill during a write leaves a torn last line, which reading cuts off.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.base.errors import RecordError


def key_of(*facts: object) -> str:
    """Key of a row, from all that decides it, as JSON values."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


class RowFile:
    """Rows at a path; the file and its folder are made when they are first needed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> list[dict[str, Any]]:
        """The complete rows; a torn last line is cut off.

        Raises:
            RecordError: a line that is not the last is damaged.
        """
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        lines, newline, torn = content.rpartition(b"\n")
        if torn:
            with self.path.open("r+b") as file:
                file.truncate(len(lines) + len(newline))
        rows = []
        for number, line in enumerate(lines.splitlines(), 1):
            if not line:
                continue
            try:
                rows.append(json.loads(line))
            except ValueError:
                raise RecordError(
                    f"Line {number} of {self.path.name} is damaged. Remove it, or choose another file; its "
                    "request will be run again."
                ) from None
        return rows

    def resume(self) -> dict[str, dict[str, Any]]:
        """The rows by their keys; rows without a key are another program's and skipped.

        Creates the file, so that an unwritable path fails before anything is measured.

        Raises:
            RecordError: a line that is not the last is damaged.
        """
        self.append()
        return {row["key"]: row for row in self.rows() if isinstance(row, dict) and "key" in row}

    def append(self, *rows: Mapping[str, Any]) -> None:
        """Append rows; when this returns, they are on the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
