"""``kvlab xray --events`` and ``--beside``: a log beside an engine's cache events or another engine's log."""

from dataclasses import asdict
from typing import Any

from backend.base.errors import OptionError
from backend.logs.engine_cache import EngineCache, engine_cache
from backend.logs.engine_hits import Hits, hits
from backend.logs.reader import LogReader
from backend.logs.two_engines import KINDS, TwoEngines, two_engines
from backend.logs.xray import CallXRay, XRay
from lab_app.cli.common import path_of, print_table

SHOWN = 5  # calls, and partings


def cache_of(
    events: str | None, block: int | None, cache_tokens: int | None
) -> tuple[EngineCache | None, dict[str, Any]]:
    """The engine's cache, and the X-ray's options: as typed, else from the events.

    Raises:
        OptionError: the events are of other blocks.
    """
    flags = {"block": block, "cache_tokens": cache_tokens}
    options: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    if not events:
        return None, options
    cache = engine_cache(path_of(events))
    if block not in (None, cache.block):
        raise OptionError(
            f"--block is {block}, but the events are of blocks of {cache.block}. Leave it out.", field="block"
        )
    room = {} if cache.capacity is None else {"cache_tokens": cache.capacity}
    return cache, {"block": cache.block, **room, **options}


def say_engine(cache: EngineCache | None, result: XRay) -> dict[str, Any]:
    """Print the engine's hits beside the predicted ones; the same for JSON."""
    if cache is not None:
        room = "" if cache.capacity is None else f", so it has room for about {cache.capacity:,} tokens"
        print(
            f"\nThe engine's cache, in blocks of {cache.block}: {cache.stored:,} were stored, "
            f"{cache.again:,} of them again after they had been dropped ({cache.again * cache.block:,} "
            f"tokens); {cache.dropped:,} were dropped; at most {cache.most:,} at once{room}."
        )
    counts = hits(result)
    if counts is not None:
        _say_hits(counts, result.block)
    return {"cache": asdict(cache) if cache else None, "hits": asdict(counts) if counts else None}


def _say_hits(counts: Hits, block: int) -> None:
    print(f"\nWhat {counts.calls:,} calls really hit, as the server counted, and what was predicted:")
    rows = [("cached tokens", "", "of input")]
    for name, value, whole in (
        ("really", counts.really, counts.input),
        ("predicted, a cache of that size", counts.bounded, counts.tokens),
        ("predicted, an unlimited cache", counts.unlimited, counts.tokens),
    ):
        rows.append((name, f"{value:,}", f"{value / max(1, whole):.1%}"))
    print_table(rows, 1)
    print(
        f"The same in {counts.same:,} calls, within a block of {block} in {counts.near:,}; less in "
        f"{len(counts.less):,}, more in {len(counts.more):,}."
    )
    for name, calls in (("less", counts.less), ("more", counts.more)):
        for call in calls[:SHOWN]:
            print(f"  {name}: {_call_line(call)}")


def _call_line(call: CallXRay) -> str:
    return f"{call.where}: {call.cached:,} really, {call.bounded:,} predicted, of {call.tokens:,} tokens"


def compare_logs(log: str, beside: str, skip_bad: bool, near_tie: float | None) -> TwoEngines:
    """Both logs' answers, compared."""
    first, second = (LogReader(path_of(path), skip_bad=skip_bad) for path in (log, beside))
    return two_engines(first, second, near_tie)


def say_beside(result: TwoEngines) -> None:
    """The tables."""
    print(
        f"\nBeside the other log: {result.pairs:,} calls are in both, {result.left[0]:,} only here, "
        f"{result.left[1]:,} only there. {result.same:,} were answered alike."
    )
    if result.tokens:
        print(
            f"Log probabilities of {result.tokens:,} tokens that both answered alike differ by "
            f"{result.usual:.2g} nats (median), at most {result.largest:.2g}. A near tie: both engines hold "
            f"the two tokens to be within {result.limit:.2g} nats."
        )
    if result.partings:
        print_table([("answers part by", "calls"), *((k, f"{result.count(k):,}") for k in KINDS)], 1)
    for part in result.partings[:SHOWN]:
        gaps = " and ".join("unknown" if gap is None else f"{gap:.2g}" for gap in part.gaps)
        print(
            f"  {part.kind}: {part.where} beside {part.beside}, token {part.at + 1}: {part.one!r} and "
            f"{part.other!r}; gaps {gaps}"
        )
