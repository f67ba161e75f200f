"""How long the page takes: to import, to its first paint, to the first streamed token after a click, to a
figure after its pane was opened.

``python benchmarks/page_load.py`` prints a report as JSON; it needs a Chromium and Playwright.

Every time is that of a fresh process or a fresh browser profile. The browser's own processor time stands
beside the wall time: a busy machine changes it less.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from backend import __version__
from backend.base.errors import LabError
from backend.base.machine import processor
from backend.records.run import RunRecord

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
PATIENCE_MS = 300_000
#: As the command `kvlab` imports the server.
IMPORT = """
import time
began = time.perf_counter()
from lab_app.server.fast_import import import_lightly
import_lightly()
import lab_app.server.serve
print(time.perf_counter() - began)
"""
#: What the page promises: seconds and bytes.
TARGETS = {
    "import_s": 3.0,
    "first_paint_s": 1.0,
    "ready_s": 2.5,
    "first_token_s": 1.0,
    "offered_first_token_s": 1.0,
    "slowest_figure_s": 1.0,
    "largest_figure_bytes": 400_000,
}
#: Click Run, and note when the first word of any agent is on the page.
WATCH = """() => {
  const stage = document.querySelector('#kv-comparison');
  window.kvSeen = null;
  new MutationObserver(() => {
    const texts = [...stage.querySelectorAll('.kv-live .kv-out:not(.kv-waiting)')];
    if (window.kvSeen === null && texts.some((t) => t.textContent.trim())) window.kvSeen = performance.now();
  }).observe(stage, { childList: true, subtree: true, characterData: true });
  window.kvClicked = performance.now();
  document.querySelector('#kv-run').click();
}"""
#: Open a tab for the first time. Seconds after which its first figure was painted and all of them, and the
#: longest that any one took, the first from the click and each other from the one before it: they are drawn
#: one a frame. A figure counts once the frame after its drawing has come.
OPEN = """(key) => new Promise((done) => {
  const view = `#kv-view-${key} `;
  const began = performance.now(), seconds = () => (performance.now() - began) / 1000;
  let first = null, before = 0, slowest = 0, count = 0;
  const look = () => {
    const all = [...document.querySelectorAll(view + '.kv-figure .kv-plot')];
    const plots = all.filter((plot) => plot.offsetParent);  // a folded one is not drawn
    const painted = plots.filter((plot) => plot.querySelector('.main-svg') && plot.offsetHeight).length;
    if (painted > count) {
      const now = seconds();
      [first, slowest, before, count] = [first ?? now, Math.max(slowest, now - before), now, painted];
    }
    if (painted && painted === plots.length) done([first, before, slowest, count]);
    else requestAnimationFrame(look);
  };
  document.querySelector(`#kv-tab-${key}-button`).click();
  requestAnimationFrame(look);
})"""


def import_seconds(repeats: int) -> list[float]:
    """Seconds that importing the server takes in fresh processes."""
    out = []
    for _ in range(repeats):
        process = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
        out.append(float(process.stdout))
    return out


def figure_bytes(record: RunRecord) -> dict[str, int]:
    """Bytes of the largest figure of every tab, as sent to the browser."""
    from lab_app.ui.components import payload
    from lab_app.ui.run_results import default_selection
    from viz.run.tabs import TABS

    selection = default_selection(record)
    sizes = {}
    for tab in TABS:
        views = payload(tab.views(record, selection))["views"]
        sizes[tab.key] = max((len(str(view.get("figure") or "").encode()) for view in views), default=0)
    return sizes


def bench_page(repeats: int = 3) -> dict[str, Any]:
    """Serve the embedded model's page and measure it in Chromium.

    Returns:
        medians over ``repeats``, every single value, the promised limits, and what it was measured on.

    Raises:
        LabError: there is no Chromium, or Playwright is not installed.
    """
    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise LabError("Playwright is not installed. Install it: pip install playwright") from error
    if chromium is None:
        raise LabError(f"No Chromium on the PATH (looked for {', '.join(CHROMIUM)}). Install one.")
    imports = import_seconds(repeats)
    from lab_app.app import FIRST_RUN
    from lab_app.server.serve import serve

    figures = figure_bytes(RunRecord.load(FIRST_RUN))
    began = time.perf_counter()
    blocks, address = serve(port=0, block=False)
    serving = time.perf_counter() - began
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
            drawn = [key for key, size in figures.items() if size]
            opened = [
                one_visit(browser, address, drawn)
                | {"offered_first_token_s": offered_seconds(browser, address)}
                for _ in range(repeats)
            ]
            browser_version = browser.version
            browser.close()
    finally:
        blocks.close(verbose=False)
    single = {"import_s": imports, **{name: [visit[name] for visit in opened] for name in opened[0]}}
    median = {name: round(statistics.median(values), 3) for name, values in single.items()}
    return {
        "bench": "page",
        "median": median,
        "slowest_figure_s": max(s for name, s in median.items() if name.endswith("_slowest_figure_s")),
        "single": {name: [round(value, 3) for value in values] for name, values in single.items()},
        "serve_s": round(serving, 2),
        "figure_bytes": figures,
        "largest_figure_bytes": max(figures.values()),
        "targets": TARGETS,
        "made_with": {
            "lab": __version__, "gradio": version("gradio"), "plotly": version("plotly"),
            "python": platform.python_version(), "chromium": browser_version,
            "processors": os.cpu_count(), "machine": processor(), "load": os.getloadavg()[0],
        },
    }  # fmt: skip


def one_visit(browser: Any, address: str, tabs: Sequence[str]) -> dict[str, float]:
    """One fresh visitor: opens the page, waits for everything, opens the tabs, clicks Run without pools."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    events: list[str] = []
    page.on("request", lambda r: events.append(r.url) if "queue/join" in r.url else None)
    devtools = context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def processor() -> float:
        metrics = devtools.send("Performance.getMetrics")["metrics"]
        return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))

    def seconds_until(selector: str, began: float) -> float:
        page.locator(selector).first.wait_for(timeout=PATIENCE_MS)
        return time.perf_counter() - began

    began = time.perf_counter()
    page.goto(address, wait_until="commit", timeout=PATIENCE_MS)
    out = {
        "first_paint_s": seconds_until(".kv-early .kv-verdict-head, #kv-verdict .kv-verdict-head", began),
        "first_paint_cpu_s": processor(),
        "mounted_s": seconds_until("#kv-verdict .kv-verdict-head", began),
        "mounted_cpu_s": processor(),
        "ready_s": seconds_until("body[data-kv-visit]", began),
    }
    settled(page, lambda: len(events))
    out |= {"browser_cpu_s": processor(), "events": len(events)}
    for key in tabs:
        names = ("first_figure_s", "figures_s", "slowest_figure_s", "figures")
        out |= {f"{key}_{name}": value for name, value in zip(names, page.evaluate(OPEN, key), strict=True)}
    page.locator("#kv-warm-first input").uncheck()  # a run with nothing before it
    settled(page, lambda: len(events))
    out["first_token_s"] = click_seconds(page)
    context.close()
    return out


def offered_seconds(browser: Any, address: str) -> float:
    """Another fresh visitor, who presses Run on what the page offers: pools first."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    events: list[str] = []
    page.on("request", lambda r: events.append(r.url) if "queue/join" in r.url else None)
    page.goto(address, wait_until="commit", timeout=PATIENCE_MS)
    page.locator("body[data-kv-visit]").wait_for(timeout=PATIENCE_MS)
    settled(page, lambda: len(events))
    seconds = click_seconds(page)
    context.close()
    return seconds


def click_seconds(page: Any) -> float:
    """From a click on Run to the first word of any agent."""
    page.evaluate(WATCH)
    page.wait_for_function("window.kvSeen !== null", timeout=PATIENCE_MS)
    return float(page.evaluate("(window.kvSeen - window.kvClicked) / 1000"))


def settled(page: Any, count: Callable[[], int]) -> None:
    """Wait until no further event has begun for a second."""
    before = -1
    while before != count():
        before = count()
        page.wait_for_timeout(1000)


if __name__ == "__main__":
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--repeats", type=int, default=7, help="visits to the page (7)")
    try:
        print(json.dumps(bench_page(max(1, flags.parse_args().repeats)), indent=1))
    except LabError as error:
        sys.exit(str(error))
