"""The widgets that pages are made of: figures, pieces of HTML, titled parts, messages, hidden buttons."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from viz.base.figure import FigureView, Panel

#: app.js is deferred, so a component may be mounted before it.
MOUNT = "(function go(){window.KVLab?KVLab.figures(element,props,trigger,watch):setTimeout(go,30)})()"


def figure_view(
    name: str,
    first: dict[str, Any] | None = None,
    css: str = "",
    question: str = "",
    asides: Sequence[tuple[str, str]] = (),
) -> gr.HTML:
    """A list of figures; its value is a :func:`payload`, a click is its ``select`` event. ``question`` stands
    above; ``asides``: measuring sections in the list, each with its title."""
    items = "|".join(f"{part}:{title}" for part, title in asides)
    attribute = f' data-asides="{items}"' if items else ""
    heading = f'<p class="kv-tab-question">{question}</p>' if question else ""
    return gr.HTML(
        first or {"views": []},
        html_template=f'{heading}<div class="kv-figures"{attribute}></div>',
        js_on_load=MOUNT,
        elem_id=f"kv-view-{name}",
        elem_classes=["kv-view", *css.split()],
        apply_default_css=False,
    )


def payload(views: Sequence[FigureView | Panel]) -> dict[str, Any]:
    """What the browser needs to draw the views."""
    return {"views": [_panel(view) if isinstance(view, Panel) else _figure(view) for view in views]}


def _panel(view: Panel) -> dict[str, Any]:
    return {"key": view.key, "title": view.title, "html": view.html, "finding": view.finding}


def _figure(view: FigureView) -> dict[str, Any]:
    return {
        "key": view.key,
        "title": view.title,
        "how": view.how_to_read,
        "finding": view.finding,
        "empty": view.empty,
        "height": int(view.figure.layout.height or 320),
        "figure": None if view.empty else view.json(),
        "csv": view.csv() if view.rows else "",
    }


RAW = MOUNT.replace("figures", "raw")


def raw_html(elem_id: str, **extra: Any) -> gr.HTML:
    """A piece of server-made HTML that reports choices in it; its value is ``{"html": ...}``."""
    return gr.HTML(
        {"html": ""},
        html_template='<div class="kv-raw"></div>',
        js_on_load=RAW,
        elem_id=elem_id,
        apply_default_css=False,
        **extra,
    )


def panes(*labels: str) -> gr.HTML:
    """A bar that shows one part of the results at a time: those with the class ``kv-pane-1``, then
    ``kv-pane-2`` and so on; what has no such class is always there (see ``assets/app.js``)."""
    tabs = "".join(
        f'<button role="tab" data-pane="{n}" '
        f'aria-selected="{str(n == 1).lower()}" tabindex="{0 if n == 1 else -1}">{label}</button>'
        for n, label in enumerate(labels, 1)
    )
    bar = f'<div class="kv-panes" role="tablist" aria-label="Parts of the result">{tabs}</div>'
    return gr.HTML(bar, apply_default_css=False, elem_classes="kv-panes-bar", js_on_load=None)


def block(name: str, value: str = "", **extra: Any) -> gr.HTML:
    """A piece of server-made HTML that is morphed into place; nobody listens to clicks on it as a whole."""
    return gr.HTML(value, elem_id=f"kv-{name}", apply_default_css=False, js_on_load=None, **extra)


def section(title: str, name: str, **extra: Any) -> gr.Column:
    """A titled part of the bench."""
    group = gr.Column(elem_id=f"kv-part-{name}", elem_classes="kv-part", min_width=0, **extra)
    with group:
        gr.HTML(f'<h2 class="kv-part-title">{title}</h2>', apply_default_css=False)
    return group


def error_slot(name: str) -> gr.HTML:
    """An empty place for messages beside the input ``name``."""
    return block(f"error-{name}", elem_classes="kv-errors")


def hidden_button(elem_id: str) -> gr.Button:
    """A button that only scripts press."""
    return gr.Button("", elem_id=elem_id, elem_classes="kv-unseen")
