"""The verdict tells each outcome apart."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
from fake_record import make_record

from viz.run.verdict import verdict, verdict_html


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
    assert "Position-only reuse changed the answer: 38 (right) became 36 (wrong); KVCOMM kept it." in text
    assert (
        "First different token: '6' instead of '8' at Judge, dense margin 4.20 nats, numerical floor 0.00001."
        in text
    )
    assert 2 <= len(verdict(record).points) <= 4


def test_without_a_known_answer_nothing_is_called_right():
    assert "38 became 36;" in said(make_record(expected=None))


def test_nothing_changed():
    record = same_as_dense(make_record())
    assert verdict(record).tone == "same"
    assert said(record) == "Nothing changed: all 2 methods answer 38, as dense does."
    one = same_as_dense(make_record(methods=("dense", "naive")))
    assert said(one) == "Nothing changed: Position-only answers 38, as dense does."


def test_same_answer_in_other_words():
    record = same_as_dense(make_record())
    own = record.outcome(2, "naive")
    fidelity = replace(own.fidelity, first_divergence=1, margin=2.0, dense_token="5", method_token="4")
    record = change(record, "naive", 2, token_ids=own.token_ids + 1, fidelity=fidelity)
    assert verdict(record).tone == "same"
    assert "The answer stayed 38 (right), but Position-only worded 1 agent of 3 differently." in said(record)
    assert "at Inspector" in said(record)


def test_near_tie():
    record = make_record()
    own = record.outcome(3, "naive")
    record = change(record, "naive", 3, fidelity=replace(own.fidelity, margin=5e-5))
    assert verdict(record).tone == "unclear"
    assert "a near tie" in said(record)


def test_improved():
    record = make_record()
    record = change(record, "dense", 3, answer="36", correct=False)
    record = change(record, "naive", 3, answer="38", correct=True)
    record = change(record, "kvcomm", 3, answer="36", correct=False)
    assert verdict(record).tone == "improved"
    assert "for the better: 36 (wrong) became 38 (right)" in said(record)


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


def test_methods_without_a_gate_that_reuse_nothing_give_their_reason():
    record = make_record(methods=("dense", "naive"))
    for agent in record.agents:
        own = record.outcome(agent, "naive")
        record = change(
            record, "naive", agent, actions=np.zeros_like(own.actions), reason="No {copy} <was> found."
        )
    assert "Position-only reused nothing: No {copy} <was> found." in said(record)


def test_free_mode_compares_answers_only():
    text = said(make_record(mode="free"))
    assert "38 (right) became 36 (wrong)" in text
    assert "First different token" not in text
    assert "only answers are compared" in text


def test_two_different_wrong_answers():
    record = change(make_record(), "kvcomm", 3, answer="40", correct=False)
    assert "became 36 (wrong) under Position-only and 40 (wrong) under KVCOMM" in said(record)


def test_texts_without_answers():
    record = change(
        change(change(make_record(expected=None), "dense", answer=None), "naive", answer=None),
        "kvcomm",
        answer=None,
    )
    assert "changed the final text" in said(record)
    kept = same_as_dense(record)
    assert "the same texts as dense" in said(kept)


def test_dense_alone():
    record = make_record(methods=("dense",))
    assert verdict(record).tone == "unclear"
    assert "Add a reuse method" in said(record)


def test_answers_are_escaped():
    record = change(make_record(), "naive", 3, answer="<script>x</script>")
    assert "<script" not in verdict_html(record)


def test_drawing_loads_neither_torch_nor_the_page():
    code = (
        "import sys, viz.run.tabs, viz.run.comparison, viz.run.token_strip, viz.run.verdict; "
        "import viz.run.agent_graph, viz.base.placeholder_pills; "
        "bad = {'torch', 'gradio', 'transformers'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
