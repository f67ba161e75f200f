"""The study of offsets measures what it says, its figures show its record, its tab refuses bad input."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from backend.base.errors import BudgetError, OptionError, RecordError
from backend.cache.kv_cache import made_cache
from backend.engine.engine import Engine
from backend.model.load import LoadedModel
from backend.prompts.presets import Example, load_preset, preset_names
from backend.prompts.template import QUESTION
from backend.records.events import Progress
from backend.records.offsets import APPROXIMATIONS, MOST_PREFIXES, MOST_SAMPLES, OffsetRequest, OffsetStudy
from backend.records.proximity import ProximityRecord
from backend.records.request import MethodChoice
from backend.session.session import LabSession
from backend.studies.offset_estimates import METHODS, approximate
from backend.studies.offsets import nearest_tokens, needed_bytes, offset_study, sample_offsets
from lab_app.pages.pipeline.form import Form
from lab_app.pages.pipeline.sections import offset_study as tab
from lab_app.pages.pipeline.state import state_of
from lab_app.ui.validation import Problems
from lab_app.visits.visits import Visit, VisitStore
from viz.base.figure import FigureView, card_html
from viz.base.theme import PLOTLY_DARK
from viz.studies.offset_focus import usual_token
from viz.studies.offset_study import PART_WORDS, Focus, token_map, tokens_html, valid_focus, views

TEXT = "Tess has 35 coins. Tess gives away 34."
PREFIXES = ("", "You are a math solver. ", "You are the judge of all of them.\nThe task is: ")
ASKED = OffsetRequest(TEXT, PREFIXES)
TOLERANCE = 1e-4


def form(preset: str = "math-3", **changes: Any) -> Form:
    known = load_preset(preset).pipeline.agents if preset in preset_names() else ()
    given = {"templates": tuple(agent.template for agent in known), "max_new_tokens": 4} | changes
    return Form(preset, {}, **given)


def finished(events: Iterator[Any]) -> OffsetStudy:
    *steps, found = events
    assert isinstance(found, OffsetStudy)
    assert all(isinstance(step, Progress) for step in steps)
    return found


def returned(steps: Iterator[Any]) -> Any:
    """What a generator returns at its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.fixture(scope="module")
def asked() -> OffsetRequest:
    flow = tiny.pipeline()
    values = tuple({QUESTION: text} for text in tiny.QUESTIONS[:4])
    return dataclasses.replace(ASKED, pipeline=flow, values=values, max_new_tokens=8)


@pytest.fixture(scope="module")
def record(tiny_model: LoadedModel, asked: OffsetRequest) -> OffsetStudy:
    return finished(tiny.lab(tiny_model).study(asked))


@pytest.fixture(scope="module")
def history(tiny_model: LoadedModel, asked: OffsetRequest) -> Any:
    """The same requests through a session of the test's own: contexts and log."""
    session = LabSession(tiny_model)
    request = tiny.request(("dense",), flow=asked.pipeline)
    list(session.warm_up(request, [Example(dict(v)) for v in asked.values]))
    [stream] = session.streams.values()
    session.request_state(request, stream).encode_lead_ins()
    return [past.contexts for past in stream.history], stream.log


@torch.inference_mode()
def plain(model: LoadedModel, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values (layers, kv_heads, tokens, head_dim) of transformers' own forward."""
    layers = made_cache(model.module(input_ids=torch.tensor([ids]), use_cache=True)).layers
    return torch.stack([x.keys[0] for x in layers]), torch.stack([x.values[0] for x in layers])


def ids_of(model: LoadedModel, prefix: str) -> tuple[list[int], list[int]]:
    return [*model.tokens.bos, *model.tokens.encode(prefix)], list(model.tokens.encode(TEXT))


def freed(model: LoadedModel, keys: torch.Tensor, start: int) -> torch.Tensor:
    return model.rotation.rotate(keys, -torch.arange(start, start + keys.shape[2]))


# -- one text behind several prefixes


@pytest.mark.slow
def test_behind_an_empty_prefix_nothing_changes(record: OffsetStudy) -> None:
    for name in ("keys", "values", "unmoved"):
        assert getattr(record, name)[0].max() <= 1e-5
        assert getattr(record.twins, name)[0].max() <= TOLERANCE
        assert getattr(record, name)[1:, 1:].min() > 100 * TOLERANCE


def test_layer_0_has_no_offset_once_keys_are_turned_back(record: OffsetStudy) -> None:
    assert record.keys[:, 0].max() <= TOLERANCE
    assert record.values[:, 0].max() <= TOLERANCE
    assert record.unmoved[1:, 0].min() > 100 * TOLERANCE
    assert record.keys[1:, 1:].min() > 100 * TOLERANCE


@pytest.mark.parametrize("number", [1, 2])
def test_offsets_are_those_of_plain_forwards(
    number: int, record: OffsetStudy, tiny_model: LoadedModel
) -> None:
    before, segment = ids_of(tiny_model, PREFIXES[number])
    bos = len(tiny_model.tokens.bos)
    alone_keys, alone_values = (x[:, :, bos:] for x in plain(tiny_model, [*tiny_model.tokens.bos, *segment]))
    keys, values = (x[:, :, len(before) :] for x in plain(tiny_model, before + segment))
    free = freed(tiny_model, keys, len(before)) - freed(tiny_model, alone_keys, bos)
    for name, wanted in (("keys", free), ("values", values - alone_values), ("unmoved", keys - alone_keys)):
        np.testing.assert_allclose(getattr(record, name)[number], wanted.norm(dim=-1), atol=TOLERANCE)
    np.testing.assert_allclose(record.key_norm, alone_keys.norm(dim=-1), atol=TOLERANCE)
    np.testing.assert_allclose(record.value_norm, alone_values.norm(dim=-1), atol=TOLERANCE)
    assert record.prefix_tokens[number] == len(before)


@pytest.mark.parametrize("token", [0, 5, -1])
def test_twins_are_read_in_their_tokens_place(
    token: int, record: OffsetStudy, tiny_model: LoadedModel
) -> None:
    before, segment = ids_of(tiny_model, PREFIXES[2])
    token %= len(segment)
    changed = [*segment[:token], int(record.twins.tokens[token])]
    bos = len(tiny_model.tokens.bos)
    alone = [x[:, :, -1:] for x in plain(tiny_model, [*tiny_model.tokens.bos, *changed])]
    there = [x[:, :, -1:] for x in plain(tiny_model, before + changed)]
    free = freed(tiny_model, there[0], len(before) + token) - freed(tiny_model, alone[0], bos + token)
    pairs = (("keys", free), ("values", there[1] - alone[1]), ("unmoved", there[0] - alone[0]))
    for name, wanted in pairs:
        found = getattr(record.twins, name)[2, :, token]
        np.testing.assert_allclose(found, wanted.flatten(1).norm(dim=-1), atol=TOLERANCE)


def test_twins_are_the_nearest_tokens(tiny_model: LoadedModel) -> None:
    table = tiny_model.module.get_input_embeddings().weight.detach().double()
    special = set(tiny_model.tokens.tokenizer.all_special_ids)
    ids = list(tiny_model.tokens.encode(TEXT))
    found, distance = nearest_tokens(tiny_model, ids)
    for token, twin, apart in zip(ids, found, distance.tolist(), strict=True):
        others = [i for i in range(len(tiny_model.tokens.tokenizer)) if i not in special | {token}]
        every = (table[others] - table[token]).norm(dim=-1)
        assert twin == others[int(every.argmin())]
        assert apart == pytest.approx(float(every.min()), rel=1e-5)


def test_chunks_change_nothing(
    record: OffsetStudy, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.studies.offsets.TWIN_BYTES", 1)
    alone = finished(offset_study(tiny_model, ASKED))
    np.testing.assert_allclose(alone.twins.keys, record.twins.keys, atol=TOLERANCE)
    assert alone.samples is alone.approximated is None


# -- requests through a pipeline


def test_sampled_offsets_are_those_of_a_run(tiny_model: LoadedModel, history: Any) -> None:
    found = sample_offsets(history[0])
    run = tiny.run(LabSession(tiny_model), tiny.request(("dense",), flow=tiny.pipeline()))
    for probe in run.offsets:
        prompt = run.prompts[probe.prompt]
        mine = (found.agent == probe.agent) & (found.sample == 0)
        for part, kind in enumerate(("placeholder", "prefix")):
            spans = [s for s in prompt.spans if s.kind == kind and s.start > 0]
            for name, wanted in (("keys", probe.key_offset), ("values", probe.value_offset)):
                real = np.concatenate([wanted[:, s.start : s.end] for s in spans], axis=1)
                got = getattr(found, name)[:, mine & (found.part == part)]
                np.testing.assert_allclose(got, real, atol=TOLERANCE)


def test_the_oracle_is_exact_and_a_copy_errs_by_the_offset(record: OffsetStudy) -> None:
    found = record.approximated
    assert found is not None
    assert tuple(found.names) == tuple(APPROXIMATIONS) == tuple(METHODS)
    assert (found.tokens > 0).any(axis=1).all()
    rows = dict(zip(found.names, range(len(found.names)), strict=True))
    known = np.isfinite(found.cosine[rows["softmax"]])
    assert not known[..., 0].any(), "layer 0 has no offset to compare"
    assert known[..., 1:].any()
    np.testing.assert_allclose(found.cosine[rows["oracle"]][known], 1, atol=1e-5)
    np.testing.assert_allclose(found.cache_cosine[rows["oracle"]][..., 1:], 1, atol=1e-5)
    assert np.nanmax(found.error[rows["oracle"]]) <= TOLERANCE
    assert (found.cosine[rows["moved"]][known] == 0).all(), "a copy estimates nothing"
    np.testing.assert_allclose(found.error[rows["moved"]], found.offset, atol=TOLERANCE)
    plain_keys, moved_keys = (found.error[rows[name]][:, :, 0] for name in ("plain", "moved"))
    assert (plain_keys[..., 0] > 100 * TOLERANCE).all()
    np.testing.assert_allclose(moved_keys[..., 0], 0, atol=TOLERANCE)
    for name in ("nearest", "cosine", "softmax", "uniform", "shipped", "corrected"):
        assert (np.abs(found.error[rows[name]] - found.offset)[..., 1:] > TOLERANCE).all(), name


def test_the_uniform_estimate_is_the_mean_of_the_others(tiny_model: LoadedModel, history: Any) -> None:
    contexts, log = history
    found = returned(approximate(Engine(tiny_model), contexts, log))
    place = found.names.index("uniform")
    samples = {o.number: o for request in contexts for c in request for o in c.samples.values()}.values()
    for at, agent in enumerate(found.agents):
        errors, count, left = 0.0, 0, 0
        for context in (c for request in contexts for c in request if c.prompt.agent == agent):
            for name, sample in context.samples.items():
                others = [
                    o for o in samples if o.placeholder == name and o.number != sample.number
                    and o.tokens >= sample.tokens
                ]  # fmt: skip
                real = sample.offsets[agent].placeholder.keys
                if not others:
                    left += sample.tokens
                    continue
                cut = [o.offsets[agent].placeholder.keys[:, :, : sample.tokens] for o in others]
                gap = (torch.stack(cut).mean(dim=0) - real).square().sum(dim=(1, 3)).sqrt()
                errors, count = errors + gap.sum(dim=1), count + sample.tokens
        assert (count, left) == (found.tokens[at, 0], found.unmatched[at, 0])
        np.testing.assert_allclose(found.error[place, at, 0, 0], errors / count, atol=TOLERANCE)


def test_profiles_are_the_methods_own(record: OffsetStudy) -> None:
    for name, (method, options) in METHODS.items():
        MethodChoice(method, options, name)
    assert METHODS["shipped"][1]["missing"] == "copy"
    found = record.approximated
    assert found is not None
    shipped, softmax = (found.error[found.names.index(name)] for name in ("shipped", "softmax"))
    assert np.nanmax(np.abs(shipped - softmax)) > 100 * TOLERANCE


# -- the record


def test_a_record_survives_its_file(record: OffsetStudy) -> None:
    content = record.to_bytes()
    again = OffsetStudy.from_bytes(content)
    assert again.to_bytes() == content
    assert (again.request, again.model, again.texts) == (record.request, record.model, record.texts)
    assert np.array_equal(again.keys, record.keys)
    assert np.array_equal(again.twins.tokens, record.twins.tokens)
    assert again.approximated is not None
    assert record.approximated is not None
    assert np.array_equal(again.approximated.cosine, record.approximated.cosine, equal_nan=True)
    with pytest.raises(RecordError):
        OffsetStudy.from_bytes(content[:300])
    with pytest.raises((RecordError, TypeError)):
        ProximityRecord.from_bytes(content)


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"text": ""}, "text", "1 to 512 are allowed"),
        ({"text": "word " * 600}, "text", "1 to 512 are allowed"),
        ({"prefixes": ("one",)}, "prefixes", f"2 to {MOST_PREFIXES} are allowed"),
        ({"prefixes": tuple(map(str, range(21)))}, "prefixes", f"2 to {MOST_PREFIXES} are allowed"),
        ({"prefixes": ("a", "b", "a")}, "prefixes", "the same text as prefix 1"),
        ({"prefixes": ("a", "word " * 3000)}, "prefixes", "Shorten it"),
        ({"values": ({QUESTION: "x"},)}, "samples", f"2 to {MOST_SAMPLES} are allowed"),
        ({"values": ({QUESTION: "x"}, {QUESTION: "y"}) * 2}, "samples", "only 2 of them differ"),
    ],
)
def test_refusals_name_field_and_range(
    changes: dict[str, Any], field: str, said: str, tiny_model: LoadedModel
) -> None:
    with pytest.raises(OptionError) as caught:
        next(offset_study(tiny_model, dataclasses.replace(ASKED, **changes)))
    assert caught.value.field == f"study.{field}"
    assert said in str(caught.value)


def test_a_budget_is_kept_before_anything_is_allocated(tiny_model: LoadedModel, asked: OffsetRequest) -> None:
    tokens = len(tiny_model.tokens.encode(TEXT))
    bare, full = (needed_bytes(tiny_model, r, tokens, [1, 9, 20]) for r in (ASKED, asked))
    assert full > bare
    with pytest.raises(BudgetError) as caught:
        next(offset_study(tiny_model, asked, bare))
    assert "MiB are allowed" in str(caught.value)


# -- the figures


def drawn(view: FigureView) -> dict[str, Any]:
    return json.loads(view.json())


def test_figures_show_the_record(record: OffsetStudy) -> None:
    focus = Focus(3, 2)
    found = {view.key: view for view in views(record, focus)}
    whole = np.sqrt(np.square(record.keys.astype(np.float64)).sum(axis=2))
    values = np.sqrt(np.square(record.values.astype(np.float64)).sum(axis=2))
    rows = found["study_by_layer"].rows
    mine = [r[3:5] for r in rows if r[0].endswith("token 3") and r[1] == "keys"]
    np.testing.assert_allclose(mine, np.stack([whole[:, :, 3].mean(0), whole[:, :, 3].std(0)], 1), atol=1e-5)
    every = [r[3] for r in rows if r[0] == "mean of the whole text" and r[1] == "values"]
    np.testing.assert_allclose(every, values.mean(axis=(0, 2)), atol=1e-5)
    tokens = [r[4] for r in found["study_tokens"].rows if r[0] == "keys"]
    np.testing.assert_allclose(tokens, whole[2].flatten(), atol=1e-5)
    heads = [r[3] for r in found["study_heads"].rows if r[0] == "values"]
    np.testing.assert_allclose(heads, record.values[2, :, :, 3].flatten(), atol=1e-5)
    lies = [r[3] for r in found["study_similar"].rows if r[1] == "keys, not aligned"]
    unmoved = np.sqrt(np.square(record.unmoved[:, :, :, 3]).sum(axis=2)).mean(axis=0)
    np.testing.assert_allclose(lies, [*unmoved, *record.twins.unmoved[:, :, 3].mean(axis=0)], atol=1e-4)


def test_figures_draw_what_their_tables_say(record: OffsetStudy) -> None:
    view = token_map(record, Focus(0))
    data = [trace["z"] for trace in drawn(view)["data"]]
    assert len(data) == 2
    # plotly packs arrays; its own figure holds them plain
    for trace, kind in zip(view.figure.data, ("keys", "values"), strict=True):
        table = np.array([r[4] for r in view.rows if r[0] == kind]).reshape(np.asarray(trace.z).shape)
        np.testing.assert_allclose(np.asarray(trace.z), table, atol=1e-4)
    found = record.approximated
    assert found is not None
    [error] = [v for v in views(record, Focus(0, agent=2, part=1)) if v.key == "study_error"]
    at = found.agents.index(2)
    table = np.array([r[5] for r in error.rows], dtype=float)
    np.testing.assert_allclose(table, found.error[:, at, 1].flatten(), atol=1e-5)
    line = next(t for t in error.figure.data if t.name == APPROXIMATIONS["softmax"] and t.xaxis == "x")
    np.testing.assert_allclose(line.y, found.error[found.names.index("softmax"), at, 1, 0], atol=1e-4)


def test_distributions_show_every_token_once(record: OffsetStudy) -> None:
    samples = record.samples
    assert samples is not None
    [view] = [v for v in views(record, Focus(0)) if v.key == "study_distributions"]
    for part, label in enumerate(PART_WORDS):
        data = samples.keys[:, samples.part == part]
        rows = [r for r in view.rows if r[0] == label and r[1] == "keys"]
        assert {r[3] for r in rows} == {data.shape[1]}
        np.testing.assert_allclose([r[6] for r in rows], np.median(data, axis=1), atol=1e-4)
        np.testing.assert_allclose([r[9] for r in rows], data.mean(axis=1), atol=1e-4)


@pytest.mark.parametrize("focus", [Focus(-5, 99, 77, 9), Focus(2, 1, 3, 1)])
def test_every_figure_opens_from_a_file_and_says_how_to_read_it(record: OffsetStudy, focus: Focus) -> None:
    evil = "<script>alert(1)</script>"
    record = OffsetStudy.from_bytes(dataclasses.replace(record, texts=(evil, *record.texts[1:])).to_bytes())
    found = views(record, focus)
    assert len({view.key for view in found}) == 8
    for view in found:
        assert view.title
        assert view.finding
        assert view.how_to_read
        assert "nan" not in view.finding.lower() + view.csv().lower()
        assert len(view.rows) == view.csv().count("\n") - 1
        assert all(len(row) == len(view.columns) for row in view.rows)
        assert any("L2" in name or "similarity" in name for name in view.columns)
        assert "<script" not in card_html(view)
        assert set(PLOTLY_DARK) >= {"xaxis", "yaxis", "font"}
    assert "<script" not in tokens_html(record, focus)
    assert valid_focus(record, Focus(-5, 99, 77, 9)) == Focus(usual_token(record))


def test_without_requests_the_other_figures_stay(tiny_model: LoadedModel) -> None:
    found = views(finished(offset_study(tiny_model, ASKED)), Focus())
    assert [view.empty for view in found] == [False] * 4 + [True] * 4
    assert all("two or more" in view.finding for view in found[4:])


# -- the tab


@pytest.fixture
def visit(tiny_model: LoadedModel) -> Visit:
    return Visit("v", tiny.lab(tiny_model))  # type: ignore[arg-type]


def boxes(bench: Form | None = None, **changes: Any) -> dict[str, Any]:
    typed = {"text": TEXT, "prefixes": "\n---\n".join(PREFIXES[1:]), "samples": 0} | changes
    return {f"study_{name}": value for name, value in typed.items()} | {tab.FORM: bench or form()}


def last(updates: Iterator[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for update in updates:
        merged |= update
    return merged


def test_the_boxes_begin_with_ten_prefixes_and_read_back(visit: Visit) -> None:
    request = tab.read(visit, tab.SECTION.usual | {tab.FORM: form()})
    assert len(request.prefixes) == len(set(request.prefixes)) == 10
    assert len(request.values) == 10
    assert request.pipeline == load_preset("math-3").pipeline.unrolled
    assert all("---" not in prefix for prefix in request.prefixes)
    assert request.prefixes[0].endswith("The task is: "), "blanks at the end belong to the prefix"
    assert tab.divided("a\n---\nb \n-----  \n\nc") == ("a", "b ", "\nc")


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"text": "  "}, {"text"}),
        ({"text": "a\x00b"}, {"text"}),
        ({"prefixes": "a\n---\nb\x00"}, {"prefixes"}),
        ({"samples": 1}, {"samples"}),
        ({"samples": None}, {"samples"}),
        ({"samples": 2.5}, {"samples"}),
        ({"samples": 41, "text": ""}, {"samples", "text"}),
    ],
)
def test_what_is_typed_is_checked(changes: dict[str, Any], fields: set[str], visit: Visit) -> None:
    with pytest.raises(Problems) as caught:
        tab.read(visit, boxes(**changes))
    assert {problem.field for problem in caught.value.problems} == fields


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (form("no such"), "no scenario"),
        (form(templates=("",)), "the agents are 1"),
        (form(max_new_tokens=0), "allowed: 1 to 4096"),
    ],
)
def test_a_scenario_that_cannot_be_sent_is_told_beside_its_number(bad: Form, said: str, visit: Visit) -> None:
    with pytest.raises(Problems) as caught:
        tab.read(visit, boxes(bad, samples=3))
    assert caught.value.field == "samples"
    assert said in str(caught.value)


def test_a_measurement_is_shown_and_a_token_moves_every_figure(visit: Visit, tiny_model: LoadedModel) -> None:
    lab = VisitStore(lambda: tiny_model, lambda _: visit.engine)
    found = last(tab.SECTION.measure(lab, visit, boxes()))
    assert not any(found[f"error_study_{name}"] for name in (*tab.SECTION.fields, "measure"))
    assert "offsets" in visit.results
    token = visit.results["offsets"].token
    assert lab.result("offsets", token) is None, "the visit is not the lab's"
    assert f"lab/measured/offsets/{token}" in found["study_status"]
    assert len(found["view_study"]["views"]) == 8
    assert len(found["pick_study_prefix"][0]) == 3
    assert "Edited" in tab.SECTION.edited(visit, boxes(text="other"))["study_status"]
    assert token in tab.SECTION.edited(visit, boxes())["study_status"]


@pytest.mark.slow
def test_a_token_moves_every_figure_and_its_choice_holds(visit: Visit, record: OffsetStudy) -> None:
    assert tab.pick(visit, 1, "", ":0") == tab.show_focus(visit, "", ":0") == {}
    visit.keep_result("offsets", record)
    found = tab.render_result(visit)
    assert len(found["pick_study_place"][0]) == 2 * (1 + 3)
    before = {view["key"]: view["figure"] for view in found["view_study"]["views"]}
    moved = tab.pick(visit, (usual_token(record) + 1) % len(record.tokens), "", ":0")
    after = {view["key"]: view["figure"] for view in moved["view_study"]["views"]}
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {"study_by_layer", "study_similar", "study_tokens", "study_heads"}
    pressed = f'data-pick="{state_of(visit).study_token}" aria-pressed="true"'
    assert pressed in moved["study_tokens"]["html"]
    assert pressed in tab.show_focus(visit, "1", "2:1")["study_tokens"]["html"]
    for odd in (-1, 10**6, None, "x", True, float("nan"), float("inf")):
        assert pressed in (tab.pick(visit, odd, None, {"x": 1}) or moved)["study_tokens"]["html"]


def test_errors_of_the_engine_stand_beside_their_boxes(visit: Visit, tiny_model: LoadedModel) -> None:
    lab = VisitStore(lambda: tiny_model, lambda _: visit.engine)
    for changes, slot in (({"prefixes": "alone"}, "prefixes"), ({"text": "word " * 600}, "text")):
        found = last(tab.SECTION.measure(lab, visit, boxes(**changes)))
        assert "are allowed" in found[f"error_study_{slot}"]
        assert found["study_measure.interactive"] is True
        assert not visit.measuring
    visit.engine = None  # type: ignore[assignment]
    assert "did not expect" in last(tab.SECTION.measure(lab, visit, boxes()))["study_status"]


def test_a_segment_of_the_run_can_be_taken(visit: Visit, tiny_model: LoadedModel) -> None:
    assert "No segment" in tab.take(visit, "1", "dense", "")["error_study_text"]
    visit.keep(tiny.run(LabSession(tiny_model), tiny.request(("dense",))))
    assert "No segment" in tab.take(visit, "1", "dense", "")["error_study_text"]
    assert tab.take(visit, "2", "dense", QUESTION)["study_text"] == tiny.QUESTIONS[0]
