"""Connects the widgets of saving, sharing and undo to what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab_app.pages.pipeline.form import Form
from lab_app.pages.pipeline.layout import Page
from lab_app.ui.page import QUIET
from lab_app.ui.types import Update
from lab_app.visits.visits import Visit

#: What the address and the tab ask for. It may run before the page's own scripts are there.
CARRY = """() => {
  try {
    const link = /^#([cr]=[A-Za-z0-9_-]+)$/.exec(location.hash);
    const draft = JSON.parse(sessionStorage.getItem("kv-bench") || "null");
    return JSON.stringify({ address: link ? link[1] : "", draft });
  } catch { return ""; }
}"""


def every_box(page: Page) -> list[Any]:
    """The boxes of all methods' options, and the switches that add columns."""
    out: list[Any] = []
    for panel in page.panels.values():
        out += panel.options.values()
        out += [box for box in (panel.ablate, panel.every_profile) if box is not None]
    return out


def connect_sharing(wiring: Any, follow: dict[str, Any]) -> None:
    """Attach the events. What changes the bench says again how it stands."""
    page, sharing, session = wiring.page, wiring.sharing, wiring.page["session"]

    def once(act: Callable[[Visit, Form], Update], place: str = "") -> Callable[..., dict[Any, Any]]:
        """A handler; what it says under ``share_link`` stands at ``place``."""

        def placed(visit: Visit, form: Form) -> Update:
            update = act(visit, form)
            return {place if name == "share_link" else name: value for name, value in update.items()}

        found: Callable[..., dict[Any, Any]] = wiring.once(placed)
        return found

    page["undo"].click(once(sharing.undo), wiring.inputs, wiring.everything, **QUIET).then(**follow)
    page["redo"].click(once(sharing.redo), wiring.inputs, wiring.everything, **QUIET).then(**follow)
    page["bench_link"].click(once(sharing.link, "bench_shared"), wiring.inputs, wiring.outputs, **QUIET)
    page["share"].click(
        once(lambda visit, form: sharing.share(visit), "run_shared"),
        wiring.inputs,
        wiring.outputs,
        **QUIET,
    )

    def opened(visit_id: str, content: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = wiring.guarded(visit_id, lambda visit: sharing.open_file(visit, content))
        return found

    page["upload"].upload(opened, [session, page["upload"]], wiring.everything, **QUIET).then(**follow)
