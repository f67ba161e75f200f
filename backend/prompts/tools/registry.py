"""The tools by name. A new tool is one module and one line here."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from backend.base.errors import OptionError
from backend.prompts.tools.base import Tool
from backend.prompts.tools.calculator import calculate, find_expression
from backend.prompts.tools.collection import encyclopedia
from backend.prompts.tools.lookup import lookup_tool
from backend.prompts.tools.react import act, find_action
from backend.prompts.tools.sandbox import find_code, run_python

_TOOLS = (
    Tool(
        "calculator",
        "Calculator",
        "Gives the exact value of an arithmetic expression.",
        "The last calc[...], else the last arithmetic expression with an operator.",
        find_expression,
        calculate,
    ),
    lookup_tool(),
    replace(
        lookup_tool(encyclopedia),
        name="encyclopedia",
        title="Encyclopedia",
        summary="Gives passages of a small encyclopedia for the entities that an agent names.",
    ),
    Tool(
        "react",
        "Tools of a ReAct loop",
        "Carries out the turn's last action: the calculator or the look-up.",
        "The last calc[...], lookup[...], search[...] or finish[...].",
        find_action,
        act,
    ),
    Tool(
        "python",
        "Python",
        "Runs Python code in a sandbox and gives what it printed and its last value.",
        "The last fenced Python block, else the whole text.",
        find_code,
        run_python,
    ),
)
TOOLS: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in _TOOLS})


def tool_names() -> tuple[str, ...]:
    """Names in the order of lists."""
    return tuple(TOOLS)


def get_tool(name: str) -> Tool:
    """A tool by its name.

    Raises:
        OptionError: there is no such tool.
    """
    if name not in TOOLS:
        raise OptionError(f"There is no tool {name!r}; there are: {', '.join(TOOLS)}.", field="tools")
    return TOOLS[name]
