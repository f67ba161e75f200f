"""What judged problems come to: a line for each method in each order, and the tables made of them."""

from dataclasses import dataclass

from backend.base.statistics import Share


@dataclass(frozen=True)
class JudgeLine:
    """One method in one order, over all problems (a row of the paper's Table 1).

    Attributes:
        accuracy: final answers right; ``selection`` selections right (Wilson).
        jcr: selections equal to dense's in the same order (Wilson), over the problems where dense's could be
            read; a selection of this method that cannot be read is not equal.
        jcr_without_ties: the same without the problems that are near ties; ``jcr_without_none``: without
            those in which this method took none.
        to_none, to_another: of the problems that JCR is over, those in which this method took none, or
            another candidate, where dense selected otherwise.
        same_answer: final answers equal to dense's.
        blocks, tokens, problems: reuse rates: of candidate blocks, of prompt tokens, and of problems whose
            whole prompt was reused.
        picks: how often the judge took each slot, as shares of its readable selections; none taken first.
        failures: answers that could not be read; ``near_ties``: differing selections that are near ties;
            ``twins``: those that name a candidate with the same text as dense's.
        accuracy_change: this method's accuracy minus dense's on the same problems in the same order, paired
            (bootstrap over problems); ``jcr_change``: JCR minus the same method's in the first order. All
            changes of a table hold together with 95% (Bonferroni).
        moved: selections that differ from the same method's in the first order, mapped back: its own order
            sensitivity (NaN in the first order).
    """

    order: str
    method: str
    problems: int
    accuracy: Share
    selection: Share
    jcr: Share
    jcr_without_ties: Share
    jcr_without_none: Share
    to_none: Share
    to_another: Share
    same_answer: Share
    blocks: Share
    tokens: float
    reused_problems: float
    picks: tuple[Share, ...]
    failures: int
    near_ties: int
    twins: int
    accuracy_change: Share
    jcr_change: Share
    moved: Share
    ttft_ms: float


@dataclass(frozen=True)
class JudgeTable:
    """All lines, order by order, dense first."""

    lines: tuple[JudgeLine, ...]

    def line(self, order: str, method: str) -> JudgeLine:
        """The line of a method in an order."""
        for line in self.lines:
            if (line.order, line.method) == (order, method):
                return line
        raise KeyError((order, method))


@dataclass(frozen=True)
class ProblemCount:
    """One problem in one order: over the reuse methods, how many were right and how many kept dense's
    selection (judge study, Fig. 7), which changed it (``flipped``), and which of these took none
    (``none_taken``)."""

    problem: int
    order: str
    question: str
    right: int
    kept: int
    methods: int
    flipped: tuple[str, ...]
    none_taken: tuple[str, ...]
    near_ties: tuple[str, ...]
