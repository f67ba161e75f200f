"""Stored bundles by unguessable id: an SQLite table, and one file each beside it.

A file is written whole before its row is, and the row is deleted before the file, so whatever moment the
process is killed at, an id leads to a whole bundle or to nothing. A file without a row is swept up later; a
table that cannot be read is made again from the files, which carry their ids as names.
"""

import contextlib
import hashlib
import logging
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.base.errors import RecordError
from backend.records.sharing.dataset import DatasetCopy

LOG = logging.getLogger("backend.records.sharing")
ID_BYTES = 18  # 144 bits
LIFETIME_DAYS = 30.0
ENTRY_BYTES = 32 << 20
TOTAL_BYTES = 2 << 30
ORPHAN_SECONDS = 3600.0  # a file without a row may be one that is just being written
_ID = re.compile(r"[A-Za-z0-9_-]{22,64}")
_TABLE = """
CREATE TABLE IF NOT EXISTS shared (
    id TEXT PRIMARY KEY, created REAL NOT NULL, expires REAL NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT
    NULL ) STRICT
"""


class SharedRuns:
    """The store in a folder. Several threads, and processes on one machine, may use it at once.

    Args:
        folder: made when it is not there.
        lifetime_days: how long a bundle is kept.
        total_bytes: how much all bundles may take; ``entry_bytes``: one.
        clock: seconds since the epoch.
        copy: a repository that keeps everything beside the folder, which may then be lost.

    Raises:
        RecordError: the folder cannot be used, or the repository cannot be listed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        lifetime_days: float = LIFETIME_DAYS,
        total_bytes: int = TOTAL_BYTES,
        entry_bytes: int = ENTRY_BYTES,
        clock: Callable[[], float] = time.time,
        copy: DatasetCopy | None = None,
    ) -> None:
        self.lifetime_days, self.total_bytes, self.entry_bytes = lifetime_days, total_bytes, entry_bytes
        self._clock, self._copy = clock, copy
        self._guard, self._closed = threading.Lock(), False
        self.folder, self._files, self._database = folder, folder / "shared", folder / "shared.sqlite"
        try:
            self._files.mkdir(parents=True, exist_ok=True)
            try:
                self._open()
            except sqlite3.DatabaseError:
                self._rebuild()
            if copy is not None:
                self._index_copy(copy)
            self.sweep()
        except (OSError, sqlite3.Error) as error:
            raise RecordError(
                f"Runs cannot be stored in {folder}: {_reason(error)}. Name a folder that can be written to."
            ) from None

    def put(self, content: bytes) -> str:
        """Store a bundle; the id that finds it until it expires.

        Raises:
            RecordError: it is too large, the store is full, or the disk is.
        """
        if len(content) > self.entry_bytes:
            raise RecordError(
                f"This takes {_mib(len(content))} MiB; up to {_mib(self.entry_bytes)} MiB are stored. Save "
                "it as a file."
            )
        now, name = self._clock(), secrets.token_urlsafe(ID_BYTES)
        try:
            self.sweep()
            with self._guard:
                self._check_open()
                size = self.held_bytes
                if size + len(content) > self.total_bytes:
                    raise RecordError(
                        f"The lab's store is full ({_mib(size)} of {_mib(self.total_bytes)} MiB). Save the "
                        "run as a file, or try again when older ones have expired."
                    )
                self._write(name, content)
                row = (name, now, now + self.lifetime_days * 86400, len(content), _hash(content))
                with self._connection() as base:
                    base.execute("INSERT INTO shared VALUES (?, ?, ?, ?, ?)", row)
            if self._copy is not None:
                try:
                    self._copy.put(name, content, now)
                except RecordError:
                    self._drop(name)
                    raise
        except (OSError, sqlite3.Error) as error:
            with contextlib.suppress(OSError):
                self._path(name).unlink(missing_ok=True)
            LOG.warning("a run could not be stored: %s", _reason(error))
            raise RecordError(
                f"The run could not be stored: {_reason(error)}. Nothing else is lost; save it as a file."
            ) from None
        return name

    def get(self, name: str) -> bytes:
        """A stored bundle.

        Raises:
            RecordError: there is none with this id (any more), or its file is damaged.
        """
        missing = RecordError(
            "Nothing is stored under this link (any more); stored runs are kept for "
            f"{self.lifetime_days:g} days. Ask the sender for the file."
        )
        if not _ID.fullmatch(name):
            raise missing
        try:
            with self._connection() as base:
                row = base.execute("SELECT expires, sha256 FROM shared WHERE id = ?", (name,)).fetchone()
            if row is None or row[0] <= self._clock():
                raise missing
            content = self._content(name)
        except FileNotFoundError:
            raise missing from None
        except (OSError, sqlite3.Error) as error:
            LOG.warning("a stored run could not be read: %s", _reason(error))
            raise RecordError(
                f"The lab's store cannot be read just now ({_reason(error)}). Try again."
            ) from None
        if row[1] and _hash(content) != row[1]:
            LOG.warning("the file of a stored run is damaged")
            raise RecordError("The stored run is damaged and was not opened. Ask the sender for the file.")
        return content

    def close(self) -> None:
        """Take nothing more, and let what is being stored be whole before this returns.

        Nothing is held open between two calls; a second call does nothing.
        """
        with self._guard:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise RecordError(
                "The lab is being restarted and stores nothing more. Save the run as a file, or share it "
                "in a minute."
            )

    def sweep(self) -> int:
        """Delete what has expired, and files that belong to nothing; how many."""
        now = self._clock()
        with self._connection() as base:
            expired = [row[0] for row in base.execute("SELECT id FROM shared WHERE expires <= ?", (now,))]
            base.executemany("DELETE FROM shared WHERE id = ?", [(name,) for name in expired])
            names = {row[0] for row in base.execute("SELECT id FROM shared")}
        if expired and self._copy is not None:
            try:
                self._copy.delete(expired)
            except RecordError as error:  # the next start lists them, and the sweep after it tries again
                LOG.warning("%s", error)
        removed = 0
        for path in self._files.iterdir():
            name = path.name.partition(".")[0]
            with contextlib.suppress(OSError):
                if name in expired or (name not in names and now - path.stat().st_mtime > ORPHAN_SECONDS):
                    path.unlink()
                    removed += 1
        return removed

    @property
    def held_bytes(self) -> int:
        """Bytes of all bundles."""
        with self._connection() as base:
            return int(base.execute("SELECT COALESCE(SUM(bytes), 0) FROM shared").fetchone()[0])

    def _content(self, name: str) -> bytes:
        """A bundle's file; where the folder has lost it, as the repository has it."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            content = self._copy.get(name) if self._copy is not None else None
            if content is None:
                raise
        with contextlib.suppress(OSError):  # a full disk: it is fetched again the next time
            self._write(name, content)
        return content

    def _drop(self, name: str) -> None:
        with self._connection() as base:
            base.execute("DELETE FROM shared WHERE id = ?", (name,))
        self._path(name).unlink(missing_ok=True)

    def _index_copy(self, copy: DatasetCopy) -> None:
        """Rows for what the repository has and the folder does not know; their hash is not known yet."""
        lifetime = self.lifetime_days * 86400
        rows = [(run.name, run.stored, run.stored + 86400 + lifetime, run.size, "") for run in copy.runs()]
        with self._connection() as base:
            base.executemany("INSERT OR IGNORE INTO shared VALUES (?, ?, ?, ?, ?)", rows)

    def _path(self, name: str) -> Path:
        return self._files / f"{name}.kvbundle"

    def _write(self, name: str, content: bytes) -> None:
        part = self._files / f"{name}.part"
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path(name))
        finally:
            part.unlink(missing_ok=True)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        base = sqlite3.connect(self._database, timeout=10.0)
        try:
            with base:
                yield base
        finally:
            base.close()

    def _open(self) -> None:
        with self._connection() as base:
            check = base.execute("PRAGMA quick_check(1)").fetchone()[0]
            if check != "ok":
                raise sqlite3.DatabaseError(check)
            new = not base.execute("SELECT 1 FROM sqlite_master WHERE name = 'shared'").fetchone()
            base.execute(_TABLE)
        if new:
            self._index_files()

    def _rebuild(self) -> None:
        LOG.warning("the table of stored runs cannot be read; it is made again from the files")
        self._database.replace(self._database.with_suffix(f".broken-{int(self._clock())}"))
        for suffix in ("-journal", "-wal", "-shm"):
            Path(f"{self._database}{suffix}").unlink(missing_ok=True)
        self._open()

    def _index_files(self) -> None:
        """Rows for the files of an earlier table, with a lifetime that begins when each was written."""
        rows = []
        for path in self._files.glob("*.kvbundle"):
            if _ID.fullmatch(path.stem):
                content, written = path.read_bytes(), path.stat().st_mtime
                expires = written + self.lifetime_days * 86400
                rows.append((path.stem, written, expires, len(content), _hash(content)))
        with self._connection() as base:
            base.executemany("INSERT OR IGNORE INTO shared VALUES (?, ?, ?, ?, ?)", rows)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _mib(count: int) -> str:
    return f"{count / 2**20:,.1f}".removesuffix(".0")


def _reason(error: Exception) -> str:
    """What went wrong, without a path."""
    return error.strerror or "unknown" if isinstance(error, OSError) else str(error)
