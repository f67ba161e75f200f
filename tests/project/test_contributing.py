"""What CONTRIBUTING.md names is there: files, functions and tables of names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"`([^`\n]+)`", PAGE)
#: Hooks of the method contract, with their arguments, and the placeholders of a recipe.
LOCAL = {path for path in QUOTED if "<" in path}


def names(path: Path) -> set[str]:
    """Functions, methods as ``Class.method``, classes and constants of a file."""
    out: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            out |= {f"{node.name}.{x.name}" for x in node.body if isinstance(x, ast.FunctionDef)}
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            out.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        out |= {t.id for t in targets if isinstance(t, ast.Name)}
    return out


WALKED = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)(?:\(\))?` \|", PAGE, re.MULTILINE)
PATHS = sorted({q for q in QUOTED if re.fullmatch(r"\w[\w.-]*/[\w./-]+", q) and q not in LOCAL})
KNOWN = {
    name
    for folder in ("backend", "viz", "lab_app", "tests")
    for p in (ROOT / folder).rglob("*.py")
    for name in names(p)
}


@pytest.mark.parametrize("path", PATHS)
def test_every_file_that_is_named_exists(path: str) -> None:
    made = ("presets/model/", "presets/model-small/", "build/")
    assert (ROOT / path).exists() or (ROOT / "scripts" / path).exists() or path.startswith(made)


@pytest.mark.parametrize(("path", "name"), WALKED)
def test_every_step_of_a_walk_is_in_its_file(path: str, name: str) -> None:
    assert name in names(ROOT / path)


def test_the_walks_are_three() -> None:
    assert len(WALKED) > 20


@pytest.mark.parametrize("name", sorted({q[:-2] for q in QUOTED if re.fullmatch(r"[\w.]+\(\)", q)}))
def test_every_function_that_is_named_exists(name: str) -> None:
    assert name in KNOWN or any(known.endswith(f".{name}") for known in KNOWN)


@pytest.mark.parametrize("name", sorted({q for q in QUOTED if re.fullmatch(r"[A-Z][A-Z_]{3,}", q)}))
def test_every_table_that_is_named_exists(name: str) -> None:
    assert name in KNOWN or any(known.endswith(f".{name}") for known in KNOWN)


def test_the_picture_of_the_rooms_is_current() -> None:
    program = [sys.executable, "scripts/house.py", "--check"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def anchor(heading: str) -> str:
    """What a heading is linked by."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]), ids=lambda p: p.name
)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]*)\)", page.read_text(encoding="utf-8")):
        path, _, part = target.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), target
        if part and there.suffix == ".md":
            assert part in {
                anchor(h) for h in re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.M)
            }, part
