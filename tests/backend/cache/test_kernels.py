"""The reuse path's inner loops give what the equations say, written out here one step after another.

Run as a program, it compares the Triton kernels with the torch path on the device named as its argument.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.cache.kernels import distances
from backend.cache.kernels.mix_and_rotate import mix_and_rotate, weighted_sum
from backend.cache.kernels.mixture import Mixture
from backend.cache.kv_cache import KVSegment
from backend.cache.rope import LayerRotation, Rotation
from backend.cache.row_arena import Arena
from backend.cache.samples import SampleLog
from backend.model.load import wrap_model

HALVES = LayerRotation(torch.tensor([1.0, 0.3, 0.1, 0.01]))
FREE = LayerRotation(torch.empty(0))
PART = LayerRotation(torch.tensor([1.0, 0.2, 0.1]))
NEIGHBOURS = LayerRotation(torch.tensor([1.0, 0.3, 0.1, 0.01]), interleaved=True)
OTHER = LayerRotation(torch.tensor([0.5, 0.2, 0.05, 0.001]))
KINDS = {
    "halves": (HALVES,) * 3,
    "part": (PART,) * 3,
    "neighbours": (NEIGHBOURS,) * 3,
    "two rules": (OTHER, OTHER, HALVES),
    "layers without position": (HALVES, FREE, HALVES),
    "no position": (FREE,) * 3,
}
HEADS, DIM = 2, 8


def no_limit() -> int:
    return 1 << 60


class Case:
    """A span with ``tokens`` of its own and offsets of dtype ``kept`` in an arena, lying evenly or not."""

    def __init__(
        self,
        kind: str,
        tokens: int,
        anchors: int,
        even: bool,
        dtype: torch.dtype,
        device: str,
        seed: int = 0,
        kept: torch.dtype | None = None,
    ) -> None:
        draw = torch.Generator().manual_seed(seed)
        rules = KINDS[kind]

        def one(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=draw).to(device, dtype)

        self.rotation = Rotation(rules)
        self.arena = Arena((2, len(rules), HEADS, DIM), kept or dtype, torch.device(device))
        kept, self.starts = [], []
        for number in range(anchors):
            kept.append(self.arena.take(tokens + 2 + (0 if even else number % 3), no_limit))
            kept[-1].tensor.copy_(one(*kept[-1].tensor.shape))
        self.kept = kept
        self.starts = [rows.start + 1 for rows in kept]  # a part of them
        shape = (len(rules), HEADS, tokens + 3, DIM)
        self.base = KVSegment(one(*shape), one(*shape), 0, True, "")
        self.weights = torch.rand(anchors, tokens, generator=draw).softmax(dim=0).to(device)
        self.positions = torch.arange(7, 7 + tokens, device=device)
        # A place in the middle of a larger cache.
        room = (len(rules), 1, HEADS, tokens + 9, DIM)
        self.keys, self.values = (torch.zeros(room, dtype=dtype, device=device) for _ in range(2))

    @property
    def mixture(self) -> Mixture | None:
        return Mixture(self.arena, tuple(self.starts), self.weights) if self.starts else None

    def places(self) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = len(self.positions)
        return self.keys[:, 0, :, 4 : 4 + tokens], self.values[:, 0, :, 4 : 4 + tokens]

    def run(self, how: Callable[..., Any] = mix_and_rotate) -> tuple[torch.Tensor, torch.Tensor]:
        assert how(self.base, self.mixture, self.positions, self.rotation, *self.places()) is not False
        return self.places()

    def wanted(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Eq. 6 in fp32, anchor by anchor, and one rotation."""
        tokens = len(self.positions)
        keys, values = (x[:, :, :tokens].float().clone() for x in (self.base.keys, self.base.values))
        for weight, start in zip(self.weights, self.starts, strict=True):
            rows = self.arena.buffer[start : start + tokens].float()
            keys += weight[:, None] * rows[:, 0].permute(1, 2, 0, 3)
            values += weight[:, None] * rows[:, 1].permute(1, 2, 0, 3)
        return self.rotation.rotate(keys, self.positions), values

    def error(self, found: tuple[torch.Tensor, torch.Tensor]) -> float:
        return max(float((a.float() - b).abs().max()) for a, b in zip(found, self.wanted(), strict=True))

    def untouched(self) -> bool:
        """Nothing was written beside the place."""
        tokens = len(self.positions)
        every = (self.keys, self.values)
        return not any(x[..., :4, :].any() or x[..., 4 + tokens :, :].any() for x in every)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    tokens=st.integers(1, 9),
    anchors=st.integers(0, 4),
    even=st.booleans(),
    piece_bytes=st.sampled_from([1, 1000, 1 << 20]),
    width=st.sampled_from([1, 4, 7, 1 << 20]),
    kept=st.sampled_from([torch.float32, torch.float16]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_blending_is_eq_6_and_one_rotation(
    kind: str,
    tokens: int,
    anchors: int,
    even: bool,
    piece_bytes: int,
    width: int,
    kept: torch.dtype,
    seed: int,
) -> None:
    """Whatever lies evenly or not, and however much is taken at a time."""
    case = Case(kind, tokens, anchors, even, torch.float32, "cpu", seed, kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backend.cache.kernels.mix_and_rotate.PIECE_BYTES", piece_bytes)
        patch.setattr("backend.cache.kernels.mix_and_rotate.SUM_WIDTH", width)
        found = case.run()
    assert case.error(found) <= (1e-5 if kept == torch.float32 else 8 * torch.finfo(kept).eps)
    assert case.untouched()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_errs_by_its_rounding(dtype: torch.dtype) -> None:
    case = Case("halves", 6, 3, True, dtype, "cpu")
    assert case.error(case.run()) <= 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_sum_of_halves_over_many_anchors_is_rounded_once(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    arena = Arena((2, 3, 2, 16), dtype, torch.device("cpu"))
    kept = [arena.take(5, no_limit) for _ in range(64)]
    for rows in kept:
        rows.tensor.copy_(1 + torch.randn(rows.tensor.shape, generator=draw))
    weights = torch.full((64, 5), 1 / 64)  # exact in every dtype
    found = weighted_sum(Mixture(arena, tuple(rows.start for rows in kept), weights), 1, 5).double()
    exact = torch.stack([rows.tensor[1:].double() / 64 for rows in kept]).sum(0)
    assert float((found - exact).abs().max() / exact.abs().max()) <= torch.finfo(dtype).eps


def descriptors(
    tokens: int, lengths: tuple[int, ...], features: int, device: str, dtype: torch.dtype = torch.float32
) -> tuple[Any, list[Any]]:
    arena = Arena((features,), dtype, torch.device(device))
    draw = torch.Generator().manual_seed(0)
    mine, *theirs = (arena.take(n, no_limit) for n in (tokens, *lengths))
    for rows in (mine, *theirs):
        rows.tensor.copy_(torch.randn(rows.count, features, generator=draw))
    theirs[0].tensor[:tokens] = mine.tensor
    return mine, theirs


def distances_by_hand(mine: Any, theirs: list[Any]) -> torch.Tensor:
    pairs = [mine.tensor.double() - rows.tensor[: mine.count].double() for rows in theirs]
    return torch.stack([apart.square().sum(dim=-1) for apart in pairs])


@pytest.mark.parametrize("piece_bytes", [1, 500, 1 << 20])
def test_distances_are_sums_of_squares(piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "PIECE_BYTES", piece_bytes)
    mine, theirs = descriptors(7, (7, 7, 7, 9, 8, 7), 20, "cpu")
    for anchors in (theirs, theirs[::-1], theirs[1::2], theirs[:1]):
        found = distances.squared_distances(mine, anchors)
        assert torch.allclose(found.double(), distances_by_hand(mine, anchors), rtol=1e-5)
    assert (found[0] == 0).all(), "a text is no distance from itself"


@pytest.mark.parametrize("widened", [False, True])
def test_descriptors_are_kept_as_the_embeddings_are(widened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel widens them, in the model's 16 bits; elsewhere in fp32. They say the same."""
    monkeypatch.setattr(distances, "triton_on", lambda device: widened)
    model = wrap_model(tiny.llama().to(torch.bfloat16), tiny.tokenizer(), name="narrow")
    table = model.module.get_input_embeddings().weight.detach()
    kept = model.embed((3, 1, 4))
    assert kept.dtype == (torch.bfloat16 if widened else torch.float32)
    kv = KVSegment(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2), 0, True, "nothing")
    sample = SampleLog("d", 1 << 20).add("text", (3, 1, 4), "", kv, kept)
    assert sample.features.bytes == 3 * table.shape[1] * (2 if widened else 4)
    assert torch.equal(sample.descriptor, table[[3, 1, 4]].float())
    assert sample.descriptor.dtype == torch.float32


def test_what_lies_evenly_is_taken_together() -> None:
    assert list(distances.even_runs([4, 6, 8, 20, 30, 5, 5])) == [
        (0, 3, 2), (3, 2, 10), (5, 1, 0), (6, 1, 0),
    ]  # fmt: skip
    assert list(distances.even_runs([])) == []


# -- the Triton kernels


def compare(device: str) -> None:
    """Every kind of rotation, every spacing, several sizes: the kernel against the torch path."""
    from backend.cache.kernels import triton_kernels as fused

    full, half = torch.float32, torch.float16
    kinds = [(full, full), (full, half)]  # of the cache, and of the offsets
    kinds += [] if device == "cpu" else [(torch.bfloat16, torch.bfloat16), (half, half)]
    for dtype, kept in kinds:
        for number, kind in enumerate(KINDS):
            for tokens, anchors, even in ((1, 1, True), (21, 3, False), (16, 0, True)):
                case = Case(kind, tokens, anchors, even, dtype, device, number, kept)
                torch_path = case.error(case.run())
                case.keys.zero_()
                case.values.zero_()
                kernel = case.error(case.run(fused.mix_and_rotate))
                limit = 1e-5 if kept == full else 8 * torch.finfo(kept).eps
                assert torch_path <= limit, (kind, tokens, kept, torch_path)
                # Its sums are fp32 in any case.
                assert kernel <= (1e-5 if dtype == full else limit), (kind, tokens, kept, kernel)
                assert case.untouched(), (kind, tokens)
    for dtype in (full, half, *([] if device == "cpu" else [torch.bfloat16])):
        mine, theirs = descriptors(19, (19, 25), 300, device, dtype)
        found = fused.squared_distances(
            mine.arena.buffer, mine.start, mine.count, [rows.start for rows in theirs]
        )
        # Narrow numbers are widened before the difference, so the sums are as exact.
        assert torch.allclose(found.double(), distances_by_hand(mine, theirs), rtol=1e-5)
    odd = Case("halves", 3, 1, True, torch.float32, device)
    odd.rotation = Rotation((HALVES, NEIGHBOURS, HALVES))
    assert not fused.mix_and_rotate(odd.base, odd.mixture, odd.positions, odd.rotation, *odd.places())
    assert not odd.keys.any(), "refused before anything was written"


@pytest.mark.gpu
def test_kernels_on_the_device() -> None:
    pytest.importorskip("triton")
    compare("cuda")


@pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton is not installed (it comes with torch for CUDA)"
)
@pytest.mark.sampled(32)
def test_kernels_through_tritons_interpreter() -> None:
    """In a process of its own: Triton reads the switch when it is first imported."""
    root = Path(__file__).parents[3]
    found = subprocess.run(
        [sys.executable, __file__, "cpu"],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(root), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout == "same\n"


if __name__ == "__main__":
    compare(sys.argv[1])
    print("same")
