"""Sampled calls of a log, read densely and under reuse methods: what changes, by how much, and because of
which text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from backend.base.cancel import Cancel
from backend.base.errors import LabError, RunCancelled
from backend.base.text import Tax, sum_taxes
from backend.cache.norms import kl
from backend.engine.decoding import Decoded
from backend.logs.advice import Advice
from backend.logs.calls import Call
from backend.logs.gather import gathered
from backend.logs.layouts import Layouts
from backend.logs.pieces import load_tokenizer
from backend.logs.to_read import LogToRead
from backend.logs.written_call import written_call
from backend.model.load import LoadedModel
from backend.records.blame import BlameRecord, BlameRequest
from backend.records.events import Progress
from backend.records.log_reading import (
    Blamed,
    BlamedPart,
    LayoutRow,
    ReadingRecord,
    ReadingRequest,
    ReadingRow,
    Refused,
)
from backend.records.request import REFERENCE, RunRequest
from backend.records.run import RunRecord
from backend.session.probes.cache_error import cache_error
from backend.session.session import LabSession
from backend.session.streams import PromptRun
from backend.session.study import study
from backend.studies.blame import blame, verdict
from backend.studies.layout_reading import LayoutTrials
from backend.studies.log_gate import flipped
from backend.studies.logged_calls import LoggedCalls, sampled

SHOWN = 120  # characters of a blamed text
DRAWS = 10  # random sets beside the one that is blamed


def read_log(
    model: LoadedModel,
    request: ReadingRequest,
    calls: Sequence[Call],
    budget_bytes: int = 1 << 30,
    *,
    xrayed: tuple[Layouts, Sequence[Advice]] | None = None,
    cancel: Cancel = None,
) -> Iterator[Progress | ReadingRecord]:
    """Sample calls, read and compare; ends with the record.

    Args:
        calls: in the order of their time.
        xrayed: layouts of the same calls and what the X-ray proposes, if these are to be tried.

    Raises:
        OptionError: there are more calls than are held at once.
        RunCancelled: ``cancel`` was set.
    """
    logged = LoggedCalls(model, calls, request.methods, request)
    trials = None
    if request.layouts and xrayed is not None:
        trials = LayoutTrials(logged, *xrayed, request.methods, budget_bytes)
    chosen = sampled(logged.eligible, logged.agents, request.sample, request.seed)
    refused: list[Refused] = []
    rows: list[ReadingRow] = []
    taxes: list[Tax | None] = []
    laid: list[LayoutRow] = []
    spent, ended = 0, False
    total = len(chosen)
    for number, index in enumerate(chosen):
        changed = sum(row.flipped for row in rows)
        yield Progress(f"{number} of {total} calls read, {changed} answers changed", number, total)
        try:
            if index in logged.refused:
                refused.append(Refused(calls[index].where, logged.agents[index], logged.refused[index]))
                continue
            if ended := spent >= request.most_tokens:
                break
            answer = model.tokens.encode(calls[index].output.strip())[: request.max_new_tokens]
            session = LookingSession(model, answer, budget_bytes)
            record = logged.read(index, session, cancel)
            spent += sum(len(record.prompts[outcome.prompt].token_ids) for outcome in record.outcomes)
            new = rows_of(record, session, calls[index], logged.agents[index])
            taxes.append(record.boundary_tax)
        except RunCancelled:
            raise
        except LabError as error:
            refused.append(Refused(calls[index].where, logged.agents[index], str(error)))
            continue
        if trials is not None:
            yield Progress(f"{calls[index].where} in other layouts", number, total)
            dense, near = record.outcome(1, REFERENCE), record.outcomes[1].fidelity
            assert session.dense is not None
            assert near is not None
            try:
                tried = list(trials.rows(index, dense, session.dense, near.floor))
            except LabError as error:  # the call itself has been read: its rows stay
                where = f"{calls[index].where} in another layout"
                refused.append(Refused(where, logged.agents[index], str(error)))
                tried = []
            spent += sum(row.prompt_tokens for row in tried if row.touched)
            laid += tried
        for row in new:
            if row.flipped and not row.near_tie and request.blame_passes:
                yield Progress(f"What changed the answer of {row.where} under {row.method}?", number, total)
                texts = record.prompts[record.outcome(1, row.method).prompt].texts
                blamed = _blamed(session, logged.request(index), texts, row, request, cancel)
                row = replace(row, blamed=blamed)
            rows.append(row)
    yield ReadingRecord(
        request, model.info, len(calls), logged.warmed, ended, tuple(refused),
        tuple(rows), proposed=trials.proposed if trials else (), laid=tuple(laid),
        boundary_tax=sum_taxes(taxes),
    )  # fmt: skip


@study(LogToRead)
def read_calls(
    model: LoadedModel, request: LogToRead, budget_bytes: int, cancel: Cancel = None
) -> Iterator[Progress | ReadingRecord]:
    """A visitor's calls; see :func:`read_log`."""
    xrayed = None
    if request.reading.layouts:
        log = gathered(request.calls, load_tokenizer())
        xrayed = Layouts(log, request.block), request.advice
    yield from read_log(model, request.reading, request.calls, budget_bytes, xrayed=xrayed, cancel=cancel)


@dataclass(frozen=True)
class Look:
    """What a method's cache says beside dense's; see :class:`backend.records.log_reading.ReadingRow`."""

    logged_tokens: int
    kl_logged: float
    swapped: int
    key_error: float | None
    value_error: float | None


class LookingSession(LabSession):
    """A session that leads every method along a given answer, and measures its cache, while it is there.

    Args:
        model: as of any session.
        answer: token ids; none where nothing is known.

    Attributes:
        looks: by method's label. ``dense``: dense's own answer, with its logits.
    """

    def __init__(self, model: LoadedModel, answer: Sequence[int], budget_bytes: int = 1 << 30) -> None:
        super().__init__(model, budget_bytes=budget_bytes)
        self._answer = answer
        self.looks: dict[str, Look] = {}
        self.dense: Decoded | None = None

    def finish(self, rows: list[PromptRun]) -> None:
        """Look at the rows of an agent that has answered."""
        dense, engine = rows[0], self.engine
        self.dense = dense.decoded
        fed = self._answer[:-1]
        logits = engine.teacher_force([row.prefill for row in rows], fed) if self._answer else None
        for place, row in enumerate(rows[1:], 1):
            mean, swapped = 0.0, 0
            if logits is not None:
                mean = float(kl(logits[0], logits[place]).mean())
                swapped = int((logits[0].argmax(-1) != logits[place].argmax(-1)).sum())
            ids = dense.context.prompt.ids
            errors: list[float | None] = [None, None]
            if row.context.prompt.ids == ids:
                halves = cache_error(row.prefill.cache, dense.prefill.cache, len(ids), engine.model.rotation)
                errors = [float(error.mean()) for error in halves]
            self.looks[row.run.choice.label] = Look(len(self._answer), mean, swapped, *errors)


def rows_of(record: RunRecord, session: LookingSession, call: Call, agent: str) -> list[ReadingRow]:
    """A read call: a row for each method."""
    dense, tools = record.outcome(1, REFERENCE), [tool.name for tool in call.tools]
    rows = []
    for other in record.outcomes[1:]:
        prompt, near = record.prompts[other.prompt], other.fidelity
        assert near is not None
        rows.append(
            ReadingRow(
                call.where, agent, other.method, len(prompt.token_ids),
                other.copied_tokens, dense.text, other.text, flipped(dense, other),
                near.near_tie, written_call(dense.text, tools), written_call(other.text, tools),
                near.kl_first, float(near.kl_tokens.mean()), **vars(session.looks[other.method]),
            )
        )  # fmt: skip
    return rows


def _blamed(
    session: LabSession, run: RunRequest, texts: Sequence[str], row: ReadingRow, request: ReadingRequest,
    cancel: Cancel,
) -> Blamed:  # fmt: skip
    """What changed an answer, or why that was not searched. ``texts``: of the prompt's tokens."""
    choices = [verdict(text, request.same) for text in (row.dense, row.text)]
    if choices[0] == choices[1] and any(choices[0]):
        return Blamed(refused="Only words changed: what can be read off both answers is the same.")
    search = BlameRequest(
        run, row.method, run.pipeline.final, request.blame_passes, draws=DRAWS, seed=request.seed
    )
    try:
        [record] = [step for step in blame(session, search, cancel) if isinstance(step, BlameRecord)]
    except RunCancelled:
        raise
    except LabError as error:
        return Blamed(refused=str(error))
    parts = tuple(
        BlamedPart(" ".join("".join(texts[p.start : p.end]).split())[:SHOWN], p.first, p.last, p.half)
        for p in (record.found.parts if record.found else ())
    )
    restored = sum(trial.restored for trial in record.random)
    return Blamed(
        parts, record.share if parts else 0.0, restored, len(record.random), record.dense_token,
        record.method_token,
    )  # fmt: skip
