"""Pictures of reproduced figures: they show what the report holds, and nothing else."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from backend.reproduce.registry import find, reproductions
from backend.reproduce.result import markdown, picture, read, report
from backend.reproduce.spec import Measurement, Value
from lab_app.cli.reproduce import IMAGES, RESULTS, draw
from viz.studies.reproduction import curves, svg, ticks, view

SVG = "{http://www.w3.org/2000/svg}"
FIGURES = [one.name for one in reproductions() if one.drawn]


def figure_6(**arms: float) -> dict[str, Any]:
    """A report of Figure 6: shares of each arm at the first three places, falling by a tenth."""
    found = [
        Measurement(
            {"position": str(place)},
            {
                name: Value(v - place / 10, v - place / 10 - 0.05, v - place / 10 + 0.05, 40)
                for name, v in arms.items()
            },
        )
        for place in (1, 2, 3)
    ]
    found.append(Measurement({"position": "1 to 2"}, {name: Value(0.0, of=80) for name in arms}))
    return report(find("kvlink-figure-6"), "embedded", found, [], {})


def test_figures_and_no_tables_are_drawn() -> None:
    assert [one.name for one in reproductions() if one.drawn] == FIGURES
    for name in FIGURES:
        one = find(name)
        assert one.drawn
        assert {*one.drawn.columns} <= {column.title for column in one.columns}
        assert any(
            line.at["embedded"][one.drawn.over].isdigit() for line in one.lines if "embedded" in line.at
        )


def test_a_curve_holds_its_columns_figures() -> None:
    made = figure_6(**{"Dense": 0.95, "KVLink5, unshuffled": 0.8})
    dense, unshuffled = curves(made)
    assert (dense.name, unshuffled.name) == ("dense", "KVLink5, unshuffled")
    assert [x for x, *_ in dense.points] == [1, 2, 3], "spans of places are in the table alone"
    assert [y for _, y, _, _ in unshuffled.points] == pytest.approx([0.7, 0.6, 0.5])
    shown = view(made)
    assert list(shown.figure.data[1].y) == [y for _, y, _, _ in unshuffled.points]
    assert shown.figure.data[1].error_y.array[0] == pytest.approx(0.05)
    assert "KVLink5, unshuffled 70% and 50%" in shown.finding
    assert len(shown.rows) == 6


def test_a_drawing_puts_every_point_at_its_height() -> None:
    made = figure_6(**{"Dense": 0.9, "KVLink5": 0.6})
    root = ElementTree.fromstring(svg(made))
    assert root.find(f"{SVG}title").text == find("kvlink-figure-6").sentence  # type: ignore[union-attr]
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert {"0%", "100%", "1", "2", "3", "dense", "KVLink5", "questions answered right"} <= {*texts}
    assert "Block-Attention" not in texts, "not measured, not drawn"
    height = {t.text: float(t.attrib["y"]) - 4 for t in root.iter(f"{SVG}text")}
    whole = height["0%"] - height["100%"]
    dots = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in root.iter(f"{SVG}circle")]
    shares = [(height["0%"] - y) / whole for _, y in dots if y > height["100%"]]
    assert shares == pytest.approx([0.8, 0.7, 0.6, 0.5, 0.4, 0.3], abs=0.005)
    bars = [p for p in root.iter(f"{SVG}path") if re.fullmatch(r"M[\d.]+ [\d.]+V[\d.]+", p.attrib["d"])]
    low, high = map(float, bars[0].attrib["d"].partition(" ")[2].split("V"))
    assert ((height["0%"] - low) / whole, (height["0%"] - high) / whole) == pytest.approx(
        (0.75, 0.85), abs=0.005
    )
    assert len(bars) == 6
    assert all(0 <= x <= 760 for x, _ in dots)


def test_what_a_name_holds_stays_text() -> None:
    made = figure_6(Dense=0.9)
    made["picture"]["x"] = "<script>&"
    assert "<script>" not in svg(made)
    ElementTree.fromstring(svg(made))


@pytest.mark.parametrize("top", [0.003, 0.9, 1, 7, 59.9, 60, 1527, 1e6])
def test_ticks_are_round_and_reach_the_top(top: float) -> None:
    found = ticks(top)
    assert found[0] == 0
    assert found[-2] < top <= found[-1] * (1 + 1e-9)
    assert len(found) <= 7
    assert re.fullmatch(r"[125]0*", f"{found[1] * 1e6:.0f}")


def test_pictures_are_saved_beside_the_report(tmp_path: Path) -> None:
    made = figure_6(Dense=0.9)
    svg_file, html_file = draw(made, tmp_path)
    assert svg_file == tmp_path / "kvlink-figure-6.svg"
    assert svg_file.read_text(encoding="utf-8") == svg(made)
    page = html_file.read_text(encoding="utf-8")
    assert '"questions answered right"' in page
    assert "default-src 'none'" in unescape(page), "and asks no server"
    assert "](kvlink-figure-6.svg)" in markdown(made)
    assert draw(figure_6(), tmp_path / "none") == [], "nothing was measured"
    table = report(find("kvlink-table-5"), "embedded", [], [], {})
    assert draw(table, tmp_path / "none") == []
    assert picture(table, "x.svg") == []
    older = {name: value for name, value in table.items() if name != "picture"}
    assert draw(older, tmp_path / "none") == []
    assert ".svg" not in markdown(older)


@pytest.mark.parametrize("name", FIGURES)
def test_the_pages_pictures_are_of_the_saved_reports(name: str) -> None:
    made = read(RESULTS / f"{name}.json")
    assert (IMAGES / f"{name}.svg").read_text(encoding="utf-8") == svg(made), "renew it from the report"
    assert f"](images/{name}.svg)" in (IMAGES.parent / "reproductions.md").read_text(encoding="utf-8")
