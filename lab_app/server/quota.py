"""Use of each limit, as a page for whoever hosts the lab. It shows counts alone, no text."""

import shutil
from collections.abc import Iterator

from lab_app.server.request_limits import ANSWERS, DOWNLOADS, STREAMS, Counts
from lab_app.visits.visits import VisitStore
from viz.base.html import html, joined

PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="10">'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><title>KV Reuse Lab: quota</title>'
    "<style>body{{font:15px system-ui,sans-serif;margin:24px;color-scheme:light dark}}"
    "td,th{{padding:4px 14px 4px 0;text-align:right}}td:first-child,th:first-child{{text-align:left}}</style>"
    "<h1>What is used, and what is left</h1><table><tr><th>What<th>Used<th>Of<th>Left</tr>{}</table></html>"
)
ROW = "<tr><td>{}<td>{:,}<td>{:,}<td>{:,}</tr>"


def quota_html(lab: VisitStore, under_way: int, counts: Counts) -> str:
    """The page; ``under_way``: engine calls now running, ``counts``: of requests."""
    rows = quota(lab, under_way, counts)
    return str(html(PAGE, joined(html(ROW, what, used, of, max(0, of - used)) for what, used, of in rows)))


def quota(lab: VisitStore, under_way: int, counts: Counts) -> Iterator[tuple[str, int, int]]:
    """What is limited, how much of it is used, and how much there is."""
    visits = lab.visits
    yield "Visits", len(visits), lab.limits.visits
    yield "Visits that run or wait", sum(visit.busy for visit in visits), lab.limits.visits
    yield "Runs at once", under_way, lab.limits.together
    yield "Cached text of visits, MiB", _mib(sum(visit.engine.held for visit in visits)), lab.limits.total_mb
    if lab.shared is not None:
        yield "Shared runs stored, MiB", _mib(lab.shared.held_bytes), _mib(lab.shared.total_bytes)
        disk = shutil.disk_usage(lab.shared.folder)
        yield "Disk of the shared runs, MiB", _mib(disk.used), _mib(disk.total)
    yield "Shared within a day, MiB", _mib(lab.stored.used), _mib(lab.stored.together)
    yield "Uploaded within an hour, MiB", _mib(counts.uploads.used), _mib(counts.uploads.together)
    for what, bound in (
        ("Connections that stay open", STREAMS), ("Downloads at once", DOWNLOADS), ("Other answers", ANSWERS)
    ):  # fmt: skip
        yield what, counts.open[bound].counted.total(), counts.open[bound].bound.together
    yield "Connections in all", counts.connections.counted.total(), counts.connections.bound.together
    yield "New sessions within a minute", counts.names.made.used, counts.names.made.bound.together
    yield "Calls within a minute", counts.calls.used, counts.calls.bound.together


def _mib(count: int) -> int:
    return round(count / 2**20)
