"""Models spread by a device map, and models with rounded weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch import nn

from backend.engine import Engine
from backend.errors import ModelError
from backend.kv import BufferLayer
from backend.model import load_model, wrap_model
from backend.placing import dtype_of, placing
from backend.session import LabSession


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
    given = {"device": None, "where": "cpu", "device_map": None, "quantise": None, "links": "", **asked}
    with pytest.raises(ModelError, match=said):
        placing(**given)


@pytest.mark.parametrize(("name", "asked"), [("accelerate", "device_map"), ("bitsandbytes", "quantise")])
def test_a_missing_package_is_named(name: str, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.placing.find_spec", lambda package: None)
    given = {"device_map": None, "quantise": None} | {asked: "auto" if asked == "device_map" else "8bit"}
    with pytest.raises(ModelError, match=f"needs {name}, which is not installed"):
        placing(None, "cpu", links="", **given)


def test_bits_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.placing.find_spec", lambda package: object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match="needs a CUDA device"):
        placing(None, "cpu", None, "4bit", "")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_weights_published_in_8_bits_run_as_they_are(tmp_path: Path) -> None:
    """Quantised by torchao and saved, as checkpoints of the hub are; loaded, certified, and reused from."""
    from torchao.quantization import Int8WeightOnlyConfig
    from transformers import AutoModelForCausalLM, TorchAoConfig

    for name, how in (("whole", None), ("rounded", TorchAoConfig(Int8WeightOnlyConfig()))):
        tiny.model().module.save_pretrained(tmp_path / "source")
        made = AutoModelForCausalLM.from_pretrained(
            tmp_path / "source", dtype=torch.float32, quantization_config=how, device_map={"": "cpu"}
        )
        made.save_pretrained(tmp_path / name)
        tiny.tokenizer().save_pretrained(tmp_path / name)
    whole, rounded = (load_model(str(tmp_path / name), device="cpu") for name in ("whole", "rounded"))
    assert (rounded.info.dtype, rounded.info.kv_bytes_per_token) == ("fp32", whole.info.kv_bytes_per_token)
    assert rounded.info.certificate.relocatable
    assert len({whole.info.weights_hash, rounded.info.weights_hash, tiny.model().info.weights_hash}) == 2
    far = (logits(rounded) - logits(whole)).abs().max() / logits(whole).abs().max()
    assert 0 < far < 0.1, "rounded, and not much"
    session = LabSession(rounded)
    for question in tiny.QUESTIONS[:2]:
        record = tiny.run(session, tiny.request(("dense", "naive", "kvcomm"), question))
    assert record.outcome(2, "naive").state == "reused"
