"""The folder of the static lab: what a page links to is there, and nothing is overwritten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_record import make_record
from markupsafe import Markup

from backend.base.errors import LabError
from lab_app.static_lab import build, site
from lab_app.static_lab.settings import axes
from lab_app.static_lab.site import ROOT, Entry, Site


@pytest.mark.slow
def test_links_of_documents_lead_to_pages_or_to_the_start(tmp_path: Path) -> None:
    made = Site(tmp_path / "out")
    build.add_documents(made)
    build.add_run(made, "runs/one.html", "Runs", make_record(layers=4))
    made.finish()
    for page in (tmp_path / "out").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r'(?:href|src)="([^"#]+)[^"]*"', text.split("<script")[0]):
            if "://" not in link and not link.startswith("data:"):
                assert (page.parent / link).exists(), (page.name, link)
    tables = (tmp_path / "out" / "docs" / "reproductions.html").read_text(encoding="utf-8")
    assert "<table>" in tables
    assert 'href="../docs/findings.html' in (tmp_path / "out" / "docs" / "teaching.html").read_text() or (
        "FINDINGS.md" not in (ROOT / "docs" / "teaching.md").read_text()
    )


def test_text_is_escaped(tmp_path: Path) -> None:
    made = Site(tmp_path / "out")
    made.add(
        Entry("a.html", "<b>", "<script>alert(1)</script>", "<i>", '" onclick="x'), Markup("<p>body</p>")
    )
    made.finish()
    for name in ("a.html", "index.html"):
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert "<script>alert" not in text
        assert '" onclick="x"' not in text
    assert not site._MARKDOWN.render("<script>x</script>").startswith("<script")


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(LabError, match="not empty"):
        Site(tmp_path)


def test_every_control_begins_where_the_run_was_made() -> None:
    for axis in axes():
        assert len(axis.names) == len(axis.options) > 2
        assert 0 <= axis.at < len(axis.names)
    assert next(a for a in axes() if a.key == "gamma").names[axes()[0].at] == "0.3"
