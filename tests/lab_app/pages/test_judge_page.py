"""The Judge page without a browser: what is read off it, a verdict on a tiny model, and the set below it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import gradio as gr
import pytest
import tiny
from fake_record import make_model
from fake_session import FakeModel, FakeSession
from tiny import model

from backend.methods.registry import method_names
from backend.prompts.presets import load_preset, preset_requests
from backend.records.judge import (
    PROTOCOLS,
    Candidate,
    Judged,
    JudgedProblem,
    JudgeOutcome,
    JudgeProblem,
    JudgeRequest,
    Order,
)
from backend.records.request import MethodChoice
from lab_app.pages.judge import page as judge
from lab_app.pages.judge import problem_set as judge_set
from lab_app.pages.judge import risk_gate as judge_gate
from lab_app.pages.judge.layout import build_inputs, build_results
from lab_app.pages.judge.page import JudgeState
from lab_app.pages.pipeline.form import read_request
from lab_app.pages.pipeline.form_json import form_from_json, request_key
from lab_app.pages.pipeline.state import state_of as pipeline_state
from lab_app.ui import fields, text
from lab_app.ui.page import PageBuilder
from lab_app.ui.validation import FormReader
from lab_app.visits.visits import StoredResult, Visit, VisitStore
from viz.judge.disagreement import gate_panel, gate_words
from viz.judge.verdict_grid import baseline, grid_html, picks_html, remedy, sentence, slot_words, tone

TEXTS = ["3 + 4 = 8. The answer is 8", "3 + 4 = 7. The answer is 7", "4 + 3 = 7. The answer is 7"]


def made(texts: list[str], **changes: Any) -> dict[str, Any]:
    """What the browser sends for cards with these texts."""
    return (
        {
            "text": texts,
            "question": "What is 3 + 4?", "expected": "7", "source": "typed", "temperature": 1,
            "criterion": "right", "protocol": "joint", "slots_only": False,
            "order": "shuffle", "shuffles": 1, "seed": 0, "methods": ["naive"],
            "repair": False, "gated": False, "budget": 25, "warm": 0, "own_numbers": False, "options": {},
            "count": 2, "candidates": 2, "set_seed": 0, "set_source": "typed",
        }
        | changes
    )  # fmt: skip


def test_what_is_chosen_and_that_it_is_shown_can_come_in_one_answer(lab: VisitStore) -> None:
    with gr.Blocks():
        page = PageBuilder("judge", lab, gr.State(""))
        build_results(page)
    update = {
        "looks.visible": True,
        "pick_order.choices": [("as they stand", "given")],
        "pick_order": "given",
    }
    told = page.applied(update, lab.open())[page["looks"]]
    assert told["visible"] is True
    assert told["value"]["pick_order"] == "given"


def test_what_a_tab_kept_is_put_back_and_what_cannot_be_read_is_left_out(lab: VisitStore) -> None:
    with gr.Blocks():
        page = PageBuilder("judge", lab, gr.State(""))
        build_inputs(page)
        page.add(lines=gr.Textbox("", elem_id="kv-judge-lines"))
        page.form("looks", fields.select("pick_order", "Order", [], ""))
        page.form("two", fields.text("one", "One"), fields.text("other", "Other"))
    kept = {
        "kv-judge-cards": {"text": TEXTS, "unknown": 1},
        "kv-judge-lines": "{}",
        "kv-judge-looks": {"pick_order": "of a run that is gone"},
        "kv-judge-two": {"one": "typed"},
        "kv-other": "no box",
    }
    assert page.kept_boxes(json.dumps(kept)) == {"text": TEXTS, "lines": "{}", "one": "typed"}
    wrong = {"kv-judge-cards": {"text": "no list"}, "kv-judge-lines": 3}
    assert page.kept_boxes(json.dumps(wrong)) == {"text": ["", ""]}
    half = json.dumps({"kv-judge-lines": "\ud800"})
    for sent in (None, 3, "", half, "no json", "[]", "null", "[" * 5000, json.dumps("x" * 1_000_001)):
        assert page.kept_boxes(sent) == {}


def merged(updates: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for update in updates:
        out |= update
    return out


@pytest.fixture
def lab() -> VisitStore:
    return VisitStore(FakeModel, FakeSession)


@pytest.fixture
def visit(lab: VisitStore) -> Visit:
    found = lab.open()
    found.pages[judge.KEY] = JudgeState()
    return found


# -- reading


@pytest.mark.parametrize("criterion", ["right", "all", "corrects", "differs", "closest", "majority"])
def test_every_criterion_has_examples(criterion: str, visit: Visit) -> None:
    update = judge.next_example(visit, {"criterion": criterion})
    example = preset_requests(load_preset(f"judge-{criterion}"), 1)[0]
    assert update["question"] == example.values["user_question"]
    sent = made(update["text"], criterion=criterion, question=update["question"])
    request = judge.read(visit, sent | {"expected": update["expected"]})
    assert request.criterion == criterion
    assert [c.text for c in request.problems[0].candidates] == [
        example.values[f"candidate_{i}"] for i in (1, 2, 3, 4)
    ]


def test_orders_and_methods_are_read(visit: Visit) -> None:
    request = judge.read(visit, made(TEXTS, shuffles=2, seed=5, repair=True, budget=10))
    assert request.orders == (Order(), Order("shuffle", 5), Order("shuffle", 6))
    assert [m.name for m in request.methods] == ["dense", "naive", "repair"]
    assert request.methods[-1].options["budget"] == 0.1
    assert request.problems[0].expected == "7"
    assert len(judge.read(visit, made(TEXTS, order="all")).orders) == 6


@pytest.mark.parametrize("repair", [False, True])
def test_every_method_can_judge_at_once(visit: Visit, repair: bool) -> None:
    request = judge.read(visit, made(TEXTS, methods=list(method_names()), repair=repair))
    assert {m.name for m in request.methods} == set(method_names())


BAD = {
    "an empty card": ({"text": [TEXTS[0], " ", TEXTS[2]]}, "text_1", "Candidate 2 is empty"),
    "an odd character": ({"text": ["a\x00", *TEXTS[1:]]}, "text_0", "NUL"),
    "no question": ({"question": ""}, "question", "empty"),
    "no criterion": ({"criterion": "best"}, "criterion", "best"),
    "no protocol": ({"protocol": "shouting"}, "criterion", "shouting"),
    "too many shuffles": ({"shuffles": 9}, "shuffles", "allowed: 1 to 5"),
    "no seed": ({"seed": None}, "seed", "empty"),
    "a negative budget": ({"budget": -1}, "budget", "allowed: 0 to 100"),
    "a long warm-up": ({"warm": 900}, "warm", "allowed"),
    "an unknown method": ({"methods": ["magic"]}, "methods", "magic"),
    "an option": ({"methods": ["kvcomm"], "options": {"kvcomm": {"gamma": 9}}}, "methods", "allowed"),
    "an unknown order": ({"order": "wild"}, "order", "Choose"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_beside_its_field(name: str, lab: VisitStore, visit: Visit) -> None:
    changes, slot, said = BAD[name]
    given = made(TEXTS, **changes)
    for update in (judge.refresh(visit, given), merged(judge.run(lab, visit, given))):
        assert said.lower() in update["errors"][slot].lower()
        assert not any(key in ("text", "question", "seed") for key in update), "typed text stays"
    assert visit.cancel is None


def test_every_order_of_many_candidates_is_refused(visit: Visit) -> None:
    told = judge.refresh(visit, made(["x"] * 6, order="all"))["errors"]
    assert "up to four candidates" in told["order"]


def test_every_allowed_seed_shuffles(visit: Visit) -> None:
    largest = text.JUDGE_NUMBERS["seed"].high
    assert judge.read(visit, made(TEXTS, shuffles=1, seed=largest)).orders[1].seed == largest


def test_another_criterion_leaves_what_somebody_wrote(visit: Visit) -> None:
    offered = judge.next_example(visit, {"criterion": "right"})
    other = judge.choose_criterion(visit, {"criterion": "majority"} | offered)
    assert other["text"] != offered["text"]
    own = {"question": "Who is right?", "text": ["I am.", "No, I."]}
    assert judge.choose_criterion(visit, {"criterion": "right"} | own) == {}
    assert judge.next_example(visit, {"criterion": "right"})["text"], "the button still brings one"


def test_an_examples_answer_is_not_that_of_another_question(visit: Visit) -> None:
    form = made(TEXTS) | judge.next_example(visit, {"criterion": "right"})
    known = form["expected"]
    assert known
    assert judge.read(visit, form).problems[0].expected == known
    assert "expected" not in judge.refresh(visit, form)
    form["question"] = "What is 3 + 4?"
    assert judge.read(visit, form).problems[0].expected is None  # where Run is sooner than the form's answer
    assert judge.refresh(visit, form)["expected"] == ""
    form["expected"] = known  # typed again, it is this question's
    assert "expected" not in judge.refresh(visit, form)
    assert judge.read(visit, form).problems[0].expected == known


@pytest.mark.parametrize(
    ("changes", "slot"),
    [({"count": 0}, "count"), ({"candidates": 9}, "candidates"), ({"set_seed": -1}, "set_seed"),
     ({"criterion": ""}, "criterion"), ({"methods": ["magic"]}, "methods")],
)  # fmt: skip
def test_a_bad_set_is_told_beside_its_field(
    changes: dict[str, Any], slot: str, lab: VisitStore, visit: Visit
) -> None:
    update = merged(judge_set.run(lab, visit, made(TEXTS, **changes)))
    assert list(update["errors"]) == [slot]
    assert update["run.visible"] is True


# -- drawing one judged problem


def outcome(order: str, layout: tuple[int, ...], method: str, **changes: Any) -> JudgeOutcome:
    usual: dict[str, Any] = {
        "problem": 1, "order": order, "layout": layout, "method": method, "state": "reused", "slots": (1,),
        "selected": (layout[0],), "answer": "7", "failure": "", "correct": True, "selection_right": True,
        "consistent": True, "same_answer": True, "blocks": 3, "reused_blocks": 3,
        "prompt_tokens": 100, "reused_tokens": 90, "forwarded_tokens": 10, "margin": 2.0,
        "dense_margin": 2.0,
        "floor": 1e-5, "near_tie": False, "twin": False, "kl_first": 0.0,
        "kl_mean": 0.0,
        "ttft_ms": 5.0, "parts_ms": {}, "text": "",
    }  # fmt: skip
    known = JudgeOutcome.__dataclass_fields__
    return JudgeOutcome(**{k: v for k, v in (usual | changes).items() if k in known})


def row_of(*outcomes: JudgeOutcome) -> tuple[JudgedProblem, JudgeRequest]:
    problem = JudgeProblem(
        1, "What is 3 + 4?", tuple(Candidate(t, f"agent {i}") for i, t in enumerate(TEXTS, 1))
    )
    names = dict.fromkeys(o.method for o in outcomes)
    request = JudgeRequest("typed", (problem,), 1, methods=tuple(MethodChoice(n) for n in names))
    return JudgedProblem("", problem, outcomes), request


def test_the_verdict_says_what_changed() -> None:
    same = row_of(outcome("identity", (1, 2, 3), "dense"), outcome("identity", (1, 2, 3), "naive"))
    assert tone(same[0]) == "same"
    assert "Nothing changed" in sentence(*same)
    answer = row_of(
        outcome("identity", (1, 2, 3), "dense"),
        outcome("identity", (1, 2, 3), "naive", answer="9", same_answer=False),
    )
    assert tone(answer[0]) == "changed"
    assert "gave another final answer: 9 where the full read says 7" in sentence(*answer)
    changed = row_of(
        outcome("identity", (1, 2, 3), "dense", slots=(2,), selected=(2,)),
        outcome("identity", (1, 2, 3), "naive", consistent=False),
        outcome("identity", (1, 2, 3), "kvcomm", slots=(2,), selected=(2,), forwarded_tokens=40),
    )
    assert tone(changed[0]) == "changed"
    said = sentence(*changed)
    assert "changed the selection: candidate 1 instead of candidate 2" in said
    assert "The final answer stayed the full read’s in 1 of 1 change" in said
    assert "KVCOMM keeps the full read’s selection in 1 of 1 order while reading 40" in remedy(*changed)
    assert "Of 1 changed selection, 1 took another candidate." in said
    gave_up = row_of(
        *changed[0].outcomes[:2],
        outcome("identity", (1, 2, 3), "kvcomm", slots=(0,), selected=(0,), consistent=False),
    )
    assert "Of 2 changed selections, 1 took none of them and 1 took another candidate." in sentence(*gave_up)
    assert "KVCOMM 0 of 1 (none taken in 1)" in grid_html(*gave_up)
    assert "none, ≠ full read" in grid_html(*gave_up)
    seer = row_of(*changed[0].outcomes, outcome("identity", (1, 2, 3), "oracle", forwarded_tokens=1))
    assert remedy(*seer) == remedy(*changed), "what looks at the full read's cache repairs nothing"
    tie = row_of(
        outcome("identity", (1, 2, 3), "dense", slots=(2,), selected=(2,)),
        outcome("identity", (1, 2, 3), "naive", consistent=False, near_tie=True),
    )
    assert tone(tie[0]) == "unclear"
    assert "near tie" in sentence(*tie)
    unread = row_of(
        outcome(
            "identity", (1, 2, 3), "dense", slots=None, selected=None, failure="no selection", consistent=None
        ),
        outcome("identity", (1, 2, 3), "naive", consistent=None),
    )
    assert tone(unread[0]) == "unclear"
    assert "cannot be read (no selection)" in sentence(*unread)


def test_selections_are_the_candidates_own_numbers() -> None:
    row, request = row_of(
        outcome("identity", (1, 2, 3), "dense", slots=(2,), selected=(2,)),
        outcome("identity", (1, 2, 3), "naive", slots=(2,), selected=(2,)),
        outcome("shuffle 0", (3, 1, 2), "dense", slots=(3,), selected=(2,)),
        outcome("shuffle 0", (3, 1, 2), "naive", slots=(1,), selected=(3,), consistent=False,
                parts_ms={"base": 4.0}),
    )  # fmt: skip
    assert "keeps its selection in all of 2 orders" in baseline(row)
    grid = grid_html(row, request)
    assert grid.count("≠ full read") == 1
    assert "0.20× the full read’s once cached, 1.0× the first time" in grid
    assert "Copy and reposition 1 of 2" in grid
    assert slot_words(row, "shuffle 0") == "shuffled, seed 0 (slots hold 3 1 2)"
    picks = picks_html(row, request)
    assert "Full read took no slot more often than any other" in picks
    moved, _ = row_of(
        *(o for o in row.outcomes if o.method == "dense"),
    )
    assert moved.outcomes[1].slots != moved.outcomes[0].slots


def test_reading_densely_where_two_disagree_is_told_of_one_problem_and_of_a_set() -> None:
    other: dict[str, Any] = {"slots": (2,), "selected": (2,)}
    row, request = row_of(
        outcome("identity", (1, 2, 3), "dense", forwarded_tokens=100, **other),
        outcome("identity", (1, 2, 3), "naive", consistent=False),
        outcome("identity", (1, 2, 3), "kvcomm", forwarded_tokens=40, **other),
        outcome("identity", (1, 2, 3), "epic", forwarded_tokens=20, consistent=False),
        outcome("identity", (1, 2, 3), "oracle", forwarded_tokens=1, **other),
        outcome("identity", (1, 2, 3), "prefix", forwarded_tokens=100, reused_tokens=0, **other),
    )
    judged = Judged(request, make_model(6), (row,))
    said = gate_words(judged)
    assert "disagree, in 2 of 3 pairs, ends at the full read’s selection in 2." in said
    assert "Copy and reposition (as they stand) and KVCOMM (as they stand), reads 150" in said
    assert "tokens, which spares nothing." in said
    panel = gate_panel(judged)
    assert panel.html.count("<tr>") == 1 + 3
    assert "end most often as the full read: 100% (" in panel.finding
    assert "at 150% of its tokens; the better of them alone 100%, at 40%." in panel.finding
    assert "0% (" in panel.html, "naive and EPIC agree on another candidate"
    alone = Judged(request, make_model(6), (replace(row, outcomes=row.outcomes[:2]),))
    assert "takes two verdicts" in gate_words(alone)
    assert "takes two verdicts" in gate_panel(alone).html


# -- on a tiny model


@pytest.fixture(autouse=True)
def short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random models write to the limit, and odd characters when they write long."""
    monkeypatch.setattr(judge, "CANDIDATE_TOKENS", 12)
    for module in (judge, judge_set):
        monkeypatch.setattr(module, "ANSWER_TOKENS", 16)


@pytest.fixture(scope="module")
def real() -> VisitStore:
    return VisitStore(model, tiny.lab)


@pytest.mark.slow
def test_a_typed_example_is_judged(real: VisitStore) -> None:
    visit = real.open()
    visit.pages[judge.KEY] = mine = JudgeState()
    updates = list(judge.run(real, visit, made(TEXTS, methods=["naive", "kvcomm"], warm=1)))
    last = merged(updates)
    assert "verdict" in last, last
    assert last["run.visible"] is True
    assert last["status"] == ""
    assert list(mine.records) == ["identity", "shuffle 0"]
    assert mine.last_order is not None
    row = mine.last_order.row
    assert [o.method for o in row.outcomes] == ["dense", "naive", "kvcomm"] * 2
    assert row.outcomes[3].layout == Order("shuffle", 0).layout(1, 3)
    assert [c.right for c in row.problem.candidates] == [False, True, True]
    # the judge read the candidates in the order of the layout
    texts = [mine.records["shuffle 0"].request.values[f"candidate_{slot}"] for slot in (1, 2, 3)]
    assert texts == [TEXTS[n - 1] for n in row.outcomes[3].layout]
    assert last["pick_order"] == "identity"
    assert last["view_attention"]["views"]
    assert real.result("judged", mine.token) is not None
    told_again = judge.refresh(visit, made(TEXTS, methods=["naive", "kvcomm"], warm=1))
    assert told_again["status"] == ""
    assert re.search(r"<b>6 verdicts</b>, (under|about) [0-9.]+ s", told_again["cost"])
    assert "Edited" in judge.refresh(visit, made(TEXTS, methods=["naive"]))["status"]
    assert "two verdicts disagree" not in last["verdict"]
    assert "verdict" not in told_again
    gated = made(TEXTS, methods=["naive", "kvcomm"], warm=1, gated=True)
    told_gated = judge.refresh(visit, gated)
    assert "where two verdicts disagree" in told_gated["verdict"]
    assert told_gated["status"] == "", "it is counted from what is there"
    assert "verdict" not in judge.refresh(visit, gated)
    assert "where two verdicts disagree" in merged(judge.run(real, visit, gated))["verdict"]
    picked = {"pick_order": "shuffle 0", "pick_method": "naive"}
    look = judge.show_order(visit, picked)
    assert "kv-band" in look["strip"]["html"]
    # what is read first is told first, and what is folded away is not drawn
    told = [[name for name in ("verdict", "view_attention") if name in u] for u in updates]
    assert [names for names in told if names] == [["verdict"], ["view_attention"]]
    assert "view_more" not in last | look
    coarse = {view["key"] for view in look["view_attention"]["views"]}
    open_in_pipeline = {view["key"] for view in judge.unfold(visit, picked)["view_more"]["views"]}
    assert coarse
    assert len(open_in_pipeline) == 4 * len(coarse)  # by layer, by head, by token, and the difference
    assert not coarse & open_in_pipeline
    assert "view_more" in judge.show_order(visit, picked)
    judge.fold(visit, {})
    assert "view_more" not in judge.show_order(visit, picked)
    opened = judge.open_in_pipeline(visit, {})  # what was looked at last; Compare has no judge of three
    assert opened["results.visible"] is True
    assert visit.record is mine.records["shuffle 0"]
    assert "preset" not in opened


def test_a_judged_set_is_opened_with_the_setup_that_asks_it(real: VisitStore) -> None:
    """So that what changed the choice can be searched and repaired on Compare."""
    visit = real.open()
    visit.pages[judge.KEY] = JudgeState()
    texts = [*TEXTS, "41 + 20 = 61. The answer is 61"]
    list(judge.run(real, visit, made(texts, methods=["naive", "kvcomm"], warm=0)))
    judge.show_order(visit, {"pick_order": "shuffle 0", "pick_method": "kvcomm"})
    opened = judge.open_in_pipeline(visit, {})
    assert opened["preset"] == "judge-right"
    assert opened["pick_method"][1] == "kvcomm"
    assert "press Run, then Measure" in opened["status"]
    assert visit.record is not None
    form, example = form_from_json(pipeline_state(visit).forms[visit.shown or ""])
    assert [form.values[f"candidate_{slot}"] for slot in (1, 2, 3, 4)] == [
        texts[n - 1] for n in Order("shuffle", 0).layout(1, 4)
    ]
    assert request_key(read_request(form, example)) == request_key(visit.record.request)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_is_judged(protocol: str, real: VisitStore) -> None:
    visit = real.open()
    visit.pages[judge.KEY] = mine = JudgeState()
    last = merged(judge.run(real, visit, made(TEXTS, protocol=protocol, slots_only=True)))
    assert "verdict" in last, last
    assert mine.request is not None
    assert (mine.request.protocol, mine.request.slots_only) == (protocol, True)
    assert mine.last_order is not None
    assert len(mine.last_order.row.outcomes) == 4
    record = mine.records["identity"]
    assert record.request.slots_only


def test_a_question_has_one_message() -> None:
    for question in ("", "x" * 1_000_000, "\ud800"):
        reader = FormReader(made(TEXTS, question=question))
        judge.read_question(reader)
        assert len(reader.problems) == 1


def test_a_judge_that_rewrites_is_compared_by_its_answer() -> None:
    none = {"slots": None, "selected": None, "consistent": True}
    same = row_of(
        outcome("identity", (1, 2, 3), "dense", **none), outcome("identity", (1, 2, 3), "naive", **none)
    )
    other = row_of(
        outcome("identity", (1, 2, 3), "dense", **none),
        outcome(
            "identity",
            (1, 2, 3),
            "naive",
            **none | {"consistent": False, "answer": "9", "same_answer": False},
        ),
    )
    for (row, request), said in (
        (same, "every method writes the full read"),
        (other, "changed the answer: 9 where the full read writes 7"),
    ):
        assert said in sentence(row, replace(request, protocol="rewriting"))


@pytest.mark.slow
def test_ones_own_problem_in_other_numbers_lets_kvcomm_reuse(real: VisitStore) -> None:
    """Drawn problems are shorter than what was typed, so that they serve no text of it."""
    visit = real.open()
    visit.pages[judge.KEY] = mine = JudgeState()
    long = [f"{text}, as I counted it twice on my way home." for text in TEXTS]
    options = {"kvcomm": {"gamma": 1.0}}
    sent = made(
        long, question="Ada had 3 keys and found 4. " * 4, methods=["kvcomm"], warm=2, options=options
    )

    def reused(given: dict[str, Any]) -> list[int]:
        assert "verdict" in (last := merged(judge.run(real, visit, given))), last
        assert ("kv-judge-own-numbers-box" in last["verdict"]) is not given["own_numbers"]
        assert ("this problem in other numbers, the nearest" in last["verdict"]) is given["own_numbers"]
        assert mine.last_order is not None
        return [o.reused_tokens for o in mine.last_order.row.outcomes if o.method == "kvcomm"]

    assert reused(sent) == [0, 0]
    assert all(reused(sent | {"own_numbers": True}))
    texts = [text.translate(str.maketrans("3478", "dddd")) for text in long]
    wordless = sent | {"text": texts, "question": "How many?", "own_numbers": True}
    assert "no number" in str(merged(judge.run(real, visit, wordless)))


def test_candidates_are_written_and_judged_as_such(real: VisitStore) -> None:
    visit = real.open()
    visit.pages[judge.KEY] = mine = JudgeState()
    given = made(["", ""], source="progressive", order="identity", temperature=0)
    shown = merged(judge.write(real, visit, given))
    texts = shown["text"]
    assert all(texts)
    assert mine.draft is not None
    assert mine.draft.regime == "progressive"
    sent = made(texts, source="progressive", order="identity")
    assert judge.read(visit, sent).problems == (mine.draft,)
    assert "Written by the model" in judge.refresh(visit, sent)["source-help"]
    # an edited text has no cache of its own, and what was written otherwise is not this
    for other in ({"text": ["Other.", texts[1]]}, {"source": "parallel"}, {"question": "What is 1 + 1?"}):
        assert judge.read(visit, sent | other).regime == "typed"
        if "source" not in other:
            assert "no longer" in judge.refresh(visit, sent | other)["source-help"]
    last = merged(judge.run(real, visit, sent))
    assert "verdict" in last, last
    naive = mine.records["identity"].outcome(1, "naive")
    assert any("own context" in span.source for span in naive.spans), "the writers' caches are what is reused"
    again = sent | {"own_numbers": True, "warm": 1, "methods": ["kvcomm"]}
    assert "verdict" in merged(judge.run(real, visit, again)), "agents answer the question in other numbers"


def test_a_set_is_judged_and_kept(real: VisitStore) -> None:
    visit = real.open()
    updates = list(judge_set.run(real, visit, made(TEXTS, methods=["naive"], order="identity")))
    last = merged(updates)
    assert "2 problems" in last["set_status"]
    keys = [view["key"] for view in last["view_set"]["views"]]
    assert len(keys) == len(set(keys)) > 3
    assert "judge_disagreement" not in keys
    assert "judged_set" in visit.results
    token, found = visit.results["judged_set"]
    assert f"lab/measured/judged_set/{token}" in last["set_status"]
    assert [row.problem.number for row in found.rows] == [1, 2]
    assert Judged.from_bytes(found.to_bytes()).rows == found.rows
    gated = made(TEXTS, methods=["naive", "kvcomm"], order="identity", gated=True)
    shown = merged(judge_set.run(real, visit, gated))["view_set"]["views"]
    assert [view["key"] for view in shown][1] == "judge_disagreement"


def judged_set(problems: int, parted: set[int]) -> Judged:
    """A set whose unsafe problems have longer candidates."""
    rows = []
    for number in range(1, problems + 1):
        texts = ("x " * (30 if number in parted else 3), "The answer is 4")
        problem = JudgeProblem(number, "q", tuple(Candidate(t, f"agent {i}") for i, t in enumerate(texts, 1)))
        kept = number not in parted
        found = (outcome("identity", (1, 2), "dense"), outcome("identity", (1, 2), "naive", consistent=kept))
        rows.append(JudgedProblem(str(number), problem, found))
    request = JudgeRequest("typed", (), problems, methods=(MethodChoice("dense"), MethodChoice("naive")))
    return Judged(request, FakeModel().info, tuple(rows))


def test_a_gate_is_trained_on_the_judged_set(visit: Visit) -> None:
    assert "Judge a set first" in judge_gate.train(visit, {})["gate_status"]
    visit.results["judged_set"] = StoredResult("token", judged_set(40, set(range(1, 40, 3))))
    shown = judge_gate.train(visit, {})
    assert shown["gate_set.visible"] is True
    assert shown["gate_target"] == "every method"
    assert [name for _, name in shown["gate_target.choices"]] == ["every method", "naive"]
    assert {v["key"] for v in shown["view_gate"]["views"]} >= {"risk_roc", "risk_trade", "risk_weights"}
    told = {}
    for threshold in (0.0, 1.0):
        given = {"gate_target": "every method", "gate_threshold": threshold}
        first = judge_gate.move_threshold(visit, given)["view_gate"]["views"][0]
        assert first["key"] == "risk_trade"
        told[threshold] = first["finding"]
    assert "copies 90\N{NO-BREAK SPACE}% of the tokens" in told[0.0]
    assert "copies 0\N{NO-BREAK SPACE}% of the tokens" in told[1.0]
    assert (
        "0 to 1"
        in judge_gate.move_threshold(visit, {"gate_target": "naive", "gate_threshold": None})["gate_status"]
    )
    assert "gate_threshold" in judge_gate.choose_gate(visit, {"gate_target": "naive", "gate_threshold": 0.5})
    gone = judge_gate.reset_gate(visit)
    assert gone["gate_set.visible"] is False
    assert "nothing to learn" in judge_gate.move_threshold(visit, {"gate_threshold": 0.5})["gate_status"]


def test_a_set_without_flips_has_nothing_to_learn(visit: Visit) -> None:
    visit.results["judged_set"] = StoredResult("token", judged_set(12, set()))
    shown = judge_gate.train(visit, {})
    assert shown["gate_set.visible"] is False
    assert any("No gate could be trained" in str(v.values()) for v in shown["view_gate"]["views"])


def test_a_cancelled_set_keeps_what_was_finished(real: VisitStore) -> None:
    visit = real.open()
    stream = judge_set.run(real, visit, made(TEXTS, count=50, methods=["naive"], order="identity"))
    for update in stream:
        assert visit.cancel is not None or "run.visible" in update
        shown = re.search(r"problem (\d+) of", str(update.get("set_status", "")))
        if shown and int(shown[1]) > 1:  # on a fast machine not every problem is announced
            judge.cancelled(visit, {})
            break
    last = merged(stream)
    assert "Stopped" in last["set_status"]
    assert "judged_set" in visit.results
    assert 1 <= len(visit.result("judged_set").rows) < 50
