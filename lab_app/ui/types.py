"""Types that handlers and the page builder share."""

from collections.abc import Mapping
from typing import Any

Update = dict[str, Any]
Given = Mapping[str, Any]
