"""What a visitor may ask for, and all of them together. Free of torch.

The engine's session holds to them (:class:`backend.session.session.LabSession`); a page only repeats them. A
session on one's own machine, from the command line or a program, has :data:`LOCAL_LIMITS`: no rate.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from backend.base.errors import BudgetError, OptionError, RateError
from backend.base.text import show

ENVIRONMENT = "KVLAB_LIMIT_"  # KVLAB_LIMIT_TOKENS=100000
MINUTE = 60.0


def _limit(default: int, low: int, high: int, sentence: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "sentence": sentence})


@dataclass(frozen=True)
class Limits:
    """Every limit of a lab that others visit. All are whole numbers; ``sentence`` is how the page states one.

    Raises:
        OptionError: a limit is outside its range.
    """

    tokens: int = _limit(
        1_000_000, 1000, 10**9, "{:,} prompt tokens in a request, over all agents and methods"
    )
    agents: int = _limit(96, 1, 96, "{:,} prompts in a request: agents times turns")
    methods: int = _limit(20, 1, 64, "{:,} methods side by side, dense among them")
    requests_a_minute: int = _limit(120, 0, 100_000, "{:,} requests a minute from one visitor")
    visit_mb: int = _limit(1024, 0, 2**20, "{:,} MiB of cached text for one visitor")
    total_mb: int = _limit(4096, 1, 2**24, "{:,} MiB of cached text for all visitors together")
    together: int = _limit(4, 1, 64, "{:,} runs at once, decoded as one batch")
    visits: int = _limit(128, 1, 100_000, "{:,} visitors at once")
    idle_minutes: int = _limit(120, 1, 10**6, "a visit ends after {:,} minutes without a click")
    lifetime_minutes: int = _limit(720, 1, 10**6, "a visit ends {:,} minutes after it began")

    def __post_init__(self) -> None:
        for limit in fields(self):
            value, low, high = getattr(self, limit.name), limit.metadata["low"], limit.metadata["high"]
            if type(value) is not int or not low <= value <= high:
                raise OptionError(
                    f"The limit {limit.name} is {show(value)}; allowed: {low:,} to {high:,}, whole numbers. "
                    f"Change --limit {limit.name}=... or {ENVIRONMENT}{limit.name.upper()}.",
                    field=f"limits.{limit.name}",
                )

    @property
    def visit_bytes(self) -> int:
        return self.visit_mb << 20

    @property
    def total_bytes(self) -> int:
        return self.total_mb << 20

    @property
    def sentences(self) -> tuple[str, ...]:
        """Every limit in words, for the page; without a rate where there is none."""
        values = ((f, getattr(self, f.name)) for f in fields(self))
        return tuple(f.metadata["sentence"].format(value) for f, value in values if value)

    @staticmethod
    def read(options: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> Limits:
        """The usual limits, changed by the environment (``KVLAB_LIMIT_TOKENS``) and then by ``name=value``.

        Raises:
            OptionError: an unknown name, or a value outside its range.
        """
        names = [limit.name for limit in fields(Limits)]
        pairs = [
            (key.removeprefix(ENVIRONMENT).lower(), value)
            for key, value in environ.items()
            if key.startswith(ENVIRONMENT)
        ]
        pairs += [(name.strip(), value) for name, _, value in (option.partition("=") for option in options)]
        limits = Limits()
        for name, value in pairs:
            if name not in names:
                raise OptionError(
                    f"There is no limit {show(name)}; there are {', '.join(names)}. Name one of them, as in "
                    "--limit tokens=100000.",
                    field="limits",
                )
            number: Any = int(value) if re.fullmatch(r"[0-9]{1,15}", value.strip()) else value
            limits = replace(limits, **{name: number})
        return limits

    def check(self, tokens: int, agents: int, methods: int) -> None:
        """Refuse a request that is too large.

        Args:
            tokens: of all its prompts, under all its methods.
            agents: prompts under one method.
            methods: side by side, dense among them.

        Raises:
            OptionError: too many methods.
            BudgetError: too many tokens or agents.
        """
        if methods > self.methods:
            raise OptionError(
                f"{methods} methods were chosen; at most {self.methods} run side by side. Remove some.",
                field="methods",
            )
        if agents > self.agents:
            raise BudgetError(
                f"This request has {agents} prompts (agents times turns); this lab allows {self.agents}. "
                "Remove agents or turns, or serve with a larger --limit agents.",
                field="agents",
            )
        if tokens > self.tokens:
            raise BudgetError(
                f"This request reads {tokens:,} prompt tokens over {agents} prompts and {methods} methods; "
                f"this lab allows {self.tokens:,}. Shorten the texts, choose fewer methods, or serve with a "
                "larger --limit tokens.",
                field="methods",
            )


LOCAL_LIMITS = replace(Limits(), requests_a_minute=0)


class Rate:
    """How often one visitor may ask. Thread-safe.

    Args:
        a_minute: requests within any 60 s; 0 for as many as one likes.
        clock: seconds.
    """

    def __init__(self, a_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.a_minute, self._clock = a_minute, clock
        self._times: deque[float] = deque()
        self._guard = threading.Lock()

    def ask(self) -> None:
        """Count one request.

        Raises:
            RateError: too many were asked within the last minute.
        """
        if not self.a_minute:
            return
        with self._guard:
            now = self._clock()
            while self._times and now - self._times[0] >= MINUTE:
                self._times.popleft()
            if len(self._times) >= self.a_minute:
                seconds = MINUTE - (now - self._times[0])
                raise RateError(
                    f"You sent {len(self._times)} requests within a minute; this lab allows "
                    f"{self.a_minute} to each visitor. Wait {max(1, round(seconds))} s and try again.",
                    seconds,
                )
            self._times.append(now)
