"""A device that is not the CPU, without one: what belongs to it is computed on the CPU, but tensors of the
two do not meet, as on a GPU, and what makes the CPU wait for it is counted.

A tensor on device ``far`` stands for one on the CPU, on which every operation is done after a look at what
takes part. A CPU's tensor with axes is refused beside it, as a GPU refuses it, except where torch itself
brings it over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

NAME = "far"
COPIES = frozenset({"aten::copy_", "aten::_to_copy", "aten::to"})
#: What takes tensors of both: copies, and the places that an index names.
BRINGS = COPIES | {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
#: What gives the CPU a number, or sizes a result by what stands in a tensor.
WAITS = frozenset(
    f"aten::{name}"
    for name in (
        "_local_scalar_dense", "item", "is_nonzero", "equal", "allclose", "nonzero", "argwhere",
        "masked_select", "_unique2", "unique_consecutive",
    )
)  # fmt: skip
#: How often the CPU waited for the device, by operation; what it sent there without a wait is "sent".
counted: Counter[str] = Counter()
_libraries: list[torch.library.Library] = []


class Far(Tensor):
    """A tensor on the far device; ``near`` is what it stands for."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> Far:
        return Tensor._make_wrapper_subclass(
            cls, near.shape, strides=near.stride(), storage_offset=near.storage_offset(), dtype=near.dtype,
            device=torch.device(NAME, 0), requires_grad=near.requires_grad,
        )  # fmt: skip

    def __init__(self, near: Tensor) -> None:
        self.near = near

    def __repr__(self) -> str:
        return f"Far({self.near!r})"

    def tolist(self) -> Any:
        counted["tolist"] += 1
        return self.near.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def each(found: Callable[[Any], Any], x: Any) -> Any:
    """What an operation takes or gives, each part as ``found`` makes it."""
    if isinstance(x, tuple | list):
        return type(x)(each(found, part) for part in x)
    if isinstance(x, dict):
        return {name: each(found, part) for name, part in x.items()}
    return found(x)


@cache
def operation(func: Any) -> tuple[str, tuple[str, ...]]:
    """Its name and those of its arguments."""
    return func.name().split(".")[0], tuple(a.name for a in func._schema.arguments)


def computed(func: Any, args: Any, kwargs: Any) -> Any:
    """One operation of torch of which a tensor or the result is far."""
    name, arguments = operation(func)
    home: dict[int, Far] = {}
    met = []

    def near(x: Any) -> Any:
        if isinstance(x, Far):
            home[id(x.near)] = x
            return x.near
        if isinstance(x, Tensor) and x.dim():
            met.append(x)
        return torch.device("cpu") if isinstance(x, torch.device) and x.type == NAME else x

    named = dict(zip(arguments, args, strict=False)) | kwargs
    place = named["self"].device if name == "aten::copy_" else named.get("device")
    if name == "aten::to" and "other" in named:
        place = named["other"].device
    mine, given = each(near, (args, kwargs))
    if home and met and name not in BRINGS:
        raise RuntimeError(f"{name}: tensors of {NAME} and of the CPU meet")
    there = place is None or place.type == NAME
    if name in WAITS or (home and not there):
        counted[name] += 1
    elif name in COPIES and not isinstance(named.get("src", named["self"]), Far):
        counted["sent" if named.get("non_blocking") else "sent, and waited"] += 1
    out = func(*mine, **given)

    def far(x: Any) -> Any:
        if not isinstance(x, Tensor) or not there:
            return x
        return home[id(x)] if id(x) in home else Far(x)

    with torch.inference_mode(False):  # a view of a usual tensor is one, also where inference is on
        return each(far, out)


def begin() -> str:
    """The device's name; from now on torch knows it, for as long as the process lives."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    if not _libraries:
        _setup_privateuseone_for_python_backend(NAME)
        others, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
        others.fallback(lambda func, *args, **kwargs: computed(func, args, kwargs), "PrivateUse1")
        # torch.tensor(..., device=...) asks for these past the fallback
        for func in (torch.ops.aten.copy_.default, torch.ops.aten.empty.memory_format):
            name = func.name().removeprefix("aten::")
            aten.impl(name, lambda *a, func=func, **k: computed(func, a, k), "PrivateUse1")
        _libraries.extend((others, aten))
    return NAME
