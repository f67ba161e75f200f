"""The presets that ship with the lab, the strictness of their format, and where requests come from."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from backend.answers import same_answer
from backend.embedded import tasks
from backend.errors import PromptError
from backend.presets import PRESET_FOLDER, Example, load_preset, preset_names, preset_requests, read_requests
from backend.prompts import Pipeline, Placeholder, notices
from backend.records import decode, encode

SHIPPED = sorted(path.stem for path in PRESET_FOLDER.glob("*.yaml"))
MATH = [name for name in SHIPPED if name.startswith("math-")]


def problem_of(question: str) -> tasks.Problem:
    """The question's own problem, its answer worked out from the sentences."""
    steps: list[tuple[int, str, int]] = []
    value = None
    for sentence in question.split(". ")[:]:
        numbers = [int(word) for word in sentence.replace(".", "").split() if word.isdigit()]
        if sentence.startswith("How many"):
            continue
        if value is None:
            (value,) = numbers
            continue
        if "twice" in sentence or "three times" in sentence:
            step = (value, "*", 2 if "twice" in sentence else 3)
        else:
            step = (value, "+" if "more" in sentence else "-", numbers[0])
        steps.append(step)
        value = tasks.compute(*step)
    assert value is not None
    return tasks.Problem(question, tuple(steps), value)


# -- what ships


def test_the_expected_presets_ship() -> None:
    assert set(SHIPPED) == {"math-2", "math-3", "math-4", "math-5", "gsm8k-paper", "gsm8k-paper-5"}
    assert list(preset_names()) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_every_preset(name: str) -> None:
    preset = load_preset(name)
    made = preset.pipeline
    assert made.name == name
    assert load_preset(PRESET_FOLDER / f"{name}.yaml") == preset
    assert len(preset.examples) == 3
    for example in preset.examples:
        assert made.check_values(example.values)["user_question"]
        assert same_answer(example.answer, example.answer)
    assert decode(Pipeline, json.loads(json.dumps(encode(made, {}))), {}) == made
    assert 20 < len(made.summary) < 250
    assert made.summary.endswith(".")
    assert "\n" not in made.summary
    assert all(agent.template.endswith("\n") and not agent.template.endswith("\n\n") for agent in made.agents)
    assert made.order == tuple(range(1, len(made.agents) + 1))
    assert len(preset_requests(preset, 5)) == 5


@pytest.mark.parametrize("name", MATH)
def test_math_presets_speak_the_trained_language(name: str) -> None:
    """Filled with a document's own contents, a template has its text and its segment boundaries."""
    made = load_preset(name).pipeline
    count = len(made.agents) - 1
    assert made.judge == made.final == count + 1
    for agent in made.agents:
        task: tasks.TaskName = "solver" if agent.id == 1 else "judge" if agent.id == made.judge else "worker"
        others = {"solver": None, "worker": agent.id - 1, "judge": count}[task]
        document = tasks.make_document(
            random.Random(agent.id), task, held_out=True, others=others, canonical=True
        )
        pieces = [piece.text for piece in document.pieces if not piece.answer]
        contents = {"user_question": pieces[1]}
        contents |= {f"agent_{i}_current": text for i, text in enumerate(pieces[3::2], 1)}
        rendered = [
            contents.pop(part.name) if isinstance(part, Placeholder) else part
            for part in made.template(agent.id).parts
        ]
        assert rendered == pieces
        assert not contents


@pytest.mark.parametrize("name", MATH)
def test_math_presets_scale(name: str) -> None:
    preset = load_preset(name)
    count = int(name[-1])
    assert preset.pipeline.edges == tuple(itertools.combinations(range(1, count + 2), 2))
    assert preset.pipeline.inputs == ("user_question",)
    assert notices(preset.pipeline) == ()
    for example in preset.examples:
        problem = problem_of(example.values["user_question"])
        assert problem.held_out
        assert len(problem.steps) in (2, 3)
        assert example.answer == str(problem.answer)


def test_the_papers_prompts() -> None:
    four, five = load_preset("gsm8k-paper"), load_preset("gsm8k-paper-5")
    assert five.pipeline.agents[:4] == four.pipeline.agents
    assert four.pipeline.judge is None
    assert five.pipeline.judge == 5
    assert [agent.name for agent in five.pipeline.agents] == [
        "Math Solver", "Mathematical Analyst", "Programming Expert", "Inspector", "FinalRefer"
    ]  # fmt: skip
    assert (four.needs_context, four.model, four.request_source) == (8192, "any", "examples")
    assert four.pipeline.required == ("user_question",)
    analyst = five.pipeline.template(2)
    assert "{ori_tree_num} = 15 and {after_planted_tree_num} = 21" in str(analyst.parts[0])
    assert [hole.name for hole in five.pipeline.template(4).placeholders] == [
        "user_question", "agent_1_current", "agent_2_current", "agent_3_current", "condition_3_current",
        "agent_1_history_-1", "agent_2_history_-1", "agent_3_history_-1", "condition_3_history_-1",
    ]  # fmt: skip
    assert "    return x + y\nanswer = fun()\n```\n" in five.pipeline.agent(3).template
    (hint,) = notices(four.pipeline)
    assert hint.startswith("Agent 2: {ori_tree_num}")


# -- finding


@pytest.mark.parametrize("name", ["math-9", "", "../prompts/math-2", "math-2.yaml", "/etc/passwd", "*"])
def test_missing_preset(name: str) -> None:
    with pytest.raises(PromptError) as caught:
        load_preset(name)
    assert all(shipped in str(caught.value) for shipped in SHIPPED)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"none\.yaml cannot be read"):
        load_preset(tmp_path / "none.yaml")
    with pytest.raises(PromptError, match="cannot be read"):
        load_preset(tmp_path)


# -- strictness

GOOD = """\
name: mine
title: Mine
summary: A test.
model: any
needs_context: 100
request_source: examples
agents:
  - id: 1
    name: One
    role: Works.
    template: "{user_question}"
examples:
  - values:
      user_question: How many?
    answer: "3"
"""


def load_text(folder: Path, text: str | bytes) -> Any:
    path = folder / "mine.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_preset(path)


def test_good_file(tmp_path: Path) -> None:
    preset = load_text(tmp_path, "\ufeff" + GOOD.replace("\n", "\r\n"))
    assert preset.examples == (Example({"user_question": "How many?"}, "3"),)
    assert preset.pipeline.agents[0].max_new_tokens == 96


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("title:", "t" * 900 + ":", ["unknown key 'ttt"]),
        ("title:", "titel:", ["unknown key 'titel'", "Allowed keys: name, title"]),
        ("    role:", "    rolle:", ["agent number 1", "unknown key 'rolle'", "id, name, role"]),
        ("    answer:", "    anser:", ["example 1", "unknown key 'anser'", "values, answer"]),
        ("title: Mine\n", "", ["lacks the key 'title'"]),
        ("    role: Works.\n", "", ["agent number 1", "lacks the key 'role'"]),
        ("title: Mine", "title: 3", ["'title' is 3", "must be text"]),
        ("needs_context: 100", 'needs_context: "100"', ["needs_context", "a whole number"]),
        ("needs_context: 100", "needs_context: yes", ["needs_context", "True", "a whole number"]),
        ("needs_context: 100", "needs_context: 0", ["needs_context", "10,000,000"]),
        ("needs_context: 100", "needs_context: 0x" + "f" * 9000, ["very large", "10,000,000"]),
        ("id: 1", "id: true", ["id", "a whole number"]),
        ("id: 1", "id: 1.0", ["id", "a whole number"]),
        ('answer: "3"', "answer: 3", ["answer", "in quotes"]),
        ("title: Mine", "title: Mine\ntitle: Yours", ["line 3", "'title' appears twice"]),
        ("  - id: 1", "  - id: 1\n    id: 2", ["line 9", "'id' appears twice"]),
        ("title: Mine", "title: [Mine", ["line", "not valid YAML"]),
        ("title: Mine", "title: !!python/object/apply:os.system [ls]", ["line 2", "not valid YAML"]),
        ("title: Mine", "<<: {title: Mine}", ["line 2", "merge keys"]),
        ("title: Mine", "title: Mine\x01", ["not valid YAML"]),
        ("title: Mine", "title: 2024-99-99", ["cannot be read"]),
        ("model: any", "model: gpt", ["model", "embedded, any"]),
        ("request_source: examples", "request_source: web", ["request_source", "arithmetic, examples, file"]),
        ("{user_question}", "{agent_2_current}", ["there is no agent 2"]),
        ("user_question: How", "user_questoin: How", ["Example 1", "'user_questoin'"]),
        ("user_question: How many?", "user_question: 3", ["Example 1", "not text"]),
        ("agents:", "declared: [user_question]\nagents:", ["declared", "user_question"]),
        ("agents:", "scoring: maybe\nagents:", ["scoring", "maybe"]),
        ("agents:", "judge: 2\nagents:", ["judge", "agents are 1"]),
    ],
)
def test_strict_format(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in GOOD
    with pytest.raises(PromptError) as caught:
        load_text(tmp_path, GOOD.replace(old, new, 1))
    for word in ["mine.yaml", *words]:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must have the keys"),
        ("- 1\n- 2\n", "must have the keys"),
        ("just words", "must have the keys"),
        ("[" * 5000, "cannot be read"),
        (b"name: \xff\xfe", "not UTF-8"),
        (GOOD + "#" * 2**20, "1 MiB"),
        (GOOD[: GOOD.index("examples:\n")], "Add one"),
        (GOOD.replace("source: examples", "source: arithmetic").replace("{user_q", "{q"), "arithmetic"),
        (GOOD.replace("title: Mine", "title: {a: 1, ? [x, y] : 2}"), "unhashable"),
    ],
)
def test_other_unusable_files(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(PromptError, match=words):
        load_text(tmp_path, text)


def test_aliases_that_multiply_do_no_harm(tmp_path: Path) -> None:
    rows = ["  - &a0 [x, x]"] + [f"  - &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 7)]
    with pytest.raises(PromptError, match="must be text") as caught:
        load_text(tmp_path, "agents:\n" + "\n".join(rows) + "\ntitle: *a6\n")
    assert len(str(caught.value)) < 500


def test_shipped_files_hold_no_trailing_blanks() -> None:
    for path in PRESET_FOLDER.glob("*.yaml"):
        assert not [line for line in path.read_text("utf-8").split("\n") if line != line.rstrip()]
        assert yaml.safe_load(path.read_text("utf-8"))


# -- requests

FIRST = ("Finn has 70 keys. Finn buys 5 more. Finn picks up 18 more. How many keys does Finn have now?", "93")


def test_arithmetic_requests() -> None:
    preset = load_preset("math-2")
    drawn = preset_requests(preset, 40, seed=3)
    assert drawn == preset_requests(load_preset("math-5"), 40, seed=3)
    assert drawn[:7] == preset_requests(preset, 7, seed=3)
    assert drawn != preset_requests(preset, 40, seed=4)
    questions = [request.values["user_question"] for request in drawn]
    assert len(set(questions)) == 40
    problems = [problem_of(question) for question in questions]
    assert all(problem.held_out for problem in problems)
    assert [str(problem.answer) for problem in problems] == [request.answer for request in drawn]
    assert {len(problem.steps) for problem in problems} == {1, 2, 3}


def test_arithmetic_requests_stay_the_same_over_time() -> None:
    first = preset_requests(load_preset("math-2"), 1)[0]
    assert (first.values["user_question"], first.answer) == FIRST


def test_examples_cycle() -> None:
    preset = load_preset("gsm8k-paper")
    assert preset_requests(preset, 4, seed=9) == [*preset.examples, preset.examples[0]]


@pytest.mark.parametrize("count", [0, -1, 10_001, True, 2.0])
def test_refused_counts(count: Any) -> None:
    with pytest.raises(PromptError) as caught:
        preset_requests(load_preset("math-2"), count)
    assert caught.value.field == "count"


def test_requests_from_a_file_need_the_file(tmp_path: Path) -> None:
    preset = load_text(tmp_path, GOOD.replace("source: examples", "source: file"))
    with pytest.raises(PromptError, match="file"):
        preset_requests(preset, 1)


def test_read_requests(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    lines = [
        '{"question": "How many?", "answer": "2 + 2 = <<2+2=4>>4 #### no\\n#### 1,234"}',
        "",
        '{"user_question": "\u0645\u0631\u062d\u0628\u0627 \U0001f600 \u2028 <|eot_id|>", "id": 7}',
        '{"question": "q", "answer": 5}\r',
        '{"question": "q", "answer": null}',
    ]
    path.write_bytes("\n".join(lines).encode())
    assert read_requests(path) == [
        Example({"user_question": "How many?"}, "1234"),
        Example({"user_question": "\u0645\u0631\u062d\u0628\u0627 \U0001f600 \u2028 <|eot_id|>"}),
        Example({"user_question": "q"}, "5"),
        Example({"user_question": "q"}),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("9" * 5000, "not valid JSON"),
        ("[1]", "not an object"),
        ("{}", "question is missing"),
        ('{"question": "a", "user_question": "b"}', "both"),
        ('{"question": "  "}', "empty"),
        ('{"question": 3}', "not text"),
        ('{"question": "a\\u0000"}', "NUL"),
        ('{"question": "a\\ud800"}', "surrogate"),
        ('{"question": "a", "answer": ["b"]}', "not text"),
        ('{"question": "a", "answer": true}', "not text"),
    ],
)
def test_malformed_lines(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"question": "fine"}\n\n' + line + "\n")
    with pytest.raises(PromptError, match=words) as caught:
        read_requests(path)
    assert str(caught.value).startswith("some.jsonl, line 3:")
    assert len(str(caught.value)) < 400


def test_empty_request_file(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text("\n\n")
    with pytest.raises(PromptError, match="no request"):
        read_requests(path)
    with pytest.raises(PromptError, match="cannot be read"):
        read_requests(tmp_path / "none.jsonl")
