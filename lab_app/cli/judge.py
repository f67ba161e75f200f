"""``kvlab judge`` and ``kvlab train-gate``: candidates before a judge, many times over."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from typer import Argument, Option

from backend.base.text import boundary_words, replication
from lab_app.cli.common import (
    Device,
    named_file,
    parse_methods,
    print_lines,
    print_table,
    progress,
    read_gate,
    write_json,
)  # fmt: skip

if TYPE_CHECKING:
    from backend.base.statistics import Share
    from backend.records.judge_tables import JudgeTable


def judge(
    regime: Literal["parallel", "progressive", "typed"] = "parallel",
    problems: int = 20,
    warmup: int = Option(0, help="problems before them that only fill the pools"),
    candidates: int = 4,
    steps: int = Option(2, help="calculations in a drawn problem; 0 is any number"),
    criterion: str = Option("right", help="what the judge selects by"),
    protocol: Literal["joint", "pairwise", "selection", "rewriting"] = "joint",
    orders: str = Option("identity,shuffle:0", help="as in identity,shuffle:0, or all"),
    methods: str = Option(
        "dense,naive,kvcomm,palkv,slotaligned", help="as in dense,naive,kvcomm:fresh=text@label"
    ),
    data: str | None = Option(
        None, help="JSON lines: questions, typed candidates, or the rows of an earlier batch"
    ),
    model: str = Option("embedded", help="the judge's"),
    agents: str | None = Option(None, help="the execution agents' model, if another than the judge's"),
    wording: str = Option("embedded", help="embedded, or general for other models"),
    gate: str | None = Option(None, metavar="FILE", help="a trained risk gate, which reuse must pass"),
    candidates_only: bool = Option(
        False,
        "--candidates-only",
        help="copy the candidates alone, as the judge study does; compute the question and all other words",
    ),
    device: Device = None,
    seed: int = 0,
    temperature: float = Option(1.0, help="of the agents; the judge is greedy"),
    top_p: float = 1.0,
    answer_tokens: int = Option(96, help="the longest candidate"),
    max_new_tokens: int = Option(160, help="the judge's longest answer"),
    budget_mb: int = 4096,
    json: str = Option(..., metavar="OUT", help="where to write the summary; rows go beside it"),
) -> int:
    """Put candidates before a judge in several orders, under several methods."""
    from backend.base.machine import versions
    from backend.base.serialization import as_json
    from backend.judge.batch import read_problems, run_judging
    from backend.judge.judge_lab import JudgeLab, check
    from backend.model.load import load_model
    from backend.records.disagreement import disagreement, disagreement_rows
    from backend.records.judge import Judged, JudgedProblem, JudgeRequest, read_orders
    from backend.records.judge_summary import counted, heat, table
    from backend.records.request import Decoding

    out = named_file("json", json, "judged.json")
    request = JudgeRequest(
        regime=regime,
        count=problems,
        seed=seed,
        steps=steps,
        warmup=warmup,
        candidates=candidates,
        criterion=criterion,
        protocol=protocol,
        orders=read_orders(orders, candidates),
        methods=parse_methods(methods),
        sampling=Decoding(answer_tokens, temperature, top_p, seed),
        max_new_tokens=max_new_tokens,
        judge=model,
        agents=agents or model,
        wording=wording,
        gate=read_gate(gate),
        slots_only=candidates_only,
    )
    check(request)
    if data:
        request = replace(request, problems=read_problems(Path(data), request))
    loaded = load_model(model, device=device)
    writers = load_model(agents, device=device) if agents else None
    lab = JudgeLab(loaded, writers, budget_bytes=budget_mb << 20, orders=len(request.orders))
    if lab.note:
        print(f"kvlab: note: {lab.note}", file=sys.stderr)
    rows: list[JudgedProblem] = []
    judged = Judged(request, loaded.info, ())
    with progress() as tell:
        for event in run_judging(lab, request, out.with_suffix(".rows.jsonl")):
            if isinstance(event, Judged):
                judged = event
            elif isinstance(event, JudgedProblem):
                rows.append(event)
                tell(
                    progress_line(table(Judged(request, loaded.info, tuple(rows))), len(rows), request.count)
                )
            else:
                tell(event.text)
    lines, gates = table(judged), disagreement(judged)
    report = {
        "request": as_json(replace(request, problems=())),
        "judge": as_json(loaded.info),
        "agents": as_json(lab.agents.info),
        "versions": versions(),
        "notes": list(judged.notes),
        "table": as_json(lines)["lines"],
        "disagreement": [as_json(gate) for gate in gates],
        "heat": {name: heat(counted(judged, name)).tolist() for name in judged.orders},
    }
    write_json(out, report)
    out.with_suffix(".kvjudge").write_bytes(judged.to_bytes())
    print_table(judge_rows(lines), left=2)
    print_lines(replication(1, "warm-up", "problems of an order"), boundary_words(judged.boundary_tax))
    print("\nDense only where two verdicts disagree; costs are shares of dense's prompt tokens:")
    print_table(disagreement_rows(gates), left=2)
    print(
        f"{len(judged.rows)} problems in {out.with_suffix('.rows.jsonl')}, the record in "
        f"{out.with_suffix('.kvjudge')}, summary in {out}"
    )
    return 0


def progress_line(lines: JudgeTable, count: int, total: int) -> str:
    """JCR and reuse of every method, order by order, in the problems judged until now."""
    parts = (
        f"{x.order} {x.method} {x.jcr.value:.0%} (none {x.to_none.value:.0%})"
        for x in lines.lines
        if x.method != "dense"
    )
    return f"{count}/{total} JCR: {', '.join(parts)}"


def judge_rows(lines: JudgeTable) -> list[tuple[str, ...]]:
    """The table for people, its heads first: shares with 95% intervals."""

    def share_text(share: Share) -> str:
        return "-" if share.of == 0 else f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]"

    rows: list[tuple[str, ...]] = [
        ("order", "method", "final answer right", "selection right", "JCR", "without none",
         "changed to none", "to another", "blocks reused", "unread",
         "near ties", "same text", "none and slots taken"),
    ]  # fmt: skip
    for x in lines.lines:
        picks = " ".join("-" if p.of == 0 else f"{p.value:.0%}" for p in x.picks)
        shares = [
            share_text(s)
            for s in (x.accuracy, x.selection, x.jcr, x.jcr_without_none, x.to_none, x.to_another, x.blocks)
        ]
        rows.append((x.order, x.method, *shares, str(x.failures), str(x.near_ties), str(x.twins), picks))
    return rows


def train_gate(
    judged: str = Argument(..., metavar="FILE.kvjudge", help="the record that kvlab judge wrote"),
    out: str = Option(..., metavar="FILE.json", help="the gate; other ones go beside it"),
    scoring: Literal["number", "choice", "text", "code"] = Option(
        "number", help="how a candidate's answer is read off"
    ),
    folds: int = 5,
    penalty: float = Option(1.0, help="on the squared weights"),
    resamples: int = Option(1000, help="of the problems, for the interval"),
    wanted: float = Option(0.95, help="JCR that the threshold is chosen for"),
    seed: int = 0,
) -> int:
    """Train and test risk gates on a judged batch."""
    from backend.judge.gate_training import risk_study
    from backend.records.disagreement import disagreement, disagreement_rows
    from backend.records.judge import Judged
    from backend.records.risk import RiskRequest, sets_of

    file = named_file("out", out, "gate.json")
    request = RiskRequest(scoring, folds, penalty, resamples, wanted, seed)
    batch = Judged.from_bytes(Path(judged).read_bytes())
    study = risk_study(sets_of(batch), request, batch.model)
    file.with_suffix(".kvrisk").write_bytes(study.to_bytes())
    rows: list[tuple[str, ...]] = [("gate", "sets", "safe", "AUC", "95%", "threshold", "kept at it", "")]
    for index, test in enumerate(study.tests):
        shares = [f"{int(test.asked.sum())}", f"{int((test.safe & test.asked).sum())}"]
        if test.gate is None:
            rows.append((test.target, *shares, "-", "-", "-", "-", test.refused))
            continue
        place = file if index == 0 else file.with_name(f"{file.stem}.{index}{file.suffix}")
        test.gate.save(place)
        share = float((test.score >= test.gate.threshold)[test.asked].mean())
        interval, threshold = f"{test.auc_low:.3f} to {test.auc_high:.3f}", f"{test.gate.threshold:.2f}"
        rows.append(
            (test.target, *shares, f"{test.auc:.3f}", interval, threshold, f"{share:.0%}", str(place))
        )
    print_table(rows, left=1)
    print("\nBeside a judge that reads densely only where two verdicts disagree, at its cost:")
    print_table(disagreement_rows(disagreement(batch, study)), left=2)
    print(f"The study is in {file.with_suffix('.kvrisk')}")
    return 0
