"""Log probabilities of an answer's tokens, as OpenAI's interfaces give them: of a chat, one object a token;
of a completion, lists side by side."""

import math
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from backend.logs.calls import Chance, Fields

MOST = 20  # likeliest tokens that are kept of each


def chances_of(choice: Mapping[str, Any]) -> tuple[Chance, ...]:
    """The tokens of one of a response's choices; empty where it has no log probabilities, or some that cannot
    be read.

    Raises:
        BadLine: a list is something else.
    """
    fields = Fields(choice.get("logprobs"))
    if rows := fields.rows("content"):
        chances = [_chance(Fields(row).value("token"), row, _listed(row)) for row in rows]
    else:
        likely = [list(row.items()) if isinstance(row, dict) else [] for row in fields.rows("top_logprobs")]
        columns = zip_longest(fields.rows("tokens"), fields.rows("token_logprobs"), likely)
        chances = [_chance(token, {"logprob": value}, others or []) for token, value, others in columns]
    return () if None in chances else tuple(chance for chance in chances if chance is not None)


def _listed(row: object) -> list[tuple[Any, Any]]:
    """The likeliest tokens of a chat's token."""
    return [(Fields(o).value("token"), Fields(o).value("logprob")) for o in Fields(row).rows("top_logprobs")]


def _chance(token: object, row: object, likely: list[tuple[Any, Any]]) -> Chance | None:
    value = _number(Fields(row).value("logprob"))
    if not isinstance(token, str) or value is None:
        return None
    likeliest = ((str(name), _number(logprob)) for name, logprob in likely[:MOST])
    return Chance(token, value, tuple((name, number) for name, number in likeliest if number is not None))


def _number(value: object) -> float | None:
    """A log probability in nats, at most 0; servers write minus infinity as a very negative number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return min(0.0, float(value)) if math.isfinite(value) else None
