"""A run as one HTML file that needs neither the lab nor a network: words, texts, strips and live figures.

Everything is inlined once, plotly.js included, and a content security policy in the file's head forbids every
request, so that not even a mistake here could make one.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backend.records.run import RunRecord
from viz.base.figure import FigureView, Panel, card_html
from viz.base.format import agent_name, escape, plural, styles
from viz.base.theme import PLOTLY_DARK, PLOTLY_LIGHT, script, stylesheet
from viz.run.comparison import comparison_html
from viz.run.tabs import TABS, Selection, Tab, View, default_selection
from viz.run.token_strip import strip_html

FOLDER = Path(__file__).parent
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "form-action 'none'; base-uri 'none'"
)
MOST_STRIPS = 24  # agents whose prompts are shown token by token


def report_html(
    record: RunRecord, *, verdict: str = "", citation: str = "", selection: Selection | None = None
) -> str:
    """The file's content.

    Args:
        record: the run.
        verdict: HTML of the card that tells the outcome.
        citation: BibTeX, as plain text.
        selection: whose figures are drawn, where a figure is of one agent and method.
    """
    chosen = selection or default_selection(record)
    tabs = [(tab, tab.views(record, chosen)) for tab in TABS]
    title = escape(f"{record.request.pipeline.title}: dense beside reuse")
    body = "".join(_body(record, chosen, tabs, title, verdict, citation))
    return _file(title, body, [view for _, views in tabs for view in views])


def figure_html(view: FigureView, heading: str, note: str = "") -> str:
    """One figure as a file of the same kind; ``note`` stands below it, as plain text."""
    title = escape(heading)
    body = f"{_head(title)}{_card(view)}<p>{escape(note)}</p></main>"
    return _file(title, body, [view])


def _file(title: str, body: str, views: Sequence[View]) -> str:
    """The HTML around a body whose figures are ``views``."""
    drawn = {v.key: v for v in views if isinstance(v, FigureView) and not v.empty}
    data = {
        "themes": {"light": PLOTLY_LIGHT, "dark": PLOTLY_DARK},
        "figures": {key: view.figure.to_plotly_json() for key, view in drawn.items()},
    }
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" '
        f'content="no-referrer"><link rel="icon" href="data:,"><title>{title} · KV Reuse Lab</title>'
        f"<style>{stylesheet()}{_asset('report.css')}</style></head><body>{body}"
        f'<script type="application/json" id="kv-report-data">{_figures(data)}</script>'
        f"<script>{plotly_script()}</script><script>{script()}</script>"
        f"<script>{_asset('report.js')}</script></body></html>\n"
    )


def csv_files(record: RunRecord, selection: Selection | None = None) -> dict[str, str]:
    """The tables behind the figures, as CSV by the figures' keys; of the same selection as the report's."""
    chosen = selection or default_selection(record)
    views = (view for tab in TABS for view in tab.views(record, chosen))
    return {v.key: v.csv() for v in views if isinstance(v, FigureView) and v.rows}


def plotly_script() -> str:
    """plotly.js as packaged with plotly.py, safe inside a ``<script>`` element."""
    path = Path(str(importlib.resources.files("plotly") / "package_data" / "plotly.min.js"))
    return path.read_text(encoding="utf-8").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _body(
    record: RunRecord,
    chosen: Selection,
    tabs: list[tuple[Tab, tuple[View, ...]]],
    title: str,
    verdict: str,
    citation: str,
) -> Iterator[str]:
    names = [("texts", "Texts"), ("tokens", "Tokens"), *((tab.key, tab.label) for tab, _ in tabs)]
    links = "".join(f'<a href="#{key}">{escape(label)}</a>' for key, label in [*names, ("cite", "Cite")])
    yield (
        f'{_head(title)}<nav aria-label="Parts of the report">{links}</nav>'
        "<noscript>Figures need JavaScript; texts and tables do not.</noscript>"
    )
    yield verdict
    yield f'<section id="texts"><h2>What did every agent write?</h2>{comparison_html(record)}</section>'
    strips = "".join(strip_html(record, agent) for agent in record.agents[:MOST_STRIPS])
    more = len(record.agents) - MOST_STRIPS
    left = f"<p>{plural(more, 'agent')} more are in the record.</p>" if more > 0 else ""
    yield f'<section id="tokens"><h2>What happened to every token?</h2>{left}{strips}</section>'
    whose = f"{agent_name(record.request.pipeline, chosen.agent)} under {styles(record)[chosen.method].name}"
    for tab, views in tabs:
        note = f'<p class="kv-report-note">Where a figure is of one agent and method: {escape(whose)}.</p>'
        cards = "".join(_card(view) for view in views)
        yield f'<section id="{tab.key}"><h2>{escape(tab.question)}</h2>{note}{cards}</section>'
    yield f'<section id="cite"><h2>How to cite</h2><pre>{escape(citation)}</pre></section></main>'


def _head(title: str) -> str:
    return (
        f'<main class="kv-report"><header><h1>{title}</h1><button type="button" '
        f'id="kv-report-theme">Light or dark</button></header>'
    )


def _card(view: View) -> str:
    """A view with a place to draw in; the figure's data are in the report's one block of JSON."""
    if isinstance(view, Panel):
        return card_html(view)
    height = int(view.figure.layout.height or 320)
    plot = f'<div class="kv-plot" style="min-height:{height}px" data-view="{escape(view.key)}"></div>'
    how = f'<p class="kv-how">{escape(view.how_to_read)}</p>' if view.how_to_read else ""
    return (
        f'<figure class="kv-card kv-figure"><figcaption><h3 class="kv-card-title">{escape(view.title)}</h3>'
        f'<p class="kv-finding">{escape(view.finding)}</p></figcaption>'
        f"{'' if view.empty else plot}{how}</figure>"
    )


def _figures(data: Mapping[str, Any]) -> str:
    from plotly.io.json import to_json_plotly

    text = str(to_json_plotly(data))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _asset(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
