"""The gate on logged calls: sampled calls are read densely and under a method, and their answers compared."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from backend.base.errors import LabError
from backend.base.text import Tax, sum_taxes
from backend.logs.calls import Call
from backend.model.load import LoadedModel
from backend.prompts.scoring import answer_changed
from backend.records.events import Progress
from backend.records.log_gate import GateRecord, GateRequest, GateRow
from backend.records.request import REFERENCE
from backend.records.run import Outcome, RunRecord
from backend.session.session import LabSession
from backend.studies.logged_calls import LoggedCalls, sampled


def log_gate(
    model: LoadedModel, request: GateRequest, calls: Sequence[Call], budget_bytes: int = 1 << 30
) -> Iterator[Progress | GateRecord]:
    """Sample calls and compare; ends with the record. Where there are too few calls to tell, none is read.

    Raises:
        OptionError: there are more calls than are held at once.
    """
    logged = LoggedCalls(model, calls, [request.method], request)
    record = GateRecord(request, model.info, len(calls), logged.warmed)
    chosen = sampled(
        logged.eligible, logged.agents, request.calls, request.seed, by_agent=not request.stop_early
    )
    rows: list[GateRow] = []
    taxes: list[Tax | None] = []
    for number, index in enumerate(chosen if len(chosen) >= request.needed else ()):
        changed = sum(row.flipped for row in rows)
        yield Progress(f"{number} calls compared, {changed} changed", number, len(chosen))
        row = GateRow(calls[index].where, logged.agents[index], logged.refused.get(index, ""))
        if not row.refused:
            try:
                run = logged.read(index, LabSession(model, budget_bytes=budget_bytes))
                row = _row_of(run, request.method.label, row)
                taxes.append(run.boundary_tax)
            except LabError as error:
                row = replace(row, refused=str(error))
        rows.append(row)
        if request.stop_early:
            record = replace(record, rows=tuple(rows))
            if record.limits[0] > request.max_flips or record.verdict == "at most":
                break
    yield replace(record, rows=tuple(rows), boundary_tax=sum_taxes(taxes))


def flipped(dense: Outcome, other: Outcome) -> bool:
    """Whether an answer changed; see :func:`backend.prompts.scoring.answer_changed`."""
    return answer_changed(dense.answer, dense.text, other.answer, other.text)


def _row_of(record: RunRecord, label: str, row: GateRow) -> GateRow:
    dense, other = record.outcome(1, REFERENCE), record.outcome(1, label)
    prompt, changed = record.prompts[other.prompt], flipped(dense, other)
    near = other.fidelity is not None and other.fidelity.near_tie
    return replace(
        row, flipped=changed, near_tie=changed and near, prompt_tokens=len(prompt.token_ids),
        reused_tokens=other.copied_tokens, dense=dense.text, method=other.text,
    )  # fmt: skip
