"""Certificates, layer by layer, over families of models; and that reuse does what they promise.

Tiny random models of each family; windows are shorter than every prompt here.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import tiny
import torch
import transformers
from families import FAMILIES, HYBRID, NOPE, REFUSED, SIZES, WINDOW, loaded
from tiny import request, run, walk

from backend.base.errors import ModelError, NotRelocatableError
from backend.cache.kv_cache import as_argument
from backend.engine.engine import Engine
from backend.model.load import wrap_model
from backend.session.session import LabSession

EACH = pytest.mark.parametrize("name", FAMILIES)


@EACH
def test_every_layer_is_certified_as_it_is(name: str) -> None:
    family, found = FAMILIES[name], loaded(name).info.certificate
    assert found.relocatable, found.reason
    assert tuple(layer.kind for layer in found.layers) == family.kinds
    rotated = [family.dims if kind.endswith("rotation") else 0 for kind in family.kinds]
    assert [layer.rotated_dims for layer in found.layers] == rotated
    assert all(layer.key_error < 1e-5 and layer.value_error < 1e-5 for layer in found.layers)
    for rule, kind in zip(loaded(name).rotation.layers, family.kinds, strict=True):
        assert not kind.endswith("rotation") or rule.interleaved == family.interleaved
    free = [str(i) for i, kind in enumerate(family.kinds) if kind == NOPE]
    assert ("hold no position" in found.reason) == (bool(free) or "distance bias" in family.kinds)
    assert all(number in found.reason for number in free)
    assert ("ALiBi" in found.reason) == ("distance bias" in family.kinds)


def test_each_layer_of_gemma_3_turns_by_its_own_frequencies() -> None:
    one = loaded("gemma3")
    rope = one.module.config.rope_parameters
    for rule, kind in zip(one.rotation.layers, HYBRID, strict=True):
        theta = rope[kind]["rope_theta"]
        wanted = theta ** (-torch.arange(0, 16, 2).float() / 16)
        assert torch.allclose(rule.inv_freq, wanted, rtol=1e-5)
    assert rope["sliding_attention"]["rope_theta"] != rope["full_attention"]["rope_theta"]


@EACH
def test_a_moved_segment_is_what_the_model_computes_there(name: str) -> None:
    """The certificate's promise: keys encoded at one place, moved by the layer's rule, are the keys that the
    model's own forward gives at another, and values are the same."""
    one, at = loaded(name), 41
    ids = tuple(range(20, 43))
    base = Engine(one).encode(ids, (), "alone")
    places = torch.arange(at, at + len(ids))
    cache = one.new_cache(len(ids))
    with torch.inference_mode():
        one.module(
            input_ids=torch.tensor([ids]), position_ids=places[None],
            attention_mask=torch.ones(1, len(ids), dtype=torch.long), **as_argument(one.module, cache.cache),
            use_cache=True,
        )  # fmt: skip
    assert tiny.error(one.rotation.rotate(base.keys, places), cache.keys[:, 0]) <= tiny.TOLERANCE
    assert tiny.error(base.values, cache.values[:, 0]) <= tiny.TOLERANCE
    turned = (base.keys - one.rotation.rotate(base.keys, places)).abs().amax(dim=(1, 2, 3)) > 0.1
    assert turned.tolist() == [kind.endswith("rotation") for kind in FAMILIES[name].kinds]


@EACH
@pytest.mark.slow
def test_true_offsets_give_dense(name: str) -> None:
    walked = walk(loaded(name), tiny.pipeline(tokens=4))
    for agent in (1, 3):
        total = len(walked.contexts[agent].prompt.ids)
        assert total > 4 * WINDOW
        found = walked.execute(agent, walked.true_offset_plan(agent))
        assert found.forwarded_tokens == 1
        tiny.assert_same(found, walked.dense[agent], total)


@EACH
@pytest.mark.slow
def test_dense_is_what_transformers_computes_without_a_cache(name: str) -> None:
    walked = walk(loaded(name), tiny.pipeline(tokens=6))
    ids, answer = walked.contexts[3].prompt.ids, walked.answers[3]
    with torch.inference_mode():
        every = walked.engine.model.module(input_ids=torch.tensor([[*ids, *answer.ids]]), use_cache=False)
    wanted = every.logits[0, len(ids) - 1 :][: len(answer.margins)].float()
    assert answer.logits is not None
    assert tiny.error(answer.logits, wanted) <= tiny.TOLERANCE


@pytest.mark.parametrize("name", ["gemma3", "smollm3 with a window", "cohere2", "glm4", "bloom"])
@pytest.mark.slow
def test_reuse_runs_in_the_lab(name: str) -> None:
    """Pinned, in a padded batch; the prefix cache changes nothing, the copy changes something."""
    session = LabSession(loaded(name))
    for question in tiny.QUESTIONS[:2]:
        record = run(session, request(["dense", "prefix", "naive", "oracle"], question))
    for agent in record.agents:
        near = {label: record.outcome(agent, label).fidelity for label in record.labels}
        assert all(x is not None for x in near.values())
        for exact in ("prefix", "oracle"):
            assert near[exact].logit_difference <= 1e-4  # type: ignore[union-attr]
    assert record.outcome(3, "naive").fidelity.logit_difference > 1e-3  # type: ignore[union-attr]


@pytest.mark.parametrize("name", REFUSED)
def test_models_with_absolute_positions_are_refused_with_the_reason(name: str) -> None:
    one = loaded(name)
    assert not one.info.certificate.relocatable
    assert {layer.kind for layer in one.info.certificate.layers} == {"not relocatable"}
    with pytest.raises(NotRelocatableError, match="no rotation explains"):
        run(LabSession(one), request(["dense", "naive"]))


@pytest.mark.parametrize(
    ("config", "settings", "words"),
    [
        ("Gemma4TextConfig", {"head_dim": 16, "vocab_size_per_layer_input": 9}, "1 x 16, 1 x 512"),
        ("MambaConfig", {"state_size": 4}, "(it has none|heads x size: none)"),
    ],
)
def test_models_without_plain_attention_are_explained(
    config: str, settings: dict[str, Any], words: str
) -> None:
    torch.manual_seed(0)
    chosen = getattr(transformers, config)(**SIZES, vocab_size=len(tiny.tokenizer()), **settings)
    module = transformers.AutoModelForCausalLM.from_config(chosen).eval()
    with pytest.raises(ModelError, match="keys and values of one shape") as refused:
        wrap_model(module, tiny.tokenizer(), name="odd")
    assert re.search(words, str(refused.value))
    assert refused.value.field == "model.name"
