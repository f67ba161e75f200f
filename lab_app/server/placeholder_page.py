"""The early page: the first run's page as plain HTML, shown until the framework's scripts have run.

It includes the page's own styles and script, since the framework's client adds its head much later. The
browser paints it at once, while the framework mounts its widgets beneath, which takes seconds on a slow
machine; then ``assets/early.js`` removes it. A press on it is repeated on the widget named in ``data-stands``
when the visit has begun (``assets/app.js``).
"""

from pathlib import Path

from lab_app.pages.pipeline.layout import METHODS_AT_FIRST, PipelinePage
from lab_app.ui import text
from viz.base.format import escape

SCRIPT = Path(__file__).parents[1] / "assets" / "early.js"
BODY = b"<gradio-app"
STYLES = '<link rel="stylesheet" href="lab/app.css">'
OWN_SCRIPT = (
    '<script src="lab/app.js"></script>'  # at once: it keeps the presses made before the visit begins
)
SHOWN = ("topbar", "status", "verdict", "comparison", "scenario", "graph", "known", "cost")


def early_page(page: PipelinePage, navigation: str) -> str:
    """The page's widgets as they stand when it is served, as HTML without the framework.

    Args:
        page: the pipeline's widgets, with the first run written into them.
        navigation: the links to the other pages, as HTML.
    """
    shown = {name: str(getattr(page[name], "value", "") or "") for name in SHOWN}
    question = page["values"].value["value_0"]
    scenario = next(
        (label for label, name in page["preset"].choices if name == page["preset"].value), text.SCENARIO
    )
    chips = "".join(
        f'<span class="kv-early-chip"{" data-chosen" if name in METHODS_AT_FIRST else ""} '
        f'data-stands="#kv-methods input[value=&quot;{escape(name)}&quot;]">{escape(label)}</span>'
        for label, name in page["methods"].choices
    )
    bench = (
        f'<section class="kv-part"><h2 class="kv-part-title">{text.SCENARIO}</h2>'
        f'<p class="kv-early-box" data-stands="#kv-preset input"><b>{escape(scenario)}</b></p>'
        f'{shown["scenario"]}<div class="kv-early-graph">{shown["graph"]}</div></section>'
        f'<section class="kv-part"><h2 class="kv-part-title">{text.REQUEST}</h2>'
        f'<p class="kv-early-box" data-stands="#kv-value-0 textarea">{escape(question)}</p>'
        f"{shown['known']}</section>"
        f'<section class="kv-part"><h2 class="kv-part-title">{text.METHODS}</h2>'
        f'<p class="kv-early-chips">{chips}</p></section>'
    )
    go = f'<button type="button" class="kv-early-run" data-stands="#kv-run">{text.RUN}</button>'
    return (
        f"{STYLES}<script>{SCRIPT.read_text(encoding='utf-8')}</script>"
        '<div class="kv-early gradio-container" aria-busy="true">'
        f'<div class="kv-early-top">{shown["topbar"]}</div><div class="kv-early-nav">{navigation}</div>'
        f'<p class="kv-early-wait" role="status">{text.OPENING}</p>'
        f'<div class="kv-frame"><div class="kv-bench"><div class="kv-bench-scroll">{bench}</div>'
        f'<div class="kv-go">{shown["cost"]}{go}</div></div>'
        f'<div class="kv-stage">{shown["status"]}{shown["verdict"]}<div class="kv-early-tabs"></div>'
        f"{shown['comparison']}</div></div></div>"
        f"{OWN_SCRIPT}"
    )


def with_early_page(document: bytes, early: bytes) -> bytes:
    """The framework's document with the early page before its own root; unchanged if it has none."""
    head, root, tail = document.partition(BODY)
    return head + early + root + tail if root else document
