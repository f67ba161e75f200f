"""A log in numbers: its calls by time, as pieces, with agents and sessions."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from backend.logs.calls import Call, by_time
from backend.logs.pieces import Ids, Pieces, Tokens
from backend.logs.reader import LogReader


@dataclass(frozen=True)
class Gathered:
    """A log's calls in the order of their time (of the file, where a call has none).

    Attributes:
        where, pieces, agents, sessions: of each call; agents as places in ``names``.
        texts, headers, tokens: of the pieces, numbered as they first appear.
        cut_tax: tokens that cutting adds, and of how many.
        usage: of each call, input and cached tokens as servers counted them; None where a call has none.
        formats, skipped, bad: as the file's reader found them.
    """

    where: list[str]
    pieces: list[Ids]
    agents: list[int]
    sessions: list[str]
    names: list[str]
    by_prompt: bool
    texts: list[str]
    headers: dict[int, str]
    tokens: Tokens
    cut_tax: tuple[int, int]
    usage: list[tuple[int | None, int | None]]
    formats: tuple[str, ...] = ()
    skipped: int = 0
    bad: tuple[str, ...] = ()


def gather(
    path: Path,
    tokenizer: Any,
    *,
    skip_bad: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    keep: Callable[[Call], object] = lambda _: None,
) -> Gathered:
    """Read a log; ``keep`` is called with every call.

    Raises:
        RecordError, OptionError: see :class:`backend.logs.reader.LogReader`.
    """
    reader = LogReader(path, skip_bad=skip_bad)

    def observed() -> Iterator[Call]:
        for call in reader:
            keep(call)
            yield call

    log = gathered(observed(), tokenizer, progress=progress)
    return replace(log, formats=tuple(sorted(reader.formats)), skipped=reader.skipped, bad=tuple(reader.bad))


def gathered(
    calls: Iterable[Call], tokenizer: Any, *, progress: Callable[[str], None] = lambda _: None
) -> Gathered:
    """The same for calls that are already read."""
    cutter = Pieces(tokenizer)
    where, pieces, agents, sessions = [], [], [], []
    times: list[float | None] = []
    by_prompt = False
    usage: list[tuple[int | None, int | None]] = []
    for call in calls:
        agents.append(call.agent_name)
        by_prompt |= not call.agent
        where.append(call.where)
        sessions.append(call.session)
        times.append(call.time)
        pieces.append(cutter.of(call))
        usage.append((call.usage.input, call.usage.cached))
        if len(where) % 500 == 0:
            progress(f"{len(where):,} calls read")
    progress("tokenising")
    tokens = cutter.tokens()
    tax = cutter.cut_tax(tokens)
    order = by_time(times)
    pieces, place = _renumbered([pieces[n] for n in order], len(cutter.texts))
    names: dict[str, int] = {}
    numbers = [names.setdefault(agents[n], len(names)) for n in order]
    return Gathered(
        [where[n] for n in order], pieces, numbers, [sessions[n] for n in order], list(names), by_prompt,
        [cutter.texts[n] for n in place.argsort()],
        {int(place[n]): role for n, role in cutter.headers.items()},
        tokens.renumbered(place), tax, [usage[n] for n in order],
    )  # fmt: skip


def _renumbered(calls: list[Ids], count: int) -> tuple[list[Ids], Ids]:
    """The calls with pieces numbered as they first appear; of each old number the new one."""
    place = np.full(count, -1, np.int32)
    next_number = 0
    out = []
    for pieces in calls:
        fresh = pieces[place[pieces] < 0]
        for piece in dict.fromkeys(fresh.tolist()):
            place[piece], next_number = next_number, next_number + 1
        out.append(place[pieces])
    place[place < 0] = np.arange(next_number, count)  # pieces of bad lines, which no call has
    return out, place
