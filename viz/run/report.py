"""A run as one HTML file that needs neither the lab nor a network: words, texts, strips and live figures.

Everything is inlined, including plotly.js, and a content security policy in the file's head forbids every
request. Files of a folder share their styles and scripts instead (``assets``), and may load nothing else.
"""

import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from plotly.io.json import to_json_plotly

from backend.base.errors import RecordError
from backend.records.run import RunRecord
from backend.records.sharing.citations import citations
from viz.base.figure import FigureView, card_html
from viz.base.format import agent_name, styles
from viz.base.html import joined, render
from viz.base.theme import PLOTLY_DARK, PLOTLY_LIGHT, script, stylesheet
from viz.run.comparison import comparison_html
from viz.run.tabs import TABS, View, default_selection
from viz.run.token_strip import strip_html
from viz.run.verdict_card import run_card

FOLDER = Path(__file__).parent
#: Of a file by itself, and of one beside others: where scripts, styles and pictures may come from.
INLINED = "script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
LINKED = "script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:"
POLICY = "default-src 'none'; {sources}; form-action 'none'; base-uri 'none'"
MOST_STRIPS = 24  # agents whose prompts are shown token by token


def report_html(record: RunRecord, assets: str | None = None) -> str:
    """The file's content; figures of one agent and method are those of :func:`default_selection`.

    ``assets``: see :func:`document_html`.

    Raises:
        RecordError: the record is well formed, but its parts do not fit one another.
    """
    try:
        return _report(record, assets)
    except (LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise RecordError(
            "This record is complete but cannot be drawn by this version of the lab "
            f"({type(error).__name__})."
        ) from None


def _report(record: RunRecord, assets: str | None) -> str:
    focus = default_selection(record)
    tabs = [(tab, tab.views(record, focus)) for tab in TABS]
    body = render(
        "run/report_body.html",
        verdict=Markup(run_card(record)),
        comparison=comparison_html(record),
        strips=joined(strip_html(record, agent) for agent in record.agents[:MOST_STRIPS]),
        more=len(record.agents) - MOST_STRIPS,
        whose=f"{agent_name(record.request.pipeline, focus.agent)} under {styles(record)[focus.method].name}",
        tabs=[(tab, joined(map(card_html, views))) for tab, views in tabs],
        citation=citations(m.name for m in record.request.methods),
    )
    title = f"{record.request.pipeline.title}: the full read beside reuse"
    return document_html(title, body, [view for _, views in tabs for view in views], assets)


def figure_html(view: FigureView, heading: str, note: str = "") -> str:
    """One figure as a file of the same kind; ``note`` stands below it, as plain text."""
    return document_html(heading, card_html(view) + Markup("<p>{}</p>").format(note), [view])


def document_html(title: str, body: Markup, views: Sequence[View] = (), assets: str | None = None) -> str:
    """The file around a body.

    Args:
        title: plain text.
        body: between the title and the file's end.
        views: the figures that stand in the body.
        assets: the folder of the styles and scripts as the file's links name it; None: they are inlined.
    """
    figures = {v.key: v.figure.to_plotly_json() for v in views if isinstance(v, FigureView) and not v.empty}
    data = {"themes": {"light": PLOTLY_LIGHT, "dark": PLOTLY_DARK}, "figures": figures}
    file = render(
        "run/report.html",
        title=title,
        body=body,
        policy=POLICY.format(sources=INLINED if assets is None else LINKED),
        assets=assets,
        style=Markup(style()) if assets is None else "",
        data=data_script(data),
        scripts=[Markup(plotly_script()), Markup(scripts())] if assets is None else [],
        plots=bool(figures),
    )
    return f"{file}\n"


def data_script(data: Any) -> Markup:
    """Data as JSON that may stand inside a ``<script>`` element."""
    return htmlsafe_json_dumps(data, dumps=to_json_plotly)


def style() -> str:
    """The style sheet of every file."""
    return stylesheet() + _asset("report.css")


def scripts() -> str:
    """The scripts of every file beside plotly.js: for figures and clicks."""
    return f"{script()}\n{_asset('report.js')}"


def csv_files(record: RunRecord) -> dict[str, str]:
    """The tables behind the figures, as CSV by the figures' keys; of the same selection as the report's."""
    focus = default_selection(record)
    views = (view for tab in TABS for view in tab.views(record, focus))
    return {v.key: v.csv() for v in views if isinstance(v, FigureView) and v.rows}


def plotly_file() -> Path:
    """plotly.js as packaged with plotly.py."""
    return Path(str(importlib.resources.files("plotly") / "package_data" / "plotly.min.js"))


def plotly_script() -> str:
    """plotly.js, safe inside a ``<script>`` element."""
    source = plotly_file().read_text(encoding="utf-8")
    return source.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _asset(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
