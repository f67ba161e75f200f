"""Several turns: a text of an earlier turn enters a later prompt with its cache, and nothing else changes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import QUESTIONS, TOLERANCE, request, run

from backend.base.errors import BudgetError, PromptError
from backend.base.serialization import as_json, from_json
from backend.cache.kv_cache import made_cache
from backend.model.load import LoadedModel
from backend.prompts.agent import Agent
from backend.prompts.notices import notices
from backend.prompts.pipeline import MAX_TURNS, Pipeline
from backend.prompts.presets import Example, load_preset, preset_requests
from backend.prompts.template import Placeholder, agent_and_turn, agent_in_turn, agent_label
from backend.prompts.tools.base import ToolResult
from backend.records.request import MethodChoice, RunRequest
from backend.records.run import Outcome, RunRecord
from backend.session.session import LabSession
from lab_app.cli.main import main
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline.form import Form
from lab_app.pages.pipeline.html import bench
from lab_app.pages.pipeline.problems import slot_of
from lab_app.ui.validation import Problems
from viz.run.agent_graph import graph_svg
from viz.run.comparison import comparison_html
from viz.run.tabs import TABS, Selection
from viz.run.token_strip import strip_html
from viz.run.verdict import verdict

METHODS = ("dense", "prefix", "naive", "oracle", MethodChoice("kvcomm", {"gamma": 1.0}))
TEMPLATES = {
    "t1": "Solve the problem.\nThe task is: {user_question}\nA turn ago agent 2 wrote:\n"
    "{agent_2_history_-1}\n",
    "t2": "Check the work of agent 1:\n{agent_1_current}\nThe task is: {user_question}\nYou wrote:\n"
    "{agent_2_history_-1}\n",
    "t3": "You are the judge.\nCandidate 1:\n{agent_1_current}\nCandidate 2:\n{agent_2_current}\nBest:",
}


def turned(turns: int, tokens: int = 6, **templates: str) -> Pipeline:
    """The tiny pipeline with a memory of the last turn."""
    return replace(tiny.pipeline(tokens, **(TEMPLATES | templates)), turns=turns)


def plain_answer(loaded: LoadedModel, ids: tuple[int, ...], most: int) -> tuple[int, ...]:
    """What transformers alone answers greedily, every token from a forward pass over all before it."""
    out: list[int] = []
    stop = loaded.tokens.tokenizer.eos_token_id
    for _ in range(most):
        with torch.inference_mode():
            logits = loaded.module(input_ids=torch.tensor([[*ids, *out]]), use_cache=False).logits
        token = int(logits[0, -1].argmax())
        if token == stop:
            break
        out.append(token)
    return tuple(out)


def span_ids(record: RunRecord, outcome: Outcome, name: str) -> list[int]:
    """The tokens that stand in a placeholder."""
    prompt = record.prompts[outcome.prompt]
    [span] = [s for s in prompt.spans if s.name == name]
    return [int(i) for i in prompt.token_ids[span.start : span.end]]


@pytest.fixture(scope="module")
def records(tiny_model: LoadedModel) -> list[RunRecord]:
    """Requests of three turns, one after the other, under every kind of method."""
    session = LabSession(tiny_model)
    return [run(session, request(METHODS, q, flow=turned(3))) for q in QUESTIONS[:4]]


# -- names and ids


def test_an_agent_in_a_turn_is_an_agent_of_its_own() -> None:
    assert agent_in_turn(7, 1) == 7
    assert agent_and_turn(agent_in_turn(999_999, 8)) == (999_999, 8)
    assert (agent_label(7), agent_label(agent_in_turn(7, 3))) == ("7", "7 (turn 3)")
    flow = turned(2)
    assert flow.unrolled.is_unrolled
    assert not flow.is_unrolled
    assert flow.unrolled.unrolled is flow.unrolled
    assert [(a.id, a.name) for a in flow.unrolled.agents[2:4]] == [
        (3, "Judge, turn 1"), (1_000_001, "Solver, turn 2"),
    ]  # fmt: skip
    assert flow.unrolled.order == (1, 2, 3, 1_000_001, 1_000_002, 1_000_003)
    assert flow.unrolled.final == flow.unrolled.judge == 1_000_003
    one = tiny.pipeline()
    assert one.unrolled is one
    assert RunRequest(one, {}, ()).pipeline is one


def test_templates_name_texts_by_their_turn() -> None:
    far = "{agent_1_current}\n{agent_2_history_-1}\nand {agent_1_history_-2}\n{user_question}"
    flow = turned(3, t2=far).unrolled
    names = {a.id: [h.name for h in flow.template(a.id).placeholders][:3] for a in flow.agents}
    assert names[2] == ["agent_1_turn_1", "agent_2_history_-1", "agent_1_history_-2"]
    assert names[1_000_002] == ["agent_1_turn_2", "agent_2_turn_1", "agent_1_history_-1"]
    assert names[2_000_002] == ["agent_1_turn_3", "agent_2_turn_2", "agent_1_turn_1"]
    assert (1, 2_000_002) in flow.edges
    assert Placeholder("agent_2_turn_3").agent == 2_000_002
    assert Placeholder("condition_2_turn_3").kind == "tool"
    # what was before the first turn is the request's to say, and may be empty
    assert flow.inputs == (
        "user_question", "agent_2_history_-1", "agent_1_history_-2", "agent_1_history_-1",
    )  # fmt: skip
    assert flow.required == ("user_question",)


def test_what_was_before_the_first_turn_may_be_given(tiny_model: LoadedModel) -> None:
    asked = request(("dense",), flow=turned(3))
    asked = replace(asked, values={**asked.values, "agent_2_history_-1": "I forget."})
    record = run(LabSession(tiny_model), asked)
    wanted = list(tiny_model.tokens.encode("I forget."))
    assert span_ids(record, record.outcome(1, "dense"), "agent_2_history_-1") == wanted
    later = [h.name for h in asked.pipeline.template(1_000_001).placeholders]
    assert later == ["user_question", "agent_2_turn_1"]


# -- exact truths


@pytest.mark.parametrize("mode", ["pinned", "free"])
@pytest.mark.slow
def test_the_first_turn_is_the_run_of_one_turn(tiny_model: LoadedModel, mode: Any) -> None:
    short, long = LabSession(tiny_model), LabSession(tiny_model)
    for question in QUESTIONS[:2]:
        once = run(short, request(METHODS, question, flow=turned(1), mode=mode))
        many = run(long, request(METHODS, question, flow=turned(2), mode=mode))
        assert many.agents[:3] == once.agents
        for agent in once.agents:
            for method in once.labels:
                a, b = once.outcome(agent, method), many.outcome(agent, method)
                assert list(a.token_ids) == list(b.token_ids)
                assert list(once.prompts[a.prompt].token_ids) == list(many.prompts[b.prompt].token_ids)
                if method == "prefix":  # which has met more prompts by now
                    continue
                assert a.state == b.state
                assert (a.actions == b.actions).all()
                if mode == "pinned":
                    assert a.fidelity is not None
                    assert b.fidelity is not None
                    assert a.fidelity.kl_first == pytest.approx(b.fidelity.kl_first, abs=1e-6)


@pytest.mark.slow
def test_dense_is_a_loop_over_the_plain_model(tiny_model: LoadedModel, records: list[RunRecord]) -> None:
    """Prompts put together by hand and read by transformers alone, turn after turn."""
    say, opening, closing = tiny_model.tokens.encode, tiny_model.tokens.opening, tiny_model.tokens.closing
    question = say(QUESTIONS[3])
    first: tuple[int, ...] = ()
    second: tuple[int, ...] = ()
    for turn in (1, 2, 3):
        last = second
        first = plain_answer(tiny_model, (
            *opening, *say("Solve the problem.\nThe task is: "), *question,
            *say("\nA turn ago agent 2 wrote:\n"), *last, *say("\n"), *closing,
        ), 6)  # fmt: skip
        second = plain_answer(tiny_model, (
            *opening, *say("Check the work of agent 1:\n"), *first, *say("\nThe task is: "), *question,
            *say("\nYou wrote:\n"), *last, *say("\n"), *closing,
        ), 6)  # fmt: skip
        third = plain_answer(tiny_model, (
            *opening, *say("You are the judge.\nCandidate 1:\n"), *first, *say("\nCandidate 2:\n"), *second,
            *say("\nBest:"), *closing,
        ), 6)  # fmt: skip
        for agent, answer in enumerate((first, second, third), 1):
            found = records[3].outcome(agent_in_turn(agent, turn), "dense")
            assert tuple(found.token_ids) == answer, (turn, agent)
            assert answer


@pytest.mark.slow
def test_exact_methods_equal_dense_in_every_turn(records: list[RunRecord]) -> None:
    for record in records:
        for agent in record.agents:
            wanted = record.outcome(agent, "dense")
            for method in ("prefix", "oracle"):
                found = record.outcome(agent, method)
                assert list(found.token_ids) == list(wanted.token_ids)
                assert found.key_error is not None
                assert found.value_error is not None
                assert max(found.key_error.max(), found.value_error.max()) <= TOLERANCE
                assert found.fidelity is not None
                assert found.fidelity.logit_difference <= max(1e-4, found.fidelity.floor)
    # a later turn's prompt begins like its agent's earlier one, question and all
    kept = records[0].outcome(1_000_001, "prefix")
    question = len(span_ids(records[0], kept, "user_question"))
    assert kept.state == "partial"
    assert kept.timing.forwarded_tokens < len(records[0].prompts[kept.prompt].token_ids) - question


def test_a_text_of_an_earlier_turn_comes_with_its_cache(records: list[RunRecord]) -> None:
    record = records[-1]
    for turn in (2, 3):
        reader, writer = agent_in_turn(1, turn), agent_in_turn(2, turn - 1)
        for method in ("naive", "kvcomm", "oracle"):
            found = record.outcome(reader, method)
            name = f"agent_2_turn_{turn - 1}"
            assert span_ids(record, found, name) == list(record.outcome(writer, "dense").token_ids)
            assert found.state == "reused"
            assert found.timing.forwarded_tokens == 1, "the text is not read again"
            span = next(s for s in record.prompts[found.prompt].spans if s.name == name)
            [action] = [a for a in found.spans if a.start == span.start]
            assert action.source == f"agent {agent_label(writer)}'s own context"
    # the control: what is copied uncorrected is not what dense computes
    error = record.outcome(1_000_001, "naive").value_error
    assert error is not None
    assert error.max() > 1000 * TOLERANCE


def test_the_cache_is_the_one_that_writing_left(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    record = run(session, request(("dense",), flow=turned(2)))
    [stream] = session.streams.values()
    for writer in (1, 2, 1_000_001, 1_000_002):
        name = turned(2).unrolled.output(writer)
        [sample] = [o for o in stream.log.samples.values() if o.placeholder == name]
        found = record.outcome(writer, "dense")
        before = [int(i) for i in record.prompts[found.prompt].token_ids]
        with torch.inference_mode():
            whole = tiny_model.module(input_ids=torch.tensor([[*before, *sample.ids]]), use_cache=True)
        for layer, real in enumerate(made_cache(whole).layers):
            wanted = real.values[0, :, len(before) :]
            assert tiny.error(sample.base.values[layer], wanted) <= TOLERANCE
        readers = {a for p, a in record.request.pipeline.edges if p == writer}
        assert set(sample.offsets) == readers, "one sample, whoever reads it and when"


@pytest.mark.slow
def test_free_running_each_method_remembers_its_own_turn(tiny_model: LoadedModel) -> None:
    record = run(LabSession(tiny_model), request(METHODS, flow=turned(3), mode="free"))
    texts = set()
    for method in record.labels:
        for turn in (2, 3):
            own = record.outcome(agent_in_turn(2, turn - 1), method)
            reader = record.outcome(agent_in_turn(1, turn), method)
            found = span_ids(record, reader, f"agent_2_turn_{turn - 1}")
            assert found == list(own.token_ids)
            texts.add(tuple(found))
    assert len(texts) > 2, "the methods do not all write the same"


def test_a_text_has_one_pool_in_whichever_turn_it_is_read(records: list[RunRecord]) -> None:
    found = {p.placeholder: p for p in records[-1].pools if p.method == "kvcomm"}
    assert set(found) == {
        "user_question", *(f"agent_{a}_turn_{t}" for a in (1, 2) for t in (1, 2, 3))
    }  # fmt: skip


def test_a_batched_warm_up_fills_the_pools_of_every_turn(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    asked = request(METHODS, QUESTIONS[5], flow=turned(2))
    for _ in session.warm_up(asked, [Example({"user_question": q}) for q in QUESTIONS[:3]]):
        pass
    pools = {p.placeholder for p in session.pools(asked)}
    assert {"agent_2_turn_1", "agent_2_turn_2"} <= pools
    later = run(session, asked).outcome(1_000_002, "kvcomm")
    assert later.state == "reused"
    assert {g.placeholder for g in later.gate} == {"agent_1_turn_2", "user_question", "agent_2_turn_1"}


def test_a_tools_result_is_remembered_too(tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    given_: list[str] = []

    def give(text: str) -> ToolResult:
        given_.append(f"result {len(given_) + 1}")
        return ToolResult(given_[-1], True, None, 0.1)

    from backend.prompts.tools.registry import get_tool

    tool = replace(get_tool("calculator"), run=give)
    monkeypatch.setattr("backend.session.prompt_run.get_tool", lambda name: tool)
    agents = (
        Agent(1, "Writer", "", "Do {user_question} {condition_1_history_-1} {condition_2_current}", 4,
              tool="calculator"),
        Agent(2, "Reader", "", "See {condition_1_current} and {condition_2_history_-1}", 4),
    )  # fmt: skip
    flow = Pipeline("tools", "Tools", "", agents, scoring="none", turns=2)
    # agent 2 has no tool: its conditions stay the request's in every turn
    assert flow.unrolled.inputs == (
        "user_question", "condition_1_history_-1", "condition_2_current", "condition_2_history_-1",
    )  # fmt: skip
    record = run(LabSession(tiny_model), request(("dense", "naive"), flow=flow))
    assert [(t.agent, t.text) for t in record.tools] == [(1, "result 1"), (1_000_001, "result 2")]
    say = tiny_model.tokens.encode
    first, later = record.outcome(1_000_001, "naive"), record.outcome(1_000_002, "naive")
    assert span_ids(record, first, "condition_1_turn_1") == list(say("result 1"))
    assert span_ids(record, later, "condition_1_turn_2") == list(say("result 2"))


# -- what is refused


@pytest.mark.parametrize("turns", [0, -1, MAX_TURNS + 1, 1.5, True, "2", None])
def test_the_number_of_turns(turns: Any) -> None:
    with pytest.raises(PromptError, match=r"The number of turns is .*1 to 8 are allowed") as caught:
        turned(turns)
    assert caught.value.field == "turns"


def test_a_history_beyond_the_past() -> None:
    far = TEMPLATES["t2"].replace("history_-1", "history_-2")
    assert turned(3, t2=far).unrolled.order[-1] == 2_000_003
    assert turned(1, t2=far).inputs == ("user_question", "agent_2_history_-1", "agent_2_history_-2")
    with pytest.raises(PromptError, match="the last of 2 turns can look back by 1 at most") as caught:
        turned(2, t2=far)
    assert caught.value.field == "agents.2.template"


def test_a_circle_within_a_turn() -> None:
    with pytest.raises(PromptError, match="wait for one another in a circle: 1 -> 2 -> 1"):
        turned(2, t1="{agent_2_current}")
    turned(2, t1="{agent_2_history_-1}")  # over turns it is none


@pytest.mark.parametrize("turns", [1, 2])
def test_names_of_turns_are_the_labs(turns: int) -> None:
    with pytest.raises(PromptError, match=r"Write \{agent_2_current\} .*\{agent_2_history_-1\}") as caught:
        turned(turns, t3="{agent_2_turn_1}")
    assert caught.value.field == "agents.3.template"
    with pytest.raises(PromptError, match="has a meaning of its own"):
        Pipeline("p", "p", "", (Agent(1, "a", "", "{agent_2_turn_1}"),), ("agent_2_turn_1",))


def test_ids_of_later_turns_are_the_labs() -> None:
    with pytest.raises(PromptError, match="ids are whole numbers from 1 to 999999"):
        Pipeline("p", "p", "", (Agent(1_000_001, "a", "", "x"),))
    with pytest.raises(PromptError, match="ids are whole numbers"):
        Pipeline("p", "p", "", (Agent(1, "a", "", "x"), Agent(2_000_001, "b", "", "x")), turns=2)


def test_turns_that_only_repeat_are_told() -> None:
    assert any(
        "each of the 2 turns repeats the first" in n for n in notices(replace(tiny.pipeline(), turns=2))
    )
    assert not notices(turned(2))


@pytest.mark.slow
def test_a_prompt_that_grows_too_long_names_its_turn(tiny_model: LoadedModel) -> None:
    """What fits in the first turn need not fit with what was written in it."""
    flow = Pipeline(
        "long", "Long", "", (Agent(1, "A", "", "{user_question}{agent_1_history_-1}", 6),), turns=2
    )
    room = tiny_model.info.context_tokens - 6
    question = ""
    while tiny_model.count_tokens(flow, 1, {"user_question": question + " 7"}) <= room:
        question += " 7"
    session = LabSession(tiny_model)
    with pytest.raises(BudgetError, match=r"Agent 1 \(turn 2\)'s prompt has 1,0") as caught:
        run(session, request(("dense",), question, flow=flow))
    assert caught.value.field == "agents.1000001.template"
    form = replace(make_form(), turns=2)
    assert slot_of(caught.value.field, None, form) == "agent_0"


# -- any acyclic graph


@st.composite
def graphs(draw: st.DrawFn) -> Pipeline:
    """2 to 8 agents, whoever reads whom, in any order of ids, with some memory."""
    count, turns = draw(st.integers(2, 8)), draw(st.integers(1, 3))
    ids = draw(st.permutations(range(1, count + 1)))
    agents = []
    for place, id in enumerate(ids):
        read = [f"agent_{p}_current" for p in ids[:place] if draw(st.booleans())]
        read += [f"agent_{p}_history_-1" for p in ids if draw(st.integers(0, 3)) == 0]
        agents.append(Agent(id, f"A{id}", "", "Do it. " + "\n".join(f"{{{n}}}" for n in read) or "x", 3))
    return Pipeline("graph", "Graph", "", tuple(sorted(agents, key=lambda a: a.id)), turns=turns)


@settings(max_examples=60)
@given(graphs())
def test_any_acyclic_graph_has_an_order(flow: Pipeline) -> None:
    whole = flow.unrolled
    assert sorted(whole.order) == sorted(a.id for a in whole.agents)
    assert len(whole.agents) == len(flow.agents) * flow.turns
    place = {agent: at for at, agent in enumerate(whole.order)}
    assert all(place[a] < place[b] for a, b in whole.edges)
    turns = [agent_and_turn(a)[1] for a in whole.order]
    assert turns == sorted(turns)
    assert from_json(Pipeline, json.loads(json.dumps(as_json(whole)))) == whole


@settings(max_examples=40)
@given(graphs(), st.randoms(use_true_random=False))
def test_one_edge_back_is_refused(flow: Pipeline, rng: Any) -> None:
    if not flow.edges:
        return
    start, end = rng.choice(flow.edges)
    agents = tuple(
        replace(a, template=a.template + f"{{agent_{end}_current}}") if a.id == start else a
        for a in flow.agents
    )
    with pytest.raises(PromptError, match="wait for one another in a circle"):
        replace(flow, agents=agents)


@pytest.mark.slow
def test_eight_agents_in_a_lattice_run_and_agree(tiny_model: LoadedModel) -> None:
    """Each reads every one before it and what it wrote itself a turn ago; true offsets give dense."""
    agents = tuple(
        Agent(n, f"A{n}", "", "Say. {user_question}\n"
              + "".join(f"{p}: {{agent_{p}_current}}\n" for p in range(1, n))
              + f"You: {{agent_{n}_history_-1}}\n", 3)
        for n in range(1, 9)
    )  # fmt: skip
    flow = Pipeline("eight", "Eight", "", agents, scoring="none", turns=2)
    assert len(flow.unrolled.edges) == 2 * 28 + 8
    record = run(LabSession(tiny_model), request(("dense", "oracle"), "How many?", flow=flow))
    assert record.agents == flow.unrolled.order
    for agent in record.agents:
        found = record.outcome(agent, "oracle")
        assert list(found.token_ids) == list(record.outcome(agent, "dense").token_ids)
        assert found.key_error is not None
        assert found.key_error.max() <= TOLERANCE


# -- records, figures, page and command line


def test_records_round_trip_and_old_ones_open(records: list[RunRecord]) -> None:
    content = records[0].to_bytes()
    back = RunRecord.from_bytes(content)
    assert back.to_bytes() == content
    assert back.request.pipeline == turned(3).unrolled
    body = as_json(tiny.pipeline())
    del body["turns"]  # as written before there were turns
    assert from_json(Pipeline, body) == tiny.pipeline()
    first = Path(__file__).parents[3] / "presets" / "first_run.kvrun"
    assert RunRecord.load(first).request.pipeline.turns == 1


@pytest.mark.slow
def test_every_figure_draws_every_turn(records: list[RunRecord]) -> None:
    record = RunRecord.from_bytes(records[-1].to_bytes())
    for agent in (1, 1_000_001, 2_000_003):
        for tab in TABS:
            assert tab.views(record, Selection(agent, "kvcomm"))
        assert strip_html(record, agent, None, "kvcomm")
    page = comparison_html(record) + verdict(record).sentence_html
    for turn in (1, 2, 3):
        assert f"Checker, turn {turn}" in page
    assert "1000001" not in re.sub(r'data-(agent|row)="1000001"', "", page)
    strip = strip_html(record, 1_000_001, None, "naive")
    assert "answer of Checker, turn 1" in strip


def test_the_graph_shows_the_turns() -> None:
    svg = graph_svg(turned(3).unrolled)
    assert svg.count('class="kv-g-turn"') == 2
    assert "Solver, turn 3 reads the request and Checker, turn 2" in svg
    assert graph_svg(turned(1)).count("kv-g-turn") == 0
    assert "kv-g-turn" in bench(turned(2), {})["graph"]
    assert bench(turned(2), {})["agents"] == 3


def make_form(**changes: Any) -> Form:
    pipeline = load_preset("math-turns").pipeline
    templates = tuple(a.template for a in pipeline.agents)
    return replace(Form("math-turns", {"user_question": "What is 1 + 1?"}, templates), **changes)


@pytest.mark.parametrize(("turns", "agents"), [(None, 6), (1, 3), (3, 9), (2.0, 6)])
def test_the_page_asks_for_turns(turns: Any, agents: int) -> None:
    asked = forms.read_request(make_form(turns=turns))
    assert len(asked.pipeline.agents) == agents


@pytest.mark.parametrize("turns", ["", 0, 9, 1.5, "two", True, float("nan")])
def test_the_page_refuses_other_turns(turns: Any) -> None:
    with pytest.raises(Problems) as caught:
        forms.read_request(make_form(turns=turns))
    assert [p.field for p in caught.value.problems] == ["turns"]
    assert "1 to 8" in str(caught.value)


@pytest.mark.slow
def test_the_command_line_runs_turns(
    tiny_model: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr("backend.model.load.load_model", lambda *a, **k: tiny_model)
    out = tmp_path / "out.json"
    given_ = ["run", "math-turns", "--requests", "2", "--methods", "dense,naive", "--mode", "pinned",
              "--max-new-tokens", "4", "--turns", "3", "--json", str(out)]  # fmt: skip
    assert main(given_) == 0
    assert "3 (turn 3)" in capsys.readouterr().out
    report = json.loads(out.read_text())
    assert report["turns"] == 3
    rows = [json.loads(line) for line in out.with_suffix(".rows.jsonl").read_text().splitlines()]
    assert {o["agent"] for o in rows[0]["outcomes"]} == {
        agent_in_turn(a, t) for a in (1, 2, 3) for t in (1, 2, 3)
    }
    assert main([*given_[:-3], "9", "--json", str(out)]) == 2
    assert "1 to 8 are allowed" in capsys.readouterr().err


def test_the_preset_has_turns() -> None:
    preset = load_preset("math-turns")
    assert preset.pipeline.turns == 2
    assert 20 < len(preset.pipeline.summary) < 250
    # but for the empty place of the first turn it speaks as the presets that the model was trained on
    for agent, name in ((1, "math-2"), (2, "math-3"), (3, "math-2")):
        wanted = load_preset(name).pipeline.agent(agent if name == "math-2" and agent == 3 else agent + 1)
        ours = preset.pipeline.agent(agent).template
        assert ours.splitlines()[:2] == wanted.template.splitlines()[:2]
    asked = preset_requests(preset, 3)
    assert asked == preset_requests(load_preset("math-2"), 3)
    assert preset.pipeline.unrolled.final == 1_000_003
