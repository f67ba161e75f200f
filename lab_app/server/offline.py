"""Offline mode: no connection leaves this machine, whatever a library wants.

Python calls an audit hook before every connection and every look-up of a name, and the hook may refuse it.
Libraries then see a network that is down.
"""

import errno
import ipaddress
import os
import sys
from pathlib import Path
from typing import Any

#: Read by the libraries when they are imported.
QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
NAMES = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost"})


class Guard:
    """The hook. There is only one, since Python cannot remove a hook.

    Attributes:
        on: whether it refuses.
        own: this machine's addresses that the server listens on; connections to them are allowed.
        refused: how many connections and look-ups were refused.
    """

    def __init__(self) -> None:
        self.on, self.refused = False, 0
        self.own: frozenset[str] = frozenset()
        self._hooked = False

    def start(self, *own: str) -> None:
        """Refuse from now on."""
        self.own = frozenset(own)
        self.on = True
        if not self._hooked:
            self._hooked = True
            sys.addaudithook(self._look)

    def stop(self) -> None:
        """Let everything through again."""
        self.on = False

    def _look(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on or not event.startswith("socket."):
            return
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            address = args[1]
            host = address[0] if isinstance(address, tuple) and address else None
        elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
            host = args[0]
        else:
            return
        if not self.inside(host):
            self.refused += 1
            raise OSError(errno.ENETUNREACH, "the lab is offline: connections leave this machine for nowhere")

    def inside(self, host: Any) -> bool:
        """Whether a host is this machine; None, as of Unix sockets and connected ones, counts as such."""
        if host is None:
            return True
        name = (host.decode("utf-8", "replace") if isinstance(host, bytes) else str(host)).lower()
        if name in NAMES or name in self.own:
            return True
        try:
            address = ipaddress.ip_address(name.partition("%")[0])
        except ValueError:
            return False
        return address.is_loopback or address.is_unspecified


GUARD = Guard()


def is_local(model: str) -> bool:
    """Whether a model's name means files of this machine, as ``backend.model.load.load_model`` reads it."""
    base = model.strip().partition("+")[0]
    return base == "embedded" or base[:1] in "./~\\" or Path(base).expanduser().exists()


def go_offline(*own: str) -> None:
    """Begin, before libraries that look for a network are imported; ``own``: where the server listens."""
    os.environ.update(QUIET)
    GUARD.start(*own)
