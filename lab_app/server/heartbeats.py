"""Heartbeats: the connection that a tab keeps open as long as it exists.

The framework's own handler makes a session, a copy of the whole page, when the connection closes, also for
an invented session name. Requests could force such copies without end, so the lab answers itself.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

BEAT_SECONDS = 15.0


class Heartbeats:
    """Answers heartbeats; each costs a timer.

    Args:
        opened: called with a tab's name when its heartbeat begins; ``closed``: when it has ended.
        stopping: returns the event that is set when the server stops.
    """

    def __init__(
        self,
        opened: Callable[[str], None] = lambda tab: None,
        closed: Callable[[str], None] = lambda tab: None,
        stopping: Callable[[], asyncio.Event] = asyncio.Event,
    ) -> None:
        self._opened, self._closed, self._stopping = opened, closed, stopping

    async def answer(self, tab: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Beat until the tab goes or the server stops."""
        self._opened(tab)
        try:
            await StreamingResponse(self._beats(), media_type="text/event-stream")(scope, receive, send)
        finally:
            self._closed(tab)

    async def _beats(self) -> AsyncIterator[str]:
        stop = self._stopping()
        while not stop.is_set():
            yield "data: ALIVE\n\n"
            try:
                await asyncio.wait_for(stop.wait(), BEAT_SECONDS)
            except TimeoutError:
                continue
