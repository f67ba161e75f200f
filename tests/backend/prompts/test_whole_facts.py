"""Facts written whole: every line can be read, and no other fact of a document answers its question."""

import random

import pytest

from backend.prompts.tasks import Style, make_document
from backend.prompts.tasks.whole_facts import SLOT, Template, draw_whole_story, templates
from backend.prompts.tasks.words import Draw

KNOWN = set("NMOPQTUabdyhwce")
EVERY = [*templates(1), *templates(2)]


def test_every_line_holds_what_its_question_needs() -> None:
    assert len(EVERY) > 300
    for line in EVERY:
        said = [set(SLOT.findall(text)) for text in line.sentences]
        assert set().union(*said) <= KNOWN | set(line.pools), line
        assert line.answer in said[-1], line
        for question in line.questions:
            asked = set(SLOT.findall(question))
            assert asked & said[0], (line, question)
            assert asked <= set().union(*said) - {line.answer}, (line, question)
            assert len(said) == 1 or said[0] & said[1] - asked, (line, question)


@pytest.mark.parametrize("hops", [1, 2])
def test_no_other_fact_answers(hops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one template with every fact beside drawn from it: none holds all that the question goes by."""
    line = Template(
        "music", ("{N} plays the {x} in {P}", "the {x} of {P} costs {a}")[:hops],
        ("What does {N} play in {P}?",) if hops == 1 else ("What costs what {N} plays?",),
        "x" if hops == 1 else "a", {"x": ("violin", "drums", "flute", "harp", "cello", "piano")},
    )  # fmt: skip
    monkeypatch.setattr("backend.prompts.tasks.whole_facts.templates", lambda hops: (line,))
    monkeypatch.setattr("backend.prompts.tasks.whole_facts.SAME_TEMPLATE", 1.0)
    for seed in range(200):
        story = draw_whole_story(Draw(random.Random(seed)), hops, 8)
        needed = [sentence.text for sentence in story.needed]
        assert story.answer in needed[-1]
        name, _, place = needed[0].rpartition(" in ")
        name = name.partition(" plays")[0]
        for other in story.others:
            if hops == 1:
                assert not (other.text.startswith(f"{name} plays") and other.text.endswith(f" in {place}"))
            else:
                assert not other.text.startswith(f"{name} plays")
                assert other.text.partition(" costs")[0] != needed[1].partition(" costs")[0]


@pytest.mark.slow
def test_training_sees_them_and_held_out_documents_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bool] = []

    def counted(d: Draw, hops: int, count: int) -> object:
        drawn.append(d.unseen)
        return draw_whole_story(d, hops, count)

    monkeypatch.setattr("backend.prompts.tasks.documents.draw_whole_story", counted)
    rng = random.Random(0)
    for _ in range(40):
        make_document(rng, "documents", held_out=True, style=Style("unseen"))
    assert not drawn
    for _ in range(40):
        make_document(rng, "documents", held_out=False, style=Style("any"))
    assert len(drawn) > 5
    assert not any(drawn)
