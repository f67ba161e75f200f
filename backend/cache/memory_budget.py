"""Memory of cached KV: one budget for all sessions of a process, and a retry when memory runs out anyway.

A run's need is estimated first, and the run is refused with the number if it does not fit. Memory can still
run out, where other programs use the machine or the device's allocator takes more than was requested. Then
everything that can be computed again is freed, the work is tried once more in smaller pieces, and if that
fails too, the user gets an error.
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
#: Words of the plain RuntimeError that torch raises when there is no memory for a tensor on the CPU.
REFUSED = ("can't allocate memory", "not enough memory", "out of memory")


class Holder(Protocol):
    """What the budget knows of a session."""

    runs: int  # in progress
    used: float  # when it last ran, on a clock that all holders share

    @property
    def held(self) -> int:
        """Bytes."""

    def forget(self) -> None:
        """Drop everything."""


class MemoryBudget:
    """The bytes that all sessions of a process may hold together.

    Args:
        total_bytes: the limit; None for no limit but the device's memory.
        free: free bytes of the device; returns None if that is unknown.
    """

    def __init__(self, total_bytes: int | None = None, free: Callable[[], int | None] = lambda: None) -> None:
        self.total_bytes, self._free = total_bytes, free
        self._holders: WeakSet[Holder] = WeakSet()
        # Bytes reserved for running holders until their runs end.
        self._promised: WeakKeyDictionary[Holder, int] = WeakKeyDictionary()
        self._guard = threading.RLock()

    def join(self, holder: Holder) -> None:
        """Count a session as long as it exists."""
        with self._guard:
            self._holders.add(holder)

    @property
    def held(self) -> int:
        """Bytes that all sessions hold."""
        with self._guard:
            return sum(holder.held for holder in self._holders)

    @contextmanager
    def running(self, holder: Holder) -> Iterator[None]:
        """While this is open, the session is not emptied."""
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
        """Empty idle sessions, least recently used first, until a run fits.

        Args:
            holder: the session of the run.
            need: bytes that it may hold after the run, including what it holds now.
            scratch: further bytes needed during the run.

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
        """Whether so many further bytes fit without emptying a session."""
        with self._guard:
            if self.total_bytes is not None:
                total = sum(max(h.held, self._promised.get(h, 0)) for h in self._holders)
                if total + need > self.total_bytes:
                    return False
            free = self._free()
            return free is None or need <= free

    def empty(self, holder: Holder) -> None:
        """Empty every idle session but ``holder``."""
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
    """Run ``attempt(False)``. If memory runs out, call ``free(last)``; then, if there is a ``notice``, yield
    it and run ``attempt(True)``, which works in smaller pieces.

    Raises:
        MemoryFullError: memory ran out in the last attempt.
    """
    for smaller in (False, True) if notice is not None else (False,):
        try:
            return (yield from attempt(smaller))
        except Exception as error:
            if not out_of_memory(error):
                raise
        # Outside of the except block, the exception and its frames no longer hold the tensors.
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
