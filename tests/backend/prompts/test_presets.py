"""The presets that ship with the lab, the strictness of their format, and where requests come from."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from task_truths import solved, trained_document, truth

from backend.base.errors import PromptError
from backend.base.serialization import as_json, from_json
from backend.prompts.notices import notices
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import (
    PRESET_FOLDER,
    Example,
    TaskSource,
    load_preset,
    preset_names,
    preset_requests,
    read_requests,
)
from backend.prompts.scoring import same_answer
from backend.prompts.tasks import Document, Piece
from backend.prompts.template import Placeholder
from backend.training.edits import typed_questions

SHIPPED = sorted(path.stem for path in PRESET_FOLDER.glob("*.yaml"))
MATH = [name for name in SHIPPED if name.startswith("math-") and name != "math-turns"]  # see test_turns.py
PAPER = ["gsm8k-paper", "gsm8k-paper-5"]
#: See test_paper_prompts.py, test_turns.py, test_sweep_data.py and test_archive.py.
CHAT = ["chat-documents", "chat-judge", "chat-tools"]  # see test_own_model.py
OTHER = [*CHAT, "archive", "humaneval-paper", "mmlu-paper", "math-turns", "summaries"]
GENERATED = sorted({*SHIPPED} - {*PAPER, *OTHER, "react-tools"})


def held_out(*texts: str) -> bool:
    return hashlib.sha256("".join(texts).encode()).digest()[0] % 32 == 0


# -- what ships


def test_the_expected_presets_ship() -> None:
    kinds = {
        "math": "2 3 4 5",
        "judge": "right all corrects differs closest majority variants",
        "documents": "one-hop 5 10",
        "react": "difference two-items tools",
        "program": "straight branch loop",
        "message": "codebook units who",
    }
    made = {f"{family}-{kind}" for family, listed in kinds.items() for kind in listed.split()}
    assert set(SHIPPED) == made | {*PAPER, *OTHER}
    assert list(preset_names()) == SHIPPED


@pytest.mark.parametrize("name", sorted({*SHIPPED} - {*OTHER}))
def test_every_preset(name: str) -> None:
    preset = load_preset(name)
    made = preset.pipeline
    assert made.name == name
    assert load_preset(PRESET_FOLDER / f"{name}.yaml") == preset
    written = name not in GENERATED
    assert len(preset.examples) == (7 if name == "react-tools" else 3 if name in MATH + PAPER else 0)
    assert preset.request_source == ("examples" if written else "generated")
    assert (preset.task is None) == written
    for example in preset.examples:
        assert made.check_values(example.values)["user_question"]
        assert same_answer(example.answer, example.answer)
    assert from_json(Pipeline, json.loads(json.dumps(as_json(made)))) == made
    assert 20 < len(made.summary) < 250
    assert made.summary.endswith(".")
    assert "\n" not in made.summary
    assert all(agent.template.endswith("\n") and not agent.template.endswith("\n\n") for agent in made.agents)
    assert made.order == tuple(range(1, len(made.agents) + 1))
    requests = preset_requests(preset, 5)
    assert len(requests) == 5
    for request in requests:
        assert made.check_values(request.values).items() >= request.values.items()
        assert request.answer


@pytest.mark.parametrize("name", GENERATED)
def test_generated_presets_speak_the_trained_language(name: str) -> None:
    """Filled with a document's own contents, a template has its text and its segment boundaries.

    Pieces of template text that meet count as one; that their ids are the same, too, is tested with the
    packer.
    """
    preset = load_preset(name)
    made = preset.pipeline
    for agent in made.agents:
        document = trained_document(preset, agent.id)
        parts = made.template(agent.id).parts
        named = [piece for piece in document.pieces if piece.name]
        holes = [part.name for part in parts if isinstance(part, Placeholder)]
        own = {"prefix_1": f"prefix_{agent.id}"}
        own |= {f"candidate_{i}": f"agent_{i}_current" for i in range(1, 6)} if name in MATH else {}
        assert holes == [own.get(piece.name or "", piece.name) for piece in named]
        values = {hole: piece.text for hole, piece in zip(holes, named, strict=True)}
        rendered = [values[part.name] if isinstance(part, Placeholder) else part for part in parts]
        wanted: list[str] = []
        for before, piece in itertools.pairwise([Piece("", name="start"), *document.pieces[:-1]]):
            if piece.name is None and before.name is None:
                wanted[-1] += piece.text
            else:
                wanted.append(piece.text)
        assert rendered == wanted


@pytest.mark.parametrize("name", MATH)
def test_math_presets_scale(name: str) -> None:
    preset = load_preset(name)
    count = int(name[-1])
    assert preset.pipeline.judge == preset.pipeline.final == count + 1
    assert preset.pipeline.edges == tuple(itertools.combinations(range(1, count + 2), 2))
    assert preset.pipeline.inputs == ("user_question",)
    assert notices(preset.pipeline) == ()
    for example in preset.examples:
        question = example.values["user_question"]
        steps, answer = solved(question)
        assert held_out(question)
        assert steps.count("=") in (2, 3)
        assert example.answer == str(answer)


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
        ("title: Mine", "title: 3", ["title is 3", "must be text"]),
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
        ("request_source: examples", "request_source: web", ["request_source", "generated, examples, file"]),
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
        ("", "must be keys with values"),
        ("- 1\n- 2\n", "must be keys with values"),
        ("just words", "must be keys with values"),
        ("[" * 5000, "cannot be read"),
        (b"name: \xff\xfe", "not UTF-8"),
        (GOOD + "#" * 2**20, "1 MiB"),
        (GOOD[: GOOD.index("examples:\n")], "Add one"),
        (GOOD.replace("source: examples", "source: generated"), "one of solver, worker, judge"),
        (GOOD.replace("title: Mine", "title: {a: 1, ? [x, y] : 2}"), "unhashable"),
    ],
)
@pytest.mark.slow
def test_other_unusable_files(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(PromptError, match=words):
        load_text(tmp_path, text)


MADE = GOOD[: GOOD.index("examples:\n")].replace("examples", "generated\ntask: solver")


def test_generated_requests_need_no_examples(tmp_path: Path) -> None:
    preset = load_text(tmp_path, MADE)
    assert preset.task == TaskSource("solver")
    assert preset.examples == ()
    fixed = load_text(tmp_path, MADE.replace("task: solver", "task: prefix\nkind: who\nsize: 1\nreaders: 2"))
    assert fixed.task == TaskSource("prefix", "who", 1, 2)


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [
        ("task: solver", "task: chess", "task", ["'chess'", "one of solver, worker, judge, glance"]),
        ("task: solver\n", "", "task", ["None", "'generated' needs one"]),
        ("task: solver", "task: [solver]", "task", ["must be text"]),
        ("task: solver", "task: judge\nkind: hard", "kind", ["'hard'", "right, all, corrects, differs"]),
        ("task: solver", "task: solver\nkind: right", "kind", ["'right'", "has problem"]),
        ("task: solver", "task: solver\nkind: 3", "kind", ["must be text"]),
        ("task: solver", "task: solver\nsize: 0", "size", ["size is 0", "1 to 6"]),
        ("task: solver", "task: solver\nsize: 13", "size", ["size is 13", "1 to 6"]),
        ("task: solver", "task: solver\nsize: '2'", "size", ["a whole number"]),
        ("task: solver", "task: prefix\nreaders: -1", "readers", ["readers is -1", "1 to 4"]),
        ("task: solver", "task: prefix\nreaders: 13", "readers", ["readers is 13", "1 to 4"]),
        ("task: solver", "task: prefix\nreaders: true", "readers", ["a whole number"]),
        ("{user_question}", "{user_question} {document_1}", "request_source", ["{document_1}", "solver"]),
    ],
)
def test_refused_sources_of_requests(
    tmp_path: Path, old: str, new: str, field: str, words: list[str]
) -> None:
    declared = "declared: [document_1]\nagents:" if "{document_1}" in new else "agents:"
    with pytest.raises(PromptError) as caught:
        load_text(tmp_path, MADE.replace(old, new, 1).replace("agents:", declared, 1))
    for word in ["mine.yaml", *words]:
        assert word in str(caught.value)
    assert caught.value.field == field


@pytest.mark.parametrize(("readers", "fits"), [(1, False), (2, True)])
def test_every_reader_needs_a_prefix(tmp_path: Path, readers: int, fits: bool) -> None:
    template = MADE.replace("{user_question}", "{prefix_1} {prefix_2} {user_question}")
    text = template.replace(
        "task: solver", f"task: prefix\nreaders: {readers}\ndeclared: [prefix_1, prefix_2]"
    )
    if fits:
        assert load_text(tmp_path, text).pipeline.declared == ("prefix_1", "prefix_2")
    else:
        with pytest.raises(PromptError, match=r"no value for \{prefix_2\}"):
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

FIRST = (
    "Cleo owns 41 ribbons. Cleo buys 53 more. Cleo hands out 33. How many ribbons are left with Cleo?",
    "61",
)


@pytest.mark.parametrize("name", GENERATED)
@pytest.mark.slow
def test_generated_requests_have_true_answers(name: str) -> None:
    preset = load_preset(name)
    assert preset.task is not None
    task, kind = preset.task.task, preset.task.kind or "problem"
    final = preset.pipeline.final
    for request in preset_requests(preset, 60, seed=3):
        values = dict(request.values)
        if task == "prefix":  # the last reader gives the pipeline's answer
            values["prefix_1"] = values[f"prefix_{final}"]
        pieces = [p for name, text in values.items() for p in (Piece("\n"), Piece(text, name=name))]
        document = Document(task, kind, tuple(pieces), "", 0)
        _, answer, best = truth(document)
        selection = " and ".join(map(str, sorted(best or ()))) or "0"
        assert request.answer == (selection if preset.pipeline.scoring == "selection" else answer)
        question = values["user_question"]
        seen = [text for key, text in values.items() if key.startswith(("document_", "observation_"))]
        if task == "documents":
            assert held_out(question, " ".join(seen))
        elif task == "tools":
            assert held_out(question)
        else:
            assert held_out(values.get("prefix_1", ""), question)


@pytest.mark.parametrize("name", GENERATED)
@pytest.mark.slow
def test_generated_requests_differ_and_repeat(name: str) -> None:
    preset = load_preset(name)
    drawn = preset_requests(preset, 40, seed=3)
    assert len({tuple(request.values.items()) for request in drawn}) == 40
    assert len({request.answer for request in drawn}) > 2
    assert drawn == preset_requests(load_preset(name), 40, seed=3)
    assert drawn[:7] == preset_requests(preset, 7, seed=3)
    assert drawn != preset_requests(preset, 40, seed=4)
    assert len(preset_requests(preset, 200)) == 200


@pytest.mark.parametrize("name", GENERATED)
def test_problems_in_open_wording_fit_the_preset(name: str) -> None:
    preset = load_preset(name)
    drawn = preset_requests(preset, 20, seed=1, open_words=True)
    assert drawn == preset_requests(load_preset(name), 20, seed=1, open_words=True)
    for request in drawn:
        preset.pipeline.check_values(dict(request.values))
        assert request.answer
    assert preset.has_open_words == (drawn != preset_requests(preset, 20, seed=1))


def test_problems_in_open_wording_are_as_long_as_what_people_type() -> None:
    """An anchor serves no text that is longer than itself."""
    preset = load_preset("math-3")

    def longest(open_words: bool) -> int:
        drawn = preset_requests(preset, 20, seed=1, open_words=open_words)
        return max(len(request.values["user_question"].split()) for request in drawn)

    asked = [len(row["question"].split()) for row in typed_questions("fresh")]
    served = [sum(length <= longest(kind) for length in asked) / len(asked) for kind in (False, True)]
    assert served[0] < 0.9 < 0.99 < served[1]


def test_presets_of_one_task_share_their_requests() -> None:
    drawn = [preset_requests(load_preset(name), 40) for name in MATH]
    assert all(requests == drawn[0] for requests in drawn)
    questions = [request.values["user_question"] for request in drawn[0]]
    assert {solved(question)[0].count("=") for question in questions} == {1, 2, 3}


def test_problems_with_more_of_the_same_values_are_drawn_again(tmp_path: Path) -> None:
    """Only what the templates ask for makes a request another one."""
    text = MADE.replace("task: solver", "task: tools\nkind: difference\nsize: 2\ndeclared: [observation_1]")
    preset = load_text(tmp_path, text.replace("{user_question}", "{observation_1}"))
    drawn = preset_requests(preset, 30)
    assert len({request.values["observation_1"] for request in drawn}) == 30
    assert {tuple(request.values) for request in drawn} == {("observation_1",)}


def test_generated_requests_stay_the_same_over_time() -> None:
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
