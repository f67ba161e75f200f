"""Pipelines with more or fewer documents, and sweeps over problems that bring them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.base.errors import LabError, PromptError
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import load_preset
from backend.prompts.resize_documents import MOST, with_documents
from backend.sweeps.grid import shards_of
from backend.sweeps.problems import pipeline_requests
from backend.sweeps.read import parse_sweep
from backend.sweeps.spec import PipelineTask

TEN = load_preset("documents-10").pipeline


def reader(template: str) -> Pipeline:
    """A pipeline of one agent with such a prompt."""
    return replace(
        TEN,
        agents=(replace(TEN.agents[0], template=template),),
        declared=tuple(f"document_{n}" for n in range(1, 4) if f"{{document_{n}}}" in template),
    )


def test_ten_documents_cut_to_five_are_the_smaller_scenario() -> None:
    """The scenario of five was written by hand."""
    found, five = with_documents(TEN, 5), load_preset("documents-5").pipeline
    assert [a.template for a in found.agents] == [a.template for a in five.agents]
    assert found.declared == five.declared
    assert with_documents(five, 10).agents[0].template == TEN.agents[0].template
    assert with_documents(TEN, 10) is TEN


@given(st.integers(2, MOST), st.integers(1, MOST))
def test_what_grew_is_what_was_written(first: int, then: int) -> None:
    once = with_documents(TEN, first)
    lines = once.agents[0].template.split("\n")
    listed = [line for n in range(1, first + 1) for line in (f"Document {n}:", f"{{document_{n}}}")]
    assert lines[1:-2] == listed
    assert once.declared == tuple(f"document_{n}" for n in range(1, first + 1))
    assert once.name == (TEN.name if first == 10 else f"{TEN.name}, {first} documents")
    assert with_documents(once, then).agents == with_documents(TEN, then).agents


def test_agents_without_documents_are_left_alone() -> None:
    other = replace(TEN.agents[0], id=2, name="Critic", template="Doubt this: {agent_1_current}\n")
    found = with_documents(replace(TEN, agents=(*TEN.agents, other)), 12)
    assert found.agents[1] == other
    assert found.agents[0].template.count("{document_") == 12


def test_only_the_number_of_a_document_is_raised() -> None:
    made = reader("Of 21 pages:\n1. {document_1}\n2. (2 of 12) {document_2}\n22 {user_question}\n")
    found = with_documents(made, 3).agents[0].template
    assert found == (
        "Of 21 pages:\n1. {document_1}\n2. (2 of 12) {document_2}\n3. (3 of 12) {document_3}\n"
        "22 {user_question}\n"
    )


@pytest.mark.parametrize(
    "template",
    [
        "{document_1} and {document_2}\n{user_question}\n",
        "{document_2}\n{document_1}\n{user_question}\n",
        "{document_1}\n{document_3}\n{user_question}\n",
        "{document_1}\n{user_question}\n",
    ],
)
def test_prompts_that_list_otherwise_are_refused(template: str) -> None:
    with pytest.raises(PromptError, match=r"does not have \{document_1\}, "):
        with_documents(reader(template), 3)


def test_what_reads_no_documents_cannot_have_more() -> None:
    with pytest.raises(PromptError, match="'math-2' reads no documents"):
        with_documents(load_preset("math-2").pipeline, 3)


@pytest.mark.parametrize("count", [0, -1, MOST + 1, True])
def test_a_number_out_of_range_is_refused(count: int) -> None:
    with pytest.raises(PromptError, match=rf"documents is .*; 1 to {MOST} are allowed"):
        with_documents(TEN, count)


def sweep_of(**task: object) -> str:
    return json.dumps({"name": "t", "tasks": [task], "methods": "dense", "problems": 2, "warmup": 0})


def test_a_sweep_reads_as_many_as_its_problems_bring(tmp_path: Path) -> None:
    paragraphs = [{"title": f"t{n}", "paragraph_text": f"s{n}."} for n in range(1, 21)]
    row = {"question": "?", "answer": "b", "paragraphs": paragraphs}
    file = tmp_path / "musique.jsonl"
    file.write_text(f"{json.dumps(row)}\n" * 2, encoding="utf-8")
    task = {"pipeline": "documents-10", "data": str(file), "format": "musique"}
    sweep = parse_sweep(sweep_of(**task, documents=20))
    [made] = [t for t in sweep.tasks if isinstance(t, PipelineTask)]
    assert made.label == "documents-10, 20 documents @ musique.jsonl"
    pipeline, requests = pipeline_requests(made, 2, 0, 0)
    assert requests[0].values["document_20"] == "t20\ns20."
    assert set(requests[0].values) == {*pipeline.required}
    [shard] = shards_of(sweep)
    assert shard.pipeline == pipeline
    with pytest.raises(LabError, match=r"has 20 documents.*places for 10. .*documents: 20, beside data"):
        shards_of(parse_sweep(sweep_of(**task)))


def test_documents_need_data() -> None:
    with pytest.raises(LabError, match="there is no data"):
        parse_sweep(sweep_of(pipeline="documents-10", documents=20))


def test_turns_and_documents_go_together() -> None:
    task = PipelineTask("t", turns=2, documents=3)
    found = task.fitted(TEN)
    assert (found.turns, len(found.declared)) == (2, 3)
