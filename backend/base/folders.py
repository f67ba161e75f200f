"""Folders that a command writes."""

from pathlib import Path

from backend.base.errors import LabError


def new_folder(path: Path) -> Path:
    """Make a folder that does not exist yet, or is empty.

    Raises:
        LabError: it holds something, or is a file.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise LabError(f"{path} is not empty. Name a new folder, as in --out space.")
    path.mkdir(parents=True, exist_ok=True)
    return path
