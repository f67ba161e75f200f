"""The Anchors tab: the gate in words, weights, activations, memory and the map, from a record alone."""

from __future__ import annotations

import itertools
import math
import re
import threading
from concurrent.futures import wait
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from fake_record import make_record
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from backend.base.errors import BudgetError, OptionError
from backend.records.anchor_cost import AnchorCost, AnchorCostRequest
from backend.records.request import MethodChoice
from backend.records.run import GateDecision, RunRecord
from backend.session.pool_views import principal_coordinates
from backend.session.session import LabSession
from lab_app.pages.pipeline.sections.anchor_cost import SECTION, read
from lab_app.ui.validation import Problems
from lab_app.visits.umap_worker import LayoutWorker
from viz.anchors import pool_map as maps
from viz.anchors.activations import activation_histograms, activations_by_length, rank_correlation, whole_bins
from viz.anchors.cost import views as cost_views
from viz.anchors.gate_decisions import decision_panel, decision_words, distinct
from viz.anchors.memory import codec_view, memory_by_length, memory_by_pool
from viz.anchors.pool import pool_table
from viz.anchors.pool_map import anchor_map, mapped_pool, umap_layout
from viz.anchors.weights import MAX_ROWS, weights_by_layer, weights_by_token
from viz.base.figure import FigureView
from viz.run.tabs import Selection, tab


def kvcomm(label: str, **options: Any) -> MethodChoice:
    return MethodChoice("kvcomm", {"gamma": 1.0, **options}, label)


METHODS = [
    "dense", kvcomm("plain"), kvcomm("shipped", distance="separate", compared="kv", first_layer=False),
    kvcomm("packed", codec="lossy", codec_step=0.5), kvcomm("closed", gamma=0.0),
]  # fmt: skip


# Each longer than the one before, so each becomes an anchor; the last is shorter than all of them.
ASKED = (*(tiny.QUESTIONS[i] for i in (3, 5, 2)), tiny.QUESTIONS[0])


@pytest.fixture(scope="module")
def record(tiny_model: Any) -> RunRecord:
    """The last of four requests, saved and read again: the views see what a file holds."""
    session = LabSession(tiny_model)
    for question in ASKED:
        found = tiny.run(session, tiny.request(METHODS, question))
    return RunRecord.from_bytes(found.to_bytes())


def reusing(record: RunRecord, method: str = "plain") -> int:
    return next(a for a in record.agents if record.outcome(a, method).mixes)


# -- the gate in words


GATES = st.builds(
    GateDecision,
    placeholder=st.just("user_question"),
    shareable=st.booleans(),
    rule=st.sampled_from(["entropy", "length", "closeness"]),
    reason=st.just("The reason."),
    tokens=st.integers(1, 500),
    pool_size=st.integers(1, 30),
    eligible=st.integers(1, 30),
    entropy=st.floats(0, 4),
    threshold=st.floats(0, 4),
)


@given(GATES)
def test_what_is_said_of_the_gate_is_its_decision(gate: GateDecision) -> None:
    said = " ".join(decision_words(gate))
    assert ("So it is shared" in said) == gate.shareable
    assert ("So it is computed" in said) == (not gate.shareable)
    assert ("That is within" in said) == (gate.entropy <= gate.threshold)
    assert ("That is over" in said) == (gate.entropy > gate.threshold)
    found = re.search(r"weights is ([\d.e+-]+) nats.*(?:within|over) the ([\d.e+-]+) nats", said)
    assert found
    entropy, threshold = map(float, found.groups())  # the numbers shown do not contradict the words
    assert (entropy > threshold) == (gate.entropy > gate.threshold)


@pytest.mark.parametrize("rule", ["no pool", "empty pool", "longer than every anchor", "too few anchors"])
def test_a_gate_that_weighed_nothing_says_why(rule: str) -> None:
    gate = GateDecision("user_question", False, rule, "The reason.", 9, 3 * (rule[0] in "lt"), 0, None, None)
    said = " ".join(decision_words(gate))
    assert "So it is computed" in said
    assert "nats" not in said
    assert ("becomes an anchor" in said) == (rule != "no pool")


def test_every_decision_of_a_run_is_told(record: RunRecord) -> None:
    seen = set()
    for agent, label in itertools.product(record.agents, record.labels[1:]):
        outcome = record.outcome(agent, label)
        html = decision_panel(record, agent, label).html
        assert html.count("So it is shared") == sum(g.shareable for g in outcome.gate)
        assert html.count("So it is computed") == sum(not g.shareable for g in outcome.gate)
        assert ("may reuse" in html) == all(g.shareable for g in outcome.gate)
        seen |= {g.shareable for g in outcome.gate}
    assert seen == {True, False}
    assert "no gate" in decision_panel(record, record.agents[0], "dense").html


@pytest.mark.parametrize(("a", "b"), [(0.2136, 0.2137), (1e-9, 0.0), (0.5, 0.5), (2.0, 0.69)])
def test_numbers_that_differ_look_different(a: float, b: float) -> None:
    shown = distinct(a, b)
    assert (shown[0] == shown[1]) == (a == b)
    assert (float(shown[0]) > float(shown[1])) == (a > b)


# -- weights


def test_weights_are_kept_token_by_token_and_layer_by_layer(record: RunRecord) -> None:
    layers = record.model.layers
    count = 0
    for outcome in record.outcomes:
        assert len(outcome.mixes) == sum(bool(s.anchors) for s in outcome.spans)
        for mix in outcome.mixes:
            count += 1
            for array, width in (
                (mix.keys_by_token, mix.end - mix.start), (mix.values_by_token, mix.end - mix.start),
                (mix.keys_by_layer, layers), (mix.values_by_layer, layers),
            ):  # fmt: skip
                assert array.shape == (len(mix.anchors), width)
                assert array.sum(axis=0) == pytest.approx(np.ones(width), abs=1e-5)
                assert (array >= 0).all()
    assert count


def test_a_placeholders_weights_are_the_softmax_of_its_tokens_distances(
    record: RunRecord, tiny_model: Any
) -> None:
    """From the paper's formula and the embeddings alone: token by token, over the anchors."""
    agent = reusing(record)
    outcome = record.outcome(agent, "plain")
    [span] = [s for s in record.prompts[outcome.prompt].spans if s.name == "user_question"]
    mix = next(m for m in outcome.mixes if m.start == span.start)
    pool, _ = mapped_pool(record, agent, "plain", span.name) or pytest.fail("no pool")
    texts = [next(t for t in ASKED if t[:40] == p[:40]) for p in pool.previews]
    tokens = span.end - span.start
    mine, *theirs = (tiny_model.embed(tiny_model.tokens.encode(t))[:tokens] for t in (ASKED[-1], *texts))
    wanted = torch.softmax(-torch.stack([(mine - x).norm(dim=-1) for x in theirs]), dim=0)
    assert mix.anchors == pool.anchors
    assert len(mix.anchors) == 3
    assert mix.keys_by_token == pytest.approx(wanted.numpy(), abs=1e-5)
    assert np.ptp(mix.keys_by_layer, axis=1).max() == 0  # one weight for all layers
    assert mix.keys_by_layer[:, 0] == pytest.approx(wanted.mean(dim=1).numpy(), abs=1e-5)


def test_separate_weights_differ_by_layer_behind_a_placeholder(record: RunRecord) -> None:
    outcome = record.outcome(reusing(record, "shipped"), "shipped")
    names = {s.start: s.kind for s in record.prompts[outcome.prompt].spans}
    behind = [m for m in outcome.mixes if names[m.start] == "prefix" and len(m.anchors) > 1]
    assert any(np.ptp(m.keys_by_layer, axis=1).max() > 1e-4 for m in behind)
    assert any(np.abs(m.keys_by_layer - m.values_by_layer).max() > 1e-4 for m in behind)


def test_the_columns_of_the_weight_maps_add_up_to_one(record: RunRecord) -> None:
    for label in ("plain", "shipped"):
        agent = reusing(record, label)
        by_token = weights_by_token(record, agent, label)
        assert by_token.empty or by_token.figure.layout.xaxis.title.text == "token of the prompt", (
            "or no frame"
        )
        for view in (by_token, weights_by_layer(record, agent, label)):
            assert not view.empty
            for trace in view.figure.data:
                assert np.asarray(trace.z).sum(axis=0) == pytest.approx(1, abs=1e-5)


def test_many_anchors_share_a_row_and_the_table_has_all(record: RunRecord) -> None:
    agent = reusing(record)
    outcome = record.outcome(agent, "plain")
    mix, tokens = outcome.mixes[0], outcome.mixes[0].end - outcome.mixes[0].start
    count = MAX_ROWS + 9
    even = np.full((count, tokens), 1 / count, dtype=np.float32)
    layers = np.full((count, record.model.layers), 1 / count, dtype=np.float32)
    wide = replace(
        mix, anchors=tuple(range(count)), keys_by_token=even, values_by_token=even, keys_by_layer=layers,
        values_by_layer=layers,
    )  # fmt: skip
    outcomes = tuple(replace(o, mixes=(wide,)) if o is outcome else o for o in record.outcomes)
    view = weights_by_token(replace(record, outcomes=outcomes), agent, "plain")
    [trace] = view.figure.data
    assert len(trace.z) == MAX_ROWS + 1
    assert list(trace.y)[-1] == "9 others"
    assert view.figure.layout.yaxis.type == "category", "a row per anchor; #33 is a name and no number"
    assert np.asarray(trace.z).sum(axis=0) == pytest.approx(1, abs=1e-5)
    assert len({row[2] for row in view.rows}) == count


def test_a_refused_prompt_says_that_nothing_was_mixed(record: RunRecord) -> None:
    view = weights_by_token(record, record.agents[0], "closed")
    assert view.empty
    assert "refused" in view.finding
    agent = reusing(record)
    assert "Choose another segment" in weights_by_token(record, agent, "plain", "prefix 0").finding


# -- activations (Fig. A.3)


@given(
    st.integers(3, 20).flatmap(
        lambda n: st.tuples(*[st.lists(st.integers(0, 5), min_size=n, max_size=n) for _ in range(2)])
    )
)
def test_rank_correlation_is_scipys(pair: tuple[list[int], list[int]]) -> None:
    a, b = (np.array(x, dtype=np.float64) for x in pair)
    found = rank_correlation(a, b)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert found is None
    else:
        assert found == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=40))
def test_bins_hold_every_value_once(values: list[int]) -> None:
    array = np.array(values)
    edges = whole_bins(array)
    assert len(edges) - 1 <= 20
    assert set(np.diff(edges)) == {edges[1] - edges[0]}
    assert np.histogram(array, bins=edges)[0].sum() == len(values)
    assert edges[0] <= array.min()
    assert array.max() < edges[-1]


def test_activations_are_the_pools_own_counts(record: RunRecord) -> None:
    pools = [p for p in record.pools if p.method == "plain"]
    view = activations_by_length(record, "plain")
    wanted = {(p.placeholder, *row) for p in pools for row in zip(p.anchors, p.lengths, p.uses, strict=True)}
    assert set(view.rows) == wanted
    drawn = sorted((x, y) for trace in view.figure.data for x, y in zip(trace.x, trace.y, strict=True))
    assert drawn == sorted((length, uses) for _, _, length, uses in wanted)
    spread = activation_histograms(record, "plain")
    for quantity in ("activations", "length (tokens)"):
        assert sum(row[3] for row in spread.rows if row[0] == quantity) == len(wanted)


# -- memory


def test_memory_adds_up_to_the_pools_bytes(record: RunRecord) -> None:
    for label in ("plain", "packed"):
        total = sum(p.bytes for p in record.pools if p.method == label)
        by_pool, by_length = memory_by_pool(record, label), memory_by_length(record, label)
        assert sum(row[3] + row[5] for row in by_pool.rows) == total
        assert sum(row[4] for row in by_length.rows) == total
    assert "unpacked" in {trace.name for trace in memory_by_pool(record, "packed").figure.data}
    assert "unpacked" not in {trace.name for trace in memory_by_pool(record, "plain").figure.data}


def test_an_anchor_takes_its_kv_and_one_offset_per_reader(record: RunRecord) -> None:
    """Counted from shapes: tokens x bytes per token, for the base and for each agent's offsets."""
    per_token, hidden = record.model.kv_bytes_per_token, 64 * 4
    spans = {agent: record.prompts[record.outcome(agent, "dense").prompt].spans for agent in record.agents}
    for pool, view in zip(record.pools, record.pool_views, strict=True):
        if pool.method != "plain":
            continue
        for place, tokens in enumerate(pool.lengths):
            assert view.base_bytes[place] == tokens * (per_token + hidden)
            follow = 0
            for agent in view.agents[place]:
                names = [s.name for s in spans[agent]]
                after = spans[agent][names.index(pool.placeholder) + 1]
                follow += after.end - after.start
            wanted = (len(view.agents[place]) * tokens + follow) * per_token
            assert view.offset_bytes[place] == view.stored_bytes[place] == wanted


def test_packing_shows_its_error_and_its_share(record: RunRecord) -> None:
    plain, packed = codec_view(record, "plain"), codec_view(record, "packed")
    assert all(row[4] == 0 for row in plain.rows)
    assert any(row[4] > 0 for row in packed.rows)
    assert all(row[5] == 1 for row in plain.rows if row[2] == 0)  # layer 0's offsets are zero
    assert "under 0.1" in plain.finding
    largest = max(v.largest_error for v in record.pool_views if v.method == "packed")
    assert 0 < largest <= 0.25 + 1e-6


def test_a_cpu_says_that_there_is_nowhere_to_move_anchors(record: RunRecord) -> None:
    methods = tuple(
        replace(m, options={**m.options, "on_device": 1}) if m.label == "plain" else m
        for m in record.request.methods
    )
    asked = replace(record, request=replace(record.request, methods=methods))
    assert "runs on a CPU" in memory_by_pool(asked, "plain").how_to_read
    assert "runs on a CPU" not in memory_by_pool(record, "plain").how_to_read


# -- the map


@given(
    st.integers(2, 9).flatmap(
        lambda n: st.lists(
            st.lists(st.floats(-10, 10, width=32), min_size=6, max_size=6), min_size=n, max_size=n
        )
    )
)
def test_principal_coordinates_keep_every_distance(rows: list[list[float]]) -> None:
    points = torch.tensor(rows, dtype=torch.float64)
    found = torch.from_numpy(principal_coordinates(points)).double()
    assert found.shape[1] <= max(1, min(len(rows) - 1, 6))
    assert torch.cdist(found, found).numpy() == pytest.approx(torch.cdist(points, points).numpy(), abs=1e-4)
    sizes = found.square().sum(dim=0)
    assert (sizes[:-1] >= sizes[1:] - 1e-4).all()  # the widest axis first


def test_the_map_holds_the_anchors_and_this_runs_text(record: RunRecord, tiny_model: Any) -> None:
    """Distances on the map are those of the mean token embeddings."""
    agent = reusing(record)
    found = mapped_pool(record, agent, "plain", "user_question")
    assert found is not None
    pool, view = found
    assert len(view.points) == len(pool.anchors) + (view.sample not in pool.anchors)
    question = record.request.values["user_question"]
    texts = [*ASKED[:3], question]
    means = [tiny_model.embed(tiny_model.tokens.encode(t)).mean(dim=0) for t in texts]
    known = {t[:40]: m for t, m in zip(texts, means, strict=True)}
    named = [*pool.previews, view.sample_preview][: len(view.points)]
    wanted = torch.stack([known[name[:40]] for name in named])
    apart = torch.cdist(wanted, wanted).numpy()
    points = torch.from_numpy(view.points)
    assert torch.cdist(points, points).numpy() == pytest.approx(apart, abs=1e-4)
    drawn = anchor_map(record, agent, "plain", "user_question")
    assert sum(len(trace.x) for trace in drawn.figure.data) == len(view.points)
    assert [row[2].startswith("this text") for row in drawn.rows].count(True) == 1


def test_umap_stands_beside_pca_when_it_is_there(record: RunRecord) -> None:
    agent = reusing(record)
    found = mapped_pool(record, agent, "plain")
    assert found is not None
    layout = np.arange(2 * len(found[1].points), dtype=np.float32).reshape(-1, 2)
    waiting, done = anchor_map(record, agent, "plain"), anchor_map(record, agent, "plain", umap=layout)
    assert "being computed" in waiting.how_to_read
    assert "being computed" not in done.how_to_read
    assert {trace.xaxis for trace in done.figure.data} == {"x", "x2"}
    assert [row[5:7] for row in done.rows] == [tuple(map(float, row)) for row in layout]
    assert "no such luck" in anchor_map(record, agent, "plain", umap="no such luck").how_to_read


def test_too_few_texts_for_umap_are_told() -> None:
    for points in (np.zeros((9, 3), dtype=np.float32), np.eye(4, dtype=np.float32)):
        with pytest.raises(ValueError, match="at least 5 texts"):
            umap_layout(points)


def await_map(background: LayoutWorker, record: RunRecord, chosen: Selection) -> None:
    pool = mapped_pool(record, chosen.agent, chosen.method)
    assert pool is not None
    wait([background.layout(pool[1].points)], 20)


def test_the_page_shows_pca_at_once_and_umap_when_ready(
    record: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow half runs in the background, once for each set of points."""
    gate, asked = threading.Event(), []

    def slow(points: Any) -> Any:
        asked.append(points.shape)
        assert gate.wait(20)
        return np.zeros((len(points), 2), dtype=np.float32)

    monkeypatch.setattr("lab_app.visits.umap_worker.umap_layout", slow)
    background, chosen = LayoutWorker(), Selection(reusing(record), "plain")
    views = tab("anchors").views(record, chosen)

    def how(found: Any) -> str:
        return next(v.how_to_read for v in found if v.key == "anchor_map")

    assert "being computed" in how(background.completed(views, record, chosen))
    assert background.pending(record, chosen)
    gate.set()
    await_map(background, record, chosen)
    assert not background.pending(record, chosen)
    assert "keeps neighbours together" in how(background.completed(views, record, chosen))
    assert len(asked) == 1


def test_a_failed_umap_leaves_pca_and_says_so(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(points: Any) -> Any:
        raise RuntimeError("cannot cache function")

    monkeypatch.setattr("lab_app.visits.umap_worker.umap_layout", broken)
    chosen = Selection(reusing(record), "plain")
    background = LayoutWorker()
    await_map(background, record, chosen)
    views = background.completed(tab("anchors").views(record, chosen), record, chosen)
    [found] = [v for v in views if isinstance(v, FigureView) and v.key == "anchor_map"]
    assert "could not be computed here (RuntimeError)" in found.how_to_read
    assert not found.empty


@pytest.mark.sampled(32)  # its library compiles itself for a minute
def test_umap_repeats_and_separates_two_clusters() -> None:
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(0, 0.1, (12, 5)), rng.normal(9, 0.1, (12, 5))]).astype(np.float32)
    a, b = umap_layout(points), umap_layout(points)
    assert np.array_equal(a, b)
    assert np.isfinite(a).all()
    centres = a[:12].mean(axis=0), a[12:].mean(axis=0)
    within = max(
        np.linalg.norm(a[:12] - centres[0], axis=1).max(), np.linalg.norm(a[12:] - centres[1], axis=1).max()
    )
    assert np.linalg.norm(centres[0] - centres[1]) > within
    assert len(points) >= maps.FEWEST_FOR_UMAP


# -- the whole tab


@pytest.mark.slow
def test_the_tab_draws_old_records_and_empty_ones() -> None:
    """A record without sizes, weights and maps says so instead of failing."""
    old = make_record()
    assert not old.pool_views
    for agent, label in itertools.product(old.agents, old.labels):
        views = tab("anchors").views(old, Selection(agent, label))
        keys = [view.key for view in views]
        assert len(set(keys)) == len(keys)
        for view in views:
            if isinstance(view, FigureView):
                assert view.finding
                assert math.isfinite(len(view.json()))


def test_the_pools_table_names_readers_and_bytes(record: RunRecord) -> None:
    html = pool_table(record, "plain")
    assert "offset seen by" in html
    assert "Checker and Judge" in html
    assert html.count("KiB") >= sum(len(p.anchors) for p in record.pools if p.method == "plain")


# -- what pools cost (Fig. A.1, Tables A.5 and A.6)


@pytest.fixture(scope="module")
def cost(tiny_model: Any) -> AnchorCost:
    *steps, found = tiny.lab(tiny_model).study(AnchorCostRequest((1, 3), (4, 8), 2))
    assert len(steps) == 4
    assert isinstance(found, AnchorCost)
    return AnchorCost.from_bytes(found.to_bytes())


def test_measured_memory_is_kv_embeddings_and_offsets(cost: AnchorCost, record: RunRecord) -> None:
    per_token = record.model.kv_bytes_per_token * (1 + 2) + 64 * 4
    wanted = [[count * tokens * per_token for tokens in (4, 8)] for count in (1, 3)]
    assert cost.pool_bytes.tolist() == wanted


def test_every_step_was_timed_and_nothing_moves_on_a_cpu(cost: AnchorCost) -> None:
    for name in ("match_ms", "match_kv_ms", "mix_ms"):
        assert (getattr(cost, name) > 0).all()
    assert np.isnan(cost.move_ms).all()
    memory, times, moving = cost_views(cost)
    assert sum(row[3] for row in memory.rows) == cost.pool_bytes.sum()
    assert {row[0] for row in times.rows if row[3] is None} == {"bringing cold offsets back"}
    assert moving.empty
    assert "nothing to move" in moving.finding
    moved = replace(cost, move_ms=np.full((2, 2), 2.0))
    assert all(row[4] > 0 for row in cost_views(moved)[2].rows)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"anchors": (0,)}, "1 to 64"), ({"lengths": (8, 4)}, "smallest first"), ({"agents": 9}, "1 to 8")],
)
def test_sizes_out_of_range_are_refused(tiny_model: Any, change: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        list(tiny.lab(tiny_model).study(replace(AnchorCostRequest((1,), (4,), 1), **change)))


def test_a_pool_over_the_labs_budget_is_refused(tiny_model: Any) -> None:
    with pytest.raises(BudgetError, match="this lab allows 1 MiB"):
        list(tiny.lab(tiny_model, budget_bytes=1 << 20).study(AnchorCostRequest((20,), (512,), 2)))


@pytest.mark.parametrize("bad", ["", "x", "5, -1", "1.5", "99", "1,2,3,4,5,6,7,8,9", "9" * 30, "٣", None])
def test_boxes_that_cannot_be_read_are_told_beside_them(bad: Any) -> None:
    visit: Any = None  # it is about no visit
    assert read(visit, SECTION.usual) == AnchorCostRequest()
    with pytest.raises(Problems) as error:
        read(visit, SECTION.usual | {"pool_cost_anchors": bad})
    assert [p.field for p in error.value.problems] == ["anchors"]
    assert "1 to 64" in SECTION.errors(error.value)["error_pool_cost_anchors"]
    assert not SECTION.errors(error.value)["error_pool_cost_lengths"]
