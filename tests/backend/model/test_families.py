"""Families of models under every kind of pass: plain, in pieces, and under masks of the lab's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tiny
import torch
import transformers
from tiny import request, run

from backend.base.clock import Clock
from backend.base.errors import ModelError, NotRelocatableError
from backend.engine.engine import Engine
from backend.methods.plan import Compute, Plan, Step
from backend.methods.registry import METHODS
from backend.model.certificate import TOLERANCE, certify
from backend.model.load import LoadedModel, wrap_model
from backend.model.suitability import check_loaded
from backend.records.prompt import TokenizedPrompt
from backend.records.request import Decoding
from backend.session.session import LabSession

sys.path.append(str(Path(__file__).resolve().parents[3] / "scripts"))
from model_table import FAMILIES, Row, build, examine, markdown, masked_error, plain_error

MASKED = (
    "llama", "mistral", "qwen2", "cohere2", "gemma3_text", "gpt_oss", "llama4_text", "smollm3", "gptj",
    "codegen", "nanochat", "gpt_neox", "phi", "mixtral",
)  # fmt: skip
BIASED = ("bloom", "mpt", "falcon (ALiBi)")
UNMASKED = {"dense", "prefix", "naive", "kvcomm", "palkv", "slotaligned", "oracle"}


def load(family: str) -> LoadedModel:
    module = build(family)
    check_loaded(family, module, tiny.tokenizer())
    return wrap_model(module, tiny.tokenizer(), name=family)


@pytest.mark.parametrize("family", MASKED)
@pytest.mark.slow
def test_every_kind_of_pass_gives_what_a_plain_one_gives(family: str) -> None:
    model = load(family)
    assert model.info.certificate.relocatable, model.info.certificate.reason
    layerwise = family in ("llama", "qwen2")
    for cls in METHODS:
        assert (cls.supports(model.info) is None) == (layerwise or not cls.needs_layers), cls.name
    assert plain_error(model) <= 1e-5
    assert masked_error(model) <= 1e-5


@pytest.mark.parametrize("family", BIASED)
@pytest.mark.slow
def test_methods_that_need_masks_are_refused_under_a_bias_by_distance(family: str) -> None:
    model = load(family)
    assert plain_error(model) <= 1e-5
    with pytest.raises(ModelError, match="cannot read under a mask"):
        masked_error(model)
    accepted = {cls.name for cls in METHODS if cls.supports(model.info) is None}
    assert accepted == UNMASKED
    session = LabSession(model)
    with pytest.raises(NotRelocatableError, match=r"ALiBi.*Choose another, such as naive or kvcomm"):
        run(session, request(["dense", "cacheblend"]))
    for question in tiny.QUESTIONS[:2]:
        record = run(session, request(sorted(UNMASKED), question))
    assert {o.method for o in record.outcomes} == UNMASKED


def test_methods_that_need_the_layers_one_by_one_are_refused_before_anything_runs() -> None:
    model = load("mistral")
    needing = [cls for cls in METHODS if cls.needs_layers]
    assert needing
    session = LabSession(model)
    for cls in needing:
        words = rf"{cls.title} cannot run on mistral.*Llama and Qwen families.*'mistral'.*such as naive"
        with pytest.raises(NotRelocatableError, match=words) as refused:
            run(session, request(["dense", cls.name]))
        assert refused.value.field == "methods"
    assert session.engine.forwarded_tokens == 0


def test_a_prompt_ends_before_the_temperature_of_llama_4_changes() -> None:
    """It goes by places of the cache; up to there it is 1 at all of them, also in a padded batch."""
    model = load("llama4_text")
    assert model.info.context_tokens == 63
    engine = Engine(model)
    engine.stop_ids = set  # type: ignore[method-assign]
    generator = torch.Generator().manual_seed(0)
    prompts = [tuple(torch.randint(5, 300, (n,), generator=generator).tolist()) for n in (23, 9, 50)]
    prefills = [
        engine.execute(TokenizedPrompt(1, i, ()), Plan((Step(0, len(i), Compute("")),), "dense", ""), Clock())
        for i in prompts
    ]
    for ids, row in zip(prompts, engine.decode(prefills, Decoding(12), keep_logits=True), strict=True):
        with torch.inference_mode():
            plain = model.module(input_ids=torch.tensor([[*ids, *row.ids]]), use_cache=False).logits
        assert row.logits is not None
        assert tiny.error(row.logits, plain[0, len(ids) - 1 : -1]) <= tiny.TOLERANCE


def wide(layers: int) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=400, hidden_size=256, intermediate_size=512, num_hidden_layers=layers,
        num_attention_heads=8, num_key_value_heads=4, initializer_range=0.12,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.slow
def test_rounding_alone_refuses_no_deep_and_wide_model(dtype: torch.dtype) -> None:
    found, _ = certify(wide(24).to(dtype), (24, 1, 4, 32))
    assert max(x.key_error for x in found.layers) > TOLERANCE[dtype], "the test needs more rounding"
    assert found.relocatable, found.reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("share", [1.0, 0.01, 0.005])
def test_faint_absolute_positions_are_seen_in_any_precision(share: float, dtype: torch.dtype) -> None:
    """They passed for a bias by distance where rounding may be as large."""
    module = build("gpt2")
    module.transformer.wpe.weight.data *= share
    found, _ = certify(module.to(dtype), (4, 1, 2, 16))
    assert not found.relocatable
    assert {x.kind for x in found.layers[:1]} == {"not relocatable"}


@pytest.mark.parametrize(
    "family", ["llama", "gptj", "nanochat", "bloom", "smollm3", "gemma3_text", "gpt_oss"]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.slow
def test_less_precise_numbers_give_the_same_certificate(family: str, dtype: torch.dtype) -> None:
    exact, rounded = (
        wrap_model(m, tiny.tokenizer(), name=family).info.certificate
        for m in (build(family), build(family).to(dtype))
    )
    assert [(x.kind, x.rotated_dims) for x in rounded.layers] == [
        (x.kind, x.rotated_dims) for x in exact.layers
    ]


@pytest.mark.slow
def test_a_family_with_states_beside_keys_is_refused_in_words() -> None:
    with pytest.raises(ModelError, match="cannot read with the lab's cache") as refused:
        load("falcon_h1")
    assert refused.value.field == "model.name"


def test_what_reads_ahead_is_refused_whatever_its_configuration_calls_it() -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 400}
    for decoder in (True, False):
        config = transformers.BertConfig(**sizes, is_decoder=decoder, eos_token_id=2)
        module = transformers.BertLMHeadModel(config).eval()
        if decoder:
            check_loaded("bert", module, tiny.tokenizer())
        else:
            with pytest.raises(ModelError, match="does not write one token after"):
                check_loaded("bert", module, tiny.tokenizer())


def test_the_table_has_a_row_for_each_family() -> None:
    assert len(set(FAMILIES)) == len(FAMILIES) >= 60
    rows = [examine(name, tiny.tokenizer()) for name in ("gpt2", "rwkv", "bloom", "llama")]
    assert [row.methods for row in rows] == [2, 0, 7, len(METHODS)]
    assert "Not relocatable" in rows[0].refused
    assert "does not keep keys and values" in rows[1].refused
    table = markdown([*rows, Row("odd", refused="a | b")])
    assert len(table.splitlines()) == 7
    assert all(line.count("|") == 7 for line in table.splitlines())
    known = (Path(__file__).resolve().parents[3] / "docs" / "models.md").read_text(encoding="utf-8")
    cells = [line.split("|") for line in known.splitlines() if line.startswith("| ")][1:]
    listed = {line[1].strip(): line for line in cells}
    assert list(listed) == list(FAMILIES)
    for row in rows:
        assert listed[row.family][4].strip() == str(row.methods or "-"), "renew it: scripts/model_table.py"
    whole = sum(not cls.needs_layers for cls in METHODS)
    assert {line[4].strip() for line in cells} == {"-", "2", "7", str(whole), str(len(METHODS))}
    prose = " ".join(known.partition("or under a mask are refused")[2].partition("\n- *error")[0].split())
    assert {cls.title for cls in METHODS if cls.title in prose} == {
        cls.title for cls in METHODS if cls.name not in UNMASKED
    }
