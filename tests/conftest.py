"""Shared by all tests: nothing leaves this machine, and what cannot run here is skipped with its reason."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from backend.model.load import LoadedModel
    from backend.prompts.pipeline import Pipeline

# Before gradio or huggingface_hub is imported: tests read local folders only and report to nobody.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Before torch is imported: see backend/__init__.py.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# A slow machine is no failure.
settings.register_profile("whole", deadline=None)
settings.register_profile("sample", deadline=None, max_examples=20)
settings.load_profile("whole")

ROOT = Path(__file__).resolve().parents[1]

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Path of an installed Chromium, if there is one."""
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


def has_cuda() -> bool:
    """Whether torch sees a CUDA device; torch is loaded only when a test asks."""
    import torch

    return torch.cuda.is_available()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample", action="store_true", help="leave out most of what is slow or alike; fewer examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Before test modules are imported, for they take hypothesis' settings from the profile."""
    if config.getoption("--sample"):
        settings.load_profile("sample")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Looks for garbage neither while modules are imported nor, later, among what they hold, for it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def state_of_the_code() -> bytes:
    """A hash of the code and the shipped weights: another state draws another sample."""
    found = hashlib.sha256()
    code = (path for room in ("backend", "lab_app", "viz") for path in (ROOT / room).rglob("*.py"))
    for path in (*sorted(code), *sorted(ROOT.glob("presets/model*/*.safetensors"))):
        found.update(path.read_bytes())
    return found.digest()


SLOW = 10  # of the slow tests a sample keeps one in so many


def share_kept(item: pytest.Item) -> int:
    """One in how many of the tests marked like this one a sample keeps."""
    marker = item.get_closest_marker("sampled")
    if marker is not None:
        return int(marker.args[0])
    return SLOW if item.get_closest_marker("slow") else 1


def drawn_as(item: pytest.Item) -> str:
    """What a test is drawn by: itself, or its file, where all of that is marked, for its tests share what is
    slow."""
    own = any(mark.name in ("sampled", "slow") for mark in item.own_markers)
    return item.nodeid if own else item.nodeid.partition("::")[0]


def leave_out(items: list[pytest.Item], config: pytest.Config) -> None:
    """Of the tests marked ``sampled(n)`` keep one in ``n``, and of the slow ones one in :data:`SLOW`."""
    state, alike = state_of_the_code(), dict[int, set[str]]()
    for item in items:
        alike.setdefault(share_kept(item), set()).add(drawn_as(item))
    drawn = set[tuple[int, str]]()
    for one_in, names in alike.items():
        ranked = sorted(names, key=lambda name: zlib.crc32(state + name.encode()))
        one_more = zlib.crc32(state) % one_in < len(ranked) % one_in  # of what is left over
        drawn |= {(one_in, name) for name in ranked[: len(ranked) // one_in + one_more]}
    kept, left = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        (kept if (share_kept(item), drawn_as(item)) in drawn else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


def slow_first(items: list[pytest.Item]) -> None:
    """Files with a slow test come first: begun at the end, one would let the other processes wait for it."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Skip browser tests without a browser and GPU tests without a GPU; draw the sample."""
    if config.getoption("--sample"):
        leave_out(items, config)
    slow_first(items)
    browser_tests = [item for item in items if item.get_closest_marker("browser")]
    if browser_tests and find_chromium() is None:
        # No browser can be had where the machine has no apt-get or the user is not root.
        reason = f"no Chromium on the PATH (looked for {', '.join(CHROMIUM_NAMES)})"
        for item in browser_tests:
            item.add_marker(pytest.mark.skip(reason=reason))
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_tests and not has_cuda():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Executable for Playwright's ``launch(executable_path=...)``; for tests marked ``browser``."""
    path = find_chromium()
    assert path is not None, "mark tests that use chromium_path with @pytest.mark.browser"
    return path


@pytest.fixture(scope="session")
def tiny_model() -> LoadedModel:
    """A random Llama of three layers (see tiny.py); tests must not change it."""
    import tiny

    return tiny.model()


@pytest.fixture(scope="session")
def tiny_pipeline() -> Pipeline:
    """Three agents: one solves, one checks it, one judges both."""
    import tiny

    return tiny.pipeline()
