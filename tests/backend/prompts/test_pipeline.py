"""Templates and pipelines: what is a placeholder, what is text, and what is refused."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.base.errors import PromptError
from backend.base.serialization import as_json, from_json
from backend.base.text import MAX_TEXT
from backend.prompts.agent import Agent
from backend.prompts.notices import notices
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import load_preset
from backend.prompts.scoring import extract_number, same_answer
from backend.prompts.template import Placeholder, PromptTemplate

NAMES = (
    "user_question",
    "agent_2_current",
    "condition_3_current",
    "agent_1_history_-1",
    "condition_1_history_-1",
    "context",
)


def pipeline(*templates: str, **options: Any) -> Pipeline:
    """Agents 1, 2, ... with these templates."""
    agents = tuple(Agent(i, f"A{i}", "tests", text) for i, text in enumerate(templates, 1))
    return Pipeline("test", "Test", "A test.", agents, **options)


def rebuilt(template: PromptTemplate) -> str:
    return "".join(p if isinstance(p, str) else "{" + p.name + "}" for p in template.parts)


# -- templates


@pytest.mark.parametrize(
    ("name", "kind", "agent", "turn"),
    [
        ("user_question", "question", None, 0),
        ("agent_2_current", "agent", 2, 0),
        ("agent_12_history_-3", "history", 12, -3),
        ("condition_3_current", "tool", 3, 0),
        ("condition_1_history_-1", "history", 1, -1),
        ("context", "declared", None, 0),
        ("agent_01_current", "declared", None, 0),
    ],
)
def test_placeholder_facts(name: str, kind: str, agent: int | None, turn: int) -> None:
    hole = Placeholder(name)
    assert (hole.kind, hole.agent, hole.turn) == (kind, agent, turn)


def test_parts_in_order() -> None:
    template = PromptTemplate.parse("Q: {user_question}{agent_2_current}\n{context}", {"context"})
    assert template.parts == (
        "Q: ",
        Placeholder("user_question"),
        Placeholder("agent_2_current"),
        "\n",
        Placeholder("context"),
    )
    assert [hole.name for hole in template.placeholders] == ["user_question", "agent_2_current", "context"]


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1))
@pytest.mark.slow
def test_any_text_survives(text: str) -> None:
    if text.strip():
        template = PromptTemplate.parse(text)
        assert rebuilt(template) == text == template.text
        assert "" not in template.parts


noise = st.text(alphabet="{}{}ab _-1\n\U0001f600", max_size=8)


@given(st.permutations(NAMES), st.lists(noise, min_size=7, max_size=7), st.integers(1, 6))
def test_names_in_brace_noise(names: list[str], gaps: list[str], count: int) -> None:
    text = gaps[0] + "".join("{" + n + "}" + gap for n, gap in zip(names[:count], gaps[1:], strict=False))
    template = PromptTemplate.parse(text, ("context",))
    assert rebuilt(template) == text
    assert [hole.name for hole in template.placeholders] == list(names[:count])
    for left, right in zip(template.parts, template.parts[1:], strict=False):
        assert not (isinstance(left, str) and isinstance(right, str))


@pytest.mark.parametrize(
    "text",
    [
        "{ori_tree_num} = 15",
        "{}",
        "{ user_question }",
        "{User_question}",
        "{agent_0_current}",
        "{agent_1_history_0}",
        "{agent_1_history_1}",
        "{agent_1_history_-0}",
        "{agent_\u0661_current}",
        "{agent_1_current_}",
        "{context}",
        "{user_question",
        "<|eot_id|><s></s>[INST]",
        "\u05e9\u05dc\u05d5\u05dd \u202e\u0645\u0631\u062d\u0628\u0627 {",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 {\U0001f600}",
        "a\r\n\u2028b\ufeff",
        "%s {0} {x!r:>10} $x",
    ],
)
def test_plain_text(text: str) -> None:
    assert PromptTemplate.parse(text).parts == (text,)


@pytest.mark.parametrize("text", ["", " \n\t ", "a\x00b", "a\ud800b", "x" * (MAX_TEXT + 1), 3])
def test_unusable_text(text: Any) -> None:
    with pytest.raises(PromptError) as caught:
        PromptTemplate.parse(text, field="here")
    assert caught.value.field == "here"
    str(caught.value).encode()
    assert len(str(caught.value)) < 300


def test_longest_text() -> None:
    assert PromptTemplate.parse("x" * MAX_TEXT).parts == ("x" * MAX_TEXT,)


@given(st.sampled_from(NAMES), noise)
def test_a_name_twice(name: str, between: str) -> None:
    with pytest.raises(PromptError, match="twice") as caught:
        PromptTemplate.parse("{" + name + "}" + between + "{" + name + "}", ("context",), "f")
    assert "{" + name + "}" in str(caught.value)
    assert caught.value.field == "f"


# -- pipelines


def test_a_pipeline_reads_from_outside_and_inside() -> None:
    made = pipeline(
        "{agent_2_history_-1} {user_question}",
        "{condition_3_current}{agent_1_current}{passage}",
        "{agent_2_current}{agent_1_current}",
        declared=("passage",),
    )
    assert made.order == (1, 2, 3)
    assert made.edges == ((1, 2), (1, 3), (2, 3))
    assert made.final == 3
    assert made.required == ("user_question", "passage")
    assert made.inputs == ("user_question", "passage", "agent_2_history_-1", "condition_3_current")
    assert set(made.stand_ins) == {hole.name for hole in made.placeholders}
    assert all(text.strip() for text in made.stand_ins.values())
    assert made.agent(2).name == "A2"
    assert made.template(3) == made.agent(3).parsed()
    with pytest.raises(KeyError):
        made.agent(9)


def test_order_is_by_need_then_by_id() -> None:
    assert pipeline("{agent_3_current}", "x", "y", "{agent_1_current}").order == (2, 3, 1, 4)
    assert pipeline("a", "b", "c").order == (1, 2, 3)
    agents = (Agent(7, "S", "", "{agent_2_current}"), Agent(5, "T", "", "x"), Agent(2, "U", "", "x"))
    assert Pipeline("n", "t", "", agents).order == (2, 5, 7)


@given(st.data())
def test_order_of_any_acyclic_pipeline(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    ranks = data.draw(st.permutations(range(1, count + 1)))
    templates = ["x"] * count
    for index, id in enumerate(ranks):
        read = data.draw(st.lists(st.sampled_from(ranks[:index]), unique=True)) if index else []
        templates[id - 1] = "x" + "".join(f"{{agent_{r}_current}}" for r in read)
    made = pipeline(*templates)
    assert sorted(made.order) == sorted(ranks)
    for producer, reader in made.edges:
        assert made.order.index(producer) < made.order.index(reader)
    assert made.final == made.order[-1]


@pytest.mark.parametrize(
    ("templates", "circle"),
    [
        (("{agent_2_current}", "{agent_1_current}"), "1 -> 2 -> 1"),
        (("{agent_3_current}", "{agent_1_current}", "{agent_2_current}"), "1 -> 2 -> 3 -> 1"),
        (("{agent_2_current}", "{agent_3_current}", "{agent_2_current}"), "2 -> 3 -> 2"),
        (("{agent_2_current}", "{agent_3_current}", "{agent_1_current}", "x"), "1 -> 3 -> 2 -> 1"),
    ],
)
def test_circles_are_named(templates: tuple[str, ...], circle: str) -> None:
    with pytest.raises(PromptError) as caught:
        pipeline(*templates)
    assert f": {circle} (" in str(caught.value)
    assert caught.value.field == f"agents.{circle[0]}.template"


def test_history_makes_no_circle() -> None:
    made = pipeline("{agent_2_history_-1}{agent_1_history_-1}", "{agent_1_current}{condition_2_current}")
    assert made.order == (1, 2)
    assert made.edges == ((1, 2),)


@pytest.mark.parametrize("name", ["agent_9_current", "condition_9_current", "agent_9_history_-1"])
def test_unknown_agent(name: str) -> None:
    with pytest.raises(PromptError) as caught:
        pipeline("x", "y", "{" + name + "}")
    assert str(caught.value).startswith(
        f"Agent 3's template reads {{{name}}}, but there is no agent 9; the agents are 1, 2, 3. "
    )
    assert caught.value.field == "agents.3.template"


def test_own_output() -> None:
    with pytest.raises(PromptError, match="its own output"):
        pipeline("x", "{agent_2_current}")


@pytest.mark.parametrize(
    ("templates", "options", "field"),
    [
        ((), {}, "agents"),
        (("x",) * 13, {}, "agents"),
        (("x", ""), {}, "agents.2.template"),
        (("{user_question}{user_question}",), {}, "agents.1.template"),
        (("x",), {"judge": 2}, "judge"),
        (("x",), {"scoring": "magic"}, "scoring"),
        (("x",), {"declared": ("context",)}, "declared"),
        (("{a}",), {"declared": ("a", "a")}, "declared"),
        (("{A}",), {"declared": ("A",)}, "declared"),
        (("{a-b}",), {"declared": ("a-b",)}, "declared"),
        (("{user_question}",), {"declared": ("user_question",)}, "declared"),
        (("{agent_1_current}", "x"), {"declared": ("agent_1_current",)}, "declared"),
        (("{agent_01_current}",), {"declared": ("agent_01_current",)}, "declared"),
        (("x",), {"declared": ("a" * 42,)}, "declared"),
        (("x",), {"declared": (3,)}, "declared"),
    ],
)
def test_refused_pipelines(templates: tuple[str, ...], options: dict[str, Any], field: str) -> None:
    with pytest.raises(PromptError) as caught:
        pipeline(*templates, **options)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("agent", "field"),
    [
        (Agent(0, "A", "", "x"), "agents"),
        (Agent(True, "A", "", "x"), "agents"),
        (Agent(1, " ", "", "x"), "agents.1.name"),
        (Agent(1, "A\x00", "", "x"), "agents.1.name"),
        (Agent(1, "A", "\ud800", "x"), "agents.1.role"),
        (Agent(1, "A", "", "x", 0), "agents.1.max_new_tokens"),
        (Agent(1, "A", "", "x", 10**9), "agents.1.max_new_tokens"),
        (Agent(1, "A", "", 5), "agents.1.template"),  # type: ignore[arg-type]
    ],
)
def test_refused_agents(agent: Agent, field: str) -> None:
    with pytest.raises(PromptError) as caught:
        Pipeline("n", "t", "", (agent,))
    assert caught.value.field == field


def test_equal_ids() -> None:
    with pytest.raises(PromptError, match="id 4"):
        Pipeline("n", "t", "", (Agent(4, "A", "", "x"), Agent(4, "B", "", "y")))


def test_survives_copies_and_the_codec() -> None:
    made = pipeline(
        "{user_question} \u202e\U0001f600 <|eot_id|>",
        "{agent_1_current}{passage}",
        declared=("passage",),
        judge=2,
    )
    assert made.order == (1, 2)  # caches are filled before copying
    text = json.dumps(as_json(made))
    back = from_json(Pipeline, json.loads(text))
    assert back == made == copy.deepcopy(made) == pickle.loads(pickle.dumps(made))
    assert back.inputs == made.inputs
    assert hash(back) == hash(made)
    assert set(json.loads(text)) == {
        "name", "title", "summary", "agents", "declared", "scoring", "judge", "chat", "turns",
    }  # fmt: skip


def test_the_codec_cannot_smuggle_in_a_bad_pipeline() -> None:
    body = as_json(pipeline("x"))
    body["agents"][0]["template"] = "{agent_1_current}"
    with pytest.raises(PromptError):
        from_json(Pipeline, body)


# -- values


def test_values_are_filled_and_ordered() -> None:
    made = pipeline("{condition_1_current}{user_question}{agent_1_history_-1}")
    filled = made.check_values({"agent_1_history_-1": "then", "user_question": "<s> {user_question} {x}"})
    assert list(filled.items()) == [
        ("user_question", "<s> {user_question} {x}"),
        ("condition_1_current", ""),
        ("agent_1_history_-1", "then"),
    ]


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({}, "values.user_question", "question is empty"),
        ({"user_question": " \n", "passage": "p"}, "values.user_question", "question is empty"),
        ({"user_question": "q"}, "values.passage", "{passage} is empty"),
        ({"user_question": "q", "passage": ""}, "values.passage", "{passage} is empty"),
        ({"user_question": "q", "passage": "a\x00"}, "values.passage", "NUL"),
        ({"user_question": "\udfff", "passage": "a"}, "values.user_question", "surrogate"),
        ({"user_question": "q" * (MAX_TEXT + 1), "passage": "a"}, "values.user_question", "200,000"),
        ({"user_question": None, "passage": "a"}, "values.user_question", "not text"),
        ({"user_question": "q", "passage": "p", "colour": "red"}, "values.colour", "no template asks"),
        (
            {"user_question": "q", "passage": "p", "agent_1_current": "red"},
            "values.agent_1_current",
            "the run itself fills it",
        ),
        ({"user_question": "q", "passage": "p", "x\ud800": "red"}, "values", "user_question, passage"),
    ],
)
def test_refused_values(values: dict[str, Any], field: str, words: str) -> None:
    made = pipeline("{user_question}{passage}", "{agent_1_current}", declared=("passage",))
    with pytest.raises(PromptError) as caught:
        made.check_values(values)
    assert caught.value.field == field
    assert words in str(caught.value)
    str(caught.value).encode()


# -- notices


def test_notices() -> None:
    assert notices(pipeline("{user_question}", "{agent_1_current}")) == ()
    (hint,) = notices(pipeline("{user_name} {user_question} {a+b} {1}"))
    assert "{user_name}" in hint
    assert "plain text" in hint
    assert "declare" in hint
    assert "a+b" not in hint
    assert "{1}" not in hint
    (hint,) = notices(pipeline("{a}{b}{c}{d}{e}{f}{a}"))
    assert "{a}, {b}, {c}, {d} and 2 more" in hint


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("User_Question", "user_question"),
        (" user_question ", "user_question"),
        ("agent_1_history_1", "agent_1_history_-1"),
        ("agent_1_curent", "agent_1_current"),
        ("user_questions", "user_question"),
    ],
)
def test_notices_guess_what_was_meant(written: str, meant: str) -> None:
    (hint,) = notices(pipeline("x", "{" + written + "}"))
    assert f"Did you mean {{{meant}}}?" in hint


def test_notices_of_a_long_text_are_quick_and_short() -> None:
    hints = notices(pipeline("".join(f"{{name_{i}}}" for i in range(15_000))))
    assert len(hints) <= 31
    assert sum(map(len, hints)) < 5000


# -- answers


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("46 - 6 = 40. 40 + 23 = 63. The answer is 63", "63"),
        ("The answer is 3. No, wait. The answer is 4.", "4"),
        ("the answer is: $1,234.50 in total, of 9", "1234.50"),
        ("The answer is $18.00.", "18"),
        ("The answer is **18**.", "18"),
        ("The answer is -7", "-7"),
        ("The answer is \u22127", "-7"),
        ("The answer is -$7", "-7"),
        ("The answer is $-7", "-7"),
        ("x = 12-5", "5"),
        ("It is .5", "0.5"),
        ("12,345,678 apples", "12345678"),
        ("either 3,4", "4"),
        ("1.", "1"),
        ("0.0", "0"),
        ("5 or 6. The answer is {x} = {y}.", "6"),
        ("The answer is unknown", None),
        ("", None),
        ("The answer is 7\nand 8 is not", "7"),
        ("\u0665 \U0001f600", None),
        ("#### 1,000", "1000"),
        ("21 - 15 = 6", "6"),
        ("5 km/h, v2", "2"),
        ("007", "007"),
    ],
)
def test_extract_number(text: str, number: str | None) -> None:
    assert extract_number(text) == number


@given(
    st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{}.", "{:,}", "{:,}.00", "{}.0 apples", "${:,}"])
)
def test_extract_number_undoes_formatting(value: int, shape: str) -> None:
    assert extract_number("Some 12 words. The answer is " + shape.format(value)) == str(value)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("1,000", "1000.0", True),
        ("0.3333333", "0.3333334", True),
        ("0.333", "0.334", False),
        ("7", "-7", False),
        ("18 apples", "18", True),
        (None, "3", False),
        ("3", None, False),
        (None, None, False),
        ("none", "none", False),
        ("007", "7", True),
        ("9" * 500, "9" * 500, True),
        ("9007199254740993", "9007199254740992", False),
    ],
)
def test_same_answer(a: str | None, b: str | None, same: bool) -> None:
    assert same_answer(a, b) is same
    assert same_answer(b, a) is same


def test_importing_prompts_leaves_torch_unloaded() -> None:
    code = "import sys, backend.prompts.pipeline; exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("preset", "scored"), [("message-units", {3}), ("math-3", {1, 2, 3, 4}), ("documents-5", {1})]
)
def test_agents_with_a_right_answer_of_their_own_are_not_scored(preset: str, scored: set[int]) -> None:
    assert load_preset(preset).pipeline.scored == scored
