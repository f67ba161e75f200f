"""Why a call missed what an earlier one had sent: the first difference of the two, and its cause in words.

The earlier call is the one that had most of the missed text (:mod:`backend.logs.xray` chooses it). Only the
first difference counts: behind it no prefix is left.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from backend.base.text import common_prefix
from backend.logs.calls import SYSTEM, TOOLS
from backend.logs.edits import ALIKE, EDITED, edit
from backend.logs.pieces import messages_of

TOOL_ORDER, TOOL_ADDED, TOOL_REMOVED = "order of tools", "tool added", "tool removed"
TOOL_CHANGED, TOOL_KEYS, TOOLS_OTHER = "tool's declaration changed", "order of keys", "other tools"
MOVED, INSERTED, REMOVED = "paragraph moved", "paragraph inserted", "paragraph removed"
REPLACED, HEADER, ROLE = "system prompt replaced", "other agent's header", "role changed"
TRUNCATED, SUMMARISED = "history truncated", "history summarised"
MESSAGE_IN, MESSAGE_MOVED, MESSAGE_EDITED = "message inserted", "order of messages", "earlier message edited"
OTHER = "other text in front"  # a request, a document: what is meant to change, but stands before what stays

Ids = Sequence[int]
EXCERPT = 90


@dataclass(frozen=True)
class Cause:
    """``kind`` in words; ``role`` of the message (or *tools*) with the first difference; an excerpt of both
    from there on."""

    kind: str
    role: str
    before: str
    after: str


def cause(
    before: Ids, after: Ids, texts: Sequence[str], headers: Mapping[int, str], same_agent: bool
) -> Cause | None:
    """Why ``after`` shares no longer prefix with ``before``; None if one is the beginning of the other.

    Args:
        before, after: numbers of the pieces of both calls; their ``texts``; ``headers`` begin a message.
        same_agent: whether both are calls of one agent.
    """
    one, other = messages_of(before, headers), messages_of(after, headers)
    place = common_prefix(one, other)
    if place == min(len(one), len(other)):
        return None
    (role, old), (new_role, new) = one[place], other[place]
    if old == new:
        kind = ROLE
    elif TOOLS in (role, new_role):
        kind = _tools(old if role == TOOLS else [], new if new_role == TOOLS else [], texts)
        role = TOOLS
    elif SYSTEM in (role, new_role) and place <= 1:
        same = role == new_role
        kind = _paragraphs(old, new, texts) or REPLACED if same else REPLACED
        if not same_agent and (kind == REPLACED or old[:1] != new[:1]):
            kind = HEADER
    else:
        kind = _history(one[place:], other[place:], texts)
    at = common_prefix(old, new)
    return Cause(
        kind, new_role if role != TOOLS else role, *_excerpts(_text(old[at:], texts), _text(new[at:], texts))
    )


def _text(pieces: Ids, texts: Sequence[str]) -> str:
    return "".join(texts[p] for p in pieces)


def _excerpts(before: str, after: str) -> tuple[str, str]:
    """Both from a little before their first different character on, on one line."""
    same = common_prefix(before, after)
    start = before.rfind(" ", 0, max(0, same - EXCERPT // 3)) + 1  # where a word begins
    one, other = (" ".join(t[start : start + EXCERPT].split()) for t in (before, after))
    return (f"… {one}", f"… {other}") if start else (one, other)


def _tools(before: Ids, after: Ids, texts: Sequence[str]) -> str:
    if sorted(before) == sorted(after):
        return TOOL_ORDER
    one, other = ({_tool_name(texts[p]): texts[p] for p in pieces} for pieces in (before, after))
    if one.keys() == other.keys():
        changed = [(one[n], other[n]) for n in one if one[n] != other[n]]
        return TOOL_KEYS if all(_same_json(a, b) for a, b in changed) else TOOL_CHANGED
    if one.keys() < other.keys():
        return TOOL_ADDED
    return TOOL_REMOVED if one.keys() > other.keys() else TOOLS_OTHER


def _tool_name(text: str) -> str:
    return str(_loaded(text).get("name", text))


def _same_json(before: str, after: str) -> bool:
    return bool(_loaded(before) == _loaded(after) != {})


def _loaded(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _paragraphs(before: Ids, after: Ids, texts: Sequence[str]) -> str | None:
    """What changed between two messages; None where they are two different texts."""
    if "".join(_text(before, texts).split()) == "".join(_text(after, texts).split()):
        return edit(_text(before, texts), _text(after, texts))
    one, other = (
        [texts[p].strip() for p in pieces] for pieces in (before, after)
    )  # blank lines do not count
    if Counter(one) == Counter(other):
        return MOVED
    ops = SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    tag, i1, i2, j1, j2 = next(op for op in ops if op[0] != "equal")
    removed, added = one[i1:i2], other[j1:j2]
    if (set(removed) & set(other[j2:])) or (set(added) & set(one[i2:])):
        return MOVED
    if tag == "replace" and len(removed) != len(added):  # an edit, and a paragraph more or less beside it
        removed, added = removed[:1], added[:1]
    kind = edit("\n\n".join(removed), "\n\n".join(added)) if tag == "replace" else None
    if kind:
        return kind
    shared = sum(len(one[i]) for op, i1, i2, *_ in ops if op == "equal" for i in range(i1, i2))
    if shared < ALIKE * min(sum(map(len, one)), sum(map(len, other))):
        return None
    return OTHER if tag == "replace" else INSERTED if tag == "insert" else REMOVED


def _history(
    before: Sequence[tuple[str, Ids]], after: Sequence[tuple[str, Ids]], texts: Sequence[str]
) -> str:
    """What changed in the messages behind the system prompt, from the first difference on."""
    one, other = ([(role, tuple(ids)) for role, ids in rows] for rows in (before, after))
    if other[0] in one:
        return MESSAGE_MOVED if one[0] in other and Counter(one) == Counter(other[: len(one)]) else TRUNCATED
    if one[0] in other:
        return MESSAGE_IN
    shared = [n for n, message in enumerate(one) if message in other[1:]]
    if shared and shared[0] > 1 and other.index(one[shared[0]]) < shared[0]:
        return SUMMARISED
    kind = _paragraphs(one[0][1], other[0][1], texts)
    if kind in (None, EDITED, OTHER):
        # The same conversation goes on behind it: it was this message that changed.
        return MESSAGE_EDITED if shared else (kind or OTHER)
    return kind
