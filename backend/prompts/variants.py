"""Requests that differ from one in their numbers alone: the nearest anchors that its pools can have."""

import random
import re
from collections.abc import Mapping, Sequence

NUMBER = re.compile(r"[0-9]{1,18}")  # of more digits: piece by piece


def other_numbers(texts: Mapping[str, str], count: int, seed: int = 0) -> list[dict[str, str]]:
    """``count`` copies of texts by name, in each every number replaced by another with as many digits.

    A number that occurs in several places is replaced by the same one everywhere. Empty if the texts hold no
    number.
    """
    numbers = sorted({number for text in texts.values() for number in NUMBER.findall(text)})
    if not numbers:
        return []
    rng = random.Random(seed)
    return [_replaced(texts, _drawn(numbers, rng)) for _ in range(count)]


def _drawn(numbers: Sequence[str], rng: random.Random) -> dict[str, str]:
    others = {}
    for number in numbers:
        low, high = 10 ** (len(number) - 1), 10 ** len(number) - 1
        other = rng.randint(low, high - 1)  # one fewer, for the number's own place is passed over
        others[number] = str(other + (low <= int(number) <= other))
    return others


def _replaced(texts: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    return {name: NUMBER.sub(lambda found: others[found[0]], text) for name, text in texts.items()}
