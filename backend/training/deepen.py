"""More layers for trained weights, which at first change nothing.

A copy of a layer whose output matrices of attention and MLP are zero adds nothing to the residual stream, so
the deeper model starts with the same answers (block expansion; LLaMA Pro, Wu et al. 2024, arXiv:2401.02415).
"""

import re
from typing import Any

_LAYER = re.compile(r"(model\.layers\.)(\d+)(\..+)")
SILENT = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


def deepen(state: dict[str, Any], layers: int) -> dict[str, Any]:
    """A Llama's state dict with ``layers`` layers, each added one directly behind its original.

    Args:
        state: names and tensors of a model in the hub's layout.
        layers: at least as many as it has.

    Raises:
        ValueError: it has more layers than that.
    """
    depth = 1 + max(int(match[2]) for name in state if (match := _LAYER.fullmatch(name)))
    if layers < depth:
        raise ValueError(f"the weights have {depth} layers; a model with {layers} cannot begin with them")
    # the old layer of each new one: of several copies the first keeps all weights, the others are silent
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
