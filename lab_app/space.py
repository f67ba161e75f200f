"""A folder that Hugging Face Spaces can build, rendered from this repository."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from backend.errors import LabError, OptionError

ROOT = Path(__file__).resolve().parents[1]
PARTS = (
    "Dockerfile", ".dockerignore", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "backend",
    "viz", "lab_app", "presets",
)  # fmt: skip
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.py[cod]", "*.egg-info")
PORT = 7860
#: Keys of a Space's card and what they may hold (huggingface.co/docs/hub/spaces-config-reference).
COLOURS = ("red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray")
HARDWARE = (
    "cpu-basic",
    "cpu-upgrade",
    "t4-small",
    "t4-medium",
    "l4x1",
    "a10g-small",
    "a10g-large",
    "a100-large",
)


def split_card(readme: str) -> tuple[dict[str, Any], str]:
    """The card in a README's first lines, and the text below it.

    Raises:
        LabError: there is none, or it is no mapping.
    """
    _, mark, rest = readme.partition("---\n")
    head, end, body = rest.partition("\n---\n")
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


def render_docker(out: Path, hardware: str = "cpu-basic") -> Path:
    """Copy what the image needs to ``out``, with the card on top of its README.

    Args:
        out: a folder that does not exist or is empty.
        hardware: what the Space is suggested to run on.

    Returns:
        the folder.

    Raises:
        LabError: ``out`` holds something, or a part of the repository is missing.
        OptionError: there is no such hardware.
    """
    card, body = split_card((ROOT / "README.md").read_text(encoding="utf-8"))
    head = yaml.safe_dump(docker_card(card, hardware), sort_keys=False, allow_unicode=True)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise LabError(f"{out} is not empty. Name a new folder, as in --out space.")
    missing = [name for name in PARTS if not (ROOT / name).exists()]
    if missing:
        raise LabError(
            f"{', '.join(missing)} is missing beside the packages. Render from a checkout of the repository."
        )
    out.mkdir(parents=True, exist_ok=True)
    for name in PARTS:
        part = ROOT / name
        if part.is_dir():
            shutil.copytree(part, out / name, ignore=LEFT_OUT)
        else:
            shutil.copy2(part, out / name)
    (out / "README.md").write_text(f"---\n{head}---\n{body}", encoding="utf-8")
    return out
