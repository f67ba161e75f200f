"""Sentences made from numbers never contradict them."""

from __future__ import annotations

import html
import re

from fake_record import make_record
from hypothesis import given
from hypothesis import strategies as st

from viz.run.diagnosis import Standing, repair, repair_words, where

FIGURES = re.compile(r"([0-9.]+|< 1e-6) to ([0-9.]+|< 1e-6)")
sizes = st.one_of(st.none(), st.floats(0, 3), st.sampled_from([0.0, 0.14, 0.28, 0.2801, 1e-9]))
kinds = st.sampled_from(["same", "text", "choice", "answer"])


def plain(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", markup)).replace("\xa0", " ")


def standing(label: str, kind: str, error: float | None, kl: float | None, corrected: bool) -> Standing:
    return Standing(label, label, kind, error, kl, corrected, False, "1")


def value(shown: str) -> float:
    return 5e-7 if shown == "< 1e-6" else float(shown)


@given(sizes, sizes, sizes, sizes, kinds, kinds)
def test_what_is_said_of_nearness_holds_of_the_figures_beside_it(errors, kls, error, kl, kind, plain_kind):
    copied = standing("Copy", plain_kind, errors, kls, False)
    said = plain(repair_words([standing("Mend", kind, error, kl, True), copied]))
    pairs = [(value(a), value(b)) for a, b in FIGURES.findall(said)]
    if "by one measure" in said:
        assert any(b < a for a, b in pairs)
        assert any(b > a for a, b in pairs)
    elif "nearer to the full read" in said:
        assert pairs
        assert all(b <= a for a, b in pairs)
    elif "further from the full read" in said:
        assert pairs
        assert all(b >= a for a, b in pairs)
    elif "as far from the full read" in said:
        assert all(b == a for a, b in pairs)
    lost = {"answer", "choice"}
    if re.search("kept the .* that Copy lost", said):
        assert plain_kind in lost
        assert kind != "answer"
    if "Nothing needs repair" in said:
        assert not {kind, plain_kind} & lost
    if said.startswith("Leaving the correction out"):
        assert kind in lost
        assert plain_kind not in lost
    if said.startswith("Not this correction"):
        assert kind in lost


@given(st.lists(sizes, min_size=2, max_size=4), st.lists(sizes, min_size=4, max_size=4))
def test_the_step_that_matters_most_is_worse_without_it(kls, errors):
    labels = ["M", "M without rotate", "M without prefix_offset", "M without placeholder_offset"]
    found = [
        standing(label, "text", error, kl, True)
        for label, error, kl in zip(labels, errors, kls, strict=False)
    ]
    said = plain(repair_words(found))
    if "matters most" in said:
        left, off = re.findall(r"(?:leave|it is) ([0-9.]+|< 1e-6)", said.rstrip("."))
        assert value(off.rstrip(".")) > value(left) or left == "< 1e-6"


def test_what_kept_the_answer_is_the_repair_whether_it_corrects_or_not():
    """A correction that lost the answer, too, is not what repairs it, however near its cache is."""
    copied = standing("Copied", "answer", 0.3, 1.6, False)
    mended = standing("Mended", "answer", 0.1, 0.4, True)
    linked = standing("Linked", "same", 0.5, 0.9, False)
    said = plain(repair_words([copied, mended, linked]))
    assert said.startswith("Another way of copying: Linked kept the answer that Copied lost")
    other = standing("Other", "same", 0.4, 1.2, True)
    said = plain(repair_words([copied, mended, other, linked]))
    assert "Other kept the answer that Copied lost" in said
    assert "Not this correction" in plain(repair_words([copied, mended]))
    far = standing("Far", "same", 0.9, 2.5, False)  # kept its answer, further off than what lost it
    assert "Other kept the answer that Copied lost" in plain(repair_words([copied, other, far]))


def test_a_segment_of_the_template_has_a_name_of_its_own():
    said = plain(where(make_record()))
    assert "prefix" not in said
    assert "mean relative error" in said


def test_repair_of_a_run_names_both_methods():
    assert "Copy and reposition" in plain(repair(make_record()))
