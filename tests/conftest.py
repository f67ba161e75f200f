"""Shared by all tests: nothing leaves this machine, and what cannot run here is skipped with its reason."""

from __future__ import annotations

import os
import shutil
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
settings.register_profile("lab", deadline=None)
settings.load_profile("lab")

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Path of an installed Chromium, if there is one."""
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


def has_cuda() -> bool:
    """Whether torch sees a CUDA device; torch is loaded only when a test asks."""
    import torch

    return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip browser tests without a browser and GPU tests without a GPU."""
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
