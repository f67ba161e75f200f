"""UMAP layouts of pools, computed once each in the background: importing it alone takes seconds."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from backend.records.run import RunRecord
from viz.anchors.pool_map import anchor_map, mapped_pool, umap_layout
from viz.base.figure import FigureView, Panel
from viz.run.tabs import Selection, gated_method

LOG = logging.getLogger("lab_app")
KEPT = 256  # layouts, each of a few kilobytes
MAP = "anchor_map"


class LayoutWorker:
    """Computes layouts in one thread, and keeps the latest by their points."""

    def __init__(self) -> None:
        self._layouts: OrderedDict[bytes, Future[Any]] = OrderedDict()
        self._requests: SimpleQueue[tuple[Future[Any], Any]] = SimpleQueue()
        self._worker: threading.Thread | None = None
        self._guard = threading.Lock()

    def _work(self) -> None:
        """One layout after the other. The thread is a daemon's: a server that stops does not wait for it."""
        while True:
            future, points = self._requests.get()
            try:
                future.set_result(umap_layout(points))
            except Exception as error:  # shown beside the map
                future.set_exception(error)

    def layout(self, points: Any) -> Future[Any]:
        """The layout of points (texts, components): finished or pending."""
        key = repr(points.shape).encode() + points.tobytes()
        with self._guard:
            if key not in self._layouts:
                self._layouts[key] = Future()
                self._requests.put((self._layouts[key], points))
                if self._worker is None:
                    self._worker = threading.Thread(target=self._work, name="umap", daemon=True)
                    self._worker.start()
            self._layouts.move_to_end(key)
            while len(self._layouts) > KEPT:
                self._layouts.popitem(last=False)
            return self._layouts[key]

    def completed(
        self, views: Sequence[FigureView | Panel], record: RunRecord, chosen: Selection
    ) -> tuple[FigureView | Panel, ...]:
        """The views with the map's second half, if it is there."""
        if all(view.key != MAP for view in views):
            return tuple(views)
        method = gated_method(record, chosen)
        pool = mapped_pool(record, chosen.agent, method, chosen.span)
        if pool is None:
            return tuple(views)
        layout = self.layout(pool[1].points)
        if not layout.done():
            return tuple(views)
        figure = anchor_map(record, chosen.agent, method, chosen.span, _result(layout))
        return tuple(figure if view.key == MAP else view for view in views)

    def pending(self, record: RunRecord, chosen: Selection) -> bool:
        """Is the layout of this selection's map still on its way?"""
        pool = mapped_pool(record, chosen.agent, gated_method(record, chosen), chosen.span)
        return pool is not None and not self.layout(pool[1].points).done()


def _result(layout: Future[Any]) -> Any:
    """A layout, or why there is none."""
    error = layout.exception()
    if error is None:
        return layout.result()
    if isinstance(error, ValueError):
        return str(error)
    LOG.warning("UMAP failed: %s", error)
    return f"UMAP could not be computed here ({type(error).__name__}); PCA needs no such library."


LAYOUTS = LayoutWorker()
