"""Whole numbers in their ranges, and what is said of one that is not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backend.base.errors import OptionError
from backend.base.ranges import check_ranges, check_whole


@pytest.mark.parametrize("value", [0, 1001, 2.0, True, "7", None])
def test_what_is_no_whole_number_in_range_is_refused(value: object) -> None:
    said = rf"^turns is {value!r}; 1 to 1,000 are allowed, whole numbers\. Change it\.$"
    with pytest.raises(OptionError, match=said) as caught:
        check_whole(value, 1, 1000, "loop.turns")
    assert caught.value.field == "loop.turns"


def test_every_attribute_is_held_to_its_own_range() -> None:
    request = SimpleNamespace(turns=3, seed=-1)
    check_ranges(request, {"turns": (3, 3)}, "loop")
    with pytest.raises(OptionError, match=r"seed is -1; 0 to 9 are allowed, .* Lower it\.") as caught:
        check_ranges(request, {"turns": (1, 4), "seed": (0, 9)}, "loop", "Lower it.")
    assert caught.value.field == "loop.seed"
