"""The papers' tables as files: what the reader takes, and what it says of a file that is not right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from backend.base.errors import LabError, OptionError
from backend.reproduce.page import INTRODUCTION, page
from backend.reproduce.reader import FOLDER, read_printed, read_tables
from backend.reproduce.registry import find, printed, reproductions
from backend.reproduce.spec import PAPERS, Column, GroupPlan, SweepPlan
from lab_app.cli.main import COMMANDS, commands
from lab_app.cli.reproduce import command_line

ROOT = FOLDER.parents[1]
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


#: Captions in the papers' texts.
CAPTIONS = {
    "kvcomm": [*"1234", *(f"A.{number}" for number in range(1, 13))],
    "judges": [str(number) for number in range(1, 17)],
}


@pytest.mark.parametrize("paper", CAPTIONS)
def test_every_printed_figure_stands_somewhere(paper: str) -> None:
    """In a table of its own, or among those that say where the lab has it, or why it has not."""
    listed: set[str] = set()
    for one in printed(paper):
        ends = re.findall(r"(A\.|)(\d+)", one.place)
        numbers = range(int(ends[0][1]), int(ends[-1][1]) + 1)
        listed |= {f"{ends[0][0]}{number}" for number in numbers}
    assert listed == set(CAPTIONS[paper])


def test_a_printed_figure_names_what_is_there() -> None:
    names = {one.name for one in reproductions()}
    for paper in CAPTIONS:
        for one in printed(paper):
            for said in re.findall(r"`([^`]*)`", f"{one.here} {one.absent}"):
                if said.startswith("kvlab "):
                    assert said.split()[1] in COMMANDS, said
                elif said.startswith(("kvcomm-", "judges-")):
                    assert said in names, said
                elif said.startswith("python "):
                    assert (ROOT / said.split()[1]).is_file(), said
            assert one.absent or one.here.startswith("`"), f"{one.place}: what is measured has a name"


def test_a_printed_figure_is_called_unmeasured_where_no_report_of_its_entry_is_saved(tmp_path: Path) -> None:
    def row(results: Path) -> str:
        made = page(results, tmp_path).splitlines()
        return next(line for line in made if line.startswith("| Figure 4 b |"))

    assert "no report of it is saved yet" not in row(ROOT / "benchmarks" / "results" / "reproductions")
    assert "no report of it is saved yet" in row(tmp_path)


def test_the_saved_command_has_every_number_that_was_typed() -> None:
    said = "kvlab reproduce judges-table-1 --requests 3 --warmup 10 --warmups 20 --training-steps 0 --seed 4"
    given = commands().commands["reproduce"].make_context("reproduce", said.split()[2:]).params
    assert command_line(given) == said


def test_a_figure_says_where_it_is_or_why_not(tmp_path: Path) -> None:
    body = {"tables": [TABLE], "figures": [{"place": "Figure 1", "shows": "a curve"}]}
    (tmp_path / "omitted.yaml").write_text(yaml.safe_dump(body))
    with pytest.raises(OptionError, match=r"figures\.1 is 'Figure 1'; allowed is a figure with here"):
        read_printed(tmp_path / "omitted.yaml")


def test_other_tasks_do_not_stand_beside_mmlu_and_humaneval() -> None:
    """A line of these data sets has a figure of ours on the data set itself, or openly none."""
    one = find("kvcomm-table-1")
    asked = [line for line in one.lines if line.label.startswith(("MMLU", "HumanEval"))]
    assert len(asked) == 24
    assert not [line.label for line in asked if "embedded" in line.at]
    assert "four choices" in one.scales["embedded"].absent


def test_the_page_says_what_kind_of_evidence_it_is(tmp_path: Path) -> None:
    said = " ".join(INTRODUCTION.split())
    for part in ("What kind of evidence", "no* evidence of a level", "One pool is one draw", "--warmups 20"):
        assert part in said
    made = page(ROOT / "benchmarks" / "results" / "reproductions", tmp_path)
    assert made.index("What kind of evidence") < made.index("kvcomm-table-1")
    assert "| Figures A.4 to A.11 |" in made
    assert "*MMLU, 2 agents, original* to *HumanEval (Qwen-Coder), 5 agents, KVCOMM* (24 lines): the" in made
    assert "outputs of small functions" not in made
