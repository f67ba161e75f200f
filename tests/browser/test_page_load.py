"""The benchmark of the page's times finds what it waits for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from browser.conftest import PATIENCE

SCRIPT = Path(__file__).parents[2] / "benchmarks/page_load.py"


@pytest.mark.slow
@pytest.mark.usefixtures("chromium_path")
def test_the_benchmark_of_the_page_runs() -> None:
    """One visit: first paint, every pane with figures, the first word behind a click."""
    env = os.environ | {"PYTHONPATH": str(SCRIPT.parents[1])}
    done = subprocess.run(
        [sys.executable, SCRIPT, "--repeats", "1"],
        capture_output=True, text=True, timeout=PATIENCE / 1000, env=env, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    panes = {key for key, size in report["figure_bytes"].items() if size}
    assert {"errors", "offsets", "answer", "anchors", "attention", "timing", "memory"} <= panes
    assert all(report["median"][f"{pane}_figures"] >= 1 for pane in panes)
    assert 0 < report["median"]["first_paint_s"] <= report["median"]["ready_s"]
    assert report["median"]["first_token_s"] > 0
