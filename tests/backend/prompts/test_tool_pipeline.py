"""Tools inside a pipeline: what they give fills ``{condition_N_current}``, and is reused like other text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tiny import QUESTIONS, run

from backend.base.errors import PromptError
from backend.model.load import LoadedModel
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example, load_preset
from backend.prompts.tools.base import Tool, ToolResult
from backend.prompts.tools.registry import get_tool
from backend.records.request import MethodChoice, RunRequest
from backend.records.run import RunRecord
from backend.session.session import LabSession

WRITER = Agent(1, "Writer", "", "Solve it: {user_question}\n", 6, tool="calculator")
READER = Agent(2, "Reader", "", "Read {agent_1_current} and the result {condition_1_current}\n", 4)
FLOW = Pipeline("tools", "Tools", "", (WRITER, READER), scoring="none")


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A tool that counts its calls; the tiny model writes nothing that a real one could use."""
    seen: list[str] = []

    def give(text: str) -> ToolResult:
        seen.append(text)
        return ToolResult(f"result {len(seen)}", True, None, 0.1)

    found = replace(get_tool("calculator"), run=give)
    assert isinstance(found, Tool)
    monkeypatch.setattr("backend.session.prompt_run.get_tool", lambda name: found)
    return seen


def ask(mode: Any = "pinned") -> RunRequest:
    methods = (MethodChoice("dense"), MethodChoice("naive"), MethodChoice("kvcomm", {"gamma": 1.0}))
    return RunRequest(FLOW, {"user_question": QUESTIONS[0]}, methods, mode=mode)


def filled(record: RunRecord, method: str) -> str:
    """The text in the reader's ``{condition_1_current}``."""
    prompt = record.prompts[record.outcome(2, method).prompt]
    span = next(s for s in prompt.spans if s.name == "condition_1_current")
    return "".join(prompt.texts[span.start : span.end])


def test_the_result_fills_its_placeholder(tiny_model: LoadedModel, called: list[str]) -> None:
    record = run(LabSession(tiny_model), ask())
    assert FLOW.inputs == ("user_question",), "no request has to fill it"
    assert FLOW.edges == ((1, 2),)
    assert called == [record.outcome(1, "dense").text], "pinned: called once, with what dense wrote"
    assert [(t.agent, t.method, t.tool, t.text, t.ok) for t in record.tools] == [
        (1, "dense", "calculator", "result 1", True)
    ]
    assert {filled(record, method) for method in record.labels} == {"result 1"}


def test_free_running_each_method_calls_for_itself(tiny_model: LoadedModel, called: list[str]) -> None:
    record = run(LabSession(tiny_model), ask("free"))
    assert [t.method for t in record.tools] == ["dense", "naive", "kvcomm"]
    assert called == [record.outcome(1, method).text for method in record.labels]
    assert [filled(record, method) for method in record.labels] == ["result 1", "result 2", "result 3"]


def test_a_warm_up_calls_the_tool_for_every_request(tiny_model: LoadedModel, called: list[str]) -> None:
    session = LabSession(tiny_model)
    examples = [Example({"user_question": text}) for text in QUESTIONS[:3]]
    for _ in session.warm_up(ask(), examples):
        pass
    assert len(called) == 3
    names = {pool.placeholder for pool in session.pools(ask())}
    assert names == {"user_question", "agent_1_current", "condition_1_current"}


def test_a_failed_call_is_said_and_read(tiny_model: LoadedModel) -> None:
    """The tiny model writes no calculation; the calculator says so, to the next agent and to the person."""
    record = run(LabSession(tiny_model), ask())
    [use] = record.tools
    assert not use.ok
    assert use.text
    assert use.reason
    assert filled(record, "dense") == use.text


@pytest.mark.parametrize(
    ("agents", "field", "words"),
    [
        ((replace(WRITER, tool="abacus"), READER), "agents.1.tool", "calculator, lookup"),
        (
            (replace(WRITER, template="{user_question} {condition_1_current}"), READER),
            "agents.1.template",
            "does not exist yet",
        ),
        (
            (
                replace(WRITER, template="{user_question} {condition_2_current}"),
                replace(READER, tool="python"),
            ),
            "agents.",
            "circle",
        ),
    ],
)
def test_what_cannot_run_is_refused(agents: tuple[Agent, ...], field: str, words: str) -> None:
    with pytest.raises(PromptError) as caught:
        Pipeline("x", "x", "", agents)
    assert (caught.value.field or "").startswith(field)
    assert words in str(caught.value)


def test_without_a_tool_the_placeholder_is_an_input() -> None:
    made = Pipeline("x", "x", "", (replace(WRITER, tool=""), READER))
    assert made.inputs == ("user_question", "condition_1_current")
    with pytest.raises(PromptError, match="the run itself fills it"):
        FLOW.check_values({"user_question": "a", "condition_1_current": "b"})


@pytest.mark.parametrize(
    ("name", "agent", "tool"), [("react-tools", 1, "react"), ("gsm8k-paper", 3, "python")]
)
def test_presets_that_call_tools(name: str, agent: int, tool: str) -> None:
    made = load_preset(name).pipeline
    assert made.agent(agent).tool == tool
    assert f"condition_{agent}_current" not in made.inputs
    assert get_tool(tool).run("no call in here").text
