"""Memory of cached KV: one account for all sessions of a process, and what happens when it runs out anyway.

What a run may need is estimated before it and refused with the number, so running out is the exception: a
machine that others use, or a device whose allocator keeps more than was asked for. Then the exception is
caught, everything that can be computed again is freed, the work is tried once more in smaller pieces, and
after that a person is told.
"""

import gc
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import torch

from backend.base.errors import BudgetError, MemoryFullError

T = TypeVar("T")
R = TypeVar("R")
MIB = 2**20
#: What torch says where the system refuses memory for a tensor on the CPU; it is a plain RuntimeError.
REFUSED = ("can't allocate memory", "not enough memory", "out of memory")


class Holder(Protocol):
    """A session, as the account sees it."""

    runs: int  # going on now
    used: float  # when it last ran, on any clock that all share

    @property
    def held(self) -> int:
        """Bytes."""

    def forget(self) -> None:
        """Drop everything."""


class MemoryBudget:
    """What all sessions of a process may hold together.

    Args:
        total_bytes: for all; none for as much as there is.
        free: bytes that the device can still give; ``None`` where nobody knows.
    """

    def __init__(self, total_bytes: int | None = None, free: Callable[[], int | None] = lambda: None) -> None:
        self.total_bytes, self._free = total_bytes, free
        self._holders: WeakSet[Holder] = WeakSet()
        # What those that run may hold and need until they have ended.
        self._promised: WeakKeyDictionary[Holder, int] = WeakKeyDictionary()
        self._guard = threading.RLock()

    def join(self, holder: Holder) -> None:
        """Count a session from now on, as long as it lives."""
        with self._guard:
            self._holders.add(holder)

    @property
    def held(self) -> int:
        """Bytes that all sessions hold."""
        with self._guard:
            return sum(holder.held for holder in self._holders)

    @contextmanager
    def running(self, holder: Holder) -> Iterator[None]:
        """Nothing is taken from a session that runs."""
        with self._guard:
            holder.runs += 1
        try:
            yield
        finally:
            with self._guard:
                holder.runs -= 1
                if not holder.runs:
                    self._promised.pop(holder, None)

    def make_room(self, holder: Holder, need: int, scratch: int) -> None:
        """Empty idle sessions, the longest unused first, until a run fits.

        Args:
            holder: who wants to run.
            need: bytes that it may hold when the run is over, what it holds now among them.
            scratch: bytes more that it needs while it runs.

        Raises:
            BudgetError: it does not fit beside the sessions that are running.
        """
        with self._guard:
            while (over := self._over(holder, need, scratch)) > 0:
                if not self._empty_one(holder):
                    self._refuse(holder, need + scratch, over)
            if holder.runs:
                self._promised[holder] = need + scratch

    def spare(self, need: int) -> bool:
        """Whether so many bytes more fit, with nobody emptied for them."""
        with self._guard:
            if self.total_bytes is not None:
                total = sum(max(h.held, self._promised.get(h, 0)) for h in self._holders)
                if total + need > self.total_bytes:
                    return False
            free = self._free()
            return free is None or need <= free

    def empty(self, holder: Holder) -> None:
        """Empty every idle session but the asking one."""
        with self._guard:
            while self._empty_one(holder):
                pass

    def _over(self, holder: Holder, need: int, scratch: int) -> int:
        """Bytes too many."""
        over = 0
        if self.total_bytes is not None:
            others = sum(max(h.held, self._promised.get(h, 0)) for h in self._holders if h is not holder)
            over = others + max(need, holder.held) + scratch - self.total_bytes
        free = self._free()
        if free is not None:
            over = max(over, max(0, need - holder.held) + scratch - free)
        return over

    def _empty_one(self, holder: Holder) -> bool:
        idle = [h for h in self._holders if h is not holder and h.held and not h.runs]
        if not idle:
            return False
        min(idle, key=lambda h: h.used).forget()
        release()
        return True

    def _refuse(self, holder: Holder, need: int, over: int) -> None:
        room = max(0, need - over)
        raise BudgetError(
            f"This request may need {need / MIB:,.0f} MiB of memory, and {room / MIB:,.0f} MiB are left "
            "beside what others are running. Shorten the texts, choose fewer methods or fewer new tokens, "
            "or try again when their runs have ended.",
            field="methods",
        )


def free_bytes(device: torch.device) -> int | None:
    """Bytes that a CUDA device can still give to this process; None elsewhere."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in REFUSED)


def release() -> None:
    """Give freed memory back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def with_retry(
    attempt: Callable[[bool], Generator[T, None, R]],
    free: Callable[[bool], None],
    notice: T | None = None,
    name: str = "This run",
) -> Generator[T, None, R]:
    """Do ``attempt(False)``; when memory runs out, ``free(last)`` and, if there is a word for it, tell
    ``notice`` and do ``attempt(True)``, which works in smaller pieces.

    Raises:
        MemoryFullError: it ran out once more, or nothing smaller can be tried.
    """
    for smaller in (False, True) if notice is not None else (False,):
        try:
            return (yield from attempt(smaller))
        except Exception as error:
            if not out_of_memory(error):
                raise
        # Here the exception is gone, and with it the frames that held the tensors.
        free(smaller or notice is None)
        release()
        if notice is not None and not smaller:
            yield notice
    detail = ", also in smaller pieces" if notice is not None else ""
    raise MemoryFullError(
        f"{name} needs more memory than this machine has free{detail}. What it had computed was freed, and "
        "your anchor pools were emptied. Shorten the texts, choose fewer methods or fewer new tokens, or "
        "wait until others have finished.",
        field="methods",
    )
