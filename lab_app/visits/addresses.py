"""Addresses by which the server counts, and the bytes that came from each lately."""

import ipaddress
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

LEAST = 1 << 16  # bytes that each item counts at least, as it costs to handle


def address_of(host: str) -> str:
    """The address that a host's requests are counted for: its own, of IPv6 its network (/64)."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False))


class Volume:
    """Counts the bytes that came within some time, :data:`LEAST` for each item at least. Thread-safe.

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
        self._by_address: Counter[str] = Counter()
        self._guard = threading.Lock()

    @property
    def used(self) -> int:
        """Bytes of this time, from everybody."""
        with self._guard:
            return self._used()

    def take(self, address: str, size: int) -> bool:
        """Count so many bytes; False where they pass a limit."""
        size = max(size, LEAST)
        with self._guard:
            if self._used() + size > self.together or self._by_address[address] + size > self.each:
                return False
            self._sent.append((self._clock(), address, size))
            self._by_address[address] += size
            return True

    def _used(self) -> int:
        while self._sent and self._clock() - self._sent[0][0] > self._seconds:
            _, address, size = self._sent.popleft()
            self._by_address[address] -= size
            if not self._by_address[address]:
                del self._by_address[address]
        return self._by_address.total()
