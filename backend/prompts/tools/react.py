"""The tools of a ReAct loop: the last action of a turn decides which is called (ReAct, Yao et al. 2022)."""

import re

from backend.prompts.tools.base import ToolError, ToolResult, finish
from backend.prompts.tools.calculator import calculate
from backend.prompts.tools.lookup import lookup_tool

_ACTION = re.compile(r"\b(calc|lookup|search|finish)\[[^\]\n]*\]", re.IGNORECASE)


def find_action(text: str) -> str | None:
    """The last ``calc[...]``, ``lookup[...]``, ``search[...]`` or ``finish[...]`` of a turn."""
    *_, match = [None, *_ACTION.finditer(text)]
    return match.group() if match else None


def finishes(text: str) -> bool:
    """Is a turn's last action the one that ends the loop?"""
    return (find_action(text) or "").lower().startswith("finish")


def act(text: str) -> ToolResult:
    """Carry out the last action of a turn; ``finish`` calls nothing."""
    action = find_action(text)
    if action is None or finishes(action):
        return finish(lambda: _nothing(action))
    return calculate(action) if action.lower().startswith("calc") else _LOOKUP.run(action)


def _nothing(action: str | None) -> str:
    if action is None:
        raise ToolError(
            "The turn holds no action. Allowed are calc[...], lookup[...] and finish[...]; let the agent "
            "write one.",
            "no action",
        )
    raise ToolError(f"{action} ends the loop: there is no tool to call.", "done")


_LOOKUP = lookup_tool()
