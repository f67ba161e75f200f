"""The selection that the figures of the offset study show."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.records.offsets import PARTS, OffsetStudy

Array = NDArray[np.floating[Any]]
PART_WORDS = ("shared texts", "template text")


@dataclass(frozen=True)
class Focus:
    """The selection. ``token``: of the segment; ``prefix``, ``agent``: None for the mean of all; ``part``:
    index into ``PARTS``."""

    token: int = 0
    prefix: int | None = None
    agent: int | None = None
    part: int = 0


def usual_token(record: OffsetStudy) -> int:
    """The token with the most similar other token: the one that Fig. 1b is about."""
    return int(np.argmin(record.twins.distance))


def valid_focus(record: OffsetStudy, focus: Focus) -> Focus:
    """The focus, with defaults for what this record does not have."""
    agents = record.approximated.agents if record.approximated else ()
    return Focus(
        focus.token if 0 <= focus.token < len(record.tokens) else usual_token(record),
        focus.prefix if focus.prefix is not None and 0 <= focus.prefix < len(record.prefix_tokens) else None,
        focus.agent if focus.agent in agents else None,
        focus.part if focus.part in range(len(PARTS)) else 0,
    )
