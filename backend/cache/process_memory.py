"""The process's own memory, apart from what torch holds on a device. Free of torch."""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

M_ARENA_MAX = -8  # of the GNU C library's malloc.h
MADV_HUGEPAGE = 14  # of Linux's mman.h
HUGE = 1 << 21
#: Blocks from here on lie in a mapping of their own, which goes when they go: nothing else is touched.
HUGE_FROM_BYTES = 1 << 25


def share_heaps(count: int = 2) -> None:
    """Let all threads allocate from a few heaps instead of some each, before many threads have begun.

    A server's threads take turns in Python anyway; heaps of their own only scatter what they free.
    """
    if _MALLOPT is not None:
        _MALLOPT(M_ARENA_MAX, count)


def trim() -> None:
    """Give the system the pages that freed objects left behind.

    The C library keeps them, scattered between what is still used: with visitors coming and going it keeps
    more than all of them hold. Takes some 10 ms. A C library that knows no such call keeps what it has.
    """
    if _TRIM is not None:
        _TRIM(0)


def want_large_pages(address: int, size: int) -> None:
    """Ask the system for large pages under fresh memory of ``size`` bytes, where it is large.

    A cache of some 100 MB is otherwise written for the first time at half the speed of memory, a page fault
    for every 4 KiB. A system without them, or one that refuses, does as it would have.
    """
    if _MADVISE is None or size < HUGE_FROM_BYTES:
        return
    first, last = -(-address // HUGE) * HUGE, (address + size) // HUGE * HUGE
    _MADVISE(ctypes.c_void_p(first), ctypes.c_size_t(last - first), MADV_HUGEPAGE)


def _find(call: str) -> Callable[..., Any] | None:
    try:
        function: Callable[..., Any] | None = getattr(ctypes.CDLL(None), call, None)
    except (OSError, TypeError):  # a system whose libraries are asked for otherwise
        return None
    return function


_TRIM, _MALLOPT = _find("malloc_trim"), _find("mallopt")
_MADVISE = _find("madvise") if sys.platform == "linux" else None
