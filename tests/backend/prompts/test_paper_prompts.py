"""The papers' prompt sets for MMLU and HumanEval: as printed, runnable, and scored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.prompts.notices import notices
from backend.prompts.presets import load_preset, preset_requests
from backend.prompts.scoring import extract_answer, right
from backend.prompts.tools.registry import get_tool

NAMES = {
    "mmlu-paper": ["Knowledgeable Expert", "Wiki Searcher", "Critic", "Mathematician", "FinalRefer"],
    "humaneval-paper": [
        "Project Manager", "Algorithm Designer", "Programming Expert", "Test Analyst", "FinalRefer",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_prompts_of_the_paper(name: str) -> None:
    preset = load_preset(name)
    flow = preset.pipeline
    assert flow.name == name
    assert 20 < len(flow.summary) < 250
    assert [agent.name for agent in flow.agents] == NAMES[name]
    assert (preset.model, preset.request_source, flow.judge, flow.turns) == ("any", "examples", 5, 1)
    assert flow.required == ("user_question",)
    assert flow.order == (1, 2, 3, 4, 5)
    for agent in flow.agents:
        assert not set(agent.template) & set("\u2018\u2019\u201c\u201d\u2011"), "typeset"
    said = " ".join(notices(flow))
    assert "Did you mean" not in said
    last = {hole.name for hole in flow.template(5).placeholders}
    assert {f"agent_{n}_{when}" for n in (1, 2, 3, 4) for when in ("current", "history_-1")} < last
    # with two turns, everything that the prompts ask for is there in the second
    second = replace(flow, turns=2).unrolled
    later = [a for a in second.agents if a.name.endswith("turn 2")]
    holes = [hole for agent in later for hole in second.template(agent.id).placeholders]
    assert all(hole.kind == "question" or second.fills(hole) for hole in holes)


def test_words_of_the_prompts() -> None:
    mmlu, humaneval = (load_preset(name).pipeline for name in NAMES)
    assert "@catfish effect@, @broken window effect@, @Shakespeare@" in mmlu.agent(1).template
    assert mmlu.agent(5).template.count("\n{agent_") == 8
    assert "exactly one of the letters A, B, C, or D" in mmlu.agent(5).template
    assert "```python\nprint('Hello world!')\n```\n" in humaneval.agent(3).template
    assert humaneval.agent(5).template.count("{condition_") == 6
    assert "Preferably within fifty words" in humaneval.agent(4).template


def test_the_encyclopedia_knows_what_the_questions_ask() -> None:
    tool = get_tool("encyclopedia")
    for asked in ("chloroplast", "opportunity cost", "Ohm's law", "Thirty Years' War"):
        assert tool.run(f"I would look up @{asked}@.").ok
    found = tool.run("Key entities: @Ohm's law@, @electric current@")
    assert "I = U / R" in found.text
    assert "coulomb" in found.text
    assert not tool.run("@zeppelin hangar@").ok


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        (" (C) ", "C"),
        ("D.", "D"),
        ("**A**", "A"),
        ("The answer is C", "C"),
        ("the correct option is: (D), since A is wrong.", "D"),
        ("Looking at it,\nB. In the chloroplast", "B"),
        ("First I thought the answer is A. No: the answer is B.", "B"),
        ("A cat sat.", None),
        ("The answer is a dog", None),
        ("Because of E", None),
        ("", None),
    ],
)
def test_a_choice_is_read(text: str, letter: str | None) -> None:
    assert extract_answer(text, "choice") == letter
    assert right(letter, "B", "choice") is (letter == "B")


def test_choices_of_the_set() -> None:
    for example in preset_requests(load_preset("mmlu-paper"), 5):
        lines = example.values["user_question"].splitlines()
        assert [line[:3] for line in lines[-4:]] == ["A. ", "B. ", "C. ", "D. "]
        assert example.answer in ("A", "B", "C", "D")


SOLUTIONS = {
    "count_longer": "return sum(len(w) > length for w in words)",
    "running_minimum": "return [min(numbers[: i + 1]) for i in range(len(numbers))]",
    "balanced": "depth = 0\n    for c in text:\n        depth += (c == '(') - (c == ')')\n"
    "        if depth < 0:\n            return False\n    return depth == 0",
    "digits_in_common": "return sorted(int(d) for d in set(str(a)) & set(str(b)))",
}


@pytest.mark.slow
def test_code_of_the_set_is_tested() -> None:
    examples = preset_requests(load_preset("humaneval-paper"), 4)
    assert len(examples) == len(SOLUTIONS)
    for example in examples:
        question, test = example.values["user_question"], example.answer
        assert test is not None
        assert question.count(">>> ") >= 1
        head = question.splitlines()[0]
        name = head.removeprefix("def ").partition("(")[0]
        good = f"Here it is:\n```python\n{head}\n    {SOLUTIONS[name]}\n```\n"
        answer = extract_answer(good, "code")
        assert answer is not None
        assert answer.startswith(head)
        assert right(answer, test, "code"), name
        assert not right(f"{head}\n    return None", test, "code"), name
        assert not right("while True: pass" if name == "balanced" else "1 +", test, "code")
    assert extract_answer("  ", "code") is None
