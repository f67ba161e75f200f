"""A model of one's own, from a folder in hub layout: every scenario ends with a record, every mistake with
words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import transformers
from own_models import KINDS, save
from tiny import run
from token_kinds import tokenizer

from backend.base.errors import ModelError
from backend.model.load import LoadedModel, is_shipped, load_model
from backend.model.suitability import stop_ids
from backend.prompts.presets import load_preset, preset_names, preset_requests
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.session.session import LabSession
from lab_app.pages.pipeline.examples import first_scenario, scenarios

OWN = [name for name in preset_names() if load_preset(name).model == "any"]
# The longest scenarios. With --sample one in three of them is run here. Every kind of model still runs the
# others, and test_own_model_server.py runs all of them on one kind.
LONG = ("gsm8k-paper", "gsm8k-paper-5", "humaneval-paper")


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: "-".join(map(str, kind)))
def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(str(save(tmp_path_factory.mktemp("model"), *request.param)), device="cpu")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.sampled(3)) if name in LONG else name for name in OWN]
)
@pytest.mark.slow
def test_every_scenario_ends_with_a_record(own: LoadedModel, name: str) -> None:
    preset = load_preset(name)
    [example] = preset_requests(preset, 1)
    agents = tuple(replace(agent, max_new_tokens=3) for agent in preset.pipeline.agents)
    pipeline = replace(preset.pipeline, agents=agents)
    methods = tuple(map(MethodChoice, ("dense", "naive", "kvcomm")))
    record = run(LabSession(own), RunRequest(pipeline, dict(example.values), methods, decoding=Decoding(3)))
    assert len(record.outcomes) == 3 * len(pipeline.unrolled.agents)
    for prompt in record.prompts:
        assert prompt.boundary_tokens is not None
        assert prompt.boundary_tokens < 0.2 * len(prompt.token_ids)
        text = "".join(prompt.texts)
        assert example.values["user_question"].split()[0] in text


def test_scenarios_for_any_model_come_first() -> None:
    names = [name for _, name in scenarios("gsm8k-paper")]
    assert sorted(names[: len(OWN)]) == sorted(OWN)
    assert names[0] == "gsm8k-paper"
    assert scenarios("math-3")[0][1] == "math-turns"
    for first, other, who in (("gsm8k-paper", "math-3", "own model"), ("math-3", "gsm8k-paper", "larger")):
        titles = {name: title for title, name in scenarios(first)}
        assert " model" not in titles[first]
        assert who in titles[other]
    assert first_scenario(8192) == "gsm8k-paper"
    assert first_scenario(4096) == first_scenario(64) == "chat-documents"


def test_what_ships_is_told_from_what_is_ones_own(tmp_path: Path) -> None:
    assert all(map(is_shipped, ("embedded", " embedded-small", "embedded+kvlink5")))
    assert not any(map(is_shipped, ("some/embedded", str(tmp_path), "./embedded")))


def test_an_answer_ends_at_the_models_and_the_tokenizers_end(own: LoadedModel) -> None:
    module = own.module
    before = module.generation_config.eos_token_id
    try:
        for theirs, wanted in ((7, {7, 2}), ([7, 9], {7, 9, 2}), (None, {2})):
            module.generation_config.eos_token_id = theirs
            assert stop_ids(module, own.tokens.tokenizer) == wanted
    finally:
        module.generation_config.eos_token_id = before


# -- mistakes


def refused(source: Path | str) -> str:
    with pytest.raises(ModelError) as found:
        load_model(str(source), device="cpu")
    said = str(found.value)
    assert "Traceback" not in said
    assert "\n" not in said
    assert len(said) < 1000
    assert found.value.field == "model.name"
    return said


def test_a_folder_without_weights(tmp_path: Path) -> None:
    (save(tmp_path) / "model.safetensors").unlink()
    said = refused(tmp_path)
    assert "no file named model.safetensors" in said
    assert "It must hold config.json, safetensors weights and a tokenizer" in said


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    save(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    assert "It must hold config.json, safetensors weights and a tokenizer" in refused(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "has no config.json. Give a folder" in refused(tmp_path / "nowhere")


@pytest.mark.parametrize("encoder", ["Bert", "DistilBert", "T5"])
def test_a_model_that_does_not_write(tmp_path: Path, encoder: str) -> None:
    tokenizer("byte-level").save_pretrained(tmp_path)
    config = getattr(transformers, f"{encoder}Config")(vocab_size=500)
    small = {
        "Bert": {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
        },
        "DistilBert": {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 32},
        "T5": {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2},
    }[encoder]
    for name, value in small.items():
        setattr(config, name, value)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    said = refused(tmp_path)
    assert f"of the architecture '{config.model_type}' and does not write one token after another" in said
    assert "Give one" in said


def test_a_tokenizer_without_an_end(tmp_path: Path) -> None:
    tokens = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer("byte-level").backend_tokenizer, bos_token="<s>"
    )
    save(tmp_path, eos_token_id=None)
    tokens.save_pretrained(tmp_path)
    said = refused(tmp_path)
    assert "has no end-of-sequence token" in said
    assert "Set eos_token in tokenizer_config.json" in said


def test_another_models_tokenizer(tmp_path: Path) -> None:
    save(tmp_path, vocab_size=300)
    assert f"has {tokenizer('byte-level').vocab_size:,} tokens, but the model knows 300" in refused(tmp_path)


def test_a_chat_template_that_fails(tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('Tools only') }}")
    assert "Tools only" in refused(tmp_path)
