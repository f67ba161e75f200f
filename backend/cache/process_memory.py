"""The process's main memory: heaps, freed pages, large pages. Free of torch."""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

M_ARENA_MAX = -8  # of the GNU C library's malloc.h
MADV_HUGEPAGE = 14  # of Linux's mman.h
HUGE = 1 << 21
#: Blocks of this size have their own memory mapping, so the request affects nothing else.
HUGE_FROM_BYTES = 1 << 25


def share_heaps(count: int = 2) -> None:
    """Let all threads allocate from ``count`` heaps. Call it before many threads have started.

    A server's threads take turns in Python anyway; heaps of their own only scatter what they free.
    """
    if _MALLOPT is not None:
        _MALLOPT(M_ARENA_MAX, count)


def trim() -> None:
    """Return the pages of freed objects to the system.

    The C library keeps them: after many visitors it keeps more than all of them hold. Takes some 10 ms. Does
    nothing where the C library has no such call.
    """
    if _TRIM is not None:
        _TRIM(0)


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of the GNU C library's malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def allocated_bytes() -> int | None:
    """Bytes that the C library has given out and not got back, torch's tensors among them.

    The process takes more: pages of freed objects that lie between others. None where the C library does not
    say.
    """
    if _MALLINFO is None:
        return None
    info = _MALLINFO()
    return int(info.uordblks + info.hblkhd)


def want_large_pages(address: int, size: int) -> None:
    """Request large pages for fresh memory of ``size`` bytes, if it is large.

    Otherwise the first write of a cache of some 100 MB takes twice as long: a page fault for every 4 KiB. A
    system without large pages, or one that refuses, uses small ones.
    """
    if _MADVISE is None or size < HUGE_FROM_BYTES:
        return
    first, last = -(-address // HUGE) * HUGE, (address + size) // HUGE * HUGE
    _MADVISE(ctypes.c_void_p(first), ctypes.c_size_t(last - first), MADV_HUGEPAGE)


def _find(call: str) -> Callable[..., Any] | None:
    try:
        function: Callable[..., Any] | None = getattr(ctypes.CDLL(None), call, None)
    except (OSError, TypeError):  # a system that loads its libraries in another way
        return None
    return function


_TRIM, _MALLOPT = _find("malloc_trim"), _find("mallopt")
_MALLINFO: Any = _find("mallinfo2")
if _MALLINFO is not None:
    _MALLINFO.restype = _MallInfo
_MADVISE = _find("madvise") if sys.platform == "linux" else None
