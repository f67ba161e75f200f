"""What the server spends on each visitor who arrives, and what it gives back when they leave."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from weakref import ref

import pytest
import tiny
import torch

from backend.base.errors import RunCancelled
from backend.cache import process_memory as heap
from backend.cache.kv_cache import in_large_pages
from backend.engine import speed as measured_speed
from backend.engine.engine import Engine
from backend.engine.turns import ModelScheduler
from backend.model.load import LoadedModel
from backend.prompts import presets
from backend.prompts.presets import PRESET_FOLDER, load_preset
from backend.session.session import LabSession


@pytest.mark.slow
def test_a_model_is_timed_once_for_all_visitors(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_speed._MEASURED.clear()
    first = LabSession(tiny_model).estimate(tiny.request())

    def again(*_: object) -> None:
        raise AssertionError("timed again")

    monkeypatch.setattr(Engine, "forward", again)
    assert LabSession(tiny_model).estimate(tiny.request()) == first
    monkeypatch.undo()
    other = tiny.model()
    LabSession(other).estimate(tiny.request())
    assert len(measured_speed._MEASURED) == 2
    del other
    gc.collect()
    assert len(measured_speed._MEASURED) == 1, "what is known of a model goes with it"


def test_a_preset_is_read_again_when_its_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = tmp_path / "math-4.yaml"
    edited.write_bytes((PRESET_FOLDER / "math-4.yaml").read_bytes())
    monkeypatch.setattr(presets, "PRESET_FOLDER", tmp_path)
    first = load_preset("math-4")
    assert load_preset("math-4") is first
    edited.write_text(edited.read_text("utf-8").replace("name: math-4", "name: math-5"), encoding="utf-8")
    os.utime(edited, ns=(1, 1))
    assert load_preset("math-4").pipeline.name == "math-5"


def resident() -> int:
    """MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 // 2**20


@pytest.mark.skipif(
    heap._TRIM is None or sys.platform != "linux", reason="this C library gives back by itself"
)
def test_what_was_freed_goes_back_to_the_system() -> None:
    kept, freed = [], []
    for number in range(60_000):
        (freed if number % 100 else kept).append(bytes(4_000))
    before = resident()
    del freed
    stays = resident()
    heap.trim()
    assert stays > before - 100, "else there is nothing to show"
    assert resident() < before - 150
    assert kept


@pytest.mark.skipif(heap._MALLINFO is None, reason="this C library does not say")
def test_what_is_allocated_is_what_was_not_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that the process keeps are not counted."""
    before, large = heap.allocated_bytes(), [torch.empty(8 << 20, dtype=torch.uint8) for _ in range(8)]
    during = heap.allocated_bytes()
    del large
    after = heap.allocated_bytes()
    assert before is not None
    assert during is not None
    assert after is not None
    assert during - before > 60 << 20
    assert abs(after - before) < 8 << 20
    monkeypatch.setattr(heap, "_MALLINFO", None)
    assert heap.allocated_bytes() is None


@pytest.mark.parametrize(("megabytes", "wanted"), [(31, False), (64, True)])
def test_large_pages_are_asked_for_inside_a_large_tensor_only(
    megabytes: int, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(heap, "_MADVISE", lambda at, size, _: asked.append((at.value, size.value)))
    made = in_large_pages(torch.empty(megabytes << 18))
    assert bool(asked) == wanted
    for first, size in asked:
        assert first % heap.HUGE == size % heap.HUGE == 0
        assert made.data_ptr() <= first
        assert first + size <= made.data_ptr() + (megabytes << 20)
        assert size >= (megabytes << 20) - 2 * heap.HUGE
    monkeypatch.setattr(heap, "_MADVISE", None)  # a system that knows no such call
    assert in_large_pages(made) is made


def test_what_failed_or_was_cancelled_waits_for_no_collection() -> None:
    """An error holds every frame that it went through, and these hold what a run had under way."""

    class Held:
        """Stands for the tensors of a run."""

    held: list[ref[Held]] = []

    def work() -> Generator[int, None, None]:
        under_way = Held()
        held.append(ref(under_way))
        yield 1
        raise RunCancelled("Stopped.")

    gc.collect()
    gc.disable()
    try:
        with suppress(RunCancelled):
            list(ModelScheduler().by_turns(work()))
        assert [one() for one in held] == [None]
    finally:
        gc.enable()
