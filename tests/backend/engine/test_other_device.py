"""On another device the engine gives what it gives on the CPU, and waits for it nowhere that counts.

``tests/helpers/run_on_fake_device.py`` runs it on a device that stands in for a GPU (``fake_device.py``): its
tensors and the CPU's must not meet.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from families import FAMILIES, LEFT_OUT

from backend.methods.registry import method_class, method_names

pytest.importorskip("torch.utils.backend_registration")
pytestmark = pytest.mark.sampled(32)
ROOT = Path(__file__).parents[3]
HELPERS = ROOT / "tests" / "helpers"
NEAR = 1e-6
NEAR_ON_A_GPU = 1e-3  # whose products add in another order


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch cannot be given a device written in Python")
    return run_on()


def run_on(*device: str) -> dict[str, Any]:
    """The engine's results there beside the CPU's."""
    run = subprocess.run(
        [sys.executable, str(HELPERS / "run_on_fake_device.py"), *device],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(HELPERS), str(ROOT)])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    told: dict[str, Any] = json.loads(run.stdout)
    return told


def test_it_is_another_device(found: dict[str, Any]) -> None:
    assert found["device"] == "far"
    assert found["relocatable"]


@pytest.mark.parametrize("column", [*method_names(), *method_class("kvcomm").profiles, "two, half", "packed"])
def test_every_method_gives_what_it_gives_on_a_cpu(found: dict[str, Any], column: str) -> None:
    """The same texts, actions and states, and caches that are as far from dense."""
    assert found["pinned"][column] <= NEAR
    assert found["free"].get(column, 0.0) <= NEAR


def test_offsets_wait_in_main_memory_and_come_back(found: dict[str, Any]) -> None:
    told = found["offloaded"]
    assert max(told["apart"].values()) <= NEAR
    assert told["mixed"] > 0
    assert sorted(told["away"])[-1] == 2, "two of the question's anchors"
    assert told["away"][: len(told["away"]) // 2] == [0, 0, 0], "on a CPU there is nowhere to go"


def test_offsets_come_back_as_they_left(found: dict[str, Any]) -> None:
    told, main = found["there and back"], "cpu"
    assert told["places"] == [["far", "far"], [main, "far"], [main, main], ["far", main], ["far", "far"]]
    assert told["same"]


def test_the_next_spans_offsets_are_on_their_way_while_one_is_blended(found: dict[str, Any]) -> None:
    told = found["on their way"]
    assert told["told"] == ["asked 0", "asked 1", "there 0", "asked 2", "there 1", "there 2"]
    assert told["same"], "all of a span in one arena of the device, with what waited"


def test_nothing_waits_for_the_device_up_to_the_first_token(found: dict[str, Any]) -> None:
    """Matching, mixing, rotating, assembling, and the passes of what is computed."""
    assert len(found["waits"]) == 6
    assert not any(found["waits"].values()), found["waits"]


def test_a_written_token_waits_once(found: dict[str, Any]) -> None:
    asked, written, agents = found["told"]
    assert 0 < asked <= written + agents, "and once for the token that ends an answer"


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in LEFT_OUT])
def test_a_recorded_pass_asks_the_device_nothing_and_sends_nothing(
    found: dict[str, Any], family: str
) -> None:
    """A CUDA graph cannot hold either."""
    assert found["recorded"][family] == 0


@pytest.mark.gpu
def test_a_gpu_gives_what_a_cpu_gives() -> None:
    """Whole runs of every method, pinned and free, with offsets on the device and waiting in main memory."""
    found = run_on("cuda")
    assert found["device"].startswith("cuda")
    assert found["relocatable"]
    every = {
        **found["pinned"],
        **{f"free {k}": v for k, v in found["free"].items()},
        **found["offloaded"]["apart"],
    }
    assert {name: gap for name, gap in every.items() if not gap <= NEAR_ON_A_GPU} == {}
    assert found["offloaded"]["mixed"] > 0
