"""Pages of the static lab: each is one HTML file, with an entry that the start page lists and searches."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from backend.base.folders import new_folder
from viz.base.figure import FigureView, Panel
from viz.run.report import document_html, plotly_script, scripts, style

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
ASSETS = "assets/"
TEMPLATES = Environment(
    loader=FileSystemLoader(HERE),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
CARD = """---
title: KV Reuse Lab (static)
emoji: 🔬
colorFrom: blue
colorTo: green
sdk: static
app_file: index.html
license: apache-2.0
---
The KV Reuse Lab without a server: recorded runs, the tour, sliders over computed settings, tables.
"""


@dataclass(frozen=True)
class Entry:
    """A page as the start page lists it.

    Attributes:
        href: the file, from the folder's root.
        group: its heading there; empty: only other pages lead to it.
        about: one sentence.
        words: further text that a search looks through.
    """

    href: str
    group: str
    title: str
    about: str
    words: str = ""


class Site:
    """A folder that is being written.

    Raises:
        LabError: ``out`` holds something already.
    """

    def __init__(self, out: Path) -> None:
        self.out = new_folder(out)
        self.entries: list[Entry] = []
        (out / ASSETS).mkdir(parents=True, exist_ok=True)

    def add(self, entry: Entry, body: Markup, views: Sequence[FigureView | Panel] = ()) -> None:
        """Write a page whose body is ``body``, below a link to the start page."""
        home = Markup('<p class="kv-static-home"><a href="{}index.html">KV Reuse Lab</a></p>').format(
            _up(entry.href)
        )
        self.write(entry, document_html(entry.title, home + body, views, _up(entry.href) + ASSETS))

    def write(self, entry: Entry, html: str) -> None:
        """Write a page that is complete."""
        path = self.out / entry.href
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(html, encoding="utf-8")
        self.entries.append(entry)

    def asset(self, name: str, content: str) -> None:
        """Write a file that pages load."""
        (self.out / ASSETS / name).write_text(content, encoding="utf-8")

    def finish(self) -> int:
        """Write what all pages share and the start page; the folder's bytes."""
        self.asset("plotly.min.js", plotly_script())
        self.asset("lab.js", scripts() + (HERE / "static.js").read_text(encoding="utf-8"))
        tour = (ROOT / "lab_app" / "assets" / "tour.css").read_text(encoding="utf-8")
        self.asset("lab.css", style() + tour + (HERE / "static.css").read_text(encoding="utf-8"))
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries:
            if entry.group:
                groups.setdefault(entry.group, []).append(entry)
        body = template("index.html", groups=groups)
        (self.out / "index.html").write_text(
            document_html("KV Reuse Lab", body, (), ASSETS), encoding="utf-8"
        )
        (self.out / "README.md").write_text(CARD, encoding="utf-8")
        return sum(file.stat().st_size for file in self.out.rglob("*") if file.is_file())

    # -- documents

    def add_document(self, source: Path, group: str, about: str, pages: Sequence[Path]) -> None:
        """A Markdown file as a page; links to files that are ``pages`` lead there, pictures are copied."""
        tokens = _MARKDOWN.parse(text := source.read_text(encoding="utf-8"))
        title = next((t.content for t in tokens if t.type == "inline"), source.stem)
        _name_headings(tokens)
        for token in _all(tokens):
            if token.type == "link_open":
                token.attrSet("href", _link(str(token.attrGet("href")), source, pages))
            elif token.type == "image":
                token.attrSet("src", self._picture(str(token.attrGet("src")), source))
        html = Markup(_MARKDOWN.renderer.render(tokens[3:], _MARKDOWN.options, {}))
        body = Markup('<article class="kv-static-text">{}</article>').format(html)
        self.add(Entry(_document(source), group, title, about, text[:20_000]), body)

    def _picture(self, src: str, source: Path) -> str:
        path = (source.parent / src).resolve()
        if not path.is_relative_to(ROOT) or not path.is_file():
            return src
        shutil.copyfile(path, self.out / ASSETS / path.name)
        return f"../{ASSETS}{path.name}"


_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


def template(name: str, **values: object) -> Markup:
    """A template of this folder, filled."""
    return Markup(TEMPLATES.get_template(name).render(values))


def _up(href: str) -> str:
    return "../" * href.count("/")


def _document(source: Path) -> str:
    return f"docs/{source.stem.lower()}.html"


def _link(href: str, source: Path, pages: Sequence[Path]) -> str:
    """A link's target within the folder; links to other files lead to the start page."""
    path, _, part = href.partition("#")
    if not path or "://" in path:
        return href
    target = (source.parent / path).resolve()
    return f"../{_document(target)}{'#' + part if part else ''}" if target in pages else "../index.html"


def _name_headings(tokens: Sequence[Token]) -> None:
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            name = re.sub(r"[^\w\- ]", "", tokens[at + 1].content.lower()).strip().replace(" ", "-")
            token.attrSet("id", name)


def _all(tokens: Sequence[Token]) -> list[Token]:
    return [inner for token in tokens for inner in (token, *(token.children or ()))]
