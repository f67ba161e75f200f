"""All reproductions by name, read from their files at first use. Free of torch."""

import functools

from backend.base.errors import OptionError
from backend.reproduce.reader import FOLDER, read_printed, read_tables
from backend.reproduce.spec import PAPERS, Printed, Reproduction


@functools.cache
def reproductions() -> tuple[Reproduction, ...]:
    """Every table and figure, paper by paper.

    Raises:
        LabError: a file of ``presets/reproductions`` is damaged.
    """
    return tuple(entry for paper in PAPERS for entry in read_tables(FOLDER / f"{paper}.yaml"))


@functools.cache
def printed(paper: str) -> tuple[Printed, ...]:
    """The figures of a paper that no table stands for.

    Raises:
        LabError: its file is damaged.
    """
    return read_printed(FOLDER / f"{paper}.yaml")


def find(name: str) -> Reproduction:
    """A reproduction by its name.

    Raises:
        OptionError: there is none of that name.
    """
    for entry in reproductions():
        if entry.name == name:
            return entry
    listed = ", ".join(entry.name for entry in reproductions())
    raise OptionError(
        f"There is no reproduction {name[:60]!r}; there are {listed}. Choose one; kvlab reproduce alone "
        "says what each asks.",
        field="reproduce.name",
    )
