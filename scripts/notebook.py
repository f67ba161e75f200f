"""Run a notebook's cells in an empty folder and store what they showed beside them.

Usage: python scripts/notebook.py [docs/sweeps.ipynb]

No notebook server is needed. A figure is stored as a notebook stores it, and as a picture beside it if there
is a Chromium, for those who only look. A page of more than :data:`STORED` characters is shown and not stored.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

WIDTH = 900
STORED = 100_000
DRAW = """async ([figure, width]) => {
  const layout = {...figure.layout, paper_bgcolor: '#ffffff', plot_bgcolor: '#ffffff'};
  const drawn = await Plotly.newPlot(document.createElement('div'), figure.data, layout);
  return Plotly.toImage(drawn, {format: 'png', width, height: layout.height, scale: 1.5});
}"""


def executed(sources: list[str], pictures: bool = False) -> Iterator[list[dict[str, Any]]]:
    """The outputs of each cell, run one after the other under the same names; ``pictures`` of figures too."""
    names: dict[str, Any] = {}
    for number, source in enumerate(sources, 1):
        tree = ast.parse(source, f"cell {number}")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        output, value = io.StringIO(), None
        with contextlib.redirect_stdout(output):
            exec(compile(tree, f"cell {number}", "exec"), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
        out: list[dict[str, Any]] = []
        if text := as_seen(output.getvalue()):
            out.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
        if value is not None:
            head = {"execution_count": number, "metadata": {}, "output_type": "execute_result"}
            out.append({"data": shown(value, pictures), **head})
        yield out


def as_seen(text: str) -> str:
    """What a carriage return leaves of each line."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def shown(value: Any, pictures: bool) -> dict[str, Any]:
    """A value as a notebook shows it."""
    if hasattr(value, "to_plotly_json"):
        figure = json.loads(value.to_json())
        plain = f"<{type(value).__name__} with {len(figure['data'])} traces>"
        bundle = {"application/vnd.plotly.v1+json": figure, "text/plain": [plain]}
        image = picture(figure) if pictures else ""
        return bundle | ({"image/png": image} if image else {})
    plain = {"text/plain": repr(value).splitlines(keepends=True)}
    return {"text/html": value._repr_html_(), **plain} if hasattr(value, "_repr_html_") else plain


def picture(figure: dict[str, Any]) -> str:
    """A figure as PNG in base 64; empty where there is no Chromium."""
    from screenshot import CHROMIUM, FLAGS

    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if chromium is None:
        print("No Chromium on the PATH, so figures are stored without a picture.", file=sys.stderr)
        return ""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page()
        page.add_script_tag(path=str(files("plotly") / "package_data" / "plotly.min.js"))
        address = str(page.evaluate(DRAW, [figure, WIDTH]))
        browser.close()
    return address.partition(",")[2]


def main() -> None:
    """Run, store, and say how much was shown."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "sweeps.ipynb").resolve()
    book: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        results = list(executed(["".join(cell["source"]) for cell in cells], pictures=True))
        os.chdir(ROOT)
    for number, (cell, outputs) in enumerate(zip(cells, results, strict=True), 1):
        for output in outputs:
            if len(output.get("data", {}).get("text/html", "")) > STORED:
                del output["data"]["text/html"]
        cell["execution_count"], cell["outputs"] = number, outputs
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{path.name}: {len(cells)} cells, {sum(map(len, results))} outputs")


if __name__ == "__main__":
    main()
