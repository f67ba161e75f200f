"""Class rooms: one link, everyone predicts, the teacher sees the tally and reveals.

Rooms live in memory, hold no text that anyone typed, and end by themselves. A room's id lets in; its key,
which the teacher's browser alone has, leads. Members are known by a random token of their browser, so that a
reload neither loses a prediction nor gives a second one.
"""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from backend.base.errors import LabError
from backend.records.run import RunRecord

IDLE_SECONDS = 2 * 3600.0
LIFE_SECONDS = 8 * 3600.0
MOST_ROOMS = 40
MOST_MEMBERS = 400
MOST_TOKEN = 64  # characters of a member's token


@dataclass
class Reveal:
    """What a room was shown at its step. ``drawn`` is the page's update, the same for everyone."""

    record: RunRecord
    live: bool
    drawn: Mapping[str, Any] | None = None


@dataclass
class Room:
    """One class. ``version`` grows with everything that the members' pages have to show anew."""

    id: str
    key: str
    opened: float
    used: float
    step: int = 0
    version: int = 0
    members: set[str] = field(default_factory=set)
    votes: dict[int, dict[str, str]] = field(default_factory=dict)
    reveal: Reveal | None = None  # of the present step

    @property
    def predicted(self) -> int:
        """How many have predicted at the present step."""
        return len(self.votes.get(self.step, {}))

    def vote_of(self, member: str) -> str | None:
        """A member's prediction at the present step."""
        return self.votes.get(self.step, {}).get(member)

    def tally(self) -> Counter[str]:
        """Predictions at the present step, by choice."""
        return Counter(self.votes.get(self.step, {}).values())


class Rooms:
    """The open class rooms of a server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._guard = clock, threading.Lock()
        self._rooms: dict[str, Room] = {}

    def open(self, step: int = 0) -> Room:
        """A new room.

        Raises:
            LabError: there are too many.
        """
        with self._guard:
            self._drop_old()
            if len(self._rooms) >= MOST_ROOMS:
                raise LabError(
                    f"{MOST_ROOMS} class rooms are open here, and no more are allowed. A room ends two hours "
                    "after its last use; try again later."
                )
            now = self._clock()
            room = Room(secrets.token_urlsafe(12), secrets.token_urlsafe(18), now, now, step)
            self._rooms[room.id] = room
            return room

    def find(self, room_id: object) -> Room | None:
        """The room with this id, if it is still open."""
        with self._guard:
            self._drop_old()
            return self._rooms.get(room_id) if isinstance(room_id, str) else None

    def close(self, room: Room) -> None:
        """End a room."""
        with self._guard:
            self._rooms.pop(room.id, None)

    def join(self, room: Room, member: str) -> None:
        """Let a browser in.

        Raises:
            LabError: the room is full.
        """
        with self._guard:
            if member not in room.members and len(room.members) >= MOST_MEMBERS:
                raise LabError(
                    f"This class room holds {MOST_MEMBERS} already, and no more are allowed. You can take "
                    "the tour by yourself; leave the room out of the address."
                )
            room.members.add(member)
            room.used = self._clock()

    def leads(self, room: Room, key: object) -> bool:
        """Is this the teacher's key?"""
        return isinstance(key, str) and secrets.compare_digest(room.key.encode(), key.encode())

    def vote(self, room: Room, member: str, choice: str) -> bool:
        """Count a prediction; the first one stands, and none counts behind the reveal."""
        with self._guard:
            votes = room.votes.setdefault(room.step, {})
            if member not in room.members or member in votes or room.reveal is not None:
                return False
            votes[member] = choice
            room.used = self._clock()
            return True

    def go(self, room: Room, step: int) -> None:
        """Lead the class to a step."""
        with self._guard:
            if step != room.step:
                room.step, room.reveal = step, None
                room.version += 1
            room.used = self._clock()

    def show(self, room: Room, step: int, record: RunRecord, live: bool) -> None:
        """Reveal a run at a step; nothing if the class has moved on."""
        with self._guard:
            if step == room.step:
                room.reveal = Reveal(record, live)
                room.version += 1
            room.used = self._clock()

    def state(self, room_id: object) -> dict[str, int] | None:
        """Counts that every page of a room asks for every few seconds; they reveal no prediction."""
        room = self.find(room_id)
        if room is None:
            return None
        return {"version": room.version, "predicted": room.predicted, "members": len(room.members)}

    def _drop_old(self) -> None:
        now = self._clock()
        for room in list(self._rooms.values()):
            if now - room.used > IDLE_SECONDS or now - room.opened > LIFE_SECONDS:
                del self._rooms[room.id]


def member_token(token: object, otherwise: str) -> str:
    """The token that a browser gave itself, if it is valid, else ``otherwise``."""
    valid = isinstance(token, str) and 16 <= len(token) <= MOST_TOKEN and token.isascii() and token.isalnum()
    return str(token) if valid else otherwise
