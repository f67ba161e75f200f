"""The rooms of the packages and what they import, drawn from the code: docs/images/house.svg.

``python scripts/house.py`` draws it, ``--check`` fails where it is not current (part of ``make lint``).
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import Counter
from pathlib import Path

from imports import HOUSES, ROOT, imports, modules, orders
from markupsafe import Markup

PICTURE = ROOT / "docs" / "images" / "house.svg"
ROW, CELL, HEAD = 22, 13, 118  # pixels: a line, a column of the matrix, the column heads above it
NAME, WORDS, COUNT = 14, 128, 640  # where a line's parts begin
LONGEST = 78  # characters of what a room is for
STYLE = Markup(
    "text{font:12px system-ui,sans-serif;fill:#1a1f26}.s{fill:#606a76}.h{font-weight:600}"
    ".l{stroke:#b9c0c9;stroke-opacity:.5}.d{fill:#1f5fa8}.o{fill:#b9c0c9;fill-opacity:.18}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ed}.s{fill:#929daa}.d{fill:#7db4f2}}"
)


def rooms() -> list[str]:
    """Every room as ``package.room``, from the roof to the ground floor."""
    order, _ = orders(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    return [
        f"{house}.{room}" for house in reversed(HOUSES) for floor in order[house] for room in sorted(floor)
    ]


def room_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def purpose(room: str, files: dict[str, Path]) -> str:
    """The first sentence of a room's docstring."""
    docstring = ast.get_docstring(ast.parse(files[room].read_text(encoding="utf-8"))) or ""
    sentence = docstring.split("\n\n")[0].replace("\n", " ").replace("``", "").split(". ")[0].rstrip(".")
    return sentence if len(sentence) <= LONGEST else sentence[: LONGEST - 1].rsplit(" ", 1)[0] + " …"


def text(x: float, y: float, content: object, look: str = "", more: str = "") -> Markup:
    return Markup('<text x="{}" y="{}" class="{}"{}>{}</text>').format(x, y, look, Markup(more), content)


def drawn() -> str:
    """The picture: a line for each room; a dot where it imports from the room of that column."""
    files, order = modules(ROOT), rooms()
    edges = Counter(
        (room_of(name), room_of(target))
        for name, targets in imports(files).items()
        for target in targets
        if room_of(name) != room_of(target)
    )
    sizes = Counter(map(room_of, files))
    matrix = COUNT + 50
    width, height = matrix + CELL * len(order) + 46, HEAD + ROW * len(order) + 14
    parts = [text(NAME, HEAD - 12, "room", "s"), text(WORDS, HEAD - 12, "what it is for", "s")]
    parts.append(text(COUNT, HEAD - 12, "files", "s"))
    for row, room in enumerate(order):
        house, name = room.split(".")
        y = HEAD + ROW * row
        if not row or not order[row - 1].startswith(f"{house}."):
            parts.append(Markup('<path class="l" d="M8 {}H{}"/>').format(y - 4, width - 8))
            above = text(0, 0, house, "h s", ' text-anchor="end"')
            parts.append(Markup('<g transform="translate(12 {}) rotate(-90)">{}</g>').format(y - 2, above))
        parts.append(text(NAME + 12, y + 12, name, "h"))
        parts.append(text(WORDS, y + 12, purpose(room, files), "s"))
        parts.append(text(COUNT, y + 12, sizes[room], "s"))
        x = matrix + CELL * row
        parts.append(
            Markup('<g transform="translate({} {}) rotate(-60)">{}</g>').format(
                x + 9, HEAD - 10, text(0, 0, name, "s")
            )
        )
        parts.append(
            Markup('<rect class="o" x="{}" y="{}" width="{}" height="{}"/>').format(x, y, CELL, ROW - 4)
        )
        for column, other in enumerate(order):
            if count := edges[room, other]:
                radius = min(5.5, 1.6 + 0.5 * count**0.5)
                label = f"{room} imports {other}: {count}"
                parts.append(
                    Markup('<circle class="d" cx="{}" cy="{}" r="{:.1f}"><title>{}</title></circle>').format(
                        matrix + CELL * column + CELL / 2, y + ROW / 2 - 2, radius, label
                    )
                )
    caption = "Rooms from the roof to the ground floor. Every dot is right of the diagonal: no import climbs."
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img">'
        "<title>The rooms of the packages and what they import</title><desc>{said}</desc>"
        "<style>{style}</style>\n{parts}\n</svg>\n"
    ).format(w=width, h=height, said=caption, style=STYLE, parts=Markup("\n").join(parts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="say whether the picture is current")
    if not parser.parse_args().check:
        PICTURE.write_text(drawn(), encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != drawn():
        print(f"{PICTURE.relative_to(ROOT)} is not current. Renew it: python scripts/house.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
