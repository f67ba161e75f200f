"""What several commands share: reading their flags and printing tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backend.base.errors import OptionError

if TYPE_CHECKING:
    from backend.records.risk_gate import RiskGate
    from backend.records.run import MethodChoice


def parse_methods(text: str) -> tuple[MethodChoice, ...]:
    """See :func:`backend.methods.parse.parse_methods`."""
    from backend.methods.parse import parse_methods as read

    return read(text)


def read_gate(path: str | None) -> RiskGate | None:
    """The trained gate of a file, if one is named."""
    from backend.records.risk_gate import RiskGate

    return RiskGate.load(path_of(path)) if path else None


def path_of(given: str) -> Path:
    """A path as typed. A home folder that nobody has stays as it is, so that it is missed like any other."""
    return Path(os.path.expanduser(given))


def print_table(rows: Sequence[Sequence[str]], left: int) -> None:
    """Rows in columns, the first ``left`` of them flush left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = zip(row, widths, strict=True)
        print("  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(cells)))


def named_file(flag: str, given: str, example: str) -> Path:
    """The file that a flag names.

    Raises:
        OptionError: it names none, or a folder.
    """
    path = Path(given)
    if not path.name or path.is_dir():
        raise OptionError(
            f"--{flag} is {given!r}, which names no file. Name one, such as {example}.", field=flag
        )
    return path
