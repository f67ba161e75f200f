"""A figure view that keeps zoom, follows the page's theme, reports clicks and exports on the client.

The value is ``{"views": [...]}``, one entry per card; the drawing is in ``assets/app.js``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from viz.base.figure import FigureView, Panel
from viz.base.theme import PLOTLY_DARK, PLOTLY_LIGHT

if TYPE_CHECKING:
    import gradio as gr

#: app.js is deferred, so a component may come to life before it.
MOUNT = """
const start = () =>
  window.KVLab ? window.KVLab.figures(element, props, trigger, watch) : setTimeout(start, 30);
start();
"""


def figure_view(name: str, first: dict[str, Any] | None = None) -> gr.HTML:
    """A view; give it :func:`payload`. Clicks arrive as its ``select`` event."""
    import gradio as gr  # payloads are made where no framework is, as by `kvlab report`

    return gr.HTML(
        first or {"views": []},
        html_template='<div class="kv-figures"></div>',
        js_on_load=MOUNT,
        elem_id=f"kv-view-{name}",
        elem_classes="kv-view",
        apply_default_css=False,
    )


def payload(views: Sequence[FigureView | Panel]) -> dict[str, Any]:
    """What the browser needs to draw the views."""
    return {
        "themes": {"light": PLOTLY_LIGHT, "dark": PLOTLY_DARK},
        "views": [_panel(view) if isinstance(view, Panel) else _figure(view) for view in views],
    }


def _panel(view: Panel) -> dict[str, Any]:
    return {"key": view.key, "title": view.title, "html": view.html}


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
