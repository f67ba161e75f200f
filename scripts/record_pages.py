"""Renew ``presets/pages/*.kvrun``, the finished runs that a first visit finds on the pages beside Compare.

Each is what the page itself asks for when nothing is touched but the example: the first one where the full
read is right and copying alone changes what comes out, else the first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from backend.base.serialization import Saved
from backend.lab import Lab
from backend.model.load import LoadedModel, load_model
from backend.records.agent_loop import cut, is_final
from backend.records.events import RunDone
from backend.records.judge import CRITERIA, OrderDone
from backend.records.run import RunRecord
from backend.records.sweep import Swept
from backend.session.session import LabSession
from lab_app.pages.agent_loop import page as loop
from lab_app.pages.documents import page as documents
from lab_app.pages.judge import page as judge
from lab_app.pages.judge.layout import METHODS_AT_FIRST as JUDGE_METHODS
from lab_app.pages.sweeps import page as sweeps
from lab_app.ui.first_runs import SavedJudgement, SavedSweep
from viz.run.verdict import compare

OUT = Path(__file__).resolve().parents[1] / "presets" / "pages"


#: What stands on the pages at first, beside the example and the methods.
AT_FIRST: dict[str, Any] = {
    "options": {}, "preset": documents.EXAMPLES[0], "mode": "pinned", "turns": loop.TURNS_AT_FIRST,
    "criterion": CRITERIA[0], "protocol": "joint", "slots_only": False, "order": "shuffle", "shuffles": 1,
    "seed": 0, "repair": False, "budget": 25, "warm": 4, "own_numbers": False,
    "source": "typed", "temperature": 1,
}  # fmt: skip


def requests_of(page: Any, tries: int, methods: tuple[str, ...]) -> Iterator[Any]:
    """A page's request for one example after the other, as an untouched page makes it."""
    visit: Any = SimpleNamespace(pages={})
    for _ in range(tries):
        values = AT_FIRST | {"methods": methods}
        yield page.read(visit, values | page.next_example(visit, values))


def shows_change(record: RunRecord) -> bool:
    """The full read is right and copying alone changes the answer."""
    dense = record.outcome(record.agents[-1], "dense")
    return dense.correct is True and compare(record, "naive").kind == "answer"


def run_once(model: LoadedModel, request: Any, **more: Any) -> RunRecord:
    """The record of a request in a session that has seen nothing."""
    [record] = [e.record for e in LabSession(model).run(request, **more) if isinstance(e, RunDone)]
    return record


def first(candidates: Iterator[tuple[Saved, bool]]) -> Saved:
    """The first that tells something, else the first."""
    records = []
    for record, good in candidates:
        records.append(record)
        if good:
            return record
    return records[0]


def of_documents(model: LoadedModel, tries: int) -> Saved:
    """A question over documents."""
    records = (
        run_once(model, request) for request in requests_of(documents, tries, documents.METHODS_AT_FIRST)
    )
    return first((record, shows_change(record)) for record in records)


def of_loop(model: LoadedModel, tries: int) -> Saved:
    """An episode."""
    records = (
        cut(run_once(model, request, ends=is_final))
        for request in requests_of(loop, tries, loop.METHODS_AT_FIRST)
    )
    return first((record, shows_change(record)) for record in records)


def of_judge(model: LoadedModel, tries: int) -> Saved:
    """One problem in two orders."""

    def candidates() -> Iterator[tuple[Saved, bool]]:
        for request in requests_of(judge, tries, JUDGE_METHODS):
            orders = [e for e in Lab(LabSession(model)).study(request) if isinstance(e, OrderDone)]
            row = orders[-1].row
            changed = any(o.method == "naive" and o.consistent is False for o in row.outcomes)
            right = all(o.correct is not False for o in row.outcomes if o.method == "dense")
            yield SavedJudgement(request, row, tuple(e.record for e in orders)), changed and right

    return first(candidates())


def of_sweep(model: LoadedModel, tries: int) -> Saved:
    """The small sweep that stands there."""
    lab = Lab(LabSession(model))
    *_, last = (e for e in lab.sweep(lab.sweep_desk(), sweeps.SMALL, "") if isinstance(e, Swept))
    return SavedSweep(sweeps.SMALL, last)


PAGES = {"documents": of_documents, "loop": of_loop, "judge": of_judge, "sweep": of_sweep}


def main() -> int:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=12, help="examples tried for each page")
    parser.add_argument("--only", nargs="*", default=list(PAGES), choices=PAGES, help="these pages alone")
    args = parser.parse_args()
    model = load_model("embedded", device="cpu", dtype="fp32")
    OUT.mkdir(exist_ok=True)
    for page in args.only:
        content = PAGES[page](model, args.tries).to_bytes()
        (OUT / f"{page}.kvrun").write_bytes(content)
        print(f"{page}: {len(content):,} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
