"""``scripts/imports.py`` finds every circle and every import that climbs, wherever the import stands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import imports

CONTRACTS = """
[[tool.importlinter.contracts]]
type = "layers"
layers = ["lab_app", "viz", "backend"]

[[tool.importlinter.contracts]]
type = "layers"
containers = ["backend"]
layers = ["roof", "left | right", "ground"]
ignore_imports = [{named}]
"""


def house(root: Path, files: dict[str, str], named: str = "") -> list[str]:
    """What the script says of files by their module names."""
    for name, text in files.items():
        path = root / (name.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "pyproject.toml").write_text(CONTRACTS.format(named=named))
    return imports.report(root)[0]


@pytest.mark.slow
def test_the_lab_itself_has_neither() -> None:
    lines, count = imports.report()
    assert not lines
    assert count > 1000


LATER = [
    "import backend.ground.b",
    "from backend.ground import b",
    "from backend.ground.b import x",
    "from . import b",
    "from .b import x",
    "from ..ground import b",
    "def f():\n    from backend.ground.b import x",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from backend.ground.b import x",
    "try:\n    import backend.ground.b\nexcept ImportError:\n    pass",
]


@pytest.mark.parametrize("text", LATER)
def test_a_circle_is_found_wherever_the_import_stands(tmp_path: Path, text: str) -> None:
    files = {
        "backend.ground.a": text,
        "backend.ground.b": "from backend.ground.a import y",
        "backend.ground.c": "",
    }
    assert house(tmp_path, files) == [
        "2 modules import one another: backend.ground.a -> backend.ground.b -> backend.ground.a"
    ]


def test_a_circle_is_told_by_its_shortest_chain(tmp_path: Path) -> None:
    files = {f"backend.ground.m{i}": f"import backend.ground.m{(i + 1) % 5}" for i in range(5)}
    files["backend.ground.m1"] += "\nimport backend.ground.m0"
    [line] = house(tmp_path, files)
    assert line == "5 modules import one another: backend.ground.m0 -> backend.ground.m1 -> backend.ground.m0"


def test_a_face_that_its_own_room_imports_is_a_circle(tmp_path: Path) -> None:
    files = {
        "backend.ground.__init__": "from backend.ground.a import x",
        "backend.ground.a": "from backend.ground import x",
    }
    [line] = house(tmp_path, files)
    assert line.startswith("2 modules")


@pytest.mark.parametrize(
    ("one", "other", "climbs"),
    [
        ("backend.ground.a", "backend.roof", True),
        ("backend.roof", "backend.ground.a", False),
        ("backend.left.a", "backend.right.a", True),
        ("backend.left.a", "backend.left.b", False),
        ("backend.right.a", "backend.ground.a", False),
        ("backend.roof", "viz.a", True),
        ("lab_app.a", "backend.ground.a", False),
    ],
)
def test_what_climbs_is_told_with_its_line(tmp_path: Path, one: str, other: str, climbs: bool) -> None:
    lines = house(tmp_path, {one: f"import os\n\n\ndef f():\n    import {other}", other: ""})
    path = one.replace(".", "/") + ".py:5: "
    assert [line.startswith(path) for line in lines] == [True] * climbs


def test_what_is_named_may_climb_and_nothing_else(tmp_path: Path) -> None:
    files = {
        "backend.ground.a": "import backend.roof",
        "backend.ground.b": "import backend.roof",
        "backend.roof": "import json, numpy",
    }
    [line] = house(tmp_path, files, named='"backend.ground.a -> backend.*"')
    assert line.startswith("backend/ground/b.py:1: ")
