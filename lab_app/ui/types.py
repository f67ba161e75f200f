"""Types that handlers and the page builder share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Update = dict[str, Any]
Given = Mapping[str, Any]
