"""The verdict tells each outcome apart."""

from __future__ import annotations

import html
import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from fake_record import make_record

from backend.records.familiarity import AgentSurprisal, Bin, Familiarity, Outlook
from viz.run.diagnosis import repair
from viz.run.familiarity import surprisal_panel
from viz.run.verdict import passing_gamma, verdict


def said(record) -> str:
    text = re.sub(r"<q[^>]*>(.*?)</q>", r"'\1'", verdict(record).sentence_html)
    return html.unescape(re.sub(r"<[^>]+>", "", text)).replace("\xa0", " ")


def change(record, method, agent=None, **fields):
    """The record with one method's outcomes replaced (of one agent, or of all)."""
    return replace(
        record,
        outcomes=tuple(
            replace(o, **fields) if o.method == method and agent in (None, o.agent) else o
            for o in record.outcomes
        ),
    )


def same_as_dense(record, method="naive"):
    """The record in which a method wrote what dense wrote."""
    for agent in record.agents:
        dense, own = record.outcome(agent, "dense"), record.outcome(agent, method)
        fidelity = own.fidelity and replace(own.fidelity, first_divergence=None, margin=None)
        record = change(
            record,
            method,
            agent,
            token_ids=dense.token_ids,
            texts=dense.texts,
            text=dense.text,
            answer=dense.answer,
            correct=dense.correct,
            fidelity=fidelity,
        )
    return record


def test_changed_answer():
    record = make_record()
    text = said(record)
    assert verdict(record).tone == "changed"
    assert "Copy and reposition changed the answer: 38 (right) became 36 (wrong); KVCOMM kept it." in text
    led = "where '8' led by 4.20 (log-odds); rounding noise 0.00001."
    assert f"First different token: '6' instead of '8' at Judge, {led}" in text
    assert verdict(record).state == "answer changed"
    assert 2 <= len(verdict(record).points) <= 4


def unscored(record):
    """The record without a known answer."""
    known = replace(record.request, expected=None)
    return replace(record, request=known, outcomes=tuple(replace(o, correct=None) for o in record.outcomes))


def dense_wrong(record):
    """The record in which dense answers 62 where 63 is right."""
    record = replace(record, request=replace(record.request, expected="63"))
    record = change(record, "dense", 3, answer="62", correct=False)
    return change(record, "kvcomm", 3, answer="62", correct=False)


def surprised(record, level="unusual", wrong=0.97, like=Bin(0.9, 1.0, 212, 208), words=("armadillo",)):  # noqa: B008
    """The record with what the model's surprisal lets expect."""
    found = Outlook(level, 0.4, words, wrong, like if wrong is not None else None)
    agents = tuple(
        AgentSurprisal(
            agent,
            (dense := record.outcome(agent, "dense")).prompt,
            np.linspace(0, 9, len(record.prompts[dense.prompt].texts)).astype(np.float32),
            np.linspace(0, 2, len(dense.texts)).astype(np.float32),
        )
        for agent in record.agents
    )
    return replace(record, familiarity=Familiarity(agents, 8.0, found))


def test_an_answer_can_stay_while_the_choice_changes():
    ends = "The best candidate is {}. The answer is 38"
    record = same_as_dense(change(make_record(), "dense", 3, text=ends.format(1)))
    other = change(record, "naive", 3, text=ends.format(2), token_ids=(1, 2), answer="38")
    assert verdict(other).state == "answer kept, choice changed"
    assert verdict(other).tone == "changed"
    told = "The answer stayed 38 (right), but the choice changed: Copy and reposition chose candidate 2"
    assert said(other).startswith(f"{told} instead of candidate 1")
    none = change(change(other, "naive", 3, answer="36"), "kvcomm", 3, text=ends.format(0), token_ids=(1, 2))
    assert "KVCOMM kept it, but chose no candidate instead of candidate 1." in said(none)
    wrong = dense_wrong(other)
    assert verdict(wrong).state == "nothing to compare: the full read is wrong"


def test_the_states_of_a_verdict():
    record = same_as_dense(same_as_dense(make_record()), "kvcomm")
    assert verdict(record).state == "same text"
    assert verdict(change(record, "naive", 1, token_ids=(7, 8))).state == "same answer, other words"


def test_where_nobody_knows_what_is_right_a_change_is_neither_harm_nor_gain():
    record = unscored(make_record())
    assert verdict(record).tone == "neutral"
    assert verdict(record).state == "answer changed, right answer unknown"
    assert said(record).startswith(
        "The answer changed: the full read answers 38, Copy and reposition answers 36; KVCOMM answers as the "
        "full read. Nobody knows what is right here."
    )
    assert "changed the answer" not in said(record)


def test_an_answer_that_nobody_can_score_is_not_praised_for_having_stayed():
    kept = unscored(same_as_dense(make_record()))
    worded = change(kept, "naive", 1, token_ids=(7, 8))
    ends = "The best candidate is {}. The answer is 38"
    chose = change(
        change(kept, "dense", 3, text=ends.format(1)), "naive", 3, text=ends.format(2), token_ids=(1,)
    )
    states = "same text", "same answer, other words", "answer kept, choice changed"
    for record, state in zip((kept, worded, chose), states, strict=True):
        assert verdict(record).tone == "neutral"
        assert verdict(record).state == f"{state}, right answer unknown"
        assert said(record).startswith("The answer stayed 38. Nobody knows what is right here: ")
    assert "Copy and reposition chose candidate 2 instead of candidate 1" in said(chose)
    textless = change(kept, "dense", 3, answer=None)
    textless = change(change(textless, "naive", 3, answer=None), "kvcomm", 3, answer=None)
    assert said(textless).startswith("The final text stayed the same. Nobody knows")


def test_where_dense_is_wrong_there_is_nothing_to_judge():
    record = dense_wrong(make_record())
    record = change(record, "naive", 3, answer="1", correct=False)
    assert verdict(record).tone == "neutral"
    assert said(record).startswith(
        "The full read itself is wrong: it answers 62 where 63 is right; Copy and reposition answers 1 "
        "(wrong); KVCOMM answers as the full read."
    )
    better = change(record, "naive", 3, answer="63", correct=True)
    assert verdict(better).tone == "neutral"
    assert "Copy and reposition answers 63 (right)" in said(better)
    for one in (record, better):
        assert "changed the answer" not in said(one)
    kept = same_as_dense(same_as_dense(record), "kvcomm")
    assert verdict(kept).tone == "neutral"
    assert said(kept).startswith(
        "The full read itself is wrong: it answers 62 where 63 is right; Copy and reposition and KVCOMM "
        "answer as the full read."
    )


def test_a_near_tie_is_told_where_dense_is_wrong_too():
    record = dense_wrong(make_record())
    own = record.outcome(3, "naive")
    record = change(record, "naive", 3, answer="1", fidelity=replace(own.fidelity, margin=5e-5))
    assert verdict(record).tone == "neutral"
    assert "a near tie" in said(record)


def test_what_is_known_of_such_requests_stands_beside_a_neutral_verdict():
    record = surprised(dense_wrong(make_record()))
    assert (
        "Unusual for the model: “armadillo”. Its answer is probably wrong, with or without reuse. It "
        "answered 208 of 212 held-out requests like this wrong." in said(record)
    )
    calm = surprised(unscored(make_record()), "familiar", 0.02, Bin(0.0, 0.1, 155, 4), ())
    assert "The model knows requests like this. It answered 4 of 155 held-out" in said(calm)
    other = surprised(unscored(make_record()), wrong=None, words=("<b>",))
    text = verdict(other).sentence_html
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert "Its weights are not calibrated, so this does not tell whether its answer is right." in text
    assert "probably wrong" not in text
    # where dense is known to be right, what was to be expected of it is no news
    assert "Unusual" not in said(surprised(make_record()))


def test_every_token_of_a_prompt_shows_how_surprising_it_is():
    record = surprised(make_record())
    prompt = record.prompts[record.outcome(1, "dense").prompt]
    drawn = surprisal_panel(record, 1).html
    assert drawn.count("<span style") == len(prompt.texts) + len(record.outcome(1, "dense").texts)
    assert "--kv-depth:0%" in drawn
    assert "--kv-depth:100%" in drawn  # 9 nats where 8 are usual
    span = next(s for s in prompt.spans if s.kind == "placeholder")
    part = surprisal_panel(record, 1, span.name).html
    answer = len(record.outcome(1, "dense").texts)
    assert part.count("<span style") == span.end - span.start + answer
    assert "did not measure" in surprisal_panel(make_record(), 1).html


def test_nothing_changed():
    record = same_as_dense(make_record())
    assert verdict(record).tone == "same"
    assert said(record) == "Nothing changed: all 2 methods answer 38, as the full read does."
    one = same_as_dense(make_record(methods=("dense", "naive")))
    assert said(one) == "Nothing changed: Copy and reposition answers 38, as the full read does."


def test_same_answer_in_other_words():
    record = same_as_dense(make_record())
    own = record.outcome(2, "naive")
    fidelity = replace(own.fidelity, first_divergence=1, margin=2.0, dense_token="5", method_token="4")
    record = change(record, "naive", 2, token_ids=own.token_ids + 1, fidelity=fidelity)
    assert verdict(record).tone == "same"
    assert "The answer stayed 38 (right), but Copy and reposition worded 1 agent of 3 differently." in said(
        record
    )
    assert "at Inspector" in said(record)


def test_near_tie():
    record = make_record()
    own = record.outcome(3, "naive")
    record = change(record, "naive", 3, fidelity=replace(own.fidelity, margin=5e-5))
    assert verdict(record).tone == "unclear"
    assert "a near tie" in said(record)


def test_empty_pools_are_explained():
    record = same_as_dense(make_record())
    for agent in record.agents:
        own = record.outcome(agent, "kvcomm")
        gate = tuple(replace(g, shareable=False, rule="empty pool") for g in own.gate)
        record = change(
            record, "kvcomm", agent, state="fallback", gate=gate, actions=np.zeros_like(own.actions)
        )
    assert "KVCOMM has no anchors yet, so it computed everything: warm up its pools." in said(record)
    alone = replace(record, outcomes=tuple(o for o in record.outcomes if o.method != "naive"))
    assert verdict(alone).tone == "unclear"
    assert said(alone).startswith("Nothing was reused, so nothing could change.")


@pytest.mark.parametrize(
    ("rule", "why", "advice"),
    [
        (
            "longer than every anchor",
            "the question is longer than every anchor.",
            "Anchors as long",
        ),
        ("entropy", "no anchor of the question stands out enough for its gate.", "From gamma 0.3 on"),
        ("closeness", "its gate rejected the question.", "A higher gamma"),
    ],
)
def test_a_gate_that_refuses_everything_says_why_and_what_would_help(rule: str, why: str, advice: str):
    record = same_as_dense(make_record())
    for agent in record.agents:
        own = record.outcome(agent, "kvcomm")
        gate = tuple(replace(g, shareable=False, rule=rule) for g in own.gate)
        record = change(
            record, "kvcomm", agent, state="fallback", gate=gate, actions=np.zeros_like(own.actions)
        )
    assert f"KVCOMM computed everything: {why}" in said(record)
    assert advice in re.sub("<[^>]+>", "", repair(record))


def test_the_least_gamma_that_would_let_every_text_pass_is_a_step_of_the_slider():
    """Behind 20 anchors whose weights have half and four fifths of the largest entropy."""
    record = make_record()

    def refused(share: float, rule: str = "entropy"):
        own = record.outcome(1, "kvcomm")
        gate = replace(own.gate[0], shareable=False, rule=rule, entropy=share * math.log(20))
        return replace(own, gate=(replace(gate, anchors=tuple(range(20)), threshold=0.3 * math.log(20)),))

    assert passing_gamma([refused(0.5)]) == 0.5
    assert passing_gamma([refused(0.5), refused(0.81)]) == 0.85
    assert passing_gamma([refused(0.5), refused(1.0)]) == 1.0
    assert passing_gamma([refused(0.5), refused(0.5, "longer than every anchor")]) is None
    assert passing_gamma([record.outcome(1, "naive")]) is None
    for odd in (0.0, 1.5, float("nan")):
        assert passing_gamma([refused(odd)]) is None
    forgotten = refused(0.5)  # a record of an earlier version names no anchors
    assert passing_gamma([replace(forgotten, gate=(replace(forgotten.gate[0], anchors=()),))]) is None


def test_methods_without_a_gate_that_reuse_nothing_give_their_reason():
    record = make_record(methods=("dense", "naive"))
    for agent in record.agents:
        own = record.outcome(agent, "naive")
        record = change(
            record, "naive", agent, actions=np.zeros_like(own.actions), reason="No {copy} <was> found."
        )
    assert "Copy and reposition reused nothing: No {copy} <was> found." in said(record)


def test_free_mode_compares_answers_only():
    text = said(make_record(mode="free"))
    assert "38 (right) became 36 (wrong)" in text
    assert "First different token" not in text
    assert "only answers are compared" in text


def test_two_different_wrong_answers():
    record = change(make_record(), "kvcomm", 3, answer="40", correct=False)
    assert "became 36 (wrong) under Copy and reposition and 40 (wrong) under KVCOMM" in said(record)


def test_texts_without_answers():
    record = change(
        change(change(make_record(), "dense", answer=None), "naive", answer=None),
        "kvcomm",
        answer=None,
    )
    assert "Copy and reposition changed the final text; KVCOMM kept it." in said(record)
    assert said(unscored(record)).startswith(
        "The final text changed under Copy and reposition; KVCOMM answers as the full read. Nobody knows "
        "what is right here."
    )
    kept = same_as_dense(record)
    assert "the same texts as the full read" in said(kept)


def test_dense_alone():
    record = make_record(methods=("dense",))
    assert verdict(record).tone == "unclear"
    assert "Add a reuse method" in said(record)


def test_answers_are_escaped():
    record = change(make_record(), "naive", 3, answer="<script>x</script>")
    assert "<script" not in verdict(record).sentence_html


def test_drawing_loads_neither_torch_nor_the_page():
    code = (
        "import sys, viz.run.tabs, viz.run.comparison, viz.run.token_strip, viz.run.verdict; "
        "import viz.run.agent_graph, viz.base.placeholder_pills; "
        "bad = {'torch', 'gradio', 'transformers'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_boundary_tax_is_a_fact_where_it_is_known_and_paid():
    record = make_record()
    assert not any("Boundary tax" in fact for fact in verdict(record).points), (
        "a record of an earlier version"
    )
    taxed = [replace(p, boundary_tokens=at % 2 * 3) for at, p in enumerate(record.prompts)]
    found = [f for f in verdict(replace(record, prompts=tuple(taxed))).points if "Boundary tax" in f]
    paid = sum(taxed[record.outcome(a, "dense").prompt].boundary_tokens for a in record.agents)
    assert paid > 0
    assert len(found) == 1
    assert f"Boundary tax: {paid} of" in found[0]
