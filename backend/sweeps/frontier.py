"""The frontier of tokens computed and answers flipped, found by successive halving over a sweep's methods.

Every round doubles the number of problems and keeps the better half of the compositions (Jamieson and
Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter optimization"). A composition is
better the fewer answers it flips beyond the fewest at no greater cost, so the whole frontier stays, not one
corner of it. A round is a sweep over fewer problems; a longer sweep goes on from a shorter one, so no row is
computed twice, and a killed search goes on where it stopped.

Of those that reach the last round every two are also read together: where their answers differ, the full
read's is taken. That follows from their rows, and nothing is run for it.
"""

import math
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

from backend.base.errors import OptionError
from backend.base.statistics import Share, bootstrap, exact_share
from backend.methods.composed import ComposedMethod, ComposedOptions
from backend.records.frontier import AGREE, Ahead, Frontier, FrontierPoint
from backend.records.request import MethodChoice
from backend.records.sweep import Cell, Count
from backend.sweeps.compare import mcnemar
from backend.sweeps.rows import Row
from backend.sweeps.run import SweepDone, run_sweep
from backend.sweeps.runner import Runner
from backend.sweeps.spec import Sweep
from backend.sweeps.store import SweepStore

FIRST = 5  # problems of each cell in the first round
FEWEST = 6  # compositions that are left in the end
NOISE = 0.05  # p from which two rates of flips count as one


@dataclass(frozen=True)
class Reading:
    """A problem under a composition; ``answer`` is what it says, None where that cannot be read."""

    flipped: bool
    tokens: int
    answer: object


Place = tuple[Cell, int]  # a cell and a problem in it
Readings = dict[Place, Reading]
Run = Callable[[Sweep], Generator[Count, None, SweepDone]]


def search(
    sweep: Sweep,
    store: SweepStore,
    runner: Runner,
    *,
    first: int = FIRST,
    limit: float = 1.0,
    held_out: Sweep | None = None,
    facts: dict[str, Any] | None = None,
) -> Iterator[Count | Frontier]:
    """Search the sweep's methods; yields the frontier so far after each round, and last the final one.

    Args:
        sweep: its methods are the compositions, its ``problems`` those of the last round.
        runner: see :func:`backend.sweeps.run.run_sweep`.
        first: problems of the first round.
        limit: the largest cost that may win.
        held_out: other problems, for the winner; its methods are what the winner is compared with.

    Raises:
        LabError: see :func:`backend.sweeps.run.run_sweep`.
        OptionError: there is nothing to choose from.
    """
    if len(sweep.methods) < 3:
        raise OptionError(
            "A frontier is chosen from at least two methods beside dense. Name more in the file.",
            field="methods",
        )
    run = partial(_run, store=store, runner=runner, facts=facts)
    dense, *methods = sweep.methods
    parts = {choice.label: parts_of(choice) for choice in methods}
    members: dict[str, tuple[str, ...]] = {label: (label,) for label in parts}
    points: dict[str, FrontierPoint] = {}
    rounds: list[int] = []
    while True:
        rounds.append(min(sweep.problems, first * 2 ** len(rounds)))
        part = replace(sweep, methods=(dense, *methods), problems=rounds[-1])
        result = yield from run(part)
        readings, full = readings_of(result)
        last = rounds[-1] == sweep.problems or not result.complete
        if last:
            for a, b in combinations(tuple(readings), 2):
                members[a + AGREE + b] = (a, b)
                parts[a + AGREE + b] = parts[a] + parts[b] + 1
                readings[a + AGREE + b] = _both(readings[a], readings[b], full)
        now = {label: point(label, read, full, parts[label], len(rounds)) for label, read in readings.items()}
        now = {label: p for label, p in now.items() if len(members[label]) == 1 or p.cost.value < 1}
        points |= now
        best, simplest = chosen(now, readings, limit)
        frontier = Frontier(
            sweep.name, sweep.title, tuple(cell.label(result.cells) for cell in result.cells), tuple(rounds),
            len(parts), limit, _ordered(points, now), best, simplest, last and result.complete,
        )  # fmt: skip
        if last:
            break
        yield frontier
        labels = halved(now)
        methods = [choice for choice in methods if choice.label in labels]
    if held_out is not None and best and frontier.complete:
        needed = [choice for choice in methods if choice.label in members[best]]
        frontier = yield from _confirm(frontier, needed, held_out, run)
    yield frontier


def _run(
    sweep: Sweep,
    store: SweepStore,
    runner: Runner,
    facts: dict[str, Any] | None,
) -> Generator[Count, None, SweepDone]:
    result: SweepDone | None = None
    for event in run_sweep(sweep, store, runner, facts=facts):
        if isinstance(event, SweepDone):
            result = event
        else:
            yield event
    assert result is not None
    return result


def _confirm(
    frontier: Frontier, needed: Sequence[MethodChoice], held_out: Sweep, run: Run
) -> Generator[Count, None, Frontier]:
    """The best composition, which reads with ``needed``, on problems that had no part in its choice, beside
    the methods of ``held_out``."""
    dense, *rows = held_out.methods
    more = [choice for choice in needed if choice.label not in {row.label for row in rows}]
    sweep = replace(held_out, methods=(dense, *rows, *more))
    result = yield from run(sweep)
    readings, full = readings_of(result)
    own = [readings[choice.label] for choice in needed]
    best = own[0] if len(own) == 1 else _both(own[0], own[1], full)
    parts = next(p.parts for p in frontier.points if p.method == frontier.best)
    winner = point(frontier.best, best, full, parts, len(frontier.rounds))
    against = []
    for choice in rows:
        row_readings = readings[choice.label]
        other = point(choice.label, row_readings, full, parts_of(choice), len(frontier.rounds))
        if choice.label != frontier.best:
            against.append(Ahead(other, _difference(best, row_readings, winner, other, frontier.tried)))
    problems = f"{held_out.problems} problems of each"
    return replace(
        frontier, confirmed=winner, against=tuple(against), complete=result.complete,
        held_out=(problems, *(cell.label(result.cells) for cell in result.cells)),
    )  # fmt: skip


def readings_of(result: SweepDone) -> tuple[dict[str, Readings], Readings]:
    """What every method read, and dense. Problems whose full read cannot be compared with are left out, and
    so are those that not every method has.

    Raises:
        OptionError: no problem is left.
    """
    rows: dict[str, dict[Place, Row]] = {}
    for cell, method, row in result.rows:
        rows.setdefault(method, {})[cell, row.problem] = row
    first, *others = rows or ("",)
    shared = [
        place for place in rows.get(first, ())
        if all(place in rows[m] and rows[m][place].as_dense is not None for m in others)
    ]  # fmt: skip
    if not others or not shared:
        raise OptionError(
            f"Of {len(result.rows)} rows, no problem has all methods beside a full read whose answer can be "
            "read. Take more problems, or a task whose answers can be compared.",
            field="problems",
        )
    full, *read = ({place: reading_of(rows[m][place]) for place in shared} for m in (first, *others))
    return dict(zip(others, read, strict=True)), full


def reading_of(row: Row) -> Reading:
    """A row as its flip and its cost."""
    verdict = row.verdict
    return Reading(not row.as_dense, row.forwarded_tokens, verdict.selected if verdict else row.answer)


def parts_of(choice: MethodChoice) -> int:
    """Decisions of a method: one, and of a composition one for each part that is not none."""
    if choice.name != ComposedMethod.name:
        return 1
    options = ComposedOptions(**choice.options)
    return 1 + (options.selector != "none") + (options.gate != "none")


def point(label: str, readings: Readings, full: Readings, parts: int, round_number: int) -> FrontierPoint:
    """Flips and cost of a composition, with intervals."""
    flips, count = sum(r.flipped for r in readings.values()), len(readings)
    cost = bootstrap([r.tokens for r in readings.values()], [full[place].tokens for place in readings])
    return FrontierPoint(label, parts, flips, exact_share(flips, count), cost, round_number)


def regrets(points: Collection[FrontierPoint]) -> dict[str, float]:
    """By composition: flips beyond the fewest that some composition has at no greater cost, in shares; the
    full read, at a cost of 1, has none."""
    return {
        p.method: p.share.value
        - min(
            0.0 if p.cost.value >= 1 else 1.0,
            *(q.share.value for q in points if q.cost.value <= p.cost.value),
        )
        for p in points
    }


def halved(points: Mapping[str, FrontierPoint]) -> set[str]:
    """The half that stays: the least regret first, then the fewest flips, then the least cost."""
    lost = regrets(points.values())
    keep = max(FEWEST, math.ceil(len(points) / 2))
    order = sorted(points.values(), key=lambda p: (lost[p.method], p.share.value, p.cost.value))
    return {p.method for p in order[:keep]}


def chosen(
    points: Mapping[str, FrontierPoint], readings: Mapping[str, Readings], limit: float
) -> tuple[str, str]:
    """The best and the simplest within noise of it; empty where all cost more than ``limit``."""
    within = [p for p in points.values() if p.cost.value <= limit]
    if not within:
        return "", ""
    best = min(within, key=lambda p: (p.flips, p.cost.value))
    # Without a correction for many tests, which would call more of them alike.
    like = [p for p in within if _p_alike(readings[p.method], readings[best.method]) >= NOISE]
    return best.method, min(like, key=lambda p: (p.parts, p.cost.value)).method


def _p_alike(own: Readings, other: Readings) -> float:
    return mcnemar(
        sum(own[place].flipped and not other[place].flipped for place in own),
        sum(other[place].flipped and not own[place].flipped for place in own),
    )


def _both(one: Readings, other: Readings, full: Readings) -> Readings:
    """Two readings of each problem, and the full one where they differ or one cannot be read."""
    out = {}
    for place, a in one.items():
        b, dense = other[place], full[place]
        tokens = a.tokens + b.tokens
        agree = a.answer is not None and a.answer == b.answer
        out[place] = (
            Reading(a.flipped, tokens, a.answer)
            if agree
            else Reading(False, tokens + dense.tokens, dense.answer)
        )
    return out


def _difference(
    own: Readings, other: Readings, winner: FrontierPoint, row: FrontierPoint, family: int
) -> Share:
    """See :class:`backend.records.frontier.Ahead`."""
    most = max(winner.cost.value, row.cost.value)
    scales = [
        1.0 if p.cost.value >= 1 else 1 - (min(most, 1.0) - p.cost.value) / (1 - p.cost.value)
        for p in (winner, row)
    ]
    differences = [scales[0] * r.flipped - scales[1] * other[place].flipped for place, r in own.items()]
    return bootstrap(differences, family=family)


def _ordered(
    points: Mapping[str, FrontierPoint], now: Mapping[str, FrontierPoint]
) -> tuple[FrontierPoint, ...]:
    marked = [replace(p, on=p.method in now and _undominated(p, now.values())) for p in points.values()]
    return tuple(sorted(marked, key=lambda p: (-p.round, p.cost.value, p.share.value)))


def _undominated(p: FrontierPoint, points: Collection[FrontierPoint]) -> bool:
    """Does it cost less than the full read, and is none at least as good in both and better in one?"""
    own = p.cost.value, p.share.value
    others = ((q.cost.value, q.share.value) for q in points)
    return p.cost.value < 1 and not any(x <= own[0] and y <= own[1] and (x, y) != own for x, y in others)
