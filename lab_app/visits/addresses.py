"""Whom something is counted for: an address as the server sees it, and the bytes that came from it lately."""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from collections.abc import Callable


def address_of(host: str) -> str:
    """Whom a host's requests are counted for: itself, of IPv6 its network (/64)."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]
    if found.version == 4:
        return host
    return str(ipaddress.ip_network((found, 64), strict=False))


class Volume:
    """Bytes that came within some time.

    Args:
        each: how many one address may send; ``together``: all of them.
        seconds: within how long.
        clock: seconds.
    """

    def __init__(
        self, each: int, together: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.each, self.together = each, together
        self._seconds, self._clock = seconds, clock
        self._sent: deque[tuple[float, str, int]] = deque()

    @property
    def used(self) -> int:
        """Bytes of this time, from everybody."""
        while self._sent and self._clock() - self._sent[0][0] > self._seconds:
            self._sent.popleft()
        return sum(size for _, _, size in self._sent)

    def take(self, address: str, size: int) -> bool:
        """Count so many bytes, if they may be."""
        used = self.used
        mine = sum(more for _, whose, more in self._sent if whose == address)
        if used + size > self.together or mine + size > self.each:
            return False
        self._sent.append((self._clock(), address, size))
        return True
