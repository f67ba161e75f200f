"""Records of every kind in which each text from a person or a model is hostile, for tests of drawing code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fake_record import make_model, make_pipeline, make_proximity, make_record

from backend.base.statistics import Share
from backend.prompts.pipeline import Pipeline
from backend.records.agent_loop import LoopRecord, LoopRequest
from backend.records.anchor_cost import AnchorCost, AnchorCostRequest
from backend.records.blame import BlameRecord, BlameRequest, Part, Trial
from backend.records.blend import BlendRequest, BlendStudy
from backend.records.break_even import Case
from backend.records.documents import DocumentArm, DocumentSpeed, DocumentStudy
from backend.records.familiarity import AgentSurprisal, Bin, Familiarity, Outlook
from backend.records.frontier import Ahead, Frontier, FrontierPoint
from backend.records.hardware import Figures, given_machine
from backend.records.judge import (
    Candidate,
    Judged,
    JudgedProblem,
    JudgeOutcome,
    JudgeProblem,
    JudgeRequest,
)
from backend.records.judge_tables import JudgeLine, JudgeTable, ProblemCount
from backend.records.offsets import PARTS, Approximated, OffsetRequest, OffsetStudy, SampleOffsets, Twins
from backend.records.prompt import Span
from backend.records.proximity import ProximityRecord
from backend.records.request import MethodChoice
from backend.records.risk import GateTest, RiskRecord, RiskRequest
from backend.records.risk_gate import EVERY, RiskGate
from backend.records.run import PROVENANCE, AttentionProbe, RunRecord
from backend.records.sweep import Cell, Compared, Comparison, SweepLine, Swept

EVIL = "</title><script>alert(1)</script><b>\"'&"
TOUR = Path(__file__).parents[2] / "presets" / "tour"
#: Fields that the code reads as words of its own; what a page shows of them it takes from its own tables.
OWN_WORDS = {
    "state", "mode", "modes", "kind", "placeholder", "codec", "provenance", "regime", "protocol", "scoring",
    "features", "axis", "query", "choices", "masks", "target", "name of a method", "compression", "memory",
    "level", "half",
}  # fmt: skip


def sullied(value: Any, field: str = "") -> Any:
    """The same value with every text in it hostile; equal texts stay equal."""
    if field == "regions":  # names of spans
        return tuple(EVIL + name if name.startswith("prefix") else name for name in value)
    if isinstance(value, str):
        return EVIL + value if value and field not in OWN_WORDS else value
    if isinstance(value, Pipeline):
        agents = tuple(replace(a, name=EVIL + a.name, role=EVIL + a.role, model=EVIL) for a in value.agents)
        return replace(value, title=EVIL, agents=agents)
    if isinstance(value, MethodChoice):
        return replace(value, label=EVIL + value.label)
    if isinstance(value, Span):
        return replace(value, name=value.name if value.kind == "placeholder" else EVIL + value.name)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return replace(value, **{name: sullied(found, name) for name, found in fields.items()})
    if isinstance(value, tuple | list):
        return type(value)(sullied(found, field) for found in value)
    if isinstance(value, Mapping):
        more = {EVIL: 1.0} if field == "parts_ms" else {}
        return {key: sullied(found, field) for key, found in value.items()} | more
    return value


METHODS = tuple(MethodChoice(name) for name in ("dense", "naive", "kvcomm"))
LABELS = tuple(choice.label for choice in METHODS)
MODEL = make_model(4)
RNG = np.random.default_rng(0)
HALF = Share(0.5, 0.4, 0.6, 40)


def runs() -> Iterable[RunRecord]:
    """Made up, and real ones with pools, activations and attention."""
    yield sullied(surprised(watched(), 0.9))
    yield sullied(surprised(make_record(expected=None, agents=2), None))
    yield sullied(make_record(mode="free", expected=None, agents=2))
    yield sullied(refused(make_record(agents=2)))
    for name in ("anchors", "repair"):
        yield sullied(RunRecord.load(TOUR / f"{name}.kvrun"))


def refused(record: RunRecord) -> RunRecord:
    """With a gate that let KVCOMM reuse nothing."""
    outcomes = tuple(
        replace(
            o, state="fallback", actions=np.zeros_like(o.actions),
            gate=(replace(o.gate[0], shareable=False), *o.gate[1:]),
        )
        if o.gate
        else o
        for o in record.outcomes
    )  # fmt: skip
    return replace(record, outcomes=outcomes)


def surprised(record: RunRecord, wrong: float | None) -> RunRecord:
    """With what each prompt was to the model; ``wrong`` as a calibration says, None without one."""
    agents = []
    for agent in record.agents:
        dense = record.outcome(agent, "dense")
        nats = (RNG.random(len(texts)) * 9 for texts in (record.prompts[dense.prompt].texts, dense.texts))
        agents.append(AgentSurprisal(agent, dense.prompt, *(x.astype(np.float32) for x in nats)))
    like = Bin(0.75, 0.9, 14, 12) if wrong is not None else None
    outlook = Outlook("unusual", 0.4, ("a word", "another"), wrong, like)
    return replace(record, familiarity=Familiarity(tuple(agents), 8.0, outlook))


def watched() -> RunRecord:
    """With attention measured at the last of four agents, and a gate that had no entropy to go by."""
    record = make_record(agents=4)
    agent, at = record.agents[-1], len(record.prompts) - 1
    prompt = record.prompts[at]
    regions = tuple(s.name for s in prompt.spans)
    probes = tuple(
        AttentionProbe(
            agent, m, at, "first", 0, "8", regions, RNG.dirichlet(np.ones(len(regions)), (6, 4)),
            RNG.random((6, len(prompt.texts))),
        )
        for m in record.labels
    )  # fmt: skip
    outcomes = tuple(
        replace(o, gate=(*o.gate[1:], replace(o.gate[0], entropy=None, threshold=None))) if o.gate else o
        for o in record.outcomes
    )
    return replace(record, attention=probes, outcomes=outcomes)


def loop() -> LoopRecord:
    turns, n = 3, 3 * 3 * 2
    columns = {name: RNG.integers(1, 90, n) for name in ("reused_tokens", "forwarded_tokens")}
    times = {
        name: RNG.random(n) for name in ("ttft_ms", "prefill_ms", "first_token_ms", "kl_first", "kl_mean")
    }
    index = np.arange(n)
    record = LoopRecord(
        LoopRequest(METHODS, episodes=2, turns=turns), MODEL, LABELS, ("a question", "another"),
        mode=np.zeros(n, int), method=index % 3, episode=index // 9, turn=index // 3 % 3 + 1,
        prompt_tokens=np.full(n, 90), floor=np.full(n, 1e-5), ends=np.where(index // 3 % 3 == 2, 1, -1),
        provenance=RNG.integers(1, 9, (n, len(PROVENANCE))), **columns, **times,
    )  # fmt: skip
    return sullied(record)


def judged() -> tuple[Judged, JudgeTable, tuple[ProblemCount, ...]]:
    problem = JudgeProblem(
        1, "Which?", (Candidate("The answer is 1", "a"), Candidate("The answer is 2", "b"))
    )
    request = JudgeRequest(regime="typed", problems=(problem,), methods=METHODS)

    def outcome(method: str, order: str, selected: tuple[int, ...] | None, **changes: Any) -> JudgeOutcome:
        found = JudgeOutcome(
            1, order, (1, 2), method, "dense" if method == "dense" else "reused", selected, selected, "1",
            "no number", True, True, None if method == "dense" else selected == (1,), selected == (1,),
            4, 3, 90, 60, 30, 0.5, 0.4, 1e-5, method == "kvcomm", False, 0.1, 0.1, 3.0, {"match": 1.0},
            "The answer is 1",
        )  # fmt: skip
        return replace(found, **changes)

    outcomes = tuple(
        outcome(m, order, {"dense": (1,), "naive": (2,)}.get(m))
        for order in ("identity", "shuffle 0")
        for m in LABELS
    )
    row = JudgedProblem("1", problem, outcomes)
    rows = tuple(replace(row, problem=replace(problem, number=n)) for n in range(1, 4))
    points = RNG.random((3, 2)).astype(np.float32)
    line = JudgeLine(
        "identity", "dense", 3, *(HALF,) * 9, 0.5, 0.5, (HALF, HALF, HALF), 1, 1, 1,
        HALF, HALF, HALF, 3.0,
    )  # fmt: skip
    table = JudgeTable(tuple(replace(line, method=m) for m in LABELS))
    counts = tuple(
        ProblemCount(n, "identity", "Which?", n % 3, n % 2, 2, ("naive",), ("naive",), ("kvcomm",))
        for n in (1, 2, 3)
    )
    return sullied(Judged(request, MODEL, rows, ("a note",), points)), sullied(table), sullied(counts)


def risk(gated: bool = True) -> RiskRecord:
    n = 40
    gate = RiskGate(EVERY, "0" * 16, "number", ("agree", EVIL), (0.0, 0.0), (1.0, 1.0), (1.0, -2.0), 0.0, 0.5)
    safe, score = RNG.random(n) < 0.5, RNG.random(n)

    def test(target: str) -> GateTest:
        return GateTest(
            target, gate.features, safe, np.ones(n, bool), score, np.arange(n) % 5, 0.7, 0.6, 0.8,
            gate if gated else None, "" if gated else f"too few sets of {EVIL}",
        )  # fmt: skip

    targets = (EVERY, EVIL + "naive", EVIL + "kvcomm")
    return RiskRecord(
        RiskRequest(), sullied(MODEL), tuple(f"problem {i}" for i in range(n)), targets[1:],
        np.stack([safe, ~safe], 1), RNG.random((n, 2)), tuple(map(test, targets)), 1.0,
    )  # fmt: skip


def cost() -> AnchorCost:
    asked = AnchorCostRequest(anchors=(1, 4), lengths=(16, 64))
    times = [RNG.random((2, 2)) for _ in range(4)]
    return sullied(AnchorCost(asked, MODEL, np.full((2, 2), 10**6), *times, wall_ms=1.0))


def blamed() -> Iterator[BlameRecord]:
    """A search that found a set of two parts, one that found none, and one that not even all parts helped."""
    record = next(iter(runs()))
    prompt = record.prompts[-1]
    parts = tuple(
        Part(span.name, span.start, span.end, index, 1, half)
        for index, (span, half) in enumerate(zip(prompt.spans, ("keys and values", "keys"), strict=False))
    )
    asked = BlameRequest(record.request, record.labels[-1], record.agents[-1])
    ends = (Trial(parts, EVIL, None, None, True, 5.0), Trial((), EVIL, None, None, False, -3.0))
    found = BlameRecord(
        asked, record.model, prompt.spans, len(prompt.token_ids), ends[0], ends[1], ends[0], 0, EVIL, EVIL,
        ends, ends[0], (ends[1],), tuple(s.name for s in prompt.spans), RNG.random((len(prompt.spans), 2)),
        40, False, 1.0,
    )  # fmt: skip
    for one in (
        found,
        replace(found, found=None, spent=True),
        replace(found, found=None, everything=ends[1]),
    ):
        yield sullied(one)


def offsets() -> OffsetStudy:
    pipeline, tokens, layers, heads, prefixes = make_pipeline(2), 5, 4, 4, 2

    def random(*shape: int) -> Any:
        return RNG.random(shape).astype(np.float32)

    whole, parts = (prefixes, layers, heads, tokens), (2, 2, len(PARTS), 2, layers)
    twins = Twins(
        np.arange(tokens), ("a",) * tokens, random(tokens), *(random(2, layers, tokens) for _ in "abc")
    )
    count = 24
    samples = SampleOffsets(
        np.repeat([1, 2], 12),
        np.arange(count) % 3,
        np.arange(count) % 2,
        random(layers, count),
        random(layers, count),
    )
    estimated = Approximated(
        ("anchors", "nearest"), (1, 2), *(RNG.random(parts) for _ in "abc"), RNG.random(parts[1:]),
        np.full((2, len(PARTS)), 9), np.ones((2, len(PARTS)), int),
    )  # fmt: skip
    values = tuple({"user_question": f"question {n}"} for n in range(3))
    return sullied(
        OffsetStudy(
            OffsetRequest("five words", ("one", "two"), pipeline, values), MODEL, np.arange(tokens),
            ("a", "b", "c", "d", "e"), np.array([3, 4]), random(*whole), random(*whole), random(*whole),
            random(layers, heads, tokens), random(layers, heads, tokens), twins, samples, estimated, 1.0,
        )
    )  # fmt: skip


def blend() -> BlendStudy:
    request = BlendRequest(make_pipeline(2), ({"user_question": "How many?"},) * 3)
    shape = (len(request.choices), len(request.masks), len(request.ratios), 3)
    grids = {name: RNG.random(shape) for name in ("keys", "values", "chosen", "kl", "work")}
    rows = {name: RNG.random(3) for name in ("copied_keys", "copied_values", "copied_kl", "floor")}
    return sullied(
        BlendStudy(request, MODEL, agent=2, prompt_tokens=np.full(3, 90), wall_ms=1.0, **grids, **rows)
    )


def pairs() -> ProximityRecord:
    return sullied(make_proximity())


def sweep() -> Swept:
    cells = [Cell("math", "embedded", mode, "as they come", 0) for mode in ("pinned", "free")]
    lines = tuple(
        SweepLine(
            cell, m, m, 40, Share(0.7, 0.6, 0.8, 40), *(HALF,) * 7, near_ties=1,
            ttft_ms=Share(3.0, 2.0, 4.0, 40),
            ttft_ratio=Share(2.0, 1.5, 3.0, 40),
        )
        for cell in cells
        for m in LABELS
    )  # fmt: skip
    test = Comparison(
        cells[0], "math", "naive", "method", "naive", "dense", 40, 9, 1, Share(2.0, 1.5, 3.0, 40), 0.01, 0.01,
        0.02, 0.02,
    )  # fmt: skip
    tests = (test, replace(test, axis="model", mine="embedded", other="small"))
    return sullied(Swept("fake", "fake", lines, 240, True, Compared(tests, ("left out",))))


def frontier() -> Frontier:
    rate, cost = Share(0.1, 0.0, 0.2, 40), Share(0.5, 0.4, 0.6, 40)
    first = FrontierPoint("naive", 1, 4, rate, cost, 2, True)
    second, early = (
        replace(first, method="kvcomm", on=False),
        replace(first, method="other", round=1, on=False),
    )
    found = Frontier("fake", "fake", ("math",), (4, 40), 3, 0.6, (first, second, early), "naive", "kvcomm")
    held_out = replace(found, confirmed=first, against=(Ahead(second, Share(0.0, -0.1, 0.1, 40)),))
    return sullied(held_out)


def documents() -> DocumentStudy:
    arms = (
        DocumentArm("Dense", "dense", {}, "base"),
        DocumentArm("PromptCache", "promptcache", {}, "base"),
        DocumentArm("Dense, trained", "dense", {}, "base+5", adapted=True),
        DocumentArm("KVLink5", "kvlink", {}, "base+5", adapted=True),
    )
    n, times = 10, np.ones((2, 2))
    speed = DocumentSpeed(
        MODEL, ("dense", "cached"), 4, (50, 100), np.array([200, 400]), "memory", 3, np.array([10, 20]),
        *(times,) * 4,
    )  # fmt: skip
    return sullied(
        DocumentStudy(
            MODEL, 0, arms, np.full(n, 5), np.arange(n) % 5 + 1, np.ones(n, int), np.full(n, 200),
            RNG.integers(0, 2, (4, n)).astype(np.int8), np.ones((4, n)), np.full((4, n), 9), speed,
        )
    )  # fmt: skip


def figures() -> tuple[Figures, Case]:
    machine = given_machine("llama-8b", 100.0, 1000.0)
    return Figures(replace(machine, name=EVIL), EVIL), Case(4000, 3000, 500, 3, 20)


def reproduction() -> dict[str, Any]:
    ours = [{"value": 0.5, "low": 0.4, "high": 0.6}]
    return {
        "name": EVIL, "asks": EVIL, "place": EVIL, "setting_ours": EVIL, "caveat": EVIL, "notes": [EVIL],
        "columns": [{"title": EVIL, "form": "percent"}],
        "picture": {"columns": [EVIL], "places": [1.0, 2.0], "x": EVIL, "y": EVIL},
        "lines": [{"ours": ours}, {"ours": ours}],
    }  # fmt: skip
