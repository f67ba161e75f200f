"""Save a picture of the page as it opens, with its saved run, for the README.

Usage: python scripts/screenshot.py OUT.png [--dark] [--width 1280] [--height 800] [--full]
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
PATIENCE_MS = 300_000


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Save a picture of the page as it opens, with its saved run."
    )
    parser.add_argument("out", type=Path, metavar="OUT.png")
    parser.add_argument("--dark", action="store_true", help="use the dark theme")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=800)
    parser.add_argument("--full", action="store_true", help="the whole page, not only the first screen")
    return parser.parse_args()


def take(address: str, wish: argparse.Namespace, chromium: str) -> None:
    """Open the page and save the picture."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(
            viewport={"width": wish.width, "height": wish.height},
            color_scheme="dark" if wish.dark else "light",
        )
        page.goto(address)
        page.wait_for_selector("body[data-kv-visit]", timeout=PATIENCE_MS)
        page.wait_for_selector("#kv-comparison .kv-agent", timeout=PATIENCE_MS)
        page.wait_for_selector("#kv-tabs [role=tab]", timeout=PATIENCE_MS)
        page.wait_for_timeout(800)
        page.screenshot(path=str(wish.out), full_page=wish.full)
        browser.close()


def main() -> None:
    """Serve on a free port, take the picture, stop."""
    wish = arguments()
    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if chromium is None:
        raise SystemExit(
            f"No Chromium on the PATH (looked for {', '.join(CHROMIUM)}). Install one, for example Debian's."
        )
    from lab_app.server.serve import serve

    blocks, address = serve(port=0, block=False)
    try:
        take(address, wish, chromium)
    finally:
        blocks.close(verbose=False)
    print(f"saved {wish.out}")


if __name__ == "__main__":
    main()
