"""Every view draws every kind of record, safely and within bounds."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import hostile
import numpy as np
import pytest
from fake_record import make_pipeline, make_proximity, make_record

from viz.anchors.pool import gate_view, pool_table, weights_view
from viz.base.figure import FigureView, Panel, card_html, pool_columns
from viz.base.format import number, visible
from viz.base.glossary import GLOSSARY, term
from viz.base.placeholder_pills import template_html
from viz.base.textdiff import diff_html
from viz.base.theme import PLOTLY_DARK, PLOTLY_LIGHT, css_variables, method_styles, script, stylesheet
from viz.run.agent_graph import graph_svg
from viz.run.cache_error import offset_by_layer
from viz.run.cache_error_facts import error_by_layer, error_map
from viz.run.comparison import comparison_html, live_html
from viz.run.divergence import kl_along_answer
from viz.run.summary import memory_view, record_html
from viz.run.tabs import TABS, Selection
from viz.run.timing import ttft_view
from viz.run.token_strip import strip_html, ticks
from viz.studies.proximity import examples
from viz.studies.proximity import views as proximity_views

FIGURES = Path(__file__).parents[3] / "lab_app" / "assets" / "figures.js"
EVIL = "<script>alert(1)</script> \"quoted\" & 'single' {braces} </p> --> <!--"


def bare(record):
    """The same record with every optional measurement missing."""
    outcomes = tuple(
        replace(
            o,
            fidelity=None,
            key_error=None,
            value_error=None,
            answer=None,
            correct=None,
            gate=(),
            spans=(),
            reason="",
        )
        for o in record.outcomes
    )
    return replace(record, outcomes=outcomes, offsets=(), pools=(), notes=("one note",))


def planned():
    """A changed record of which the decisions alone are known, beside dense, which was read."""
    record = make_record()
    unread = {"fidelity": None, "key_error": None, "value_error": None, "answer": None, "correct": None}
    unread |= {"text": "", "texts": (), "token_ids": np.zeros(0, dtype=np.int64), "transfers": ()}
    outcomes = tuple(
        o if o.method == "dense" else replace(o, timing=replace(o.timing, parts_ms={}, ttft_ms=0), **unread)
        for o in record.outcomes
    )
    return replace(record, outcomes=outcomes, pools=(), attention=())


def evil_record():
    """A record in which every text from a person or a model is hostile."""
    record = make_record(agents=2, question=EVIL, extra=EVIL)
    prompts = tuple(replace(p, texts=(EVIL, *p.texts[1:])) for p in record.prompts)
    outcomes = tuple(
        replace(
            o,
            text=EVIL,
            texts=(EVIL, *o.texts),
            answer=EVIL,
            reason=EVIL,
            token_ids=np.arange(len(o.texts) + 1 + (o.method == "naive")),
            gate=tuple(replace(g, reason=EVIL, previews=(EVIL,) * 4) for g in o.gate),
            spans=tuple(replace(s, source=EVIL, reason=EVIL) for s in o.spans),
            fidelity=replace(o.fidelity, dense_token=EVIL, method_token=EVIL, first_divergence=0, margin=1.0),
        )
        for o in record.outcomes
    )
    pools = tuple(replace(p, previews=(EVIL,) * len(p.anchors)) for p in record.pools)
    request = replace(record.request, expected=EVIL)
    return replace(
        record, prompts=prompts, outcomes=outcomes, pools=pools, request=request, notes=(EVIL,), id=EVIL
    )


RECORDS = {
    "plain": make_record,
    "fallback": lambda: make_record(agents=4),
    "free": lambda: make_record(mode="free"),
    "bare": lambda: bare(make_record()),
    "dense only": lambda: make_record(methods=("dense",)),
    "one agent": lambda: make_record(agents=1),
    "one layer": lambda: make_record(layers=1),
    "many methods": lambda: make_record(
        methods=("dense", "naive", "kvcomm", "prefix", "e", "f", "g", "h", "i")
    ),
    "evil": evil_record,
    "planned": planned,
}


def views_of(record) -> list[FigureView | Panel]:
    """Every agent under the last method, and the last agent under every method."""
    last, method = record.agents[-1], record.labels[-1]
    chosen = [*((agent, method) for agent in record.agents[:-1]), *((last, label) for label in record.labels)]
    return [view for one in chosen for tab in TABS for view in tab.views(record, Selection(*one))]


def html_of(record) -> list[str]:
    pipeline = record.request.pipeline
    texts = {(a, m): record.outcome(a, m).text for a in record.agents for m in record.labels}
    return [
        comparison_html(record),
        live_html(pipeline, record.labels, texts, "Inspector: " + record.id, 3, 7),
        graph_svg(pipeline),
        record_html(record),
        *[template_html(pipeline, a) for a in record.agents],
        *[strip_html(record, a, (3, 9)) for a in record.agents],
        *[pool_table(record, m) for m in record.labels],
    ]


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.slow
def test_every_view_draws_every_record(name):
    record = RECORDS[name]()
    assert all(html_of(record))
    for view in views_of(record):
        assert view.title
        assert card_html(view)
        if isinstance(view, FigureView):
            assert view.finding
            assert view.empty or view.how_to_read
            json.loads(view.json())
            assert view.csv().splitlines()[0].count(",") >= len(view.columns) - 1
            assert all(len(row) == len(view.columns) for row in view.rows)


@pytest.mark.parametrize(
    "methods", [("dense", "naive", "kvcomm"), ("dense", "naive", "kvcomm", "a", "b", "c")]
)
@pytest.mark.slow
def test_long_prompts_stay_small(methods):
    record = make_record(layers=32, methods=methods, agents=2, tokens=2000)
    assert 1800 < len(record.prompts[-1].texts) < 2300
    assert len(strip_html(record, 2).encode()) < 420_000 + 40_000 * max(0, len(methods) - 3)
    assert len(comparison_html(record).encode()) < 100_000
    for view in views_of(record):
        if isinstance(view, FigureView):
            assert len(view.json().encode()) < 400_000


def test_pooling_is_said_and_keeps_the_largest():
    record = make_record(layers=4, tokens=2000)
    view = error_map(record, 3, "naive")
    assert "because the prompt has" in view.how_to_read
    assert view.figure.data[0].z.dtype == np.float32
    assert view.figure.data[0].z.shape[1] <= 512
    values = np.zeros((2, 1025), dtype=np.float32)
    values[1, 1024] = 3
    pooled, starts, width = pool_columns(values)
    assert pooled.max() == 3
    assert pooled.shape == (2, len(starts))
    assert width == 3
    assert "One column" not in error_map(make_record(), 3, "naive").how_to_read


def test_a_map_says_where_segments_meet_and_which_are_the_placeholders():
    record = make_record()
    prompt = next(p for p in record.prompts if p.agent == 3)
    layout = error_map(record, 3, "naive").figure.layout
    assert [line.x0 for line in layout.shapes] == [span.start - 0.5 for span in prompt.spans if span.start]
    assert all(
        (line.x0, line.y0, line.y1, line.yref) == (line.x1, 0, 1, "y domain") for line in layout.shapes
    )
    named = {note.x for note in layout.annotations}
    wide = [s for s in prompt.spans if s.kind == "placeholder" and s.end - s.start > 0.05 * 80]
    assert wide
    assert {(span.start + span.end - 1) / 2 for span in wide} <= named


def test_compared_panels_share_one_scale():
    record = make_record()
    key, value = error_map(record, 3, "naive", "key"), error_map(record, 3, "kvcomm", "value")
    assert key.figure.data[0].zmax == value.figure.data[0].zmax
    assert error_by_layer(record, 3).figure.layout.yaxis2.matches == "y"


def test_tables_name_units():
    record = make_record()
    assert "key error (relative)" in error_by_layer(record, 2).columns
    assert "KL (nats)" in kl_along_answer(record, 2).columns
    assert "time (ms)" in ttft_view(record).columns
    assert "bytes" in memory_view(record).columns
    assert "entropy (nats)" in gate_view(record, 2, "kvcomm").columns
    assert "gate weight (share)" in weights_view(record, 2, "kvcomm").columns
    assert offset_by_layer(record, 2).rows


def test_missing_measurements_say_why():
    free, plain = make_record(mode="free"), bare(make_record())
    assert "free-running" in error_by_layer(free, 1).finding.lower()
    assert "pinned" in kl_along_answer(free, 1).finding
    assert "not measured" in offset_by_layer(plain, 1).finding
    assert "no gate" in gate_view(make_record(), 1, "naive").finding
    assert "reference" in error_map(make_record(), 1, "dense").finding
    assert "opens the prompt" in offset_by_layer(make_record(), 1, "prefix 0").finding


def test_figures_name_first_difference_and_floor():
    view = kl_along_answer(make_record(), 3)
    assert any("8 → 6" in str(t.text) for t in view.figure.data if t.text is not None)
    assert any("rounding" in a.text for a in view.figure.layout.annotations)


def test_strip_marks_actions_rejections_and_selection():
    record = make_record(agents=4)
    html = strip_html(record, 4, (10, 12))
    assert 'data-method="kvcomm"' in html
    assert "kv-a-reused" in html
    assert "rejected by the gate" in html
    assert "kv-x" in html
    assert html.count("class=kv-on") == 2
    lane = re.search(r'data-method="naive">(.*?)</div>', html).group(1)
    assert lane.count("<i data-token=") == len(record.prompts[-1].texts)
    assert "kv-a-corrected" in strip_html(record, 2)
    assert "answer of Math Solver" in html


@pytest.mark.parametrize(("tokens", "last"), [(83, 80), (124, 110), (104, 90)])
def test_the_last_tick_is_left_out_where_it_would_touch_the_one_before(tokens: int, last: int) -> None:
    assert ticks(tokens)[-1] == last


def test_strip_counts_mixed_layers():
    record = make_record()
    outcome = record.outcome(2, "naive")
    actions = outcome.actions.copy()
    actions[:2, 5] = 3
    outcomes = tuple(replace(o, actions=actions) if o is outcome else o for o in record.outcomes)
    html = strip_html(replace(record, outcomes=outcomes), 2)
    data = json.loads(html.split('class="kv-data">')[1].split("</script>")[0])
    assert data["methods"]["naive"]["mixed"]["5"] == [0, 4, 0, 2]


def test_comparison_says_states_answers_and_reasons():
    html = comparison_html(make_record(agents=4))
    for said in (
        "gate refused",
        "≠ answer 36",
        "wrong",
        "right",
        "led by",
        "rounding noise",
        "<ins",
        "<del",
    ):
        assert said in html, said
    assert html.index("Full read") < html.index("Copy and reposition") < html.index("KVCOMM")


def test_diff_marks_what_differs():
    assert diff_html(["a", " b"], ["a", " b"]) == "a b"
    html = diff_html(["3", "8", "."], ["3", "6", "."], start=1)
    assert '<del class="kv-del" title="only in the full read">8</del>' in html
    assert '<ins class="kv-ins kv-first"' in html
    assert "&lt;b&gt;" in diff_html(["a"], ["<b>"])


def test_live_grid_has_every_cell():
    html = live_html(make_pipeline(3), ("dense", "naive"), {(1, "dense"): "35 <"}, "Math Solver", 1, 9)
    assert html.count("<article") == 6
    assert "35 &lt;" in html
    assert "1 of 9" in html


def test_graph_is_readable_without_seeing_it():
    svg = graph_svg(make_pipeline(3))
    assert "<title>" in svg
    assert "<desc>" in svg
    assert "Judge reads the request, Math Solver and Inspector" in svg
    assert "kv-g-judge" in svg


def test_templates_show_placeholders():
    html = template_html(make_pipeline(3), 2)
    assert 'data-placeholder="agent_1_current"' in html
    assert "answer of Math Solver" in html


@pytest.mark.parametrize("theme", [PLOTLY_LIGHT, PLOTLY_DARK])
@pytest.mark.parametrize(("pairs", "layers"), [(9, 1), (12, 4), (300, 40)])
def test_a_measurement_draws(pairs, layers, theme):
    record = make_proximity(pairs, layers, texts=(EVIL, " the", "", "\u202eabc"))
    found = proximity_views(record)
    assert len({view.key for view in found}) == 7
    for view in found:
        assert view.title
        assert view.finding
        assert view.how_to_read
        assert "nan" not in view.finding.lower()
        drawing = json.loads(view.json())
        # the page lays a theme over every axis, and no figure names a colour of its own for text
        assert set(theme) >= {"xaxis", "yaxis", "font"}
        assert "color" not in drawing["layout"].get("title", {})
        assert len(view.rows) == view.csv().count("\n") - 1
        assert all(len(row) == len(view.columns) for row in view.rows)
        assert "nan" not in view.csv().lower()
        assert "<script" not in view.json().replace("\\u003c", "<")


def test_pairs_are_shown_with_nothing_hidden():
    html = card_html(examples(make_proximity(30, texts=(EVIL, " the\n", "\u202e", "\ufffd", ""))))
    assert html.count("<tr>") == 13
    for shown in ("␣the↵", "\\u202e", "\ufffd", "(nothing)", "&lt;script&gt;"):
        assert shown in html
    assert "<script" not in html
    assert "\u202e" not in html
    assert [html.count(f">{label}</td>") for label in ("near", "mid", "far")] == [4, 4, 4]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" a b", "␣a␣b"),
        ("\t\r\n", "⇥␍↵"),
        ("\x00\x7f\u00a0\u200b\ue000", "\\u0000\\u007f\\u00a0\\u200b\\ue000"),
        ("\u0301", "◌\u0301"),
        ("e\u0301", "e\u0301"),
        ("日本🙂", "日本🙂"),
    ],
)
def test_odd_characters_are_visible(text, shown):
    assert visible(text) == shown


def test_theme_has_both_pages_and_fixed_methods():
    css = css_variables()
    light, dark = css.split(".dark{")
    assert set(re.findall(r"--kv-[\w-]+(?=:#)", light)) == set(re.findall(r"--kv-[\w-]+(?=:#)", dark))
    used = set(re.findall(r"var\((--kv-[\w-]+)", stylesheet()))
    local = {f"--kv-{name}" for name in "tone fill method slot n a depth tracks between".split()}
    assert used - local <= set(re.findall(r"--kv-[\w-]+(?=:)", light))
    assert set(PLOTLY_LIGHT) == set(PLOTLY_DARK)
    assert "kv-select" in script()
    styles = method_styles(["dense", "other", "kvcomm", "naive"])
    assert [s.index for s in styles.values()] == [0, 3, 2, 1]
    assert styles["naive"].name == "Copy and reposition"
    labelled = method_styles(["dense", "kvcomm a", "kvcomm b"], {"kvcomm a": "kvcomm", "kvcomm b": "kvcomm"})
    assert [s.name for s in labelled.values()] == ["Full read", "kvcomm a", "kvcomm b"]
    assert len({s.index for s in labelled.values()}) == 3
    ablated = ["kvcomm without rotate", "kvcomm only prefix_offset", "kvcomm without hope"]
    assert [s.name for s in method_styles(ablated, dict.fromkeys(ablated, "kvcomm")).values()] == [
        "KVCOMM without moving", "KVCOMM only template offsets", "kvcomm without hope",
    ]  # fmt: skip


def test_glossary_terms_are_sentences():
    assert all(text.endswith(".") and len(text) < 160 for text in GLOSSARY.values())
    assert "data-tip" in term("anchor")
    assert term("<unknown>") == "&lt;unknown&gt;"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.00001, "0.0000100"),
        (4.2, "4.20"),
        (1234.5, "1,230"),
        (None, "–"),
        (float("nan"), "–"),
        (3e-9, "< 1e-6"),
        (-3e-9, "> -1e-6"),
        (9.99e-7, "< 1e-6"),
        (1e-6, "0.00000100"),
        (0.0000999, "0.0000999"),
        (0.09996, "0.100"),
    ],
)
def test_numbers(value, shown):
    assert number(value) == shown


def test_a_token_of_the_answer_has_one_number():
    record = make_record()
    fidelity = record.outcome(3, "naive").fidelity
    first = fidelity.first_divergence + 1
    assert f"token {first}:" in comparison_html(record)
    view = kl_along_answer(record, 3)
    assert f"at token {first}" in view.finding
    assert view.rows[0][1] == 1
    [ring] = [t for t in view.figure.data if t.mode == "markers+text" and t.x[0] == first][:1]
    assert ring.y[0] * 10 < 10 ** view.figure.layout.yaxis.range[1], "its label stays below the legend"


def test_no_internal_name_heads_a_column():
    record = make_record()
    for place in TABS:
        for view in place.views(record, Selection(3, "naive")):
            for column in getattr(view, "columns", ()):
                assert not re.search(r"naive|kvcomm|identity|dense|prefix|_", column), column


@pytest.mark.slow
def test_every_map_of_tokens_frames_the_one_that_is_chosen():
    """The page frames the chosen token in figures that name their axis so."""
    named = re.findall(r'axis\.title\.text === "([^"]+)"', FIGURES.read_text(encoding="utf-8"))
    assert named == ["token of the prompt"]
    maps = {}
    for view in (*views_of(make_record()), *views_of(hostile.watched())):
        if isinstance(view, FigureView) and "first token" in view.columns and not view.empty:
            axes = [name for name in view.figure.layout if name.startswith("xaxis")]
            maps[view.key] = {view.figure.layout[name].title.text for name in axes}
    attention = {f"attention_{what}_first" for what in ("tokens", "difference")}
    assert {"error_map_key", "error_map_value"} | attention <= maps.keys()
    assert all(named[0] in titles for titles in maps.values()), maps
