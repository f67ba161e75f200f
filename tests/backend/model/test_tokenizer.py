"""Token boundaries: segments partition a prompt exactly, and nothing a person types is a control token."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
from hypothesis import example, given
from hypothesis import strategies as st
from tiny import request, run

from backend.model.load import LoadedModel
from backend.model.tokenizer import Tokens
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.records.prompt import Span
from backend.session.session import LabSession

CONTROL = ("<s>", "</s>", "<a>", "<pad>", "<|eot_id|>")
ODD = (
    "",
    " ",
    "\n",
    "  two  spaces  ",
    "12345 and 6",
    "{braces} {user_question} {{x}}",
    "caf\u00e9 cafe\u0301",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u202eabc\u202c",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "\ufffd",
    "x\ufffd",
    "\ufffd\ufffd\ufffdy",
    *CONTROL,
    "a<s>b</s>c<a>d<pad>e<|eot_id|>f",
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens(tiny.tokenizer())


def one(template: str, **options: Any) -> Pipeline:
    return Pipeline("one", "One", "", (Agent(1, "A", "", template),), **options)


@given(text=TEXT)
@example(ODD[-1])
def test_text_survives_encoding(tokens: Tokens, text: str) -> None:
    assert tokens.decode(tokens.encode(text)) == text


@pytest.mark.parametrize("text", ODD)
def test_odd_text_survives_encoding(tokens: Tokens, text: str) -> None:
    ids = tokens.encode(text)
    assert tokens.decode(ids) == text
    assert "".join(tokens.texts(ids)) == text
    assert len(tokens.texts(ids)) == len(ids)


@given(text=TEXT)
@example("\ufffd")
@example("\ufffd\U0001f600")
@example("a\ufffdb\ufffd")
def test_the_texts_of_tokens_join_to_the_text(tokens: Tokens, text: str) -> None:
    assert "".join(tokens.texts(tokens.encode(text))) == text


@given(ids=st.lists(st.integers(4, 359), max_size=12))
def test_the_texts_of_any_tokens_join_to_what_they_decode_to(tokens: Tokens, ids: list[int]) -> None:
    """Also of tokens that a model made up and that end within a character."""
    shown = "".join(tokens.texts(ids))
    # A broken character is one or several replacement characters, depending on where one looks.
    squeezed = [x.replace("\ufffd", "") for x in (shown, tokens.decode(ids))]
    assert squeezed[0] == squeezed[1]
    assert ("\ufffd" in shown) == ("\ufffd" in tokens.decode(ids))


@pytest.mark.parametrize("control", CONTROL)
def test_control_tokens_stay_text(tokens: Tokens, control: str) -> None:
    special = set(tokens.tokenizer.all_special_ids) | {tokens.tokenizer.convert_tokens_to_ids("<a>")}
    prompt = tokens.prompt(
        one(f"Say {control} now: {{user_question}}!"), 1, {"user_question": tokens.encode(control)}
    )
    assert not special & set(tokens.encode(f"x{control}y"))
    opening, closing = len(tokens.opening), len(tokens.closing)
    assert not special & set(prompt.ids[opening : len(prompt.ids) - closing])
    assert control in tokens.decode(tokens.encode(control))


def test_control_tokens_of_other_models_stay_text() -> None:
    """A tokenizer that does know <|eot_id|>: the name reaches the model letter by letter."""
    import copy

    tokenizer = copy.deepcopy(tiny.tokenizer())
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|eot_id|>"]})
    mine = Tokens(tokenizer)
    number = tokenizer.convert_tokens_to_ids("<|eot_id|>")
    assert tokenizer.encode("a<|eot_id|>", add_special_tokens=False)[-1] == number
    assert number not in mine.encode("a<|eot_id|>")
    assert mine.decode(mine.encode("a<|eot_id|>")) == "a<|eot_id|>"
    assert mine.decode([*mine.encode("a"), number]) == "a", "a control token that a model wrote is no text"


@given(before=TEXT, question=TEXT, between=TEXT, other=TEXT, after=TEXT)
def test_spans_partition_the_prompt(
    tokens: Tokens, before: str, question: str, between: str, other: str, after: str
) -> None:
    texts = [t.replace("{", "(").replace("\x00", "") for t in (before, between, after)]
    template = f"{texts[0]}{{user_question}}{texts[1]}{{other}}{texts[2]}"
    values = {"user_question": tokens.encode(question), "other": tokens.encode(other)}
    prompt = tokens.prompt(one(template, declared=("other",)), 1, values)
    assert [s.start for s in prompt.spans] == [0, *(s.end for s in prompt.spans[:-1])]
    assert prompt.spans[-1].end == len(prompt.ids)
    assert all(s.end > s.start for s in prompt.spans if s.kind == "prefix")
    places = {s.name: s for s in prompt.spans}
    for name, ids in values.items():
        assert prompt.span_ids(places[name]) == ids
    assert tokens.decode(prompt.ids) == f"{texts[0]}{question}{texts[1]}{other}{texts[2]}"
    # Every segment is tokenised by itself: the whole is the pieces, none merged over a boundary.
    pieces = [tokens.encode(texts[0]), values["user_question"], tokens.encode(texts[1]), values["other"],
              tokens.encode(texts[2])]  # fmt: skip
    assert prompt.ids == (*tokens.opening, *(i for piece in pieces for i in piece), *tokens.closing)
    record = tokens.as_record(prompt)
    assert len(record.texts) == len(record.token_ids) == len(prompt.ids)


def test_names_of_segments(tokens: Tokens) -> None:
    prompt = tokens.prompt(
        one("{user_question}{other} end", declared=("other",)), 1, {"user_question": (9,), "other": ()}
    )
    assert prompt.spans == (
        Span("prefix", "prefix 0", 0, 1),  # the begin-of-sequence token
        Span("placeholder", "user_question", 1, 2),
        Span("placeholder", "other", 2, 2),
        Span("prefix", "prefix 2", 2, len(prompt.ids)),
    )
    assert prompt.ids[0] == tokens.tokenizer.bos_token_id
    assert prompt.ids[-1] == tokens.tokenizer.convert_tokens_to_ids("<a>")


def test_a_segment_has_the_same_ids_wherever_it_stands(tokens: Tokens) -> None:
    value = tokens.encode(" 42 coins and a tail ")
    found = set()
    for template in (
        "{user_question}",
        "x{user_question}",
        "much longer before {user_question} and 7",
        "9{user_question}9",
    ):
        prompt = tokens.prompt(one(template), 1, {"user_question": value})
        [place] = [s for s in prompt.spans if s.kind == "placeholder"]
        found.add(prompt.span_ids(place))
    assert found == {value}


def test_the_chat_template_can_be_left_out(tokens: Tokens) -> None:
    value = {"user_question": tokens.encode("hello")}
    wrapped, bare = (
        tokens.prompt(one("Q: {user_question}", chat=chat), 1, value).ids for chat in (True, False)
    )
    assert wrapped == (*bare, tokens.tokenizer.convert_tokens_to_ids("<a>"))
    assert bare[0] == tokens.tokenizer.bos_token_id


def test_a_tokenizer_without_chat_template_or_begin_token() -> None:
    import copy

    tokenizer = copy.deepcopy(tiny.tokenizer())
    tokenizer.chat_template = None
    assert (Tokens(tokenizer).opening, Tokens(tokenizer).closing) == ((tokenizer.bos_token_id,), ())
    tokenizer.bos_token = None
    mine = Tokens(tokenizer)
    assert (mine.opening, mine.closing) == ((), ())
    prompt = mine.prompt(one("{user_question}"), 1, {"user_question": mine.encode("hi")})
    assert prompt.ids == mine.encode("hi")
    assert [s.name for s in prompt.spans] == ["user_question"]


@pytest.mark.parametrize("mode", ["pinned", "free"])
def test_an_answers_ids_enter_its_readers_prompts_unchanged(tiny_model: LoadedModel, mode: Any) -> None:
    """Also when decoding and encoding again would give other ids, as a random model's answers do."""
    record = run(LabSession(tiny_model), request(["dense", "naive"], mode=mode))
    changed = 0
    for label in record.labels:
        source = label if mode == "free" else "dense"
        for reader in (2, 3):
            outcome = record.outcome(reader, label)
            prompt = record.prompts[outcome.prompt]
            for span in prompt.spans:
                if span.name.startswith("agent_"):
                    written = record.outcome(int(span.name.split("_")[1]), source).token_ids.tolist()
                    assert prompt.token_ids[span.start : span.end].tolist() == written
                    changed += tuple(written) != tiny_model.tokens.encode(tiny_model.tokens.decode(written))
    assert changed, "the test needs an answer that encodes differently"
