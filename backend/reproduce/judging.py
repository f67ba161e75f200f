"""Plans about judges and pools: attention (judge study, Fig. 3), a gate and counts
(Fig. 6, 7), anchors by length (KVCOMM, Fig. A.3)."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy import stats

from backend.base.statistics import bootstrap, share
from backend.judge.batch import run_judging
from backend.judge.gate_training import risk_study
from backend.judge.judge_lab import JudgeLab
from backend.methods.registry import parse_methods
from backend.prompts.presets import load_preset, preset_requests
from backend.records.events import Progress, RunDone
from backend.records.judge import CANDIDATE_TOKENS, Judged, JudgeRequest
from backend.records.judge_summary import counted
from backend.records.prompt import slots
from backend.records.request import Decoding, RunRequest
from backend.records.risk import RiskRequest, sets_of
from backend.records.run import AttentionProbe, RunRecord
from backend.reproduce.context import Context, Step
from backend.reproduce.spec import AttentionPlan, JudgedPlan, Measurement, UsesPlan, Value
from backend.reproduce.sweeping import value_of
from backend.session.session import LabSession

THIRDS = ("shortest third", "middle third", "longest third")


def runs(plan: AttentionPlan | UsesPlan, context: Context, attention: bool) -> Iterator[Progress | RunRecord]:
    """Requests of a preset in one session, one record each; the warm-up's requests leave none."""
    preset = load_preset(plan.preset)
    warm, count = context.warm(plan.warmup), context.count(plan.problems)
    examples = list(preset_requests(preset, warm + count, context.settings.seed))
    session = LabSession(context.model)
    request = RunRequest(
        preset.pipeline, examples[0].values, parse_methods(plan.methods), "pinned",
        Decoding(preset.pipeline.longest_answer), probe_offsets=False, probe_attention=attention,
    )  # fmt: skip
    for event in session.warm_up(request, examples[:warm]) if warm else ():
        if isinstance(event, Progress):
            yield event
    for number, example in enumerate(examples[warm:]):
        yield Progress(f"Request {number + 1} of {count}", number, count)
        for event in session.run(replace(request, values=example.values)):
            if isinstance(event, RunDone):
                yield event.record


def attention(plan: AttentionPlan, context: Context) -> Iterator[Step]:
    """Where the judge's first and its selecting token look, means over layers, heads and requests.

    Raises:
        LabError: see :meth:`backend.session.session.LabSession.run`.
    """
    masses: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for event in runs(plan, context, attention=True):
        if isinstance(event, Progress):
            yield event
            continue
        pipeline = event.request.pipeline
        judge = pipeline.judge or pipeline.final
        for probe in event.attention:
            if probe.agent == judge:
                masses.setdefault((probe.method, probe.query), []).append(regions(event, probe))
    for (method, query), parts in masses.items():
        names = ("template", "candidates", "answer")
        values = {
            name: value_of(bootstrap(list(column)))
            for name, column in zip(names, zip(*parts, strict=True), strict=True)
        }
        yield Measurement({"method": method, "token": query}, values)


def regions(record: RunRecord, probe: AttentionProbe) -> tuple[float, float, float]:
    """Attention to everything but the candidates and the answer so far, to the candidates, to the answer."""
    mass = probe.mass.mean(axis=(0, 1))
    between = {span.name for span in slots(record.prompts[probe.prompt].spans)}
    inside = float(sum(m for m, name in zip(mass, probe.regions, strict=True) if name in between))
    answer = float(sum(m for m, name in zip(mass, probe.regions, strict=True) if name == "answer"))
    return 1 - inside - answer, inside, answer


def judged(plan: JudgedPlan, context: Context) -> Iterator[Step]:
    """One batch of generated problems: a gate's AUC for each target, and the questions by how many methods
    kept dense's selection.

    Raises:
        LabError: see :func:`backend.judge.batch.run_judging`.
    """
    request = JudgeRequest(
        count=context.count(plan.problems), warmup=context.warm(plan.warmup), steps=0,
        methods=parse_methods(plan.methods), wording=plan.wording, slots_only=plan.candidates_only,
        seed=context.settings.seed,
        sampling=Decoding(CANDIDATE_TOKENS, plan.temperature, 1.0, context.settings.seed),
    )  # fmt: skip
    lab = JudgeLab(context.model, orders=len(request.orders))
    record: Judged | None = None
    for event in run_judging(lab, request, context.settings.out / "judged.rows.jsonl"):
        if isinstance(event, Progress):
            yield event
        elif isinstance(event, Judged):
            record = event
    assert record is not None, "a batch ends with its record"
    counts = counted(record)
    most = max((c.methods for c in counts), default=0)
    for kept in range(len(request.methods)):
        shares = [c.right for c in counts if c.kept == kept]
        yield Measurement(
            {"kept": str(kept)},
            {
                "questions": value_of(share([c.kept == kept for c in counts])),
                "right": Value(float(np.mean(shares)) / most if shares else math.nan, of=len(shares)),
            },
        )
    if sets := sets_of(record):
        for test in risk_study(sets, RiskRequest(seed=context.settings.seed), context.model.info).tests:
            auc = Value(test.auc, test.auc_low, test.auc_high, int(test.asked.sum()))
            yield Measurement({"gate": test.target}, {"auc": auc})
            if test.refused:
                context.notes.append(f"Gate for {test.target}: {test.refused}")


def uses(plan: UsesPlan, context: Context) -> Iterator[Step]:
    """How often the pools' anchors were used in a mix, by their length.

    Raises:
        LabError: see :meth:`backend.session.session.LabSession.run`.
    """
    last: RunRecord | None = None
    for event in runs(plan, context, attention=False):
        if isinstance(event, RunRecord):
            last = event
        else:
            yield event
    assert last is not None, "at least one request is run"
    pools = [pool for pool in last.pools if pool.anchors]
    lengths = np.array([n for pool in pools for n in pool.lengths])
    used = np.array([n for pool in pools for n in pool.uses])
    order = np.argsort(lengths, kind="stable")
    parts = dict(zip(THIRDS, np.array_split(order, 3), strict=True)) | {"all": order}
    rho = stats.spearmanr(lengths, used).statistic if len(lengths) > 2 else math.nan
    for name, rows in parts.items():
        values = {
            "tokens": Value(float(lengths[rows].mean()), of=len(rows)),
            "uses": Value(float(used[rows].mean()), of=len(rows)),
            "never": value_of(share([bool(n == 0) for n in used[rows]])),
        }
        yield Measurement(
            {"anchors": name}, values | ({"rho": Value(float(rho), of=len(rows))} if name == "all" else {})
        )
