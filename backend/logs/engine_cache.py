"""What an engine says of its cache: vLLM's KV events, read from a file.

vLLM publishes batches ``[time, [event, ...], rank]`` as msgpack (its ``kv_events_config``; the types stand in
``vllm/distributed/kv_events.py``): *BlockStored* with ``block_hashes``, ``parent_block_hash``, ``token_ids``
and ``block_size``, *BlockRemoved* with ``block_hashes``, *AllBlocksCleared*. A file holds such batches one
behind the other, as msgpack or as JSON lines, or single events as JSON lines. Older versions write an event
as a list that begins with its name, newer ones as a table with its name as ``type``. A block's hash stands
for its tokens and all before them, so a block that is stored again was dropped in between.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.base.bounded_json import JSON_BYTES, excess
from backend.base.errors import OptionError, RecordError
from backend.base.text import show

STORED, REMOVED, CLEARED = "BlockStored", "BlockRemoved", "AllBlocksCleared"
#: The fields of events that are lists, in their order behind the name.
FIELDS = {
    STORED: ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"),
    REMOVED: ("block_hashes", "medium"),
    CLEARED: (),
}  # fmt: skip
ELSEWHERE = ("CPU", "STORAGE")  # media that are no part of the cache itself


class _Bad(Exception):
    """Something is no event; the message says why."""


@dataclass(frozen=True)
class EngineCache:
    """A cache by its events, in blocks of ``block`` tokens.

    Attributes:
        stored: how often a block was stored; ``again``: of a block that had been dropped before.
        dropped: blocks that made room for others; those of a cleared cache do not count.
        most: that it held at once.
    """

    block: int
    stored: int
    again: int
    dropped: int
    most: int

    @property
    def capacity(self) -> int | None:
        """Tokens that it had room for; not known (None) where nothing was ever dropped."""
        return self.most * self.block if self.dropped else None


def engine_cache(path: Path) -> EngineCache:
    """Read a file of events.

    Raises:
        RecordError: it cannot be read, or holds something else.
        OptionError: it is msgpack, and that package is not installed.
    """
    cached: set[Any] = set()
    past: set[Any] = set()
    stored = again = dropped = most = block = 0
    for where, name, event in _events(path):
        if event.get("medium") in ELSEWHERE:
            continue
        if name == CLEARED:
            past |= cached
            cached.clear()
            continue
        try:
            blocks = [(event.get("group_idx"), _key(value)) for value in _list(event, "block_hashes")]
            if name == STORED:
                size = event.get("block_size")
                if type(size) is not int or not 1 <= size <= 1 << 20 or (block and size != block):
                    raise _Bad(f"block_size is {show(size)}; one whole number from 1 is allowed")
                block = size
        except _Bad as error:
            raise _unreadable(f"{where}: {error}") from None
        if name == REMOVED:
            dropped += len(cached.intersection(blocks))
            cached.difference_update(blocks)
            past.update(blocks)
        else:
            new = [key for key in blocks if key not in cached]
            stored += len(new)
            again += len(past.intersection(new))
            cached.update(new)
            most = max(most, len(cached))
    if not stored:
        raise RecordError(
            f"{path.name} holds no {STORED} event. Switch the engine's KV events on (kv_events_config).",
            field="events",
        )
    return EngineCache(block, stored, again, dropped, most)


def _unreadable(problem: str) -> RecordError:
    return RecordError(f"{problem}. Choose a file of KV events.", field="events")


def _list(event: dict[str, Any], name: str) -> list[Any]:
    value = event.get(name)
    if not isinstance(value, list):
        raise _Bad(f"{name} is {show(value)}; a list is allowed")
    return value


def _key(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str | bytes):
        raise _Bad(f"a block's hash is {show(value)}; a whole number, a text or bytes are allowed")
    return value


def _events(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Where each event stands, its name and its fields."""
    try:
        with path.open("rb") as file:
            first = file.read(1)
            file.seek(0)
            rows = _json_rows(file, path.name) if first in b"{[ \r\n\t" else _packed_rows(file, path.name)
            for where, row in rows:
                try:
                    for event in _of_row(row):
                        yield where, *_named(event)
                except _Bad as error:
                    raise _unreadable(f"{where}: {error}") from None
    except OSError as error:
        raise RecordError(
            f"{path.name} cannot be read: {error.strerror}. Choose another file.", field="events"
        ) from None


def _json_rows(file: Any, name: str) -> Iterator[tuple[str, Any]]:
    number = 0
    while line := file.readline(JSON_BYTES + 1):
        number += 1
        where = f"{name}, line {number}"
        if problem := excess(line):
            raise _unreadable(f"{where}: this {problem}")
        if line.strip():
            try:
                yield where, json.loads(line)
            except (ValueError, RecursionError):
                raise _unreadable(f"{where}: this is not valid JSON") from None


def _packed_rows(file: Any, name: str) -> Iterator[tuple[str, Any]]:
    try:
        import msgpack
    except ImportError:
        raise OptionError(
            f"{name} is msgpack, which is not installed. Install it (pip install 'kv-reuse-lab[engine]'), or "
            "write the events as JSON lines.",
            field="events",
        ) from None
    rows = msgpack.Unpacker(
        file, max_buffer_size=JSON_BYTES, raw=False, strict_map_key=False, unicode_errors="replace"
    )
    number = 0
    try:
        for number, row in enumerate(rows, 1):
            yield f"{name}, batch {number}", row
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        where = f"{name}, batch {number + 1}"
        raise _unreadable(f"{where}: this is not msgpack ({type(error).__name__})") from None


def _of_row(row: object) -> list[Any]:
    """The events of a batch, or the one that a row is."""
    if isinstance(row, dict):
        return _list(row, "events") if "events" in row else [row]
    if isinstance(row, list) and row and isinstance(row[0], str):
        return [row]
    if isinstance(row, list) and len(row) > 1 and isinstance(row[1], list):
        return row[1]
    raise _Bad(f"this is {show(row)}; an event or a batch of them is allowed")


def _named(event: object) -> tuple[str, dict[str, Any]]:
    if isinstance(event, list) and event and isinstance(event[0], str) and event[0] in FIELDS:
        return event[0], dict(zip(FIELDS[event[0]], event[1:], strict=False))
    if isinstance(event, dict) and isinstance(event.get("type"), str) and event["type"] in FIELDS:
        return event["type"], event
    raise _Bad(f"this event is {show(event)}; {', '.join(FIELDS)} are allowed")
