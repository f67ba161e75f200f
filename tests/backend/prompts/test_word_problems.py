"""Plain and whole word problems: their steps fit their texts, and what is kept back is another problem."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from backend.prompts.tasks.plain_stories import draw_plain
from backend.prompts.tasks.story_teller import LARGEST, Story, compute
from backend.prompts.tasks.whole_problems import BETWEEN, draw_whole, problems
from backend.prompts.tasks.words import Draw


@pytest.mark.parametrize("draw", [draw_plain, draw_whole])
def test_steps_use_the_texts_numbers_and_lead_to_the_answer(draw: Callable[..., tuple]) -> None:
    rng = random.Random(0)
    for _ in range(400):
        story = Story(lowest=rng.choice((1, 100)), highest=rng.choice((99, 999, LARGEST)))
        text, steps, answer = draw(Draw(rng, unseen=rng.random() < 0.3), story, rng.randint(1, 4))
        assert not re.search(r"[{}<>|]|MORE|LESS|SOMEONE", text), text
        results = [compute(*step) for step in steps]
        assert results[-1] == answer, text
        assert all(0 <= value <= LARGEST for value in results), text
        if draw is draw_plain:  # a whole problem may say *twice*, or *a week*
            shown = set(map(int, re.findall(r"\d+", text)))
            assert {right for _, _, right in steps} <= shown, text


def test_what_is_kept_back_is_another_problem() -> None:
    trained, kept = problems(False, 9), problems(True, 9)
    assert len(trained) > 5 * len(kept) > 500
    assert not {x.text for x in trained} & {x.text for x in kept}
    assert {len(x.steps) for x in problems(False, 1)} == {1}


def test_asides_stand_between_sentences_and_not_behind_a_title() -> None:
    text = "Dr. Bennett and Mrs. Smith had 3 keys. Oh no! One broke. How many are left?"
    assert BETWEEN.split(text) == [
        "Dr. Bennett and Mrs. Smith had 3 keys.", "Oh no!", "One broke.", "How many are left?",
    ]  # fmt: skip
    rng = random.Random(1)
    always = Story(filler=9.0, amounts=9.0)
    for _ in range(200):
        text, *_ = draw_whole(Draw(rng), always, 2)
        assert not re.search(r"\b(Dr|Mrs?|Ms)\. (It|The|There|Everybody|Nobody)\b", text), text
