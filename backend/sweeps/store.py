"""A sweep's rows in one SQLite file: append-only, one per key, whole problems or nothing.

The rows of a problem are written in one transaction, in write-ahead mode and flushed to the disk, so a killed
process loses the problem in flight and no more. The key is the table's primary key, and what is there is
never written again: two processes on one file cost each other time, never a second row. Triggers refuse
changes and deletions. A file of format 1 lacks columns and a table that format 2 has; it gets them when it is
opened, empty in its rows.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from backend.base.errors import RecordError
from backend.sweeps.rows import COLUMNS, Finished, Row, sql_type

FORMAT = 2
APPLICATION = 0x4B565357  # "KVSW": marks a sweep's file in its head
WAIT_SECONDS = 60.0  # for another process's transaction


def _final(*tables: str) -> list[str]:
    """Triggers that refuse changes of these tables."""
    return [
        f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'rows of a sweep are final'); END"
        for table in tables
        for verb in ("UPDATE", "DELETE")
    ]


_NEW = {1: ("max_new_tokens", "temperature")}  # columns that came after a format
_COLUMNS = ", ".join(f"{name} {sql_type(name)}" for name in COLUMNS)
_WEIGHTS = "CREATE TABLE weights (at INTEGER PRIMARY KEY, model TEXT NOT NULL, identity TEXT NOT NULL)"
_TABLES = (
    f"CREATE TABLE rows ({_COLUMNS}, PRIMARY KEY (key)) WITHOUT ROWID",
    "CREATE TABLE memos (unit TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE runs (began TEXT NOT NULL, name TEXT NOT NULL, sweep TEXT NOT NULL, facts TEXT NOT NULL)",
    *_final("rows", "memos", "runs"),
    _WEIGHTS,
    *_final("weights"),
)


class SweepStore:
    """A sweep's file; use it with ``with``.

    Raises:
        RecordError: the file is of another kind or version, or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # One user at a time, but not always on one thread: a page's steps come from a pool of them.
            self.connection = sqlite3.connect(
                self.path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
        except sqlite3.OperationalError as error:
            raise self._failed("opened", error) from None
        try:
            self._open()
        except BaseException as error:
            self.connection.close()
            if isinstance(error, sqlite3.OperationalError):
                raise self._failed("opened", error) from None
            if isinstance(error, sqlite3.DatabaseError):
                raise self._refusal() from None
            raise

    def _open(self) -> None:
        execute = self.connection.execute
        tables = execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application, format = (
            execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if tables and application != APPLICATION:
            raise self._refusal()
        if tables and format != FORMAT and format not in _NEW:
            raise RecordError(
                f"{self.path.name} has format {format}; this version reads format {FORMAT}. Choose another "
                "file with --out.",
                field="out",
            )
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA synchronous=FULL")
        if not tables:
            self._create()
        elif format != FORMAT:
            self._renew()

    def _create(self) -> None:
        """Make the tables, unless another process has just done it."""
        with self._alone() as execute:
            if not execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in _TABLES:
                    execute(statement)
                execute(f"PRAGMA application_id={APPLICATION}")
                execute(f"PRAGMA user_version={FORMAT}")

    def _renew(self) -> None:
        """Give an older file the columns of this format, unless another process has just done it."""
        with self._alone() as execute:
            columns = _NEW.get(execute("PRAGMA user_version").fetchone()[0], ())
            statements = [f"ALTER TABLE rows ADD COLUMN {name} {sql_type(name)}" for name in columns]
            for statement in [*statements, _WEIGHTS, *_final("weights")] if columns else ():
                execute(statement)
            execute(f"PRAGMA user_version={FORMAT}")

    @contextmanager
    def _alone(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """A transaction that no other process can begin beside."""
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            yield execute
            execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                execute("ROLLBACK")
            raise

    def _failed(self, verb: str, error: sqlite3.Error) -> RecordError:
        return RecordError(
            f"{self.path.name} cannot be {verb}: {error}. Choose another file with --out.", field="out"
        )

    def _refusal(self) -> RecordError:
        return RecordError(
            f"{self.path.name} is no file of a sweep, or it is damaged. Choose another one with --out.",
            field="out",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def note_run(self, name: str, sweep: str, facts: dict[str, Any]) -> None:
        """Note that a process adds rows: the sweep's text, versions, the machine.

        Raises:
            RecordError: the file cannot be written.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._write("INSERT INTO runs VALUES (?, ?, ?, ?)", (now, name, sweep, json.dumps(facts)))

    def note_weights(self, model: str, identity: str) -> None:
        """Note what computes a model's rows from now on; said again, nothing is written.

        Raises:
            RecordError: the file cannot be written.
        """
        if self.weights(model) != identity:
            self._write("INSERT INTO weights (model, identity) VALUES (?, ?)", (model, identity))

    def weights(self, model: str) -> str | None:
        """What computed a model's rows when this file was last run; None where it never was."""
        query = "SELECT identity FROM weights WHERE model = ? ORDER BY at DESC LIMIT 1"
        return next((identity for (identity,) in self._read(query, (model,))), None)

    def keys(self) -> set[str]:
        """Keys of all rows."""
        return {key for (key,) in self._read("SELECT key FROM rows", ())}

    def add(self, problem: Finished) -> None:
        """Write a problem's rows, all or none; those that are there already are left as they are."""
        names, marks = ", ".join(COLUMNS), ", ".join("?" * len(COLUMNS))
        try:
            with self._alone() as execute:
                for row in problem.rows:
                    execute(
                        f"INSERT INTO rows ({names}) VALUES ({marks}) ON CONFLICT (key) DO NOTHING",
                        row.values,
                    )
                if problem.memo_text is not None:
                    execute(
                        "INSERT INTO memos VALUES (?, ?) ON CONFLICT (unit) DO NOTHING",
                        (problem.unit, problem.memo_text),
                    )
        except sqlite3.OperationalError as error:  # a full disk, a file that is locked for too long
            raise self._failed("written", error) from None

    def memo(self, unit: str) -> Any:
        """What was kept of a finished problem; None if nothing was."""
        bodies = list(self._read("SELECT body FROM memos WHERE unit = ?", (unit,)))
        return json.loads(bodies[0][0]) if bodies else None

    def rows(self, keys: Collection[str] | None = None) -> Iterator[Row]:
        """Rows by their keys, or all."""
        for values in self._read(f"SELECT {', '.join(COLUMNS)} FROM rows", ()):
            row = Row.from_values(values)
            if keys is None or row.key in keys:
                yield row

    def _write(self, statement: str, values: tuple[str, ...]) -> None:
        try:
            self.connection.execute(statement, values)
        except sqlite3.OperationalError as error:  # a full disk, a file that may only be read
            raise self._failed("written", error) from None

    def _read(self, query: str, values: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self.connection.execute(query, tuple(values))
        except sqlite3.DatabaseError as error:
            raise self._failed("read", error) from None
