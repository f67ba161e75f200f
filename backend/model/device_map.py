"""Weights on several devices, or quantised.

A model that is too large for one device is spread by layers (accelerate's device map); its whole cache is on
the device of its embeddings, and layers elsewhere get copies. Weights in 4 or 8 bits are as transformers
loads them; keys and values have the dtype of the weights that are not quantised.
"""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from backend.base.errors import ModelError
from backend.base.ranges import check_choice

DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
QUANTISE = ("4bit", "8bit")
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def placement_options(
    device: str | None,
    target: str,
    device_map: str | Mapping[str, Any] | None,
    quantise: str | None,
    links: str,
) -> dict[str, Any]:
    """Options for transformers on devices and quantisation; empty for a plain model.

    Args:
        device: as requested, or None.
        target: the device that is used otherwise.
        device_map: see :func:`backend.model.load.load_model`; also a table of modules and devices.
        quantise: see there.
        links: name of link tokens to add to the weights, or empty.

    Raises:
        ModelError: the choices are unknown, exclude each other, or need something that is missing.
    """
    options: dict[str, Any] = {}
    if device_map is not None:
        if isinstance(device_map, str):
            check_choice(device_map, DEVICE_MAPS, "model.device_map", "The device map", ModelError)
        if device is not None:
            raise ModelError(
                f"A device map spreads the model over all devices, but the device {device!r} was named too. "
                "Give one of the two.",
                field="model.device_map",
            )
        _require("accelerate", "A device map")
        options["device_map"] = device_map if isinstance(device_map, str) else dict(device_map)
    if quantise is not None:
        check_choice(quantise, QUANTISE, "model.quantise", "The number of bits", ModelError)
        _require("bitsandbytes", f"Loading weights in {quantise}")
        if not torch.cuda.is_available():
            raise ModelError(
                f"Loading weights in {quantise} needs a CUDA device, and there is none. Leave it out, or "
                "give a model that was published quantised.",
                field="model.quantise",
            )
        from transformers import BitsAndBytesConfig

        options["quantization_config"] = BitsAndBytesConfig(**{f"load_in_{quantise}": True})
        options.setdefault("device_map", {"": target})
    if options and links:
        raise ModelError(
            f"The deltas of {links!r} are added to whole weights on one device. Leave out the device map and "
            "quantisation, or the links.",
            field="model.device_map" if device_map is not None else "model.quantise",
        )
    return options


def _require(package: str, feature: str) -> None:
    if find_spec(package) is None:
        raise ModelError(
            f"{feature} needs {package}, which is not installed. Install it: pip install {package}",
            field="model.device_map" if package == "accelerate" else "model.quantise",
        )


def home_of(module: Any) -> torch.device:
    """The device of a model's inputs and caches."""
    hook = getattr(module.get_input_embeddings(), "_hf_hook", None)
    execution_device = getattr(hook, "execution_device", None)
    if execution_device is not None:
        return torch.device(execution_device)
    device: torch.device = next(module.parameters()).device
    return device


def dtype_of(module: Any) -> torch.dtype:
    """The dtype of a model's keys and values: that of its weights that are not quantised.

    Raises:
        ModelError: no weights are in a dtype that the lab computes in.
    """
    for parameter in module.parameters():
        if parameter.dtype in FLOATS:
            dtype: torch.dtype = parameter.dtype
            return dtype
    raise ModelError(
        "None of this model's weights is in float32, bfloat16 or float16, so its caches would be in a dtype "
        "that the lab does not compute in. Give --dtype, or another model.",
        field="model.dtype",
    )


def whole_state(module: Any) -> Mapping[str, Tensor]:
    """A model's weights, including those that are offloaded until their layer runs."""
    state: Mapping[str, Tensor] = module.state_dict()
    if any(tensor.is_meta for tensor in state.values()):
        from accelerate.utils.modeling import get_state_dict_offloaded_model

        weights = get_state_dict_offloaded_model(module)
        # In the module's order; tied weights appear under both names.
        state = {key: weights.get(key, tensor) for key, tensor in state.items()}
    return state


def plain_parts(tensor: Tensor) -> Iterator[Tensor]:
    """The tensors that store a weight: itself, or the numbers and scales of a quantised one (torchao's)."""
    taken_apart = getattr(tensor, "__tensor_flatten__", None)
    if taken_apart is None:
        yield tensor
    else:
        for name in taken_apart()[0]:
            yield from plain_parts(getattr(tensor, name))
