"""Pipelines with fewer agents: the first ones and the last, and prompts that know of no others."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from backend.base.errors import LabError, PromptError
from backend.prompts.presets import load_preset
from backend.prompts.resize import team
from backend.sweeps.grid import shards_of
from backend.sweeps.read import parse_sweep
from backend.sweeps.spec import PipelineTask

PAPER = ("gsm8k-paper-5", "mmlu-paper", "humaneval-paper")


@pytest.mark.parametrize("count", [2, 3, 4])
def test_fewer_solvers_are_the_smaller_scenario(count: int) -> None:
    """The lab's scenarios of two and three solvers were written by hand; that of four, cut, is the same."""
    found = team(load_preset("math-4").pipeline, count)
    assert found.judge == found.final == 5
    assert found.order == (*range(1, count), 5)
    if count > 2:
        wanted = load_preset(f"math-{count - 1}").pipeline
        assert [a.template for a in found.agents] == [a.template for a in wanted.agents]


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_the_papers_agents(name: str, count: int) -> None:
    whole = load_preset(name).pipeline
    found = team(whole, count)
    assert [a.name for a in found.agents] == [
        *(a.name for a in whole.agents[: count - 1]),
        whole.agents[-1].name,
    ]
    last = found.agent(5).template
    for number in range(1, 5):
        told = 2 if number < count else 0  # this turn and the last
        assert last.count(f"Agent {number}") == told
        assert last.count(f"{{agent_{number}_") == told
    assert "In the last round of dialogue" in last
    before = [whole.agent(n).template for n in range(1, count)]
    assert [found.agent(n).template for n in range(1, count)] == before, "who stays reads nobody who goes"


def test_what_stands_between_two_agents_stays() -> None:
    last = team(load_preset("mmlu-paper").pipeline, 2).agent(5).template
    assert last.endswith(
        "The task is: {user_question}\nAt the same time, the outputs of other agents are as follows:\n"
        "Agent 1, role is Knowledge Expert, output is:\n{agent_1_current}\n"
        "In the last round of dialogue, the outputs of other agents were:\n"
        "Agent 1, role is Knowledge Expert, output is:\n{agent_1_history_-1}\n"
    )


@pytest.mark.parametrize("count", [1, 6, 0, True, "3"])
def test_a_number_of_agents_that_is_not_there_is_refused(count: int) -> None:
    with pytest.raises(PromptError, match=r"has 5 agents, .* 2 to 5 are allowed"):
        team(load_preset("mmlu-paper").pipeline, count)


def test_a_prompt_that_needs_who_is_left_out_is_refused() -> None:
    flow = load_preset("math-3").pipeline
    last = replace(flow.agents[-1], template="{user_question} Say {agent_2_current} again: {agent_1_current}")
    with pytest.raises(PromptError, match=r"cannot do with 2 of its 4 agents: .*reads \{agent_2_current\}"):
        team(replace(flow, agents=(*flow.agents[:-1], last)), 2)


def test_a_sweep_takes_numbers_of_agents() -> None:
    task = {"pipeline": "mmlu-paper", "agents": [2, 4]}
    sweep = parse_sweep(json.dumps({"name": "t", "tasks": [task], "methods": "dense", "problems": 1}))
    assert [(t.label, t.agents) for t in sweep.tasks if isinstance(t, PipelineTask)] == [
        ("mmlu-paper, 2 agents", 2), ("mmlu-paper, 4 agents", 4),
    ]  # fmt: skip
    assert [len(s.pipeline.agents) for s in shards_of(sweep) if s.pipeline] == [2, 4]
    with pytest.raises(LabError, match="2 to 5 are allowed"):
        parse_sweep(json.dumps({"name": "t", "tasks": [{**task, "agents": 6}], "methods": "dense"}))
