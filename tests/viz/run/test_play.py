"""*Play it* tells and draws what the record holds."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from fake_record import make_record

from backend.records.run import RunRecord
from viz.run.play import play_panel

BUTTON = re.compile(r'data-steps="(\d+)"')


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return make_record()


def test_every_picture_is_an_svg_of_its_own(record: RunRecord) -> None:
    pictures = re.findall(r"<svg.*?</svg>", play_panel(record, 3, "kvcomm").html)
    assert len(pictures) >= 6
    for picture in pictures:
        ElementTree.fromstring(picture)


def test_the_next_token_is_shown_only_where_it_changed(record: RunRecord) -> None:
    for method in ("naive", "kvcomm"):
        near = record.outcome(3, method).fidelity
        assert near is not None
        steps = len(BUTTON.findall(play_panel(record, 3, method).html))
        assert steps == (6 if near.first_divergence is None else 7)


def test_the_words_carry_the_numbers_of_the_record(record: RunRecord) -> None:
    transfer = max(record.outcome(3, "naive").transfers, key=lambda t: t.missing_keys.mean())
    html = play_panel(record, 3, "naive").html
    lost = f"{100 * transfer.missing_keys.max():.0f}%"
    assert f"is {lost} of a key" in html
    assert f"keys are off by {lost} now (the bare copy: {lost})" in html


def test_a_chosen_segment_is_the_one_that_is_played(record: RunRecord) -> None:
    prompt = record.prompts[record.outcome(3, "naive").prompt]
    starts = {t.start for t in record.outcome(3, "naive").transfers}
    for span in prompt.spans:
        if span.start in starts:
            assert (
                f"Now it stands at position {span.start} of" in play_panel(record, 3, "naive", span.name).html
            )


def test_without_a_copy_it_says_why() -> None:
    free = make_record(mode="free")
    assert "pinned" in play_panel(free, 3, "naive").html
    bare = make_record()
    bare = replace(bare, outcomes=tuple(replace(o, transfers=()) for o in bare.outcomes))
    assert "run it again" in play_panel(bare, 3, "naive").html
