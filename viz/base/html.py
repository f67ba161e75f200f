"""HTML from templates, in which every value is escaped that is not :class:`~markupsafe.Markup`.

A template is a file beside the module that fills it, named by its path in the package. Line breaks and
indents beside a tag are removed; inside a text they become a space.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup, escape

from viz.base import format as words
from viz.base.glossary import term
from viz.base.placeholder_pills import pill, weights_label


class _JoinedLines(Extension):
    """Takes the line breaks out of a template."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        tags = r"(?:(?<=[%#]\})|(?<=>))\s*\n\s*|\s*\n\s*(?=\{[%#]|<)"
        return re.sub(r"\s*\n\s*", " ", re.sub(tags, "", source.strip()))


ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1]),
    extensions=[_JoinedLines],
    autoescape=True,
    undefined=StrictUndefined,
    auto_reload=False,
    cache_size=-1,
)
ENVIRONMENT.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}


def quoted(token: str) -> Markup:
    """A token in quotation marks."""
    return html('<q class="kv-token">{}</q>', words.token_name(token))


def render(template: str, **values: Any) -> Markup:
    """Fill a template.

    Raises:
        jinja2.UndefinedError: the template uses a value that is missing.
    """
    return Markup(ENVIRONMENT.get_template(template).render(values))


def html(text: str, *values: Any, **named: Any) -> Markup:
    """A short piece of HTML with ``{}`` where values enter."""
    return Markup(text).format(*values, **named)


def table(
    heads: Sequence[str],
    groups: Iterable[tuple[str, Iterable[Sequence[object]]]],
    *,
    look: str = "",
    row_heads: bool = False,
) -> Markup:
    """A table of groups of rows, each under its name if it has one; ``look``: a further CSS class."""
    return render("base/table.html", heads=heads, groups=groups, look=look, row_heads=row_heads)


def joined(pieces: Iterable[str], between: str = "") -> Markup:
    """Pieces in a row."""
    return Markup(between).join(pieces)


def listed(items: Iterable[str], last: str = "and") -> Markup:
    """``a, b and c`` of items that may be HTML."""
    return Markup(words.listing(map(escape, items), last))


ENVIRONMENT.globals |= {
    "term": term,
    "pill": pill,
    "quoted": quoted,
    "weights_label": weights_label,
    "STATE_WORDS": words.STATE_WORDS,
    **{
        name: getattr(words, name)
        for name in (
            "clip", "grouped", "listing", "milliseconds", "number", "percent", "plural", "ratio", "size",
            "segment_words", "agent_name", "agent_weights", "token_name",
        )
    },
}  # fmt: skip
