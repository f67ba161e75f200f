"""All reproductions by name. Free of torch."""

from __future__ import annotations

from backend.base.errors import OptionError
from backend.reproduce import judges, kvcomm, kvlink, omitted, segments
from backend.reproduce.spec import Reproduction

REPRODUCTIONS: tuple[Reproduction, ...] = (
    *kvcomm.ALL,
    *judges.ALL,
    *kvlink.ALL,
    *segments.ALL,
    *omitted.ALL,
)


def find(name: str) -> Reproduction:
    """One by its name.

    Raises:
        OptionError: there is none of that name.
    """
    for one in REPRODUCTIONS:
        if one.name == name:
            return one
    listed = ", ".join(one.name for one in REPRODUCTIONS)
    raise OptionError(
        f"There is no reproduction {name[:60]!r}; there are {listed}. Choose one; kvlab reproduce alone "
        f"says what "
        "each asks.",
        field="reproduce.name",
    )
