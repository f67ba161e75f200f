"""What the Triton kernels become on a GPU, without one: code that reads in wide loads and hardly spills.

Triton compiles for a device that is not there; how fast the code is only the device itself can tell.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed (it comes with torch for CUDA)")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from backend.cache.kernels import triton_kernels as fused  # noqa: E402

WIDE = 16  # bytes; the most that a thread loads at once
POINTERS = dict.fromkeys(("starts", "rules"), "*i64")
POINTERS |= dict.fromkeys(("weights", "cosines", "sines", "out"), "*fp32")
#: Sizes that no model makes a multiple of sixteen.
ODD = {"tokens", "anchors", "heads", "mine"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


def compiled(kernel: Any, capability: int, dtype: str, tensors: tuple[str, ...], **fixed: Any) -> Any:
    """The kernel for tensors of ``dtype``, as it is launched for a model's usual sizes."""
    names = [p.name for p in kernel.params]
    kind = dict.fromkeys(names, "i32")
    kind |= {name: what for name, what in POINTERS.items() if name in names}
    kind |= dict.fromkeys(tensors, f"*{dtype}") | dict.fromkeys(fixed, "constexpr")
    even = {(names.index(n),): [["tt.divisibility", 16]] for n in names if n not in ODD and n not in fixed}
    source = ASTSource(fn=kernel, signature=kind, constexprs=fixed, attrs=even)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32))


def widths(ptx: str, what: str) -> Counter[int]:
    """How often the code loads or stores (``ld`` or ``st``) so many bytes at once."""
    found = re.findall(rf"\b{what}\.global[.\w:]*?(?:\.v(\d))?\.b(\d+)", ptx)
    return Counter(int(many or 1) * int(bits) // 8 for many, bits in found)


def spilled(code: Any, path: Path) -> int:
    """Bytes of each thread that do not fit into registers."""
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    path.write_bytes(code.asm["cubin"])
    told = subprocess.run(
        [str(tools / "cuobjdump"), "--dump-resource-usage", str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    used = re.search(r"REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", told)
    assert used, told
    assert int(used[1]) <= 128, "at least four programs beside each other"
    return int(used[2]) + int(used[3])


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(("rotated", "interleaved"), [(128, False), (64, False), (128, True)])
@pytest.mark.sampled(32)
def test_a_blend_reads_in_wide_loads(
    capability: int, dtype: str, rotated: int, interleaved: bool, tmp_path: Path
) -> None:
    code = compiled(
        fused._mix_and_rotate, capability, dtype, ("base_keys", "base_values", "rows", "keys", "values"),
        dim=128, rotated=rotated, interleaved=interleaved, block=fused.TOKENS, pairs=64,
    )  # fmt: skip
    loads, stores = widths(code.asm["ptx"], "ld"), widths(code.asm["ptx"], "st")
    # Keys and values of a span and of an anchor, both halves of each pair; cosines and sines.
    runs = fused.TOKENS * 128 // (32 * 4) * (4 if dtype == "fp32" else 2) // WIDE
    assert loads[WIDE] == 4 * runs + 4, loads
    assert stores == {WIDE: 2 * runs}
    assert sum(loads.values()) - loads[WIDE] <= 6, (
        "beside them: an anchor's place, its weight, the layer's rule"
    )
    assert spilled(code, tmp_path / "blend.cubin") <= 8, "at most an address, put aside before the loop"


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.sampled(32)
def test_distances_read_in_wide_loads(capability: int, dtype: str, tmp_path: Path) -> None:
    code = compiled(
        fused._squared_distances, capability, dtype, ("rows",), block=fused.TOKENS, width=fused.FEATURES
    )
    loads = widths(code.asm["ptx"], "ld")
    assert (
        loads[WIDE] == 2 * fused.TOKENS * fused.FEATURES // (32 * 4) * (4 if dtype == "fp32" else 2) // WIDE
    )
    assert sum(loads.values()) - loads[WIDE] <= 1, "where an anchor lies"
    assert spilled(code, tmp_path / "distances.cubin") == 0
