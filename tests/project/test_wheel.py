"""A built wheel brings presets and weights, and works from any directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKED = ("backend", "viz", "lab_app", "kvlab", "presets")
PROGRAM = """
import importlib.util, pathlib, sys
folder = pathlib.Path(sys.argv[1]).resolve()
for name in ("backend", "viz", "lab_app", "kvlab"):
    assert folder in pathlib.Path(importlib.util.find_spec(name).origin).parents, name
import kvlab
from backend.model.link_tokens import find_links
from backend.prompts.presets import preset_names, load_preset
from backend.records.hardware import shipped_figures
found = kvlab.compare("math-3", methods=["naive"], max_new_tokens=4)
assert found.methods == ("dense", "naive")
assert kvlab.open(folder / "presets" / "first_run.kvrun").to_html().count("plotly.js v") == 1
assert all(load_preset(name) for name in preset_names())
assert len(shipped_figures()) == 1
assert find_links("kvlink5").is_file()
"""


def files(folder: Path) -> set[str]:
    """Everything below the packages that is no compiled file."""
    return {
        path.relative_to(folder).as_posix()
        for name in PACKED
        for path in (folder / name).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


@pytest.mark.slow
def test_a_wheel_holds_everything_and_works_from_any_directory(tmp_path: Path) -> None:
    source, wheels, folder = tmp_path / "source", tmp_path / "wheels", tmp_path / "installed"
    source.mkdir()
    for name in (*PACKED, "benchmarks/results"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [*pip, "wheel", str(source), "--no-deps", "--no-build-isolation", "--no-index", "-w", str(wheels)]
    subprocess.run(build, check=True, cwd=tmp_path, timeout=300)
    [wheel] = wheels.glob("*.whl")
    assert wheel.stat().st_size < 24 << 20
    install = [
        *pip,
        "install",
        "--no-deps",
        "--no-index",
        "--no-compile",
        "--target",
        str(folder),
        str(wheel),
    ]
    subprocess.run(install, check=True, cwd=tmp_path, timeout=300)
    assert files(folder) == files(ROOT)
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
