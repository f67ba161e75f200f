"""Shipped weights over a model that is loaded: which fit, what they make, and that it is made once."""

from __future__ import annotations

import random

import pytest
import torch

from backend.base.errors import ModelError, OptionError
from backend.lab import Lab
from backend.model.adapters import adapt, variant, weight_labels
from backend.model.link_tokens import SHIPPED, VARIANTS, base_hash
from backend.model.load import LoadedModel, load_model
from backend.prompts.scoring import extract_answer
from backend.records.documents import DocumentRequest, DocumentStudy
from backend.records.events import Progress
from backend.session.session import LabSession
from backend.training.link_tokens.examples import MIXTURES, draw


@pytest.fixture(scope="module")
def embedded() -> LoadedModel:
    return load_model("embedded", device="cpu")


@pytest.mark.slow
def test_every_shipped_file_fits_the_embedded_model_and_no_other(
    embedded: LoadedModel, tiny_model: LoadedModel
) -> None:
    known = weight_labels(embedded)
    assert set(known) == {path.stem for path in SHIPPED.glob("*.safetensors")}
    assert next(iter(known)) == "kvlink5", "the most link tokens first"
    assert known["block"] == "Block-Attention"
    assert weight_labels(tiny_model) == {}
    for path in VARIANTS.glob("*.safetensors"):
        assert variant(embedded, path.stem) is not None
        assert path.stat().st_size < 2.2 * 2**20
        with pytest.raises(ModelError, match="Train them anew"):
            variant(tiny_model, path.stem)


def test_a_variant_keeps_what_it_adds_to_keys_and_values(embedded: LoadedModel) -> None:
    made = variant(embedded, "brief")
    assert made is not None
    assert made.low_rank is not None
    assert made.low_rank.rank < embedded.module.config.hidden_size // 8
    for kind, name in enumerate(("k_proj", "v_proj")):
        for layer in range(embedded.info.layers):
            mine, base = (getattr(m.module.model.layers[layer].self_attn, name) for m in (made, embedded))
            added = made.low_rank.up[kind, layer].flatten(0, 1) @ made.low_rank.down[kind, layer]
            assert added.abs().max() > 1e-4
            assert torch.allclose(base.weight + added, mine.weight, atol=1e-6)


def test_the_brief_judge_is_taught_the_judges_verdict_in_fewer_words() -> None:
    for seed in range(30):
        drawn = draw(random.Random(seed), MIXTURES["brief"])
        said = drawn.document.target
        assert (drawn.kind, drawn.apart) == ("brief", False)
        assert extract_answer(said, "selection") == drawn.document.selection
        assert "Candidate" not in said
        assert "The answer is" not in said


@pytest.mark.slow
def test_an_adapted_copy_is_what_loading_makes_and_leaves_the_base_alone(embedded: LoadedModel) -> None:
    before = base_hash(embedded.module)
    made, loaded = adapt(embedded, "kvlink5"), load_model("embedded+kvlink5", device="cpu")
    assert base_hash(embedded.module) == before
    assert (made.info.name, made.info.weights_hash) == (loaded.info.name, loaded.info.weights_hash)
    assert made.links is not None
    assert loaded.links is not None
    assert torch.equal(made.links.table, loaded.links.table)
    assert adapt(embedded, "kvlink5") is made, "made once"
    assert weight_labels(made) == {}, "its weights are others"


def test_weights_of_no_name_here_are_refused_by_it(embedded: LoadedModel, tiny_model: LoadedModel) -> None:
    with pytest.raises(ModelError, match="there are: kvlink5"):
        adapt(embedded, "../model")
    with pytest.raises(ModelError, match="there are: none"):
        adapt(tiny_model, "kvlink5")


@pytest.mark.slow
def test_a_session_asks_a_few_questions(embedded: LoadedModel) -> None:
    session = LabSession(embedded)
    *steps, study = Lab(session).study(DocumentRequest(("kvlink5",), questions=3, seed=1))
    assert isinstance(study, DocumentStudy)
    assert all(isinstance(step, Progress) for step in steps)
    assert [step.done for step in steps if isinstance(step, Progress)] == [2, 3, 5, 6]
    assert (study.correct >= 0).all(), "every arm answered every question"
    assert {"Dense", "PromptCache", "KVLink5", "Dense on KVLink5’s weights"} <= set(study.labels)
    again = DocumentStudy.from_bytes(study.to_bytes())
    assert again.labels == study.labels


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"questions": 101}, "2 to 100 are allowed"),
        ({"questions": True}, "whole numbers"),
        ({"seed": -1}, "seed is -1"),
        ({"weights": ("kvlink5", "kvlink5")}, "named twice"),
    ],
)
def test_what_cannot_be_asked_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        DocumentRequest(**given)  # type: ignore[arg-type]
