"""Agents on other weights of one architecture: dense is each agent's own, what is exchanged is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from tiny import QUESTIONS, TOLERANCE, request, run

from backend.base.errors import LabError, ModelError, OptionError
from backend.model.adapters import variant
from backend.model.link_tokens import Delta, Links, base_hash, projections, save_links
from backend.model.load import LoadedModel, wrap_model
from backend.model.weight_variants import check_sibling
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example
from backend.records.run import RunRecord
from backend.session.session import LabSession
from backend.session.weights_notes import foreign
from lab_app.cli.common import parse_weights

METHODS = ("dense", "prefix", "naive", "oracle", "kvcomm")


def mixed(agent: int = 2, name: str = "tuned", turns: int = 1) -> Pipeline:
    """The tiny pipeline with one agent on other weights."""
    flow = tiny.pipeline(6)
    agents = tuple(replace(a, model=name) if a.id == agent else a for a in flow.agents)
    return replace(flow, agents=agents, turns=turns)


@pytest.fixture(scope="module")
def other() -> LoadedModel:
    return tiny.model(seed=1)


@pytest.fixture(scope="module")
def records(tiny_model: LoadedModel, other: LoadedModel) -> list[RunRecord]:
    session = LabSession(tiny_model, others={"tuned": other})
    return [run(session, request(METHODS, q, flow=mixed())) for q in (*QUESTIONS[:2], QUESTIONS[0])]


@pytest.mark.slow
def test_dense_reads_with_each_agents_own_weights(
    tiny_model: LoadedModel, other: LoadedModel, records: list[RunRecord]
) -> None:
    for agent, loaded in ((1, tiny_model), (2, other), (3, tiny_model)):
        found = records[0].outcome(agent, "dense")
        ids = [int(i) for i in records[0].prompts[found.prompt].token_ids]
        for token in found.token_ids:
            with torch.inference_mode():
                logits = loaded.module(input_ids=torch.tensor([ids]), use_cache=False).logits
            assert int(logits[0, -1].argmax()) == token
            ids.append(int(token))
    alone = run(LabSession(tiny_model), request(("dense",), flow=tiny.pipeline(6)))
    assert list(alone.outcome(2, "dense").token_ids) != list(records[0].outcome(2, "dense").token_ids)


def test_exact_methods_stay_exact(records: list[RunRecord]) -> None:
    """True offsets bridge the weights too; a prefix is copied on the same weights only."""
    for record in records:
        for agent in record.agents:
            for method in ("prefix", "oracle"):
                found = record.outcome(agent, method)
                assert found.key_error is not None
                assert found.value_error is not None
                assert max(found.key_error.max(), found.value_error.max()) <= TOLERANCE, (agent, method)
    again = records[2].outcome(2, "prefix")
    assert again.timing.forwarded_tokens == 1, "the same prompt was read on these weights before"


def test_what_crosses_weights_is_warned_of_and_measured(records: list[RunRecord]) -> None:
    record = records[0]
    notes = [n for n in record.notes if "eights" in n]
    assert notes[0].startswith("Weights differ: agent 2 on 'tuned'.")
    naive = next(n for n in notes if n.startswith("naive: "))
    # agent 2 reads the request and agent 1 across; agent 3 reads agent 2 across; the rest is of one kind
    found: dict[bool, list[float]] = {True: [], False: []}
    for agent in record.agents:
        outcome = record.outcome(agent, "naive")
        assert outcome.value_error is not None
        for span in record.prompts[outcome.prompt].spans:
            if span.kind == "placeholder":
                across = foreign(record.request.pipeline, agent, span.name)
                end = min(span.end, outcome.value_error.shape[1])
                found[across].append(float(outcome.value_error[:, span.start : end].mean()))
    assert {k: len(v) for k, v in found.items()} == {True: 3, False: 3}
    for across in (True, False):
        assert f"values {np.mean(found[across]):.3g} in " in naive.replace(" in texts", " in ").replace(
            " in the", " in "
        )
    assert np.mean(found[True]) > np.mean(found[False])
    assert RunRecord.from_bytes(record.to_bytes()).notes == record.notes


def test_a_twin_changes_nothing(tiny_model: LoadedModel) -> None:
    plain = run(LabSession(tiny_model), request(METHODS, flow=tiny.pipeline(6)))
    twin = run(LabSession(tiny_model, others={"tuned": tiny_model}), request(METHODS, flow=mixed()))
    for a, b in zip(plain.outcomes, twin.outcomes, strict=True):
        assert (a.agent, a.method, list(a.token_ids)) == (b.agent, b.method, list(b.token_ids))
        assert a.key_error is not None
        assert b.key_error is not None
        if a.method != "prefix":
            assert np.allclose(a.key_error, b.key_error, atol=1e-6)
    assert not any("Weights differ" in note for note in plain.notes)


@pytest.mark.slow
def test_a_pipeline_of_one_kind_is_that_of_a_lab_of_its_weights(
    tiny_model: LoadedModel, other: LoadedModel
) -> None:
    """Where all agents run on the same weights, these encode the texts from outside, too."""
    flow = tiny.pipeline(6)
    flow = replace(flow, agents=tuple(replace(agent, model="tuned") for agent in flow.agents))
    both = []
    for session, pipeline in (
        (LabSession(tiny_model, others={"tuned": other}), flow),
        (LabSession(other), tiny.pipeline(6)),
    ):
        warm = [Example({"user_question": q}) for q in QUESTIONS[:2]]
        for _ in session.warm_up(request(METHODS, flow=pipeline), warm):
            pass
        both.append(run(session, request(METHODS, QUESTIONS[2], flow=pipeline)))
    for a, b in zip(both[0].outcomes, both[1].outcomes, strict=True):
        assert (a.agent, a.method, a.state, list(a.token_ids)) == (
            b.agent,
            b.method,
            b.state,
            list(b.token_ids),
        )
        assert a.key_error is not None
        assert b.key_error is not None
        assert np.allclose(a.key_error, b.key_error, atol=1e-6)
    assert both[0].notes == both[1].notes


@pytest.mark.slow
def test_turns_and_warm_up_keep_an_agents_weights(tiny_model: LoadedModel, other: LoadedModel) -> None:
    session = LabSession(tiny_model, others={"tuned": other})
    asked = request(("dense", "oracle"), QUESTIONS[2], flow=mixed(turns=2))
    assert [a.model for a in asked.pipeline.agents] == ["", "tuned", "", "", "tuned", ""]
    for _ in session.warm_up(asked, [Example({"user_question": q}) for q in QUESTIONS[:2]]):
        pass
    record = run(session, asked)
    found = record.outcome(1_000_002, "oracle")
    assert found.key_error is not None
    assert found.key_error.max() <= TOLERANCE
    assert session.weights_hash == f"{tiny_model.info.weights_hash}-{other.info.weights_hash}"


def test_unknown_weights_are_refused(tiny_model: LoadedModel, other: LoadedModel) -> None:
    with pytest.raises(ModelError, match=r"Agent 2 runs on the weights 'tuned'.*no others") as caught:
        run(LabSession(tiny_model), request(METHODS, flow=mixed()))
    assert caught.value.field == "agents.2.model"
    with pytest.raises(ModelError, match=r"there are 'tuned'\. Load them"):
        run(LabSession(tiny_model, others={"tuned": other}), request(METHODS, flow=mixed(name="lost")))


def test_a_variant_that_ships_is_made_when_an_agent_names_it(
    tiny_model: LoadedModel, other: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.model.adapters.VARIANTS", tmp_path)
    name, part = next(iter(projections(tiny_model.module).items()))
    delta = Delta(torch.full((part.out_features, 1), 0.5), torch.full((1, part.in_features), 0.5))
    links = Links(torch.zeros(1, 0, 64), torch.zeros(0, 64), torch.zeros(0, 64))
    save_links(tmp_path / "tuned.safetensors", links, {name: delta}, base_hash(tiny_model.module))
    session = LabSession(tiny_model)
    before = session.weights_hash
    record = run(session, request(("dense",), flow=mixed()))
    made = session.others["tuned"].model
    assert torch.allclose(projections(made.module)[name].weight, part.weight + 0.25)
    assert made is variant(tiny_model, "tuned"), "made once"
    assert any("agent 2 on 'tuned'" in note for note in record.notes)
    assert session.weights_hash == before, "what is kept by it is found again"
    with pytest.raises(ModelError, match=r"belong to the weights .* Train them anew"):
        run(LabSession(other), request(("dense",), flow=mixed()))


def changed(**config: Any) -> LoadedModel:
    """The tiny model with another configuration."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    body = tiny.llama().config.to_dict() | config
    module = LlamaForCausalLM(LlamaConfig(**body)).eval()
    return wrap_model(module, tiny.tokenizer(), name="changed")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"num_hidden_layers": 2}, "layers 2 instead of 3"),
        ({"num_key_value_heads": 4}, "KV heads 4 instead of 2"),
        ({"head_dim": 8}, "dimensions of a head 8 instead of 16"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, "turn otherwise with position"),
    ],
)
def test_another_architecture_is_refused(tiny_model: LoadedModel, config: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        LabSession(tiny_model, others={"tuned": changed(**config)})
    assert caught.value.field == "model.weights"
    assert "of one architecture with one tokenizer only" in str(caught.value)


def test_another_tokenizer_is_refused(tiny_model: LoadedModel, other: LoadedModel) -> None:
    class Words:
        def get_vocab(self) -> dict[str, int]:
            return {"a": 0}

    tokens = replace_tokens(other, Words())
    with pytest.raises(ModelError, match="another tokenizer"):
        check_sibling(tiny_model, tokens, "tuned")
    check_sibling(tiny_model, other, "tuned")


def replace_tokens(loaded: LoadedModel, tokenizer: Any) -> LoadedModel:
    """The model with another tokenizer."""
    import copy

    tokens = copy.copy(loaded.tokens)
    tokens.tokenizer = tokenizer
    return replace(loaded, tokens=tokens)


def test_weights_on_the_command_line() -> None:
    assert parse_weights(["a=x/y", " b = hub/id=1 "]) == [("a", "x/y"), ("b", "hub/id=1")]
    for bad in (["a"], ["=x"], ["a="], ["a=x", "a=y"]):
        with pytest.raises(OptionError, match="NAME=MODEL") as caught:
            parse_weights(bad)
        assert isinstance(caught.value, LabError)
        assert caught.value.field == "weights"
