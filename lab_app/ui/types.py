"""Types that handlers and the page builder share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Update = dict[str, Any]
Given = Mapping[str, Any]


class NamedWidgets(Protocol):
    """A page in the making, as far as its parts need it."""

    def add(self, **widgets: Any) -> None:
        """Give widgets their names."""
