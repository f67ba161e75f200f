"""``kvlab judge`` and ``kvlab train-gate``: candidates before a judge, many times over."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab_app.cli.common import (
    named_file,
    parse_methods,
    print_table,
    read_gate,
    show_progress,
    write_json,
)  # fmt: skip

if TYPE_CHECKING:
    from backend.base.statistics import Share
    from backend.records.judge_tables import JudgeTable


def add_judge(add: Any) -> None:
    """Register the two commands; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add("judge", judge, "Put candidates before a judge in several orders, under several methods.")
    sub.add_argument("--regime", default="parallel", help="parallel, progressive, or typed")
    sub.add_argument("--problems", type=int, default=20)
    sub.add_argument("--warmup", type=int, default=0, help="problems before them that only fill the pools")
    sub.add_argument("--candidates", type=int, default=4)
    sub.add_argument("--steps", type=int, default=2, help="calculations in a drawn problem; 0 is any number")
    sub.add_argument("--criterion", default="right", help="what the judge selects by")
    sub.add_argument("--protocol", default="joint", help="joint, pairwise, selection, or rewriting")
    sub.add_argument("--orders", default="identity,shuffle:0", help="as in identity,shuffle:0, or all")
    sub.add_argument(
        "--methods",
        default="dense,naive,kvcomm,palkv,slotaligned",
        help="as in dense,naive,kvcomm:fresh=text@label",
    )
    sub.add_argument(
        "--data", help="JSON lines: questions, typed candidates, or the rows of an earlier batch"
    )
    sub.add_argument("--model", default="embedded", help="the judge's")
    sub.add_argument("--agents", help="the execution agents' model, if another than the judge's")
    sub.add_argument("--wording", default="embedded", help="embedded, or general for other models")
    sub.add_argument("--gate", metavar="FILE", help="a trained risk gate, which reuse must pass")
    sub.add_argument(
        "--candidates-only",
        action="store_true",
        help="copy the candidates alone, as the judge study does; compute the question and all other words",
    )
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--temperature", type=float, default=1.0, help="of the agents; the judge is greedy")
    sub.add_argument("--top-p", type=float, default=1.0)
    sub.add_argument("--answer-tokens", type=int, default=96, help="the longest candidate")
    sub.add_argument("--max-new-tokens", type=int, default=160, help="the judge's longest answer")
    sub.add_argument("--budget-mb", type=int, default=4096)
    sub.add_argument(
        "--json", required=True, metavar="OUT", help="where to write the summary; rows go beside it"
    )

    sub = add("train-gate", train_gate, "Train and test risk gates on a judged batch.")
    sub.add_argument("judged", metavar="FILE.kvjudge", help="the record that kvlab judge wrote")
    sub.add_argument("--out", required=True, metavar="FILE.json", help="the gate; other ones go beside it")
    sub.add_argument("--scoring", choices=("number", "choice", "text", "code"), default="number",
                     help="how a candidate's answer is read off")  # fmt: skip
    sub.add_argument("--folds", type=int, default=5)
    sub.add_argument("--penalty", type=float, default=1.0, help="on the squared weights")
    sub.add_argument("--resamples", type=int, default=1000, help="of the problems, for the interval")
    sub.add_argument("--wanted", type=float, default=0.95, help="JCR that the threshold is chosen for")
    sub.add_argument("--seed", type=int, default=0)


def judge(args: argparse.Namespace) -> int:
    from backend.base.machine import versions
    from backend.base.serialization import as_json
    from backend.judge.batch import read_problems, run_judging
    from backend.judge.judge_lab import JudgeLab, check
    from backend.model.load import load_model
    from backend.records.disagreement import disagreement, disagreement_rows
    from backend.records.judge import Judged, JudgedProblem, JudgeRequest, read_orders
    from backend.records.judge_summary import counted, heat, table
    from backend.records.request import Decoding

    out = named_file("json", args.json, "judged.json")
    request = JudgeRequest(
        regime=args.regime,
        count=args.problems,
        seed=args.seed,
        steps=args.steps,
        warmup=args.warmup,
        candidates=args.candidates,
        criterion=args.criterion,
        protocol=args.protocol,
        orders=read_orders(args.orders, args.candidates),
        methods=parse_methods(args.methods),
        sampling=Decoding(args.answer_tokens, args.temperature, args.top_p, args.seed),
        max_new_tokens=args.max_new_tokens,
        judge=args.model,
        agents=args.agents or args.model,
        wording=args.wording,
        gate=read_gate(args.gate),
        slots_only=args.candidates_only,
    )
    check(request)
    if args.data:
        request = replace(request, problems=read_problems(Path(args.data), request))
    model = load_model(args.model, device=args.device)
    agents = load_model(args.agents, device=args.device) if args.agents else None
    lab = JudgeLab(model, agents, budget_bytes=args.budget_mb << 20, orders=len(request.orders))
    if lab.note:
        print(f"kvlab: note: {lab.note}", file=sys.stderr)
    rows: list[JudgedProblem] = []
    judged = Judged(request, model.info, ())
    for event in run_judging(lab, request, out.with_suffix(".rows.jsonl")):
        if isinstance(event, Judged):
            judged = event
        elif isinstance(event, JudgedProblem):
            rows.append(event)
            print_judged(table(Judged(request, model.info, tuple(rows))), len(rows), request.count)
        else:
            show_progress(event.text)
    lines, gates = table(judged), disagreement(judged)
    report = {
        "request": as_json(replace(request, problems=())),
        "judge": as_json(model.info),
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
    print("\nDense only where two verdicts disagree; costs are shares of dense's prompt tokens:")
    print_table(disagreement_rows(gates), left=2)
    print(
        f"{len(judged.rows)} problems in {out.with_suffix('.rows.jsonl')}, the record in "
        f"{out.with_suffix('.kvjudge')}, summary in {out}"
    )
    return 0


def print_judged(lines: JudgeTable, done: int, total: int) -> None:
    """One line on what was judged so far: JCR and reuse of every method, order by order."""
    if sys.stderr.isatty():
        said = [
            f"{x.order} {x.method} {x.jcr.value:.0%} (none {x.to_none.value:.0%})"
            for x in lines.lines
            if x.method != "dense"
        ]
        print(f"\r{done}/{total} JCR: {', '.join(said)}"[:200], file=sys.stderr, flush=True)


def judge_rows(lines: JudgeTable) -> list[tuple[str, ...]]:
    """The table for people, its heads first: shares with 95% intervals."""

    def shown(share: Share) -> str:
        return "-" if share.of == 0 else f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]"

    rows: list[tuple[str, ...]] = [
        ("order", "method", "final answer right", "selection right", "JCR", "without none",
         "changed to none", "to another", "blocks reused", "unread",
         "near ties", "same text", "none and slots taken"),
    ]  # fmt: skip
    for x in lines.lines:
        picked = " ".join("-" if p.of == 0 else f"{p.value:.0%}" for p in x.picks)
        shares = [
            shown(s)
            for s in (x.accuracy, x.selection, x.jcr, x.jcr_without_none, x.to_none, x.to_another, x.blocks)
        ]
        rows.append((x.order, x.method, *shares, str(x.failures), str(x.near_ties), str(x.twins), picked))
    return rows


def train_gate(args: argparse.Namespace) -> int:
    from backend.judge.gate_training import risk_study
    from backend.records.disagreement import disagreement, disagreement_rows
    from backend.records.judge import Judged
    from backend.records.risk import RiskRequest, sets_of

    out = named_file("out", args.out, "gate.json")
    request = RiskRequest(args.scoring, args.folds, args.penalty, args.resamples, args.wanted, args.seed)
    judged = Judged.from_bytes(Path(args.judged).read_bytes())
    study = risk_study(sets_of(judged), request, judged.model)
    out.with_suffix(".kvrisk").write_bytes(study.to_bytes())
    rows: list[tuple[str, ...]] = [("gate", "sets", "safe", "AUC", "95%", "threshold", "kept at it", "")]
    for index, test in enumerate(study.tests):
        shares = [f"{int(test.asked.sum())}", f"{int((test.safe & test.asked).sum())}"]
        if test.gate is None:
            rows.append((test.target, *shares, "-", "-", "-", "-", test.refused))
            continue
        file = out if index == 0 else out.with_name(f"{out.stem}.{index}{out.suffix}")
        test.gate.save(file)
        kept = float((test.score >= test.gate.threshold)[test.asked].mean())
        interval, threshold = f"{test.auc_low:.3f} to {test.auc_high:.3f}", f"{test.gate.threshold:.2f}"
        rows.append((test.target, *shares, f"{test.auc:.3f}", interval, threshold, f"{kept:.0%}", str(file)))
    print_table(rows, left=1)
    print("\nBeside a judge that reads densely only where two verdicts disagree, at its cost:")
    print_table(disagreement_rows(disagreement(judged, study)), left=2)
    print(f"The study is in {out.with_suffix('.kvrisk')}")
    return 0
