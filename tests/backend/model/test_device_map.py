"""Models spread by a device map, and models with rounded weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from backend.base.errors import ModelError
from backend.cache.kv_cache import BufferLayer
from backend.engine.engine import Engine
from backend.model.device_map import dtype_of, placement_options, plain_parts
from backend.model.load import load_model, wrap_model
from backend.session.session import LabSession


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tiny model in hub layout."""
    tiny.model().module.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    return tmp_path


def logits(model: Any) -> torch.Tensor:
    return Engine(model).prefill([5, 9, 7, 30, 12])[1]


def test_a_mapped_model_is_the_model(folder: Path) -> None:
    """Also where a layer's weights wait outside of the device until they are needed."""
    plain = load_model(str(folder), device="cpu")
    parts = ("embed_tokens", "rotary_emb", "norm", "layers.0", "layers.2")
    apart = {f"model.{part}": "cpu" for part in parts} | {"lm_head": "cpu", "model.layers.1": "disk"}
    for place in ("auto", apart):
        mapped = load_model(str(folder), device_map=place)
        assert mapped.info.certificate.relocatable
        assert mapped.info.weights_hash == plain.info.weights_hash
        if plain.device.type == mapped.device.type:
            assert torch.equal(logits(mapped), logits(plain))


class Rounded(nn.Module):
    """A linear layer in 8 bits, as quantising loaders put in a model's place of a float one."""

    def __init__(self, whole: nn.Linear) -> None:
        super().__init__()
        scale = whole.weight.detach().abs().amax(dim=1, keepdim=True) / 127
        self.weight = nn.Parameter(
            (whole.weight.detach() / scale).round().to(torch.int8), requires_grad=False
        )
        self.scale = nn.Parameter(scale, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight * self.scale)


def test_rounded_weights_keep_a_float_cache() -> None:
    module = tiny.llama()
    whole = wrap_model(tiny.llama().eval(), tiny.tokenizer(), name="whole")
    for layer in module.model.layers:
        layer.mlp.up_proj = Rounded(layer.mlp.up_proj)
    module.model.embed_tokens.to(torch.float32)
    model = wrap_model(module.eval(), tiny.tokenizer(), name="rounded")
    assert (model.info.dtype, model.info.kv_bytes_per_token) == ("fp32", whole.info.kv_bytes_per_token)
    assert model.info.certificate.relocatable
    assert model.info.weights_hash != whole.info.weights_hash
    apart = (logits(model) - logits(whole)).abs().max()
    assert 0 < apart < 0.2 * logits(whole).abs().max()
    ints = nn.Linear(2, 2, dtype=torch.float64)
    with pytest.raises(ModelError, match="float32, bfloat16 or float16"):
        dtype_of(ints)


def test_a_layer_elsewhere_gets_the_cache_where_it_is() -> None:
    layer = BufferLayer(torch.zeros(1, 1, 4, 2), torch.zeros(1, 1, 4, 2), 1)
    new = torch.ones(1, 1, 2, 2)
    keys, values = layer.update(new, new)
    assert (keys[:, :, 1:] == 1).all()
    assert (values[:, :, 1:] == 1).all()
    assert keys.data_ptr() == layer.key_buffer.data_ptr(), "no copy where none is needed"
    far = torch.ones(1, 1, 1, 2, device="meta")
    layer.key_buffer, layer.value_buffer = (x.to("meta") for x in (layer.key_buffer, layer.value_buffer))
    assert layer.update(far, far)[0].shape[2] == 4


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"device_map": "fast"}, "allowed: auto"),
        ({"device_map": "auto", "device": "cpu"}, "Give one of the two"),
        ({"quantise": "3bit"}, "allowed: 4bit, 8bit"),
        ({"device_map": "auto", "links": "kvlink5"}, "Leave out"),
    ],
)
def test_what_does_not_go_together_is_refused(asked: dict[str, Any], said: str) -> None:
    given = {"device": None, "target": "cpu", "device_map": None, "quantise": None, "links": "", **asked}
    with pytest.raises(ModelError, match=said):
        placement_options(**given)


@pytest.mark.parametrize(("name", "asked"), [("accelerate", "device_map"), ("bitsandbytes", "quantise")])
def test_a_missing_package_is_named(name: str, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.model.device_map.find_spec", lambda package: None)
    given = {"device_map": None, "quantise": None} | {asked: "auto" if asked == "device_map" else "8bit"}
    with pytest.raises(ModelError, match=f"needs {name}, which is not installed"):
        placement_options(None, "cpu", links="", **given)


def test_bits_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.model.device_map.find_spec", lambda package: object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match="needs a CUDA device"):
        placement_options(None, "cpu", None, "4bit", "")


def as_fp8(folder: Path) -> None:
    """A checkpoint's linear layers in 8-bit floats with a scale for each block, as Qwen and DeepSeek publish
    theirs."""
    whole, found = load_file(folder / "model.safetensors"), {}
    for name, weight in whole.items():
        found[name] = weight
        if name.endswith("proj.weight"):  # all of the tiny model's are one block
            scale = weight.abs().max() / torch.finfo(torch.float8_e4m3fn).max
            found[name] = (weight / scale).to(torch.float8_e4m3fn)
            blocks = [-(-side // 128) for side in weight.shape]
            found[f"{name}_scale_inv"] = scale.expand(blocks).contiguous()
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    said = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    config["quantization_config"] = said | {"activation_scheme": "dynamic"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


@pytest.mark.slow
def test_weights_that_were_published_in_fp8_run(folder: Path) -> None:
    """Loaded, certified, and reused from; a device that does not compute in 8 bits widens them."""
    whole = load_model(str(folder), device="cpu")
    as_fp8(folder)
    rounded = load_model(str(folder), device="cpu")
    assert rounded.info.certificate.relocatable
    assert rounded.info.parameters == whole.info.parameters
    assert rounded.info.weights_hash != whole.info.weights_hash
    far = (logits(rounded) - logits(whole)).abs().max() / logits(whole).abs().max()
    assert 0 < far < 0.3, "rounded, and still the model"
    record = tiny.run(LabSession(rounded), tiny.request(("dense", "naive", "kvcomm")))
    assert record.outcome(2, "naive").state == "reused"


def test_rounded_weights_are_hashed_by_what_they_are_stored_as() -> None:
    """torchao's tensors hold numbers and scales, and cannot be viewed as bytes themselves."""

    class Apart:
        def __init__(self, **parts: Any) -> None:
            vars(self).update(parts)

        def __tensor_flatten__(self) -> tuple[list[str], None]:
            return list(vars(self)), None

    numbers, scale, zero = torch.ones(2, dtype=torch.int8), torch.ones(1), torch.zeros(1)
    rounded: Any = Apart(numbers=numbers, scales=Apart(scale=scale, zero=zero))
    assert [id(x) for x in plain_parts(rounded)] == [id(numbers), id(scale), id(zero)]
    assert [id(x) for x in plain_parts(scale)] == [id(scale)]
