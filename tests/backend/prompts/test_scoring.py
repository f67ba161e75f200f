"""Answers read off a text under every scoring, by hand (numbers by themselves: see test_pipeline.py)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.prompts.scoring import SCORINGS, Scoring, extract_answer, right


@pytest.mark.parametrize(
    ("text", "number", "words", "selection"),
    [
        ("3 + 4 = 7. The answer is 7", "7", "7", None),
        ("The answer is 1,200. Then 5", "1200", "1,200", None),
        ("Nina lives in Rome [3]. The answer is Rome", "3", "Rome", None),
        ("the ANSWER is:  12 and\t15 .", "12", "12 and 15", None),
        ("The answer is red. No. The answer is blue\nIs it 4?", "4", "blue", None),
        ("Thought 2: I know the answer. Action 2: finish[12] Observation 2: 8", "8", "12", None),
        ("The answer is 3. No. The answer is 5, of 9", "5", "5, of 9", None),
        ("The answer is Dr. Kelly. He lives at 12.", "12", "Dr. Kelly", None),
        ("The answer is 3.5 metres. Done", "3.5", "3.5 metres", None),
        ("The answer is", None, None, None),
        ("The answer is.", None, None, None),
        ("", None, None, None),
        ("The best candidate is 2. The answer is 40", "40", "40", "2"),
        ("The best candidate is 0. The answer is 40", "40", "40", "0"),
        ("The best candidates are 1 and 3. The answer is 5", "5", "5", "1 and 3"),
        ("THE BEST CANDIDATES ARE: 3, 1, and 2!", "2", None, "1 and 2 and 3"),
        ("The best candidates are 10 and 2 and 2", "2", None, "2 and 10"),
        ("The best candidate is 1. No: the best candidate is 4.", "4", None, "4"),
        ("The best candidate is Nina. The answer is 1", "1", "1", None),
        ("The best of them is 3", "3", None, None),
    ],
)
def test_extract_answer(text: str, number: str | None, words: str | None, selection: str | None) -> None:
    wanted = {"number": number, "text": words, "selection": selection, "none": None}
    assert {scoring: extract_answer(text, scoring) for scoring in wanted} == wanted


@pytest.mark.parametrize(
    ("answer", "expected", "scoring", "correct"),
    [
        ("12", "12.0", "number", True),
        ("1200", "$1,200", "number", True),
        ("12", "13", "number", False),
        ("12", "twelve", "number", False),
        ("Rome", " rOME ", "text", True),
        ("12 and 15", "12  and 15", "text", True),
        ("15 and 12", "12 and 15", "text", False),
        ("12.0", "12", "text", False),
        ("1 and 3", "3, 1", "selection", True),
        ("0", "0", "selection", True),
        ("1", "1 and 3", "selection", False),
        ("1 and 3", "1", "selection", False),
        ("13", "1 and 3", "selection", False),
        ("12", "12", "none", False),
    ],
)
def test_right(answer: str, expected: str, scoring: Scoring, correct: bool) -> None:
    assert right(answer, expected, scoring) is correct


@pytest.mark.parametrize("scoring", SCORINGS)
def test_no_answer_is_not_right(scoring: Scoring) -> None:
    assert right(None, "", scoring) is False


@given(st.sets(st.integers(0, 99), min_size=1), st.sampled_from([" and ", ", ", ", and "]), st.randoms())
def test_selections_are_sets(chosen: set[int], joint: str, rng: object) -> None:
    listed = [str(number) for number in chosen]
    rng.shuffle(listed)  # type: ignore[attr-defined]
    found = extract_answer(f"7. The best candidates are {joint.join(listed)}. The answer is 1", "selection")
    assert found == " and ".join(map(str, sorted(chosen)))
    assert right(found, joint.join(listed), "selection")
    assert not right(found, joint.join([*listed, "100"]), "selection")
