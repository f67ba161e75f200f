"""The papers' tables as files: what the reader takes, and what it says of a file that is not right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from backend.base.errors import LabError, OptionError
from backend.reproduce.reader import FOLDER, read_tables
from backend.reproduce.spec import PAPERS, Column, GroupPlan, SweepPlan

TABLE: dict[str, Any] = {
    "name": "omitted-table-9",
    "place": "Table 9",
    "sentence": "Does it hold?",
    "setting": "one H100",
    "caveat": ["Not ours.", "Few."],
    "columns": [
        [{"title": "accuracy", "metric": "accuracy"}],
        {"title": "time", "metric": "ms", "form": "ms"},
    ],
    "lines": [
        {"label": "dense", "paper": [68.0], "at": {"both": {"method": "dense"}}},
        {"label": "kvcomm", "at": {"paper": {"method": "kvcomm"}}, "metrics": {"time": "wall_ms"}},
    ],
    "scales": {
        "embedded": {
            "here": "ours",
            "minutes": 2,
            "plan": {"group": {"settings": [[5, 1, 2, 3]], "problems": 7}},
        },
        "paper": {
            "here": "theirs",
            "minutes": 3,
            "plan": {"sweep": {"tasks": [{"pipeline": "math-2"}], "methods": ["dense"], "problems": 4}},
        },
    },
}


def written(folder: Path, *keys: Any, value: object = None, name: str = "omitted.yaml") -> Path:
    """A file with one table, of which one value is another; without a value, the key is left out."""
    body = yaml.safe_load(yaml.safe_dump({"tables": [TABLE]}))
    if keys:
        at = body["tables"][0]
        for key in keys[:-1]:
            at = at[key]
        if value is None:
            del at[keys[-1]]
        else:
            at[keys[-1]] = value
    path = folder / name
    path.write_text(yaml.safe_dump(body), encoding="utf-8")
    return path


def test_a_table_is_read_whole(tmp_path: Path) -> None:
    (one,) = read_tables(written(tmp_path))
    assert (one.name, one.paper, one.caveat) == ("omitted-table-9", "omitted", "Not ours. Few.")
    assert one.columns == (Column("accuracy", "accuracy"), Column("time", "ms", "ms"))
    assert [line.paper for line in one.lines] == [(68.0, None), (None, None)]
    assert one.lines[0].at == {"embedded": {"method": "dense"}, "paper": {"method": "dense"}}
    assert one.scales["embedded"].plan == GroupPlan(((5, 1, 2, 3),), 7)
    assert one.scales["paper"].plan == SweepPlan(({"pipeline": "math-2"},), ("dense",), 4)


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (("minutes",), 3, "tables.1.minutes is 3; allowed is under tables.1 keys of name, paper, place"),
        (("caveat",), None, "tables.1.caveat is None; allowed is a value: name, paper, place"),
        (("caveat",), 4, "tables.1.caveat is 4; allowed is text, in quotes if it looks like a number"),
        (
            ("columns", 1, "form"),
            "hours",
            "tables.1.columns.2.form is 'hours'; allowed is one of percent, ms",
        ),
        (("columns",), {}, "tables.1.columns is {}; allowed is a list"),
        (("lines", 0, "paper"), [1, 2, 3], "tables.1.lines.1.paper is .* at most 2"),
        (("lines", 0, "paper"), [True], "lines.1.paper.1 is True; allowed is a number or text, .* or null"),
        (
            ("lines", 0, "at"),
            {"home": {}},
            "tables.1.lines.1.at.home is {}; .* keys of both, embedded, paper",
        ),
        (("lines", 0, "at"), {"both": {"n": 1}}, "tables.1.lines.1.at.embedded.n is 1; allowed is text"),
        (("lines", 1, "metrics"), {"size": "mb"}, "lines.2.metrics is 'size'; .* the columns accuracy, time"),
        (("scales", "paper"), None, r"tables.1.scales is \['embedded'\]; allowed is both of embedded, paper"),
        (("scales", "paper", "minutes"), -1, "scales.paper.minutes is -1; allowed is a whole number from 0"),
        (
            ("scales", "paper", "plan"),
            {"walk": {}},
            "scales.paper.plan is .* one plan under its name, of sweep",
        ),
        (
            ("scales", "embedded", "plan", "group", "settings"),
            [[1, 2]],
            r"settings.1 is \[1, 2\]; .* list of 4",
        ),
        (("drawn",), {"over": "n", "x": "n", "y": "ms", "columns": ["size"]}, "drawn.columns is 'size'"),
    ],
)
def test_what_is_wrong_is_named(keys: tuple[Any, ...], value: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"^omitted.yaml: .*(?:{said})"):
        read_tables(written(tmp_path, *keys, value=value))


def test_a_file_that_is_none_or_has_no_paper(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a file called after one of kvcomm"):
        read_tables(written(tmp_path, name="other.yaml"))
    (tmp_path / "kvcomm.yaml").write_text("tables: [\n")
    with pytest.raises(LabError, match=r"kvcomm.yaml, line 2: this is not valid YAML"):
        read_tables(tmp_path / "kvcomm.yaml")
    (tmp_path / "kvcomm.yaml").write_text("tables: []\ntables: []\n")
    with pytest.raises(LabError, match="the key 'tables' appears twice"):
        read_tables(tmp_path / "kvcomm.yaml")
    with pytest.raises(LabError, match=r"kvlink\.yaml cannot be read"):
        read_tables(tmp_path / "kvlink.yaml")


def test_every_paper_has_its_file_and_importing_reads_none() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(PAPERS)
    code = (
        "import backend.reproduce.registry as registry, sys\n"
        "assert registry.reproductions.cache_info().currsize == 0\n"
        "assert not {'torch', 'transformers', 'scipy'} & set(sys.modules)\n"
        "assert registry.find('end-to-end') is registry.find('end-to-end')\n"
        "assert not {'torch', 'transformers', 'scipy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
