"""The methods as chips, for the pages that take their options from the pipeline's page."""

from collections.abc import Sequence
from typing import Any

from lab_app.ui import fields, text
from lab_app.ui.fields import Node
from lab_app.ui.method_choice import read_methods
from lab_app.ui.page import PageBuilder
from lab_app.ui.types import Given, Update
from viz.base.format import escape


def method_chips(key: str, at_first: Sequence[str], *more: Node) -> Node:
    """The part of a page's inputs that chooses its methods, dense left out: it always runs."""
    from backend.methods.registry import method_class, method_names

    chips = [(method_class(name).title, name) for name in method_names() if name != "dense"]
    chosen = [name for name in at_first if name in method_names()]
    return fields.part(
        text.METHODS,
        f"{key}-methods",
        fields.checks("methods", text.METHODS, chips, chosen, id=f"kv-{key}-methods"),
        fields.help_text("method-help", text.METHODS_ELSEWHERE, f"kv-{key}-method-help"),
        fields.message("methods", f"{key}-methods"),
        *more,
    )


def usable_methods(page: PageBuilder) -> Update:
    """The chips of the methods that run on the loaded model, and why others do not."""
    from backend.methods.registry import method_class, method_names

    info = page.lab.model.info
    refused = {name: method_class(name).supports(info) for name in method_names() if name != "dense"}
    why_not = "".join(
        f'<p class="kv-help">{escape(method_class(name).title)}: {escape(why)}</p>'
        for name, why in refused.items()
        if why
    )
    return {
        "methods.choices": [(method_class(name).title, name) for name, why in refused.items() if not why],
        "method-help": f'<p class="kv-help">{text.METHODS_ELSEWHERE}</p>{why_not}',
    }


def chosen_methods(given: Given, most: int) -> Any:
    """The chosen methods with the pipeline page's options, dense first.

    Raises:
        LabError: a method or an option is wrong.
    """
    return read_methods(tuple(given["methods"] or ()), given["options"], most=most)
