"""What import-linter cannot see of the layout: what an import loads when it runs, and who asks what."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backend.methods.registry import method_names

ROOT = Path(__file__).resolve().parents[2]

# Packages are walked, so that every module of viz is loaded; backend's other modules need torch by design.
WITHOUT_TORCH = """
import importlib, pkgutil, sys
package = importlib.import_module("{module}")
if "{module}" == "viz":
    for module in pkgutil.walk_packages(package.__path__, "viz."):
        importlib.import_module(module.name)
heavy = sorted({{"torch", "transformers"}} & set(sys.modules))
sys.exit(f"importing {module} loaded {{heavy}}" if heavy else 0)
"""

# A bare GPU machine has torch and transformers, and neither a page nor plots nor fuzzy matching.
ENGINE_ALONE = """
import importlib, importlib.util, pkgutil, sys
kernels = [] if importlib.util.find_spec("triton") else ["backend.cache.kernels.triton_kernels"]
for name in ("gradio", "plotly", "umap", "datasketch", "markdown_it"):
    sys.modules[name] = None  # importing it now raises ImportError
import backend
from lab_app.cli.main import main
for module in pkgutil.walk_packages(backend.__path__, "backend."):
    if not module.name.endswith("__main__") and module.name not in kernels:
        importlib.import_module(module.name)
given = "bench match --shape embedded --tokens 64 --anchors 2 --repeats 1"
if main(given.split()) not in (0, 1):  # 1: a busy machine's times contradict its own
    sys.exit("the benchmark failed")
"""


def run_fresh(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "module",
    [
        "viz",
        "backend",
        "backend.records.run",
        "backend.prompts.pipeline",
        "backend.base.errors",
        "backend.records.events",
    ],
)
@pytest.mark.slow
def test_importing_leaves_torch_unloaded(module: str) -> None:
    result = run_fresh(WITHOUT_TORCH.format(module=module))
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_engine_imports_and_is_measured_without_page_plots_or_fuzzy_matching() -> None:
    result = run_fresh(ENGINE_ALONE)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["bench"] == "match"


def test_nothing_asks_which_method_it_has() -> None:
    """If something has to know, the method contract lacks a hook or an attribute."""
    asked = []
    for path in sorted((ROOT / "backend").rglob("*.py")):
        if path.parts[len(ROOT.parts) + 1] in ("sweeps", "reproduce"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and any(
                isinstance(part, ast.Attribute) and part.attr in ("name", "method") for part in ast.walk(node)
            ):
                named = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                if named & set(method_names()):
                    asked.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not asked


FACES = sorted((ROOT / "backend").glob("*/__init__.py"))


@pytest.mark.parametrize("path", FACES, ids=lambda path: path.parent.name)
def test_a_room_has_what_its_face_names(path: Path) -> None:
    room = importlib.import_module(f"backend.{path.parent.name}")
    assert room.__doc__
    _, _, named = room.__doc__.partition("Others use, by module:\n")
    for line in re.sub(r",\n +", ", ", named).splitlines():
        module, _, names = line.strip().partition(": ")
        for name in filter(None, names.split(", ")):
            assert hasattr(importlib.import_module(f"{room.__name__}.{module}"), name), f"{module}: {name}"
