"""A folder that Hugging Face Spaces can build, rendered from this repository: a Docker Space, which takes the
Dockerfile as it is, or a Gradio Space on ZeroGPU, which takes Python packages and an ``app.py``."""

import json
import re
import shutil
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from backend.base.errors import LabError, OptionError
from backend.base.folders import new_folder
from backend.base.text import show

ROOT = Path(__file__).resolve().parents[2]
PICTURE = "docs/images/lab.png"  # the README shows it
MEASURED = "benchmarks/results/break-even-embedded-cpu.json"  # hardware that the calculator offers
PARTS = (
    "Dockerfile", ".dockerignore", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "backend",
    "viz", "lab_app", "presets", MEASURED, PICTURE,
)  # fmt: skip
ZERO_PARTS = ("LICENSE", "backend", "viz", "lab_app", "presets", MEASURED, PICTURE)
ZERO_HARDWARE = "zero-a10g"  # the name that ZeroGPU has in a card, whichever GPU is behind it
ZERO_PYTHON = "3.12"
SPACES = "spaces>=0.40,<1"
APP = '''"""The lab as a Gradio Space: on ZeroGPU, or wherever else it is started."""

try:
    import spaces  # before torch, which it prepares for a GPU that is only lent
except ImportError:
    spaces = None

from lab_app.server.zero_gpu import serve

if __name__ == "__main__":
    serve(None if spaces is None else spaces.GPU)
'''
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.py[cod]", "*.egg-info")
PORT = 7860
#: What a Space's card may ask for (huggingface.co/docs/hub/spaces-config-reference).
HARDWARE = "cpu-basic cpu-upgrade t4-small t4-medium l4x1 a10g-small a10g-large a100-large".split()


def split_card(readme: str) -> tuple[dict[str, Any], str]:
    """The card in a README's first lines, and the text below it.

    Raises:
        LabError: there is none, or it is no mapping.
    """
    _, mark, remainder = readme.partition("---\n")
    head, end, body = remainder.partition("\n---\n")
    card = yaml.safe_load(head) if mark and end and readme.startswith("---\n") else None
    if not isinstance(card, dict):
        raise LabError("README.md has no card: its first lines must be YAML between two lines of ---.")
    return card, body


def docker_card(card: dict[str, Any], hardware: str = "cpu-basic") -> dict[str, Any]:
    """The card of a Docker Space on ``hardware``.

    Raises:
        OptionError: there is no such hardware.
    """
    if hardware not in HARDWARE:
        raise OptionError(
            f"There is no hardware {hardware!r}; there are {', '.join(HARDWARE)}. Choose one.",
            field="hardware",
        )
    return card | {
        "sdk": "docker", "app_port": PORT, "suggested_hardware": hardware, "startup_duration_timeout": "30m",
    }  # fmt: skip


def with_picture(card: dict[str, Any], name: str) -> dict[str, Any]:
    """The card with a thumbnail for links to the Space ``OWNER/NAME``; without a name, as it is.

    Raises:
        OptionError: ``name`` has another form.
    """
    if name and not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", name):
        raise OptionError(f"{show(name)} is no Space's name. Give OWNER/NAME.", field="name")
    return card | (
        {"thumbnail": f"https://huggingface.co/spaces/{name}/resolve/main/{PICTURE}"} if name else {}
    )


def render_docker(out: Path, hardware: str = "cpu-basic", name: str = "") -> Path:
    """Copy what the image needs to ``out``, with the card on top of its README.

    Args:
        out: a folder that does not exist or is empty.
        hardware: what the Space is suggested to run on.
        name: the Space's, ``OWNER/NAME``, for its thumbnail.

    Returns:
        the folder.

    Raises:
        LabError: ``out`` holds something, or a part of the repository is missing.
        OptionError: there is no such hardware.
    """
    card, body = split_card((ROOT / "README.md").read_text(encoding="utf-8"))
    return rendered(out, with_picture(docker_card(card, hardware), name), body, PARTS)


def zero_card(card: dict[str, Any], gradio: str) -> dict[str, Any]:
    """The card of a Gradio Space on ZeroGPU, with the framework's version."""
    fields = {key: value for key, value in card.items() if key not in ("sdk", "app_port")}
    return fields | {
        "sdk": "gradio", "sdk_version": gradio, "python_version": ZERO_PYTHON, "app_file": "app.py",
        "suggested_hardware": ZERO_HARDWARE, "startup_duration_timeout": "30m",
    }  # fmt: skip


def requirements() -> list[str]:
    """What ``pyproject.toml`` needs, without the framework, which a Space brings, and with ``spaces``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*(need for need in project["dependencies"] if not need.startswith("gradio")), SPACES]


def render_zero(out: Path, name: str = "") -> Path:
    """Write what a Gradio Space on ZeroGPU needs to ``out``: packages, data, ``app.py``, requirements, card.

    Args:
        out: a folder that does not exist or is empty.
        name: the Space's, ``OWNER/NAME``, for its thumbnail.

    Returns:
        the folder.

    Raises:
        LabError: ``out`` holds something, or a part of the repository is missing.
    """
    card, body = split_card((ROOT / "README.md").read_text(encoding="utf-8"))
    tested = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    [gradio] = re.findall(r"^gradio==(\S+)$", tested, re.MULTILINE)
    rendered(out, with_picture(zero_card(card, gradio), name), body, ZERO_PARTS)
    (out / "app.py").write_text(APP, encoding="utf-8")
    (out / "requirements.txt").write_text("\n".join(requirements()) + "\n", encoding="utf-8")
    return out


def rendered(out: Path, card: dict[str, Any], body: str, parts: Sequence[str]) -> Path:
    """Copy parts of the repository to ``out``, and the README with a card on top."""
    head = yaml.safe_dump(card, sort_keys=False, allow_unicode=True)
    missing = [name for name in parts if not (ROOT / name).exists()]
    if missing:
        raise LabError(
            f"{', '.join(missing)} is missing beside the packages. Render from a checkout of the repository."
        )
    new_folder(out)
    for name in parts:
        part = ROOT / name
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        if part.is_dir():
            shutil.copytree(part, out / name, ignore=LEFT_OUT)
        else:
            shutil.copy2(part, out / name)
    (out / "README.md").write_text(f"---\n{head}---\n{body}", encoding="utf-8")
    return out


DATASET_CARD = """---
license: apache-2.0
pretty_name: KV Reuse Lab, checked examples
size_categories: [n<1K]
task_categories: [question-answering]
configs:
  - config_name: default
    data_files: gallery.jsonl
---
Requests to multi-agent pipelines on which copying KV caches between prompts changes the final answer
(`effect: flip`), and others on which it does no harm. Each was found by a program on the lab's embedded model
(`weights`); `dense` is the full read's answer, `reused` the one over caches that were copied and moved.

```
datasets.load_dataset("json", data_files="gallery.jsonl")   # no code of this repository is run
kvlab verify gallery.jsonl                                  # runs every row again
```
"""


def render_dataset(out: Path) -> Path:
    """The gallery as a dataset repository: one row a line, and a card.

    Raises:
        LabError: ``out`` holds something.
    """
    from backend.studies.gallery import load_gallery

    new_folder(out)
    weights, entries = load_gallery()
    rows = (json.dumps({"weights": weights} | asdict(e), ensure_ascii=False) for e in entries)
    (out / "gallery.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (out / "README.md").write_text(DATASET_CARD, encoding="utf-8")
    return out
