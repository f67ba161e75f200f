"""The calls of one session side by side: what of each a prefix cache finds, what stood elsewhere, what is
new; and two calls' texts aligned."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from backend.logs.anywhere import Overlap, find_overlap
from backend.logs.calls import Call, by_time
from backend.logs.causes import Cause, cause
from backend.logs.gather import Gathered, gather
from backend.logs.pieces import EMBEDDED, load_tokenizer
from backend.logs.xray import XRay, first_calls, xray

#: The same beginning as an earlier call's; elsewhere in an earlier call; in none.
Kind = Literal["beginning", "elsewhere", "new"]
MOST_RUNS = 400  # parts of a call's bar
MOST_ROWS = 60  # of two aligned texts


@dataclass(frozen=True)
class Run:
    """Tokens in a row of one kind."""

    kind: Kind
    tokens: int


@dataclass(frozen=True)
class Row:
    """A stretch of two aligned texts: the same in both, or what each has in its place."""

    same: bool
    before: str
    after: str


@dataclass(frozen=True)
class Pair:
    """Two calls, by their places in the log: rows of their texts and why the later missed the earlier's; no
    cause where nothing differs. ``left``: rows that are not shown."""

    before: int
    after: int
    rows: tuple[Row, ...]
    cause: Cause | None
    left: int


class OpenLog:
    """A log that is looked into.

    Args:
        path: see :class:`backend.logs.reader.LogReader`.

    Raises:
        RecordError: it holds no call, or cannot be read.

    Attributes:
        calls: by their time, as ``log`` and ``xray`` have them.
    """

    def __init__(self, path: Path, *, skip_bad: bool = False) -> None:
        calls: list[Call] = []
        self.log: Gathered = gather(path, load_tokenizer(EMBEDDED), skip_bad=skip_bad, keep=calls.append)
        self.calls = tuple(calls[place] for place in by_time([call.time for call in calls]))
        self.xray: XRay = xray(path, skip_bad=skip_bad, log=self.log)
        self._overlap: Overlap = find_overlap(self.log.tokens, first_calls(self.log))

    @property
    def sessions(self) -> tuple[str, ...]:
        """In the order of their first calls."""
        return tuple(dict.fromkeys(self.log.sessions))

    def of_session(self, session: str) -> tuple[int, ...]:
        """The places of a session's calls in the log."""
        return tuple(n for n, name in enumerate(self.log.sessions) if name == session)

    def runs(self, call: int) -> tuple[Run, ...]:
        """A call from its beginning to its end."""
        pieces, tokens = self.log.pieces[call], self.log.tokens
        masks = [
            np.ones(tokens.lengths[p], bool)
            if self._overlap.first[p] < call
            else self._overlap.mask[tokens.starts[p] : tokens.starts[p] + tokens.lengths[p]]
            for p in pieces
        ]
        kinds = np.where(np.concatenate(masks), 1, 2) if masks else np.zeros(0, int)
        kinds[: self.xray.calls[call].prefix] = 0
        names: tuple[Kind, ...] = ("beginning", "elsewhere", "new")
        cuts = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
        runs = [Run(names[int(kinds[a])], b - a) for a, b in pairwise(cuts) if b > a]
        rest = [Run(name, sum(run.tokens for run in runs[MOST_RUNS:] if run.kind == name)) for name in names]
        return (*runs[:MOST_RUNS], *(run for run in rest if run.tokens))

    def worst(self, session: str) -> tuple[int, int] | None:
        """The two calls to compare first: the session's call that missed most, behind the earlier one that
        had the text; where none missed any, its last two."""
        places = {call.where: n for n, call in enumerate(self.xray.calls)}
        own = self.of_session(session)
        missed = [n for n in own if self.xray.calls[n].cause is not None]
        if missed:
            after = max(missed, key=lambda n: self.xray.calls[n].anywhere - self.xray.calls[n].prefix)
            return places[self.xray.calls[after].against], after
        return (own[-2], own[-1]) if len(own) > 1 else None

    def pair(self, before: int, after: int) -> Pair:
        """Two calls, the earlier first."""
        before, after = sorted((before, after))
        one, other = (self.log.pieces[n].tolist() for n in (before, after))
        same_agent = self.log.agents[before] == self.log.agents[after]
        rows = list(_rows(*("".join(self.log.texts[p] for p in pieces) for pieces in (one, other))))
        reason = cause(one, other, self.log.texts, self.log.headers, same_agent)
        return Pair(before, after, tuple(rows[:MOST_ROWS]), reason, max(0, len(rows) - MOST_ROWS))


def _rows(before: str, after: str) -> Iterator[Row]:
    """Both texts line by line, lines that differ side by side."""
    one, other = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, one, other, autojunk=len(one) > 2000).get_opcodes():
        yield Row(tag == "equal", "".join(one[i1:i2]), "".join(other[j1:j2]))
