"""Loads a causal language model and certifies that its keys can be moved."""

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backend.base.errors import ModelError
from backend.base.hub_errors import quiet_lookups, reason
from backend.base.ranges import check_choice
from backend.cache.kernels.distances import descriptor_dtype
from backend.cache.kv_cache import KVCache, made_cache
from backend.cache.rope import Rotation
from backend.model.certificate import certify
from backend.model.device_map import dtype_of, home_of, placement_options, plain_parts, whole_state
from backend.model.link_tokens import Links, apply_links, find_links
from backend.model.low_rank import LowRank
from backend.model.suitability import check_causal, check_loaded
from backend.model.tokenizer import Tokens
from backend.prompts.pipeline import Pipeline
from backend.records.model_info import ModelInfo

EMBEDDED = Path(__file__).resolve().parents[2] / "presets" / "model"
#: The models that ship with the lab, by name; each has a tokenizer of its own.
SHIPPED = {"embedded": EMBEDDED, "embedded-small": EMBEDDED.with_name("model-small")}
HASH_WHOLE_FILES_UP_TO = 1 << 30
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run: transformers' module, its tokens, its rotation and its facts."""

    module: Any
    tokens: Tokens
    rotation: Rotation
    info: ModelInfo
    links: Links | None = None  # link tokens that the weights were trained with
    low_rank: LowRank | None = None  # of a variant of a loaded model: what its adapter adds to K and V

    @property
    def device(self) -> torch.device:
        return torch.device(self.info.device)

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.info.dtype]

    def new_cache(self, capacity: int, rows: int = 1) -> KVCache:
        """An empty cache for ``capacity`` tokens."""
        shape = (self.info.layers, rows, self.info.kv_heads, capacity, self.info.head_dim)
        return KVCache(shape, self.dtype, self.device)

    def embed(self, ids: tuple[int, ...]) -> Tensor:
        """Input embeddings (the papers' h at layer 1), (tokens, hidden), in the dtype of descriptors."""
        table: Tensor = self.module.get_input_embeddings().weight.detach()
        rows = table[torch.tensor(ids, dtype=torch.long).to(table.device, non_blocking=True)]
        return rows.to(descriptor_dtype(table.dtype, table.device))

    def count_tokens(self, pipeline: Pipeline, agent: int, values: Mapping[str, str]) -> int:
        """Tokens of an agent's prompt; placeholders without a value count as empty."""
        names = {p.name for p in pipeline.template(agent).placeholders}
        ids = {name: self.tokens.encode(values.get(name, "")) for name in names}
        return len(self.tokens.prompt(pipeline, agent, ids).ids)


def pick_device(name: str | None) -> str:
    """``name`` if it is usable, else the best there is: cuda, mps, cpu."""
    available = {"cpu"}
    if torch.cuda.is_available():
        available.add("cuda")
    if torch.backends.mps.is_available():
        available.add("mps")
    if name is None:
        return next(d for d in ("cuda", "mps", "cpu") if d in available)
    if name not in available:
        raise ModelError(
            f"The device {name!r} is not usable here; usable: {', '.join(sorted(available))}. Choose "
            "one of them.",
            field="model.device",
        )
    return name


def load_model(
    name: str = "embedded",
    *,
    device: str | None = None,
    dtype: str | None = None,
    device_map: str | Mapping[str, Any] | None = None,
    quantise: str | None = None,
) -> LoadedModel:
    """Load a model by ``"embedded"`` or ``"embedded-small"``, local folder or hub id, and certify it.

    ``BASE+LINKS`` is a base with link tokens and the deltas trained with them: the name of shipped ones
    (``embedded+kvlink5``), or a file that ``kvlab train-links`` wrote.

    Args:
        name: which model.
        device: ``cpu``, ``cuda`` or ``mps``; the best available when absent.
        dtype: ``fp32``, ``bf16`` or ``fp16``; bf16 on CUDA and fp32 elsewhere when absent.
        device_map: spreads the layers over all devices by accelerate (:mod:`backend.model.device_map`),
            instead of ``device``.
        quantise: ``4bit`` or ``8bit``: round the weights while loading them. Weights that were published
            quantised are loaded as they are, without it.

    Raises:
        ModelError: it cannot be found, reached, read or run; the message says what to do.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    if not sys.stderr.isatty():
        logging.disable_progress_bar()  # a progress bar would fill a log file
    name = full_name = name.strip()
    links_name = ""
    if not _exists(Path(os.path.expanduser(name))):
        name, _, links_name = name.partition("+")
    file = find_links(links_name) if links_name else None
    source = str(SHIPPED.get(name, name))
    target = pick_device(device)
    kind = dtype or ("bf16" if target == "cuda" else "fp32")
    check_choice(kind, DTYPES, "model.dtype", "The dtype", ModelError)
    if not name:
        raise ModelError("No model was named. Give 'embedded', a folder, or a hub id.", field="model.name")
    placement = placement_options(device, target, device_map, quantise, links_name)
    looks_local = name in SHIPPED or name[0] in "./~\\" or _exists(Path(name))
    if looks_local:
        source = os.path.expanduser(source)
        if not _exists(Path(source) / "config.json"):
            raise ModelError(
                f"The model folder {name!r} has no config.json. Give a folder in hub layout "
                "(config.json, *.safetensors, tokenizer files), a hub id, or 'embedded'.",
                field="model.name",
            )
    try:
        with quiet_lookups():
            tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
            config = AutoConfig.from_pretrained(source, trust_remote_code=False)
            check_causal(name, config)
            if not placement and getattr(config, "quantization_config", None):
                placement = {
                    "device_map": {"": target}
                }  # not all quantised weights can be moved after loading
            module = AutoModelForCausalLM.from_pretrained(
                source,
                config=config,
                dtype=DTYPES[kind],  # attention: sdpa where the architecture has it, else eager
                use_safetensors=True,
                trust_remote_code=False,
                **placement,
            )
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(_loading_failed(name, looks_local, error), field="model.name") from None
    check_loaded(name, module, tokenizer)
    if not placement:
        module = module.to(target)
    links = apply_links(module, file, name) if file else None
    if file:
        name = f"{Path(name).name}+{file.stem}" if looks_local else full_name
    source = "" if looks_local else name
    return wrap_model(module.eval(), tokenizer, name=name, source=source, links=links)


def is_shipped(name: str) -> bool:
    """Whether a name is that of a model that ships with the lab, with or without link tokens."""
    return name.strip().partition("+")[0] in SHIPPED


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is too long for a path
        return False


def _loading_failed(name: str, local: bool, error: Exception) -> str:
    detail = reason(error)
    if local:
        return (
            f"The model folder {name!r} cannot be loaded ({type(error).__name__}: {detail}). It must hold "
            "config.json, safetensors weights and a tokenizer of an architecture that transformers knows."
        )
    return (
        f"The model {name!r} cannot be loaded from the hub ({type(error).__name__}: {detail}). "
        "Check the id and the network; for a gated model log in first; without a network give a local "
        "folder or 'embedded'."
    )


def wrap_model(
    module: Any, tokenizer: Any, *, name: str, source: str = "", links: Links | None = None
) -> LoadedModel:
    """Certify a module in memory and collect its facts. ``links``: of its weights."""
    config = module.config.get_text_config()
    home, kind = home_of(module), dtype_of(module)
    heads = int(config.num_attention_heads)
    layers, kv_heads, head_dim = _cache_shape(module, name)
    try:
        certificate, rotation = certify(module, (layers, 1, kv_heads, head_dim))
    except Exception as error:  # a family may cache something else than keys and values
        raise ModelError(
            f"The model {name!r} ({type(module).__name__}) cannot read with the lab's cache of keys and "
            f"values ({type(error).__name__}: {' '.join(str(error).split())[:120]}). The lab needs a decoder "
            "with plain attention in every layer, such as Llama, Qwen or Gemma 3. Give another model.",
            field="model.name",
        ) from None
    dtype = next(k for k, v in DTYPES.items() if v == kind)
    info = ModelInfo(
        name=name if not Path(name).is_absolute() else Path(name).name,
        source=source,
        weights_hash=weights_hash(module),
        parameters=sum(p.numel() for p in module.parameters()),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=int(config.vocab_size),
        context_tokens=_context_tokens(config),
        device=str(home.type),
        dtype=dtype,
        kv_bytes_per_token=2 * layers * kv_heads * head_dim * kind.itemsize,
        certificate=certificate,
        links=None if links is None else links.tokens,
        family=str(config.model_type),
    )
    tokens = Tokens(tokenizer, fills_results=bool(getattr(config, "fills_results", False)))
    return LoadedModel(module, tokens, rotation, info, links)


@torch.inference_mode()
def _cache_shape(module: Any, name: str) -> tuple[int, int, int]:
    """Layers, KV heads and head size, from the cache that the model itself makes for two tokens:
    configurations name them in many ways, and some architectures cache something else.

    Raises:
        ModelError: the layers do not all cache keys and values of one shape.
    """
    ids = torch.ones(1, 2, dtype=torch.long, device=home_of(module))
    count = int(module.config.get_text_config().num_hidden_layers)
    cache, cause = None, "it has none"
    try:
        cache = made_cache(module(input_ids=ids, use_cache=True))
    except Exception as error:  # an architecture may need other inputs
        cause = f"it cannot read two tokens: {' '.join(str(error).split())[:120]}"
    layers = list(getattr(cache, "layers", ()))
    tensors = [getattr(layer, part, None) for layer in layers for part in ("keys", "values")]
    shapes = {tuple(x.shape) if isinstance(x, Tensor) else None for x in tensors}
    if cache is not None:
        sizes = ", ".join(sorted("none" if x is None else f"{x[1]} x {x[3]}" for x in shapes)) or "none"
        cause = f"heads x size: {sizes}, in {len(layers)} layers"
    if len(shapes) != 1 or None in shapes or len(layers) != count:
        raise ModelError(
            f"The model {name!r} ({type(module).__name__}) does not keep keys and values of one shape in "
            f"each of its {count} layers ({cause}). The lab needs a decoder with plain attention in every "
            "layer, such as Llama, Qwen or Gemma 3. Give another model.",
            field="model.name",
        )
    [shape] = shapes
    assert shape is not None
    return count, shape[1], shape[3]


def _context_tokens(config: Any) -> int:
    """The most tokens of a prompt and its answer. At most the length at which ``longrope`` switches
    frequencies, since keys cannot be moved across the switch (``dynamic`` switches at the limit), and below
    the start of Llama 4's temperature tuning, which counts places of the cache, including padding."""
    names = ("max_position_embeddings", "max_seq_len", "seq_length")
    limit = next((int(value) for value in (getattr(config, name, None) for name in names) if value), 2048)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        original: Any = rope.get("original_max_position_embeddings") or limit
        limit = min(limit, int(original))
    if getattr(config, "attn_temperature_tuning", None) and (floor := getattr(config, "floor_scale", None)):
        limit = min(limit, int(floor) - 1)
    return limit


def weights_hash(module: Any) -> str:
    """First 16 hex digits of a SHA-256 over the weights (a strided sample of tensors beyond 1 GiB)."""
    digest = hashlib.sha256()
    total = sum(p.numel() * p.element_size() for p in module.parameters())
    stride = 1 if total <= HASH_WHOLE_FILES_UP_TO else total // HASH_WHOLE_FILES_UP_TO + 1
    for key, tensor in whole_state(module).items():
        digest.update(key.encode())
        for part in plain_parts(tensor.detach()):
            sample = part.flatten()[::stride].contiguous().cpu()
            digest.update(sample.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
