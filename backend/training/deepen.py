"""More layers for trained weights, which at first change nothing.

A copy of a layer whose last matrix of attention and of the MLP is zero adds nothing to what flows through.
So the deeper model answers as the other did, and training goes on from there (block expansion; LLaMA Pro, Wu
et al. 2024, arXiv:2401.02415).
"""

import re
from typing import Any

_LAYER = re.compile(r"(model\.layers\.)(\d+)(\..+)")
SILENT = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


def deepen(state: dict[str, Any], layers: int) -> dict[str, Any]:
    """A Llama's state dict with ``layers`` layers, each added one behind the one that it is a copy of.

    Args:
        state: names and tensors of a model in the hub's layout.
        layers: at least as many as it has.

    Raises:
        ValueError: it has more layers than that.
    """
    depth = 1 + max(int(match[2]) for name in state if (match := _LAYER.fullmatch(name)))
    if layers < depth:
        raise ValueError(f"the weights have {depth} layers; a model with {layers} cannot begin with them")
    # the layer that each of the new model's begins with; the first of those that share one is the trained one
    source = [(at * depth) // layers for at in range(layers)]
    deeper = {name: tensor for name, tensor in state.items() if not _LAYER.fullmatch(name)}
    for at, old in enumerate(source):
        for name, tensor in state.items():
            if (match := _LAYER.fullmatch(name)) and int(match[2]) == old:
                copied = tensor.clone()
                if at and source[at - 1] == old and name.endswith(SILENT):
                    copied.zero_()
                deeper[f"{match[1]}{at}{match[3]}"] = copied
    return deeper
