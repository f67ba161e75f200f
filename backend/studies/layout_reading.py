"""Sampled calls of a log in other layouts, which share more: does the model answer the same when it reads the
same texts in another order?"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from backend.engine.decoding import Decoded
from backend.logs.advice import CUT, Advice
from backend.logs.call_pipeline import Section
from backend.logs.calls import Call
from backend.logs.layouts import Layouts
from backend.logs.written_call import written_call
from backend.methods.base import Method
from backend.methods.registry import method_class
from backend.model.load import LoadedModel
from backend.records.events import RunDone
from backend.records.log_reading import LayoutRow, Proposed
from backend.records.request import REFERENCE, MethodChoice, RunRequest
from backend.records.run import Fidelity, Outcome, RunRecord
from backend.session.probes.fidelity import fidelity
from backend.session.session import LabSession
from backend.session.streams import PromptRun
from backend.studies.log_gate import flipped
from backend.studies.logged_calls import LoggedCalls


class BesideSession(LabSession):
    """A session that compares dense's answer with dense's answer to the same texts in their own order.

    Args:
        model: as of any session.
        other: the answer to the texts in their own order.
        floor: largest logit difference between two ways of computing dense.
    """

    def __init__(self, model: LoadedModel, other: Decoded, floor: float, budget_bytes: int) -> None:
        super().__init__(model, budget_bytes=budget_bytes)
        self._other, self._floor = other, floor
        self.near: Fidelity | None = None

    def finish(self, rows: list[PromptRun]) -> None:
        """Look at the agent that has answered."""
        other, engine, decoded = self._other, self.engine, rows[0].decoded
        assert decoded is not None
        assert other.logits is not None
        fed = other.ids[: len(other.logits) - 1]
        [forced] = engine.teacher_force([rows[0].prefill], fed)
        self.near = fidelity(
            other, decoded, forced, other.logits, self._floor, engine.model.tokens, engine.stop_ids()
        )


class LayoutTrials:
    """Proposed layouts, tried on sampled calls.

    Args:
        logged: the log's calls.
        layouts: of the same calls, in the same order.
        advice: what the X-ray proposes.
        methods: for the layout that needs one; those that keep pools are left out, for nothing fills them.
    """

    def __init__(
        self,
        logged: LoggedCalls,
        layouts: Layouts,
        advice: Sequence[Advice],
        methods: Sequence[MethodChoice],
        budget_bytes: int,
    ) -> None:
        self.logged, self.layouts, self.budget_bytes = logged, layouts, budget_bytes
        self.methods = [method for method in methods if _needs_nothing(method)]
        self._saved = {row.layout: layouts.saved(row.layout) for row in advice if row.layout != CUT}
        self.proposed = tuple(
            Proposed(row.layout, row.saved, row.of, row.calls)
            for row in advice
            if row.layout != CUT or self.methods
        )

    def rows(self, index: int, dense: Outcome, decoded: Decoded, floor: float) -> Iterator[LayoutRow]:
        """A call in every proposed layout.

        Args:
            index: of a call that was read.
            dense: dense's answer to it as it was sent; ``decoded``: the same with its logits.
            floor: see :class:`BesideSession`.

        Raises:
            LabError: a layout of it cannot be read.
        """
        if index >= self.layouts.tried:
            return
        rows: dict[str, LayoutRow] = {}  # by what the model reads: two layouts may lay a call out alike
        for proposal in self.proposed:
            if proposal.layout == CUT:
                yield from self._cut(index)
                continue
            sections, saved = self.layouts.sections(proposal.layout, index), self._saved[proposal.layout]
            assert saved is not None
            if (key := repr(sections)) not in rows:
                rows[key] = self._laid(index, sections, dense, decoded, floor)
            yield replace(rows[key], layout=proposal.layout, saved=int(saved[index]))

    def _laid(
        self, index: int, sections: Sequence[Section] | None, dense: Outcome, decoded: Decoded, floor: float
    ) -> LayoutRow:
        call, agent = self.logged.calls[index], self.logged.agents[index]
        if sections is None:
            return LayoutRow(call.where, agent, "", "", False, 0, 0, dense.text, dense.text)
        session = BesideSession(self.logged.model, decoded, floor, self.budget_bytes)
        record = _run(session, self.logged.laid_out(index, sections, ()))
        outcome = record.outcome(1, REFERENCE)
        tokens = len(record.prompts[outcome.prompt].token_ids)
        return _row(call, agent, "", "", tokens, 0, dense, outcome, session.near)

    def _cut(self, index: int) -> Iterator[LayoutRow]:
        call, agent = self.logged.calls[index], self.logged.agents[index]
        session = LabSession(self.logged.model, budget_bytes=self.budget_bytes)
        record = _run(session, self.logged.laid_out(index, None, self.methods, paragraphs=True))
        dense, before = record.outcome(1, REFERENCE), int(self.layouts.before[index])
        for outcome in record.outcomes[1:]:
            prompt = record.prompts[outcome.prompt]
            saved = outcome.copied_tokens - before
            yield _row(
                call, agent, CUT, outcome.method, len(prompt.token_ids), saved, dense, outcome,
                outcome.fidelity,
            )  # fmt: skip


def _needs_nothing(method: MethodChoice) -> bool:
    """Whether a method copies texts without having seen them before."""
    kind = method_class(method.name)
    return kind.shares_texts and kind.on_event is Method.on_event and not method.reference


def _run(session: LabSession, request: RunRequest) -> RunRecord:
    [record] = [event.record for event in session.run(request) if isinstance(event, RunDone)]
    return record


def _row(
    call: Call, agent: str, layout: str, method: str, tokens: int, saved: int, dense: Outcome, other: Outcome,
    near: Fidelity | None,
) -> LayoutRow:  # fmt: skip
    assert near is not None
    tools = [tool.name for tool in call.tools]
    return LayoutRow(
        call.where, agent, layout, method, True, tokens, saved, dense.text, other.text,
        flipped(dense, other), near.near_tie, written_call(dense.text, tools),
        written_call(other.text, tools), near.kl_first, float(near.kl_tokens.mean()),
    )  # fmt: skip
