"""Pages made from the code are current."""

from __future__ import annotations

from pathlib import Path

from lab_app.cli import methods_markdown

DOCS = Path(__file__).parents[2] / "docs"


def test_the_methods_page_is_what_the_registry_says() -> None:
    page = (DOCS / "methods.md").read_text(encoding="utf-8")
    assert page == methods_markdown(), "renew it: kvlab methods --markdown > docs/methods.md"
