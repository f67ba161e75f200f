"""Hints for a person who edits a pipeline: what is allowed, but probably not meant."""

import difflib
import re
from collections.abc import Collection

from backend.prompts.pipeline import Pipeline
from backend.prompts.template import QUESTION

_LOOKS_LIKE_A_NAME = re.compile(r"\{ ?([A-Za-z][A-Za-z0-9_-]{0,60}) ?\}")


def _braced(names: Collection[str]) -> str:
    return ", ".join("{" + name + "}" for name in names)


def notices(pipeline: Pipeline) -> tuple[str, ...]:
    """Hints for a person: names in braces that are plain text, such as ``{user_name}``, and turns that would
    only repeat the first."""
    placeholders = [QUESTION, *pipeline.declared]
    for agent in pipeline.agents:
        for family in ("agent", "condition"):
            placeholders += [f"{family}_{agent.id}_current", f"{family}_{agent.id}_history_-1"]
    hints: list[str] = []
    if pipeline.turns > 1 and not any(hole.kind == "history" for hole in pipeline.placeholders):
        hints.append(
            f"No template reads an earlier turn, so each of the {pipeline.turns} turns repeats the first. "
            f"Write for example {{agent_{pipeline.agents[0].id}_history_-1}} into a template."
        )
    for agent in pipeline.agents:
        names = dict.fromkeys(
            name
            for part in pipeline.template(agent.id).parts
            if isinstance(part, str)
            for name in _LOOKS_LIKE_A_NAME.findall(part)
        )
        others: list[str] = []
        for index, name in enumerate(names):
            # comparing is slow, so only the first names of a long text are compared
            matches = difflib.get_close_matches(name.lower(), placeholders, 1, 0.85) if index < 30 else []
            if matches:
                hints.append(
                    f"Agent {agent.id}: {{{name}}} is not a placeholder and stays in the prompt as it is. "
                    f"Did you mean {{{matches[0]}}}?"
                )
            else:
                others.append(name)
        if others:
            more = f" and {len(others) - 4} more" if len(others) > 4 else ""
            hints.append(
                f"Agent {agent.id}: {_braced(others[:4])}{more} will stay in the prompt as plain "
                "text. That is fine if you meant it so. To fill such a name at run time, declare it."
            )
    return tuple(hints)
