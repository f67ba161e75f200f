"""Files of rows, one JSON value to a line: what was written before a kill can be read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backend.base.errors import RecordError


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The complete rows of a file; a torn last line is cut off.

    Raises:
        RecordError: a line that is not the last is damaged.
    """
    if not path.exists():
        return []
    content = path.read_bytes()
    whole, newline, torn = content.rpartition(b"\n")
    if torn:
        with path.open("r+b") as file:
            file.truncate(len(whole) + len(newline))
    rows = []
    for number, line in enumerate(whole.splitlines(), 1):
        if not line:
            continue
        try:
            rows.append(json.loads(line))
        except ValueError:
            raise RecordError(
                f"Line {number} of {path.name} is damaged. Remove it, or choose another file; its "
                "request will be run again."
            ) from None
    return rows
