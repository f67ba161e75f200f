"""Loading and certifying: which models' keys can be moved, and what is said when one cannot be had."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from tiny import request, run

from backend.base.clock import Clock
from backend.base.errors import ModelError, NotRelocatableError
from backend.base.hub_errors import LONGEST, reason
from backend.engine.engine import Engine
from backend.methods.plan import Compute, Plan, Step
from backend.model.load import LoadedModel, load_model, pick_device, weights_hash, wrap_model
from backend.records.prompt import TokenizedPrompt
from backend.records.request import Decoding
from backend.records.run import COMPUTED
from backend.session.session import LabSession

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.15,
}
# config class, more settings, kind of layer, rotated dims of the head's 16
FAMILIES: dict[str, tuple[str, dict[str, Any], str, int]] = {
    "llama": (
        "LlamaConfig",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10_000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
        "rotation",
        16,
    ),
    "yarn": (
        "LlamaConfig",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10_000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
        "rotation",
        16,
    ),
    "qwen2": ("Qwen2Config", {}, "rotation", 16),
    "qwen3": ("Qwen3Config", {"head_dim": 16}, "rotation", 16),
    "mistral": ("MistralConfig", {"head_dim": 16, "sliding_window": 16}, "rotation", 16),
    "phi": ("PhiConfig", {"num_key_value_heads": 2, "partial_rotary_factor": 0.5}, "partial rotation", 8),
    "cohere2": ("Cohere2Config", {"head_dim": 16, "layer_types": ["sliding_attention"] * 2}, "rotation", 16),
}


def build(family: str, **more: Any) -> Any:
    name, settings, _, _ = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, name)(**{**SIZES, **settings, **more})
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()


def gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(tiny.tokenizer()), n_embd=32, n_layer=2, n_head=2, n_positions=256, bos_token_id=1,
        eos_token_id=2, initializer_range=0.15,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config).eval()


# -- certificates


@pytest.mark.parametrize("family", FAMILIES)
def test_models_with_a_rotation_are_relocatable(family: str) -> None:
    _, _, kind, dims = FAMILIES[family]
    loaded = wrap_model(build(family), tiny.tokenizer(), name=family)
    found = loaded.info.certificate
    assert found.relocatable, found.reason
    assert [(x.kind, x.rotated_dims) for x in found.layers] == [(kind, dims)] * 2
    assert all(x.key_error < 1e-5 and x.value_error < 1e-5 for x in found.layers)
    assert found.floor < 1e-5
    assert found.logit_floor < 1e-4
    assert all(rule.interleaved == (family == "cohere2") for rule in loaded.rotation.layers)


@pytest.mark.parametrize("family", [*FAMILIES, "gpt2"])
def test_every_family_prefills_and_decodes_as_transformers_does(family: str) -> None:
    """Also in a padded batch, and beyond a sliding window."""
    module = gpt2() if family == "gpt2" else build(family)
    engine = Engine(wrap_model(module, tiny.tokenizer(), name=family))
    generator = torch.Generator().manual_seed(0)
    prompts = [tuple(torch.randint(5, 60, (n,), generator=generator).tolist()) for n in (23, 9, 30)]
    prefills = [
        engine.execute(
            TokenizedPrompt(1, ids, ()), Plan((Step(0, len(ids), Compute("test")),), "dense", ""), Clock()
        )
        for ids in prompts
    ]
    engine.stop_ids = set  # type: ignore[method-assign]
    for ids, row in zip(prompts, engine.decode(prefills, Decoding(12), keep_logits=True), strict=True):
        with torch.inference_mode():
            wanted = module(input_ids=torch.tensor([[*ids, *row.ids]]), use_cache=False).logits[
                0, len(ids) - 1 : -1
            ]
        assert row.logits is not None
        assert tiny.error(row.logits, wanted) <= tiny.TOLERANCE


def test_layers_without_position_are_told_apart() -> None:
    torch.manual_seed(0)
    config = transformers.SmolLM3Config(**SIZES, no_rope_layers=[1, 0])
    module = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    found = wrap_model(module, tiny.tokenizer(), name="mixed").info.certificate
    assert found.relocatable
    assert [x.kind for x in found.layers] == ["rotation", "no position"]


def test_gpt2_is_refused_and_runs_dense() -> None:
    loaded = wrap_model(gpt2(), tiny.tokenizer(), name="tiny-gpt2")
    found = loaded.info.certificate
    assert not found.relocatable
    assert "not relocatable" in found.reason.lower()
    assert {x.kind for x in found.layers} == {"not relocatable"}
    session = LabSession(loaded)
    for name in ("naive", "kvcomm"):
        with pytest.raises(NotRelocatableError, match=r"tiny-gpt2.*no rotation") as refused:
            run(session, request(["dense", name]))
        assert refused.value.field == "methods"
    record = run(session, request(["dense"]))
    assert len(record.outcomes) == 3
    assert all((o.actions == COMPUTED).all() for o in record.outcomes)


def test_certifying_is_repeatable_and_leaves_the_weights(tiny_model: LoadedModel) -> None:
    again = tiny.model()
    assert again.info == tiny_model.info
    assert weights_hash(again.module) == tiny_model.info.weights_hash
    assert tiny.model(seed=1).info.weights_hash != tiny_model.info.weights_hash


def test_facts(tiny_model: LoadedModel) -> None:
    info = tiny_model.info
    assert (info.layers, info.heads, info.kv_heads, info.head_dim) == (3, 4, 2, 16)
    assert (info.device, info.dtype, info.context_tokens) == ("cpu", "fp32", 1024)
    assert info.kv_bytes_per_token == 2 * 3 * 2 * 16 * 4
    assert info.parameters == sum(p.numel() for p in tiny_model.module.parameters())
    cache = tiny_model.new_cache(7)
    assert cache.keys.numel() * 2 * 4 == 7 * info.kv_bytes_per_token
    assert tiny_model.embed((5, 6)).shape == (2, 64)
    assert tiny_model.embed(()).shape == (0, 64)


# -- loading


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hub layout")  # a space in the name, too
    tiny.llama().save_pretrained(path)
    tiny.tokenizer().save_pretrained(path)
    return path


def test_a_folder_in_hub_layout_loads(folder: Path, tiny_model: LoadedModel) -> None:
    loaded = load_model(str(folder), device="cpu")
    assert loaded.info.weights_hash == tiny_model.info.weights_hash
    assert loaded.info.certificate.relocatable
    assert loaded.info.dtype == "fp32"
    assert loaded.info.name == folder.name
    assert str(folder.parent) not in repr(loaded.info), "a record must not tell where things lie on a disk"
    text = "hello <s> \U0001f600"
    assert loaded.tokens.encode(text) == tiny_model.tokens.encode(text)
    assert (loaded.tokens.opening, loaded.tokens.closing) == (
        tiny_model.tokens.opening,
        tiny_model.tokens.closing,
    )
    a, b = (run(LabSession(m), request(["dense"])) for m in (loaded, tiny_model))
    assert [o.text for o in a.outcomes] == [o.text for o in b.outcomes]


def test_half_precision(folder: Path) -> None:
    loaded = load_model(str(folder), device="cpu", dtype="bf16")
    assert loaded.info.dtype == "bf16"
    assert loaded.info.certificate.relocatable
    assert loaded.info.certificate.floor > 1e-5
    record = run(LabSession(loaded), request())
    assert len(record.outcomes) == 9


def broken(folder: Path, kind: str) -> None:
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES}
    if kind != "no config":
        text = "{" if kind == "torn config" else json.dumps(config)
        if kind == "unknown architecture":
            text = json.dumps({"model_type": "no-such-thing"})
        (folder / "config.json").write_text(text)
    if kind == "torn weights":
        tiny.tokenizer().save_pretrained(folder)
        (folder / "model.safetensors").write_bytes(b"\x08\x00\x00\x00")
    if kind == "pickled weights":
        tiny.tokenizer().save_pretrained(folder)
        torch.save({}, folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    "kind",
    ["no config", "torn config", "unknown architecture", "no tokenizer", "torn weights", "pickled weights"],
)
def test_a_broken_folder_is_explained(tmp_path: Path, kind: str) -> None:
    broken(tmp_path, kind)
    with pytest.raises(ModelError, match="model folder") as refused:
        load_model(str(tmp_path), device="cpu")
    assert_clear(refused.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "No model was named"),
        ("   ", "No model was named"),
        ("./no/such/folder", "has no config.json"),
        ("/no/such/folder", "has no config.json"),
        ("~/no/such/folder", "has no config.json"),
        ("~nobody-has-this-name/x", "has no config.json"),
        ("/" + "x" * 5000, "has no config.json"),
        ("someone/some-model-that-nobody-has", "cannot be loaded from the hub"),
        ("not an id!", "cannot be loaded from the hub"),
        ("x" * 5000, "cannot be loaded from the hub"),
    ],
)
def test_what_cannot_be_found_is_explained(name: str, words: str) -> None:
    with pytest.raises(ModelError, match=words) as refused:
        load_model(name, device="cpu")
    assert_clear(refused.value)


def test_a_look_up_that_fails_is_told_once_and_whole(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the library's lines about every try, and without cutting what it says at the end."""
    said = f"We couldn't connect to 'https://huggingface.co'. See {'x' * 200} at 'https://the.end/of#it'."
    log = logging.getLogger("huggingface_hub.utils._http")

    def refused(*_: Any, **__: Any) -> Any:
        log.warning("Retrying in 1s [Retry 1/5].")
        raise OSError(said)

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refused)
    with pytest.raises(ModelError) as caught:
        load_model("someone/nothing", device="cpu")
    assert f"(OSError: {said[:-1]}). Check the id" in str(caught.value)
    assert "Retrying" not in caplog.text
    log.warning("and afterwards")
    assert "and afterwards" in caplog.text


def test_a_reason_that_does_not_fit_ends_with_a_word() -> None:
    told = reason(OSError("many words\n" * 100))
    assert len(told) <= LONGEST
    assert told.endswith(("many ...", "words ..."))


def test_link_tokens_in_a_home_that_nobody_has_are_missed_as_any_file_is() -> None:
    with pytest.raises(ModelError, match=r"x\.safetensors"):
        load_model("embedded+~nobody-has-this-name/x.safetensors", device="cpu")


def test_a_model_that_fails_to_load_tells_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setenv("HF_TOKEN", "abcdefgh12345678")

    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("401 for https://me:pw-of-a-proxy@hub/x with abcdefgh12345678")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refused)
    for name in ("someone/gated", str(tmp_path)):
        with pytest.raises(ModelError, match="401 for") as caught:
            load_model(name, device="cpu")
        assert "abcdefgh12345678" not in str(caught.value)
        assert "pw-of-a-proxy" not in str(caught.value)


def test_a_file_is_not_a_model() -> None:
    with pytest.raises(ModelError, match=r"has no config\.json"):
        load_model(__file__)


def test_device_and_dtype_are_checked(folder: Path) -> None:
    assert pick_device("cpu") == "cpu"
    assert pick_device(None) in ("cpu", "cuda", "mps")
    with pytest.raises(ModelError, match=r"usable: .*cpu") as refused:
        load_model(str(folder), device="abacus")
    assert refused.value.field == "model.device"
    with pytest.raises(ModelError, match="fp32, bf16, fp16") as refused:
        load_model(str(folder), device="cpu", dtype="fp8")
    assert refused.value.field == "model.dtype"


def assert_clear(error: ModelError) -> None:
    text = str(error)
    assert error.field == "model.name"
    assert "\n" not in text
    assert "Traceback" not in text
    assert any(word in text for word in ("Give", "Check", "It must hold")), "what to do is missing"
    assert len(text) < 6000
