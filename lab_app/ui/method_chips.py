"""The methods as chips, for the pages that take their options from the pipeline's page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from lab_app.ui import text
from lab_app.ui.method_choice import read_methods
from lab_app.ui.page import PageBuilder
from lab_app.ui.types import Given, Update
from viz.base.format import escape


def method_chips(page: PageBuilder, at_first: Sequence[str]) -> None:
    """The methods as chips, dense left out: it always runs."""
    from backend.methods.registry import method_class, method_names

    key = page.key
    chips = [(method_class(name).title, name) for name in method_names() if name != "dense"]
    known = [name for name in at_first if name in method_names()]
    page.add(
        methods=gr.CheckboxGroup(
            chips, value=known, show_label=False, label=text.METHODS, container=False,
            elem_id=f"kv-{key}-methods", elem_classes="kv-chips",
        )
    )  # fmt: skip
    page.block("method-help", f'<p class="kv-help">{text.METHODS_ELSEWHERE}</p>')
    page.error("methods")


def usable_methods(page: PageBuilder) -> Update:
    """The chips of the methods that run on the loaded model, and why others do not."""
    from backend.methods.registry import method_class, method_names

    info = page.lab.model.info
    refused = {name: method_class(name).supports(info) for name in method_names() if name != "dense"}
    update: Update = {
        "methods.choices": [(method_class(name).title, name) for name, why in refused.items() if not why]
    }
    why_not = "".join(
        f'<p class="kv-help">{escape(method_class(name).title)}: {escape(why)}</p>'
        for name, why in refused.items()
        if why
    )
    update["method-help"] = f'<p class="kv-help">{text.METHODS_ELSEWHERE}</p>{why_not}'
    return update


def chosen_methods(given: Given, most: int) -> Any:
    """The chosen methods with the pipeline page's options, dense first.

    Raises:
        LabError: a method or an option is wrong.
    """
    return read_methods(tuple(given["methods"] or ()), given["options"], most=most)
