"""Plans that are studies of the lab: documents encoded apart, held-out tasks, hypotheses."""

import math
from collections.abc import Iterator

from backend.base.row_file import RowFile
from backend.base.statistics import share_of
from backend.model.load import LoadedModel
from backend.records.documents import DocumentStudy
from backend.records.hypotheses import HypothesesRecord, HypothesesRequest
from backend.records.hypothesis_verdicts import verdicts
from backend.reproduce.context import Context, Linked, Step
from backend.reproduce.spec import DocumentsPlan, EvaluationPlan, HypothesesPlan, Measurement, Value
from backend.reproduce.sweeping import value_of
from backend.studies.documents import SIZES, ask, record_of_rows
from backend.studies.hypotheses import hypotheses as measure
from backend.training.evaluate import evaluate

EARLY = 2  # unshuffled training has both facts of a question in the first two documents


def documents(plan: DocumentsPlan, context: Context) -> Iterator[Step]:
    """Ask the questions on the base and on each set of trained weights.

    Raises:
        LabError: see :func:`backend.studies.documents.ask`.
    """
    studies: list[tuple[DocumentStudy, Linked | None]] = []
    for linked in (None, *context.trained):
        model = context.load(linked.model if linked else context.model_name)
        rows = context.settings.out / "documents.rows.jsonl"
        count = context.count(plan.problems)
        yield from ask([model], count, context.settings.seed, rows)
        study = record_of_rows([model], count, context.settings.seed, RowFile(rows).rows())
        studies.append((study, linked))
        for label in study.labels:
            arm = study.arms[study.arm(label)]
            name = arm_name(label, arm.method, linked)
            where = {"arm": name, "compression": "none", "rate": "0%"}
            if linked:
                where |= linked.kind
            yield Measurement(where, {"accuracy": value_of(share_of(*study.share(label)[:2]))})
    if plan.positions:
        yield from by_position(studies)


def arm_name(label: str, method: str, linked: Linked | None) -> str:
    """An arm's name, whatever its weights' compression."""
    if linked is None:
        return label
    if method == "dense":
        return f"dense on {linked.label}"
    return f"{linked.label}, left out" if label.endswith("left out") else linked.label


def by_position(studies: list[tuple[DocumentStudy, Linked | None]]) -> Iterator[Measurement]:
    """Shares by the place of the document with the answer, for single places and ranges, all arms of
    uncompressed weights."""
    last = max(SIZES)
    for first, to in (*((place, place) for place in range(1, last + 1)), (1, EARLY), (EARLY + 1, last)):
        values: dict[str, Value] = {}
        for study, linked in studies:
            if linked and linked.compression != "none":
                continue
            for label in study.labels:
                arm = study.arms[study.arm(label)]
                name = arm_name(label, arm.method, linked)
                in_range = (study.position >= first) & (study.position <= to)
                values.setdefault(name, value_of(share_of(*study.share(label, in_range)[:2])))
        yield Measurement({"position": str(first) if first == to else f"{first} to {to}"}, values)


def evaluation(plan: EvaluationPlan, context: Context) -> Iterator[Step]:
    """Read the held-out tasks densely under each set of weights."""
    count = context.count(plan.problems)
    yield _evaluate(context.model, count, context, {"weights": "base"})
    for linked in context.trained:
        where = {"weights": linked.label, "mixture": linked.mixture, "compression": linked.compression}
        yield _evaluate(context.load(linked.model), count, context, where)


def _evaluate(model: LoadedModel, count: int, context: Context, where: dict[str, str]) -> Measurement:
    report = evaluate(model, count, context.settings.seed, wordings=("stock",))
    values = {}
    for key, marks in report.items():
        task = key.removesuffix(", stock")
        totals = marks["all"]
        mark = totals["selection"] if task.startswith(("judge", "glance")) else totals["answer"]
        low, high = mark["ci"]
        values[task] = Value(mark["share"], low, high, mark["n"])
    return Measurement(where, values)


def hypotheses(plan: HypothesesPlan, context: Context) -> Iterator[Step]:
    """Run the episodes; all four hypotheses share their rows.

    Raises:
        LabError: see :func:`backend.studies.hypotheses.hypotheses`.
    """
    request = HypothesesRequest(
        episodes=context.count(plan.problems), turns=plan.turns, seed=context.settings.seed, grid=plan.grid,
        reruns=plan.reruns, common=plan.common,
    )  # fmt: skip
    record: HypothesesRecord | None = None
    for event in measure(context.model, request, context.settings.out / "segments.rows.jsonl"):
        if isinstance(event, HypothesesRecord):
            record = event
        else:
            yield event
    assert record is not None
    names = {line.at[context.scale]["hypothesis"] for line in context.reproduction.lines}
    for verdict in verdicts(record):
        if verdict.name in names:
            context.notes.append(f"{verdict.name} is {verdict.word}: {verdict.reason}")
        values: dict[str, Value] = {}
        for place, (column, value) in enumerate(zip(verdict.columns, verdict.values, strict=True)):
            if column in ("from", "to"):
                continue
            bounds = (math.nan, math.nan)
            if verdict.columns[place + 1 : place + 3] == ("from", "to"):
                bounds = (verdict.values[place + 1], verdict.values[place + 2])
            values[column] = Value(value, *bounds, int(verdict.values[-1]))
        yield Measurement({"hypothesis": verdict.name}, values)
