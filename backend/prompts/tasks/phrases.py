"""Words and sentence patterns of the tasks: the files of ``presets/tasks``.

Patterns are in the grammar of :class:`~backend.prompts.tasks.words.Draw`. A file's ``define`` holds words in
capitals that stand for a piece of a pattern.
"""

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

FOLDER = Path(__file__).parents[3] / "presets" / "tasks"


@cache
def phrases(name: str) -> SimpleNamespace:
    """The lists of one file, each an attribute; lists are tuples."""
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    # libyaml, where it is there, is ten times faster
    content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return SimpleNamespace(**_frozen(content, content.pop("define", {})))


def _frozen(value: Any, defined: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(part, defined) for key, part in value.items()}
    if isinstance(value, list):
        return tuple(_frozen(part, defined) for part in value)
    if isinstance(value, str):
        for word, meaning in defined.items():
            value = value.replace(word, meaning)
    return value
