"""Segments of every kind of tokenizer are parts of their prompt's text, and its boundaries are counted."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import request, run
from token_kinds import KINDS, SPACED, TEMPLATES, tokenizer

from backend.base.errors import ModelError
from backend.base.serialization import decode, encode
from backend.model.load import LoadedModel
from backend.model.tokenizer import Tokens
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.records.run import RunRecord
from backend.session.session import LabSession
from lab_app.cli.run import print_boundaries

LOSSLESS = tuple(kind for kind in KINDS if kind not in ("t5", "wordpiece"))
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581"), max_size=12)
WORDS = st.text("abc XYZ.", max_size=12)  # of the small vocabularies that know no bytes
QUESTION = "How many coins?"


@cache
def tokens_of(kind: str, template: str | None = None) -> Tokens:
    found = copy.deepcopy(tokenizer(kind))
    found.chat_template = TEMPLATES[template] if template else None
    return Tokens(found)


def one(template: str, **options: Any) -> Pipeline:
    return Pipeline("one", "One", "", (Agent(1, "A", "", template),), **options)


@pytest.mark.parametrize("kind", LOSSLESS)
@given(pieces=st.lists(ANY, max_size=4))
def test_segments_join_to_the_text(kind: str, pieces: list[str]) -> None:
    """No tokenizer's added space stands between them, and none is lost at their ends."""
    tokens = tokens_of(kind)
    ids = [i for piece in pieces for i in tokens.encode(piece)]
    assert tokens.decode(ids) == "".join(pieces)
    assert "".join(tokens.texts(ids)) == "".join(pieces)


@given(pieces=st.lists(WORDS, max_size=4))
def test_segments_of_a_unigram_model_join_but_for_repeated_spaces(pieces: list[str]) -> None:
    tokens = tokens_of("t5")
    pieces = [" ".join(p.split(" ")) if "  " not in p else p.replace("  ", "a") for p in pieces]
    assert tokens.decode([i for piece in pieces for i in tokens.encode(piece)]) == "".join(pieces)


@given(
    words=st.lists(st.text("abcXYZ", min_size=1, max_size=6), min_size=1, max_size=5), at=st.integers(0, 5)
)
def test_segments_of_a_wordpiece_model_are_those_of_the_whole_between_words(
    words: list[str], at: int
) -> None:
    tokens = tokens_of("wordpiece")
    left, right = " ".join(words[:at]) + " ", " ".join(words[at:])
    assert (*tokens.encode(left), *tokens.encode(right)) == tokens.encode(left + right)


@pytest.mark.parametrize("kind", KINDS)
@given(text=WORDS.filter(str.strip))
def test_a_prompt_of_one_piece_is_what_the_tokenizer_makes_of_it(kind: str, text: str) -> None:
    """The tokenizer's own added space stands before the first segment, and there alone."""
    tokens = tokens_of(kind)
    prompt = tokens.prompt(one(f"{text}{{user_question}}"), 1, {"user_question": ()})
    inside = text.strip() if kind == "t5" else text
    wanted = tokenizer(kind)(inside, add_special_tokens=False)["input_ids"]
    if kind == "t5":  # which would lose the white space at the ends
        assert tokens.decode(prompt.ids).strip() == tokenizer(kind).decode(wanted)
    else:
        assert prompt.ids == (*tokens.bos, *wanted)
    assert tokens.boundary_tokens(prompt.ids) == 0


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "t5"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_wrapped_prompt_without_boundary_tax_is_what_the_template_gives(kind: str, template: str) -> None:
    tokens = tokens_of(kind, template)
    prompt = tokens.prompt(one(f"{QUESTION}{{user_question}}"), 1, {"user_question": ()})
    wanted = tokens.tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}], add_generation_prompt=True, enable_thinking=False,
        return_dict=False,
    )  # fmt: skip
    taxed = tokens.boundary_tokens(prompt.ids)
    assert (list(prompt.ids) == wanted) == (taxed == 0)
    assert taxed <= 2 * (template == "inst"), "a space of the template's before the text at most"


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k != "wordpiece"]
)  # whose ids do not tell where spaces were
def test_boundaries_are_counted(kind: str) -> None:
    """A boundary within a word costs its tokens; one between words, before the space, costs nothing."""
    tokens = tokens_of(kind)

    def tax(template: str, value: str) -> int:
        prompt = tokens.prompt(one(template), 1, {"user_question": tokens.encode(value)})
        found = tokens.as_record(prompt).boundary_tokens
        assert found is not None
        return found

    assert tax("Solve the problem step by step.{user_question} The task", " How many?") == 0
    text, taxes = "Check the work of the others!", []
    whole = tokens.prompt(one(f"{text}{{user_question}}"), 1, {"user_question": ()}).ids
    for at in range(1, len(text)):
        left, right = f"{text[:at]}{{user_question}}", text[at:]
        taxes.append(tax(left, right))
        parts = tokens.prompt(one(left), 1, {"user_question": tokens.encode(right)}).ids
        assert (taxes[-1] == 0) == (sorted(parts) == sorted(whole))
    assert max(taxes) > 0


@pytest.mark.parametrize("kind", SPACED)
def test_the_tokenizer_itself_would_put_a_space_there(kind: str) -> None:
    """What the tests above would miss with kinds that add nothing."""
    alone = tokenizer(kind)("coins", add_special_tokens=False)["input_ids"]
    assert tuple(alone) != tokens_of(kind).encode("coins")


def test_a_model_that_can_think_is_asked_not_to() -> None:
    tokens = tokens_of("byte-level", "thinking")
    assert tokens._text(tokens.closing).endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('Only images are allowed') }}", "Only images are allowed"),
        ("{{ messages[0].content[0].text }}", "UndefinedError|appears 0 times"),
        ("hello", "appears 0 times"),
        ("{{ messages[0].content }}{{ messages[0].content }}", "appears 2 times"),
        ("{% if %}", "TemplateSyntaxError"),
    ],
)
def test_a_chat_template_that_cannot_be_used_is_refused(template: str, said: str) -> None:
    broken = copy.deepcopy(tokenizer("byte-level"))
    broken.chat_template = template
    with pytest.raises(ModelError, match=f"chat template cannot be used .*({said})") as refused:
        Tokens(broken)
    assert "role 'user'" in str(refused.value)
    assert refused.value.field == "model.name"


def test_a_record_of_an_earlier_version_tells_no_boundary_tax(tiny_model: LoadedModel) -> None:
    record = run(LabSession(tiny_model), request(["dense"]))
    arrays: dict[str, Any] = {}
    body = encode(record, arrays)
    assert body["prompts"][0]["boundary_tokens"] == record.prompts[0].boundary_tokens is not None
    for prompt in body["prompts"]:
        del prompt["boundary_tokens"]
    assert all(p.boundary_tokens is None for p in decode(RunRecord, body, arrays).prompts)


def test_the_command_line_tells_the_boundary_tax(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"outcomes": [{"prompt_tokens": 150, "boundary_tokens": 3}, {"prompt_tokens": 50}]}]
    print_boundaries(rows)
    assert "Boundary tax: 3 of the prompts’ 150 tokens (2.0%)" in capsys.readouterr().out
    print_boundaries([{"outcomes": [{"prompt_tokens": 50}]}])
    assert not capsys.readouterr().out
