"""No text from a person or a model becomes markup: every figure and piece of HTML, from hostile records.

Three checks belong together: nothing hostile comes out, every function that draws was called, and every place
that escapes for a figure had a hostile text to escape.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType
from typing import Any

import hostile
import pytest
from hostile import EVIL, TOUR
from markupsafe import escape

import viz
from backend.logs.timeline import OpenLog
from backend.records.log_gate import GateRecord, GateRequest
from backend.records.log_reading import (
    Blamed,
    BlamedPart,
    LayoutRow,
    Proposed,
    ReadingRecord,
    ReadingRequest,
    ReadingRow,
    Refused,
)
from backend.records.request import MethodChoice
from viz.anchors import cost
from viz.anchors.pool_map import anchor_map
from viz.attention.views import closer_views, slot_views
from viz.base import format as words
from viz.base.figure import FigureView, Panel, card_html
from viz.base.placeholder_pills import template_html
from viz.judge import disagreement, metrics, risk_gate, verdict_grid
from viz.logs import badge, overview, reading, session
from viz.pages import agent_loop, documents, tour
from viz.pages.agent_loop_turns import ends_html, fragments_html, turns_html
from viz.run import diagnosis, verdict
from viz.run.agent_graph import graph_svg
from viz.run.comparison import Columns, comparison_html, live_html
from viz.run.familiarity import surprisal_panel
from viz.run.report import figure_html, report_html
from viz.run.tabs import TABS, Selection
from viz.run.tally import count, tally_html
from viz.run.token_strip import strip_html
from viz.studies import (
    blame,
    break_even_calculator,
    document_study,
    frontier,
    offset_study,
    proximity,
    recompute_ratio,
    reproduction,
    sweep,
)

pytestmark = pytest.mark.slow
FOLDER = Path(viz.__file__).parent
OPENING = EVIL[:8]  # what is left of it where a text is cut
#: Tags that a figure's text may have: Plotly reads these, and the lab writes no other.
FIGURE_TAGS = {"br", "b", "extra"}
#: Figures that show the lab's own names alone.
WITHOUT_TEXTS = {"recompute ratio"}
#: What may stand in ``Markup(...)`` beside a literal: text of the lab's own files, and numbers.
OWN_MARKUP = {
    "viz/base/html.py",
    "viz/studies/reproduction.py",
    "viz/run/report.py",
    "viz/run/token_strip.py",
    "viz/run/verdict.py",
}


def of_run() -> Iterator[Any]:
    for record in hostile.runs():
        pipeline, last = record.request.pipeline, record.agents[-1]
        texts = {(a, m): record.outcome(a, m).text for a in record.agents for m in record.labels}
        names = {m.label: m.name for m in record.request.methods}
        pinned = Columns(frozenset(record.labels), frozenset(record.labels), record.labels[-1], {})
        yield comparison_html(record, columns=pinned)
        yield live_html(pipeline, record.labels, texts, EVIL, 3, 7)
        yield graph_svg(pipeline)
        yield from (strip_html(record, agent, (3, 9)) for agent in (record.agents[0], last))
        yield from (template_html(pipeline, agent) for agent in record.agents)
        yield from (diagnosis.where(record), diagnosis.repair(record), verdict.verdict(record).sentence_html)
        yield from (surprisal_panel(record, agent) for agent in (record.agents[0], last))
        yield tally_html([count(record)], 3)
        yield turns_html(record.outcomes, record.labels, names, {record.labels[0]: EVIL}, record.tools)
        yield ends_html(record)
        yield fragments_html(record, last)
        yield documents.documents_html(record)
        spans = [None, *(s.name for s in record.prompts[-1].spans if s.kind == "placeholder")]
        for method in record.labels:
            for span in spans[: 2 if method == record.labels[-1] else 1]:
                for tab in TABS:
                    yield from tab.views(record, Selection(last, method, span))
            yield from slot_views(record, last)
            yield from closer_views(record, last, method)
            yield anchor_map(record, last, method, umap=EVIL)


def of_tour() -> Iterator[Any]:
    for key in tour.STEPS:
        record = hostile.sullied(hostile.RunRecord.load(TOUR / f"{key}.kvrun"))
        found = tour.describe_step(key, record)
        yield verdict.verdict(record).sentence_html
        yield from found.sentences
        yield from found.views


def of_judge() -> Iterator[Any]:
    judged, table, counts = hostile.judged()
    yield from metrics.views(judged, table, counts)
    row, request = judged.rows[0], judged.request
    for draw in (
        verdict_grid.sentence,
        verdict_grid.remedy,
        verdict_grid.grid_html,
        verdict_grid.picks_html,
    ):
        yield draw(row, request)
    yield verdict_grid.sentence(row, hostile.replace(request, protocol="rewriting"))
    yield verdict_grid.baseline(row)
    yield from (disagreement.gate_words(judged), disagreement.gate_panel(judged))


def of_reproduction() -> Iterator[Any]:
    report = hostile.reproduction()
    view = reproduction.view(report)
    yield from (view, reproduction.svg(report), figure_html(view, EVIL, EVIL))


def of_logs() -> Iterator[Any]:
    row = {"agent": EVIL, "session_id": EVIL}
    lines = [{**row, "prompt": f"Now 12:0{n}\n{EVIL} {'word ' * 40}\n\n{EVIL}"} for n in range(3)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_text("\n".join(map(json.dumps, [*lines, EVIL])), encoding="utf-8")
        log = OpenLog(path, skip_bad=True)
    yield from (overview.overview_html(log.xray), overview.details_html(log.xray))
    yield session.session_html(log, log.sessions[0], (0, 2))
    model = next(iter(hostile.runs())).model
    method = MethodChoice("naive", {}, EVIL)
    yield badge.badge_svg(GateRecord(GateRequest(method, 0.02), model, 3, 0))
    blamed = [Blamed((BlamedPart(EVIL, 0, 1, "keys"),), 0.1, 1, 2), Blamed(refused=EVIL), Blamed()]
    rows = [
        ReadingRow(EVIL, EVIL, EVIL, 9, 5, EVIL, EVIL, True, n > 0, EVIL, EVIL, 0.1, 0.1, blamed=found)
        for n, found in enumerate(blamed)
    ]
    laid = LayoutRow(EVIL, EVIL, EVIL, EVIL, True, 9, 1, EVIL, EVIL, True)
    read = ReadingRecord(
        ReadingRequest((method,)), model, 3, 0, refused=(Refused(EVIL, EVIL, EVIL),), rows=tuple(rows),
        proposed=(Proposed(EVIL, 1, 2, 3),), laid=(laid,),
    )  # fmt: skip
    yield from (reading.verdict_html(read), reading.answers_html(read))
    yield reading.verdict_html(replace(read, rows=()))


def of_report() -> Iterator[Any]:
    yield report_html(next(iter(hostile.runs())))


def of_offsets() -> Iterator[Any]:
    record, focus = hostile.offsets(), offset_study.Focus()
    yield from offset_study.views(record, focus)
    yield offset_study.tokens_html(record, focus)


DRAWN: dict[str, Callable[[], Any]] = {
    "run": of_run,
    "report": of_report,
    "logs": of_logs,
    "tour": of_tour,
    "judge": of_judge,
    "risk gate": lambda: (*risk_gate.views(hostile.risk()), *risk_gate.views(hostile.risk(gated=False))),
    "agent loop": lambda: agent_loop.views(hostile.loop()),
    "blame": lambda: [view for record in hostile.blamed() for view in blame.views(record)],
    "anchor cost": lambda: cost.views(hostile.cost()),
    "proximity": lambda: (*proximity.views(hostile.pairs()), proximity.examples(hostile.pairs())),
    "offset study": of_offsets,
    "recompute ratio": lambda: recompute_ratio.views(hostile.blend()),
    "frontier": lambda: [frontier.view(hostile.frontier())],
    "sweep": lambda: sweep.views(hostile.sweep()),
    "document study": lambda: document_study.views(hostile.documents()),
    "break-even": lambda: break_even_calculator.views(*hostile.figures()),
    "reproduction": of_reproduction,
}
called: set[CodeType] = set()
escaped: set[tuple[str, int]] = set()


def entry(*args: Any, **kwargs: Any) -> Any:
    call: Any = "what is called in its place"
    return call(*args, **kwargs)


def noted(function: FunctionType, note: Callable[..., None]) -> Callable[[], None]:
    """Call ``note`` before a function of a module, whoever holds it; returns what undoes that.

    Its code changes, for tables hold functions too. A tracer would slow every instruction of Plotly down.
    """
    code = function.__code__
    plain = FunctionType(code, function.__globals__, argdefs=function.__defaults__)
    plain.__kwdefaults__ = function.__kwdefaults__

    def instead(*args: Any, **kwargs: Any) -> Any:
        note(*args)
        return plain(*args, **kwargs)

    constants = tuple(instead if isinstance(c, str) else c for c in entry.__code__.co_consts)
    function.__code__ = entry.__code__.replace(co_consts=constants)
    return lambda: setattr(function, "__code__", code)


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[Any]]:
    """Everything drawn once, with the functions that drew and the places that escaped noted."""

    def escaping(text: object) -> None:
        if OPENING in str(text):
            caller = sys._getframe(3)  # of instead, of entry's code, and of who escapes
            escaped.add((caller.f_code.co_filename, caller.f_lineno))

    undo = [noted(words.plot_text, escaping)]
    for function in draws():
        undo.append(noted(function, lambda *_, code=function.__code__: called.add(code)))
    try:
        return {name: list(draw()) for name, draw in DRAWN.items()}
    finally:
        for each in undo:
            each()


class Tags(HTMLParser):
    """The elements and attributes of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts: list[dict[str, str | None]] = []
        self.attributes: set[str] = set()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}
        if tag == "script":
            self.scripts.append(dict(attrs))


def strings(value: Any) -> Iterator[str]:
    """Every text that is shown of a figure's JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "legendgroup":  # a name for the script, never shown
                yield from strings(item)


@pytest.mark.parametrize("name", DRAWN)
def test_nothing_hostile_comes_out(drawn: dict[str, list[Any]], name: str) -> None:
    reached = False
    for item in drawn[name]:
        html = str(card_html(item)) if isinstance(item, FigureView | Panel) else str(item)
        reached |= escape(OPENING) in html
        if "<!doctype" not in html:
            assert "<script>" not in html
            assert all(s.get("type") == "application/json" for s in Tags(html).scripts)
        assert EVIL not in html
        assert "\"'&" not in html.replace("&#34;&#39;&amp;", "")
        assert not any(re.search(r"[^\w:-]", attribute) for attribute in Tags(html).attributes)
        if isinstance(item, FigureView):
            for text in strings(json.loads(item.json())):
                tags = set(re.findall(r"</?([a-zA-Z]+)", text))
                assert tags <= FIGURE_TAGS, text
                assert EVIL not in text
                assert '<b>"' not in text
                reached |= words.plot_text(OPENING) in text
    assert reached or name in WITHOUT_TEXTS, "no hostile text was drawn at all"


def modules() -> list[Any]:
    return [importlib.import_module(m.name) for m in pkgutil.walk_packages(viz.__path__, "viz.")]


def draws() -> list[FunctionType]:
    """The functions of viz that return what is shown."""
    shown = re.compile(r"FigureView|Panel|Markup|View\b")
    return [
        inspect.unwrap(function)
        for module in modules()
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and shown.search(str(function.__annotations__.get("return")))
    ]


def test_every_function_that_draws_was_called(drawn: dict[str, list[Any]]) -> None:
    left = {f"{f.__module__}.{f.__name__}" for f in draws() if f.__code__ not in called}
    assert not left


def calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    for path in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
                yield path, node


def test_every_escape_of_a_figure_has_met_a_hostile_text(drawn: dict[str, list[Any]]) -> None:
    """So the first test fails where one is taken out."""
    met = {(path, line) for path, line in escaped}
    left = [
        f"{path.relative_to(FOLDER.parent)}:{node.lineno}"
        for path, node in calls("plot_text")
        if not any((str(path), line) in met for line in range(node.lineno, (node.end_lineno or 0) + 1))
    ]
    assert not left


def test_templates_escape_by_type_and_markup_is_made_of_literals() -> None:
    for path in FOLDER.rglob("*.html"):
        source = path.read_text(encoding="utf-8")
        assert "|safe" not in source.replace(" ", "")
        assert "autoescape" not in source
    for path, node in calls("Markup"):
        if str(path.relative_to(FOLDER.parent)) not in OWN_MARKUP:
            assert all(isinstance(ast.literal_eval(arg), str) for arg in node.args), f"{path}:{node.lineno}"
    for path, node in calls("html"):
        assert isinstance(ast.literal_eval(node.args[0]), str), f"{path}:{node.lineno}"
