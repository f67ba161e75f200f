"""Connects the widgets of saving, sharing and undo."""

from collections.abc import Callable

from lab_app.pages.pipeline.form import FORM, Form
from lab_app.pages.pipeline.layout import PipelinePage
from lab_app.pages.pipeline.sharing.actions import Sharing
from lab_app.ui.types import Given, Update
from lab_app.visits.visits import Visit

#: Reads the address and the tab's draft. It may run before the page's scripts are loaded.
CARRY = """() => {
  try {
    const link = /^#([cr]=[A-Za-z0-9_-]+)$/.exec(location.hash);
    const draft = JSON.parse(sessionStorage.getItem("kv-bench") || "null");
    return JSON.stringify({ address: link ? link[1] : "", draft });
  } catch { return ""; }
}"""


def connect_sharing(page: PipelinePage, sharing: Sharing) -> None:
    """Connect the events. Those that change the form also refresh what follows from it."""

    def at(place: str, act: Callable[[Visit, Form], Update]) -> Callable[[Visit, Given], Update]:
        """A handler whose ``share_link`` is shown at ``place``."""

        def handler(visit: Visit, inputs: Given) -> Update:
            update = act(visit, inputs[FORM])
            return {place if name == "share_link" else name: value for name, value in update.items()}

        return handler

    for name, act in (("undo", sharing.undo), ("redo", sharing.redo)):
        page.on(page[name].click, at("", act), FORM, follow=True)
    page.on(page["bench_link"].click, at("bench_shared", sharing.link), FORM)
    page.on(page["share"].click, at("run_shared", lambda visit, form: sharing.share(visit)), FORM)
    page.on(
        page["upload"].upload, lambda visit, inputs: sharing.open_file(visit, inputs["upload"]), "upload",
        follow=True,
    )  # fmt: skip
