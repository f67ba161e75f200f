"""The command ``kvlab``. Torch and the web framework are loaded only by the commands that need them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend import __version__
from backend.errors import LabError, OptionError, RecordError
from lab_app.break_even import add_break_even
from lab_app.loading import add_loading, loading
from lab_app.reproduce import add_reproduce
from lab_app.sweep import add_sweep

if TYPE_CHECKING:
    from backend.gates import RiskGate
    from backend.judged import JudgeTable, Share
    from backend.looped import LoopLine
    from backend.measured import DocumentStudy
    from backend.methods.registry import OptionField
    from backend.records import MethodChoice


def parse_methods(text: str) -> tuple[MethodChoice, ...]:
    """See :func:`backend.methods.choices.parse_methods`."""
    from backend.methods.choices import parse_methods as read

    return read(text)


def parse_weights(given: Sequence[str]) -> list[tuple[str, str]]:
    """``NAME=MODEL`` to pairs.

    Raises:
        OptionError: it cannot be read so, or names a name twice.
    """
    pairs: list[tuple[str, str]] = []
    for text in given:
        name, equals, where = (part.strip() for part in text.partition("="))
        if not equals or not name or not where or name in dict(pairs):
            raise OptionError(
                f"--weights is {text!r}; write NAME=MODEL with a new name, as in tuned=~/models/tuned, and "
                "let an agent run on it: as its model in a preset, or on the page.",
                field="weights",
            )
        pairs.append((name, where))
    return pairs


def serve(args: argparse.Namespace) -> int:
    from backend.limits import Limits

    if args.offline:
        from lab_app.offline import go_offline

        go_offline(args.host)  # before libraries that look for a network are imported
    from lab_app.app import serve as run_server
    from lab_app.operations import log_as_json

    if args.json_log:
        log_as_json()
    run_server(
        host=args.host,
        port=args.port,
        model_name=args.model,
        device=args.device,
        budget_mb=args.budget_mb,
        weights=parse_weights(args.weights),
        limits=Limits.read(args.limit),
        offline=args.offline,
        frame_ancestors=[*args.frame_ancestor, *os.environ.get("KVLAB_FRAME_ANCESTORS", "").split()],
        data=Path(args.data).expanduser() if args.data else None,
        mcp=args.mcp,
    )
    return 0


def space(args: argparse.Namespace) -> int:
    from lab_app.space import ZERO_HARDWARE, render_docker, render_zero

    out = Path(args.out).expanduser()
    if args.kind == "docker":
        made = render_docker(out, args.hardware or "cpu-basic")
    elif args.hardware in (None, ZERO_HARDWARE):
        made = render_zero(out)
    else:
        raise OptionError(
            f"--hardware is {args.hardware!r}, but a zerogpu Space runs on {ZERO_HARDWARE}. Leave it out, or "
            "render a docker Space.",
            field="hardware",
        )
    print(f"The Space is in {made}")
    return 0


def report(args: argparse.Namespace) -> int:
    from lab_app.report import read_file
    from lab_app.report import report as made

    out = Path(args.out)
    if not out.name or out.is_dir():
        raise OptionError(
            f"-o is {args.out!r}, which names no file. Name one, such as report.html.", field="out"
        )
    record = read_file(Path(args.run)).record
    if record is None:
        raise RecordError(
            f"{Path(args.run).name} holds a bench and no run. Open it in the lab and press Run."
        )
    out.write_text(made(record), encoding="utf-8")
    print(f"{out}: {out.stat().st_size / 2**20:.1f} MiB, opens without the lab and without a network")
    return 0


def methods(args: argparse.Namespace) -> int:
    from backend.methods.registry import METHODS, option_fields

    if args.markdown:
        print(methods_markdown(), end="")
        return 0
    for cls in METHODS:
        print(f"{cls.name:<10} {cls.title}: {cls.summary}")
        if cls.paper:
            print(f"{'':<10} source: {cls.paper}")
        for key, profile in cls.profiles.items():
            print(f"{'':<10} profile={key}: {profile.summary}")
        for f in option_fields(cls):
            print(f"{'':<10} {f.name} = {_plain(f.default)}{_allowed(f)}: {f.help}")
    return 0


def methods_markdown() -> str:
    """``docs/methods.md``: the registry as a page; a test holds the page to it."""
    from backend.methods.registry import METHODS, option_fields

    lines = ["# Methods", "", "Made by `kvlab methods --markdown` from the code; do not edit by hand.", ""]
    for cls in METHODS:
        lines += [f"## {cls.title} (`{cls.name}`)", "", cls.summary, ""]
        if cls.paper:
            lines += [f"Source: {cls.paper}.", ""]
        options = option_fields(cls)
        if options:
            lines += ["| option | default | allowed | what it does | source |", "|---|---|---|---|---|"]
            for f in options:
                allowed = _allowed(f).strip(" ()") or "true, false"
                lines.append(
                    f"| `{f.name}` | {_plain(f.default)} | {allowed} | **{f.label}.** {f.help} | {f.paper} |"
                )
            lines.append("")
        if cls.profiles:
            lines += ["| profile | sets | what it is |", "|---|---|---|"]
            for key, profile in cls.profiles.items():
                sets = ", ".join(f"`{name}={_plain(value)}`" for name, value in profile.options.items())
                lines.append(f"| `profile={key}` | {sets or 'the defaults'} | {profile.summary} |")
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(field: OptionField) -> str:
    if field.choices:
        return f" ({', '.join(field.choices)})"
    return f" ({field.minimum:g} to {field.maximum:g})" if field.minimum is not None else ""


def certify(args: argparse.Namespace) -> int:
    from backend.model import load_model

    info = load_model(args.model, dtype=args.dtype, **loading(args)).info
    found = info.certificate
    print(
        f"{info.name}: {info.parameters:,} parameters, {info.layers} layers, {info.device}, "
        f"{info.dtype}, weights {info.weights_hash}"
    )
    print(found.reason)
    print(f"{'layer':>5}  {'kind':<18} {'turned':>6}  {'key error':>9}  {'value error':>11}")
    for index, layer in enumerate(found.layers):
        print(
            f"{index:>5}  {layer.kind:<18} {layer.rotated_dims:>6}  {layer.key_error:>9.1e}  "
            f"{layer.value_error:>11.1e}"
        )
    print(
        f"Numerical floor (one piece against two): keys {found.floor:.1e} relative, logits "
        f"{found.logit_floor:.1e} absolute"
    )
    return 0 if found.relocatable else 1


def run(args: argparse.Namespace) -> int:
    from backend.batch import Batch, flip_rates, read_rows, run_batch, summarise
    from backend.events import Progress
    from backend.model import load_model
    from backend.presets import load_preset, preset_names, preset_requests, read_requests
    from backend.prompts import notices
    from backend.records import Decoding, RunRequest
    from backend.session import LabSession

    choices = parse_methods(args.methods)
    preset = load_preset(
        args.preset
        if args.preset in preset_names()
        else Path(args.preset)
        if "." in args.preset
        else args.preset
    )
    pipeline = preset.pipeline
    if args.turns is not None:
        pipeline = replace(pipeline, turns=args.turns)
    for hint in notices(pipeline):
        print(f"kvlab: note: {hint}", file=sys.stderr)
    out = Path(args.json)
    if not out.name or out.is_dir():
        raise OptionError(
            f"--json is {args.json!r}, which names no file. Name one, such as out.json.", field="json"
        )
    if args.requests < 1 or args.warmup < 0:
        raise OptionError(
            f"requests is {args.requests} and warmup {args.warmup}; at least 1 and 0 are needed. Change "
            "them.",
            field="requests",
        )
    count = args.requests + args.warmup
    examples = (
        read_requests(Path(args.data))[:count] if args.data else preset_requests(preset, count, args.seed)
    )
    if len(examples) < count:
        raise OptionError(
            f"{count} requests are wanted, but the file holds {len(examples)}. Ask for fewer.",
            field="requests",
        )
    model = load_model(args.model or ("embedded" if preset.model == "any" else preset.model), **loading(args))
    longest = args.max_new_tokens
    if longest is None:
        longest = preset.pipeline.longest_answer
    decoding = Decoding(longest, args.temperature, 1.0, args.seed)
    gate = read_gate(args.gate)
    request = RunRequest(pipeline, dict(examples[0].values), choices, decoding=decoding, gate=gate)
    modes: Any = ("pinned", "free") if args.mode == "both" else (args.mode,)
    batch = Batch(request, tuple(examples), modes, args.warmup, args.shadow)
    rows_path = out.with_suffix(".rows.jsonl")
    others = {name: load_model(where, **loading(args)) for name, where in parse_weights(args.weights)}
    session = LabSession(model, budget_bytes=args.budget_mb << 20, others=others)
    for event in run_batch(session, batch, rows_path):
        if isinstance(event, Progress) and event.agent is None and sys.stderr.isatty():
            print(f"\r{event.text:<70}", end="", file=sys.stderr, flush=True)
    wanted = {
        batch.key(mode, i, session.weights_hash) for mode in modes for i in range(args.warmup, len(examples))
    }
    rows = [row for row in read_rows(rows_path) if row["key"] in wanted]
    summary = summarise(rows, request.pipeline.final)
    from backend.codec import encode
    from backend.session import versions

    report = {
        "preset": preset.pipeline.name,
        "methods": args.methods,
        "turns": pipeline.turns,
        "requests": args.requests,
        "warmup": args.warmup,
        "seed": args.seed,
        "model": encode(model.info, {}),
        "versions": versions(),
        "summary": summary,
        "shadow": flip_rates(rows),
    }
    out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print_summary(summary)
    for line in report["shadow"]:
        low, high = line["flip_rate_ci"]
        print(
            f"{line['mode']} {line['method']}: {line['checked']} of {line['served']} answers checked, "
            f"{line['flipped']} differ from dense: {line['flip_rate']:.1%} ({low:.1%} to {high:.1%}) of all"
        )
    print(f"{len(rows)} rows in {rows_path}, summary in {out}")
    return 0


def print_summary(summary: Sequence[dict[str, Any]]) -> None:
    """The summary as a table for people."""
    from backend.prompts import called

    head: tuple[str, ...] = (
        "mode", "agent", "method", "right", "as dense", "agents", "blocks", "tokens", "reuses", "TTFT ms",
        "ratio", "KL first", "KL mean", "K err", "V err", "floor",
    )  # fmt: skip
    columns = (
        ("accuracy", ".1%"), ("same_answer", ".1%"), ("reuse_agents", ".0%"), ("reuse_blocks", ".0%"),
        ("reuse_tokens", ".0%"), ("reuse_events", "d"), ("ttft_ms", ".1f"), ("ttft_ratio", ".2f"),
        ("kl_first", ".4f"), ("kl_mean", ".4f"), ("key_error", ".3f"), ("value_error", ".3f"),
        ("floor", ".1e"),
    )  # fmt: skip
    rows = [head]
    for line in summary:
        found = ("-" if line.get(key) is None else format(line[key], form) for key, form in columns)
        rows.append((line["mode"], called(line["agent"]) if line["agent"] else "all", line["method"], *found))
    print_table(rows, left=3)


def print_table(rows: Sequence[Sequence[str]], left: int) -> None:
    """Rows in columns, the first ``left`` of them flush left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = zip(row, widths, strict=True)
        print("  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(cells)))


def read_gate(path: str | None) -> RiskGate | None:
    """The trained gate of a file, if one is named."""
    from backend.gates import RiskGate

    return RiskGate.load(Path(path).expanduser()) if path else None


def train_gate(args: argparse.Namespace) -> int:
    from backend.judged import Judged
    from backend.risk import RiskRequest, sets_of
    from backend.risk_gate import risk_study

    out = Path(args.out)
    if not out.name or out.is_dir():
        raise OptionError(
            f"--out is {args.out!r}, which names no file. Name one, such as gate.json.", field="out"
        )
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
    print(f"The study is in {out.with_suffix('.kvrisk')}")
    return 0


def judge(args: argparse.Namespace) -> int:
    from backend.codec import encode
    from backend.judge_batch import read_problems, run_judging
    from backend.judge_lab import JudgeLab, check
    from backend.judge_metrics import counted, heat, table
    from backend.judged import Judged, JudgedProblem, JudgeRequest, read_orders
    from backend.model import load_model
    from backend.records import Decoding
    from backend.session import versions

    out = Path(args.json)
    if not out.name or out.is_dir():
        raise OptionError(
            f"--json is {args.json!r}, which names no file. Name one, such as judged.json.", field="json"
        )
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
        elif sys.stderr.isatty():
            print(f"\r{event.text:<70}", end="", file=sys.stderr, flush=True)
    lines = table(judged)
    report = {
        "request": encode(replace(request, problems=()), {}),
        "judge": encode(model.info, {}),
        "agents": encode(lab.agents.info, {}),
        "versions": versions(),
        "notes": list(judged.notes),
        "table": encode(lines, {})["lines"],
        "heat": {name: heat(counted(judged, name)).tolist() for name in judged.orders},
    }
    plain = json.loads(json.dumps(report), parse_constant=lambda _: None)  # JSON knows no NaN
    out.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    out.with_suffix(".kvjudge").write_bytes(judged.to_bytes())
    print_table(judge_rows(lines), left=2)
    print(
        f"{len(judged.rows)} problems in {out.with_suffix('.rows.jsonl')}, the record in "
        f"{out.with_suffix('.kvjudge')}, summary in {out}"
    )
    return 0


def print_judged(lines: JudgeTable, done: int, total: int) -> None:
    """One line on what was judged so far: JCR and reuse of every method, order by order."""
    if sys.stderr.isatty():
        said = [f"{x.order} {x.method} {x.jcr.value:.0%}" for x in lines.lines if x.method != "dense"]
        print(f"\r{done}/{total} JCR: {', '.join(said)}"[:200], file=sys.stderr, flush=True)


def judge_rows(lines: JudgeTable) -> list[tuple[str, ...]]:
    """The table for people, its heads first: shares with 95% intervals."""

    def shown(share: Share) -> str:
        return "-" if share.of == 0 else f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]"

    rows: list[tuple[str, ...]] = [
        ("order", "method", "final answer right", "selection right", "JCR", "blocks reused", "unread",
         "near ties", "same text", "none and slots taken"),
    ]  # fmt: skip
    for x in lines.lines:
        picked = " ".join("-" if p.of == 0 else f"{p.value:.0%}" for p in x.picks)
        shares = [shown(s) for s in (x.accuracy, x.selection, x.jcr, x.blocks)]
        rows.append((x.order, x.method, *shares, str(x.failures), str(x.near_ties), str(x.twins), picked))
    return rows


def hypotheses(args: argparse.Namespace) -> int:
    from backend.codec import encode
    from backend.hypotheses import HypothesesRecord, HypothesesRequest, precision_recall, verdicts
    from backend.model import load_model
    from backend.probes.hypotheses import hypotheses as measure
    from backend.session import versions

    out = Path(args.json)
    if not out.name or out.is_dir():
        raise OptionError(
            f"--json is {args.json!r}, which names no file. Name one, such as segments.json.", field="json"
        )
    request = HypothesesRequest(
        episodes=args.episodes, turns=args.turns, memory=args.memory, seed=args.seed, grid=args.grid,
        reruns=args.reruns, candidates=args.candidates, max_new_tokens=args.max_new_tokens,
        common=parse_methods(f"segments:{args.segments}")[0].options,
    )  # fmt: skip
    rows_path = out.with_suffix(".rows.jsonl")
    for event in measure(load_model(args.model, device=args.device), request, rows_path):
        if isinstance(event, HypothesesRecord):
            record = event
        elif sys.stderr.isatty():
            print(f"\r{event.text:<70}", end="", file=sys.stderr, flush=True)
    found = verdicts(record)
    report = {
        "request": encode(request, {}),
        "model": encode(record.model, {}),
        "versions": versions(),
        "verdicts": [encode(verdict, {}) for verdict in found],
        "precision_recall": precision_recall(record),
    }
    out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    out.with_suffix(".kvhypotheses").write_bytes(record.to_bytes())
    for verdict in found:
        print(f"{verdict.name} {verdict.word}: {verdict.claim}\n   {verdict.reason}")
    print(f"{len(record.live)} turns in {rows_path}, verdicts in {out}")
    return 0


def loop(args: argparse.Namespace) -> int:
    from backend.agent_loop import run_loop
    from backend.codec import encode
    from backend.looped import LoopRecord, LoopRequest, summary
    from backend.model import load_model
    from backend.session import LabSession, versions

    out = Path(args.json)
    if not out.name or out.is_dir():
        raise OptionError(
            f"--json is {args.json!r}, which names no file. Name one, such as loop.json.", field="json"
        )
    modes: Any = ("pinned", "free") if args.mode == "both" else (args.mode,)
    request = LoopRequest(
        parse_methods(args.methods), args.episodes, args.turns, modes, args.memory, args.seed,
        args.max_new_tokens,
    )  # fmt: skip
    model = load_model(args.model, device=args.device)
    session = LabSession(model, budget_bytes=args.budget_mb << 20)
    rows_path = out.with_suffix(".rows.jsonl")
    for event in run_loop(session, request, rows_path):
        if isinstance(event, LoopRecord):
            record = event
        elif sys.stderr.isatty():
            said = f"{event.text} ({event.done} of {event.total})"
            print(f"\r{said:<70}", end="", file=sys.stderr, flush=True)
    lines = summary(record)
    report = {
        "request": encode(request, {}),
        "model": encode(model.info, {}),
        "versions": versions(),
        "summary": [encode(line, {}) for line in lines],
    }
    out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    out.with_suffix(".kvloop").write_bytes(record.to_bytes())
    print_loop(lines)
    print(f"rows in {rows_path}, the record in {out.with_suffix('.kvloop')}, summary in {out}")
    return 0


def print_loop(lines: Sequence[LoopLine]) -> None:
    """The summary of an agent loop as a table for people."""
    from backend.records import PROVENANCE

    rows: list[tuple[str, ...]] = [
        ("mode", "method", "episodes", "right", "95%", "behind dense, 95%", "turns", "tokens reused",
         "TTFT ms", "faster", "KL first", "KL 95%", "under 0.1", *PROVENANCE),
    ]  # fmt: skip

    def number(value: float, form: str) -> str:
        return "-" if value != value else format(value, form)

    for x in lines:
        rows.append(
            (
                x.mode, x.method, str(x.episodes), f"{x.right / x.known:.1%}" if x.known else "-",
                f"{x.right_low:.0%} to {x.right_high:.0%}",
                " ".join(number(v, ".1%") for v in x.behind), f"{x.turns:.1f}",
                f"{x.reused:.1%} ± {number(x.reused_half, '.1%')}", f"{x.ttft_ms:.1f}",
                f"{number(x.ratio, '.2f')}×", number(x.kl, ".4f"), number(x.kl_high, ".4f"),
                number(x.near, ".0%"), *(f"{share:.0%}" for share in x.provenance),
            )
        )  # fmt: skip
    print_table(rows, left=2)


def bench(args: argparse.Namespace) -> int:
    if args.what == "page":
        from lab_app.page_bench import bench_page

        print(json.dumps(bench_page(args.repeats), indent=1))
        return 0
    from backend.bench.assemble import bench_assemble
    from backend.bench.attention import bench_attention
    from backend.bench.decode import bench_decode
    from backend.bench.match import bench_match
    from backend.bench.memory import bench_memory
    from backend.bench.ttft import bench_ttft

    measure = {
        "ttft": bench_ttft, "match": bench_match, "assemble": bench_assemble, "decode": bench_decode,
        "memory": bench_memory, "attention": bench_attention,
    }[args.what]  # fmt: skip
    print(json.dumps(measure(args.shape, args.tokens, args.anchors, args.repeats, args.device), indent=1))
    return 0


def train_embedded(args: argparse.Namespace) -> int:
    from backend.embedded.evaluate import progress
    from backend.embedded.train import SIZES, Recipe, train
    from backend.model import SHIPPED

    recipe = Recipe(seed=args.seed, tokens=args.tokens, tokens_before=args.tokens_before, **SIZES[args.size])
    if args.batch:
        recipe = replace(recipe, batch=args.batch)
    if args.init:  # its numbers have found their order
        recipe = replace(recipe, number_order=0.0)
    folders = {
        name: SHIPPED.get(given) or Path(given).expanduser() if given else None
        for name, given in (("init", args.init), ("tokenizer_from", args.tokenizer))
    }
    for name, folder in folders.items():
        if folder and not (folder / "tokenizer.json").exists():
            raise OptionError(f"{folder} holds no tokenizer.json. Name a model's folder.", field=name)
    export = train(
        Path(args.out).expanduser(),
        recipe,
        init=folders["init"],
        tokenizer_from=folders["tokenizer_from"],
        stop_after_steps=args.stop_after_steps,
        report=lambda row: print(json.dumps(row), flush=True),
        check_every=args.check_every,
        check=progress,
    )
    print(f"The model is in {export}")
    return 0


def train_links(args: argparse.Namespace) -> int:
    from dataclasses import fields

    from backend.embedded.linking.train import LinkRecipe
    from backend.embedded.linking.train import train_links as train
    from backend.model import load_model

    given = {f.name: getattr(args, f.name) for f in fields(LinkRecipe)}
    recipe = LinkRecipe(**{name: value for name, value in given.items() if value is not None})
    model = load_model(args.model, device=args.device, dtype="fp32")
    file = train(
        model,
        Path(args.out).expanduser(),
        recipe,
        stop_after_steps=args.stop_after_steps,
        report=lambda row: print(json.dumps(row), flush=True),
    )
    print(f"{recipe.label} is in {file}; run on it as --model {args.model}+{file}")
    return 0


def documents(args: argparse.Namespace) -> int:
    from backend.batch import read_rows
    from backend.events import Progress
    from backend.measured import DocumentSpeed
    from backend.model import load_model
    from backend.probes.document_speed import document_speed
    from backend.probes.document_study import ask, gathered

    out = Path(args.out)
    if not out.name or out.is_dir():
        raise OptionError(
            f"--out is {args.out!r}, which names no file. Name one, such as study.kvdoc.", field="out"
        )
    models = [load_model(args.model, device=args.device)]
    models += [load_model(f"{args.model}+{name}", device=args.device) for name in args.links]
    speed = None
    rows_path = out.with_suffix(".rows.jsonl")

    def said(event: Progress) -> None:
        if sys.stderr.isatty():
            print(f"\r{event.text:<70}", end="", file=sys.stderr, flush=True)

    for event in ask(models, args.questions, args.seed, rows_path):
        said(event)
    if args.lengths:
        timed = models[0]
        if args.shape:
            from backend.bench.common import random_model

            timed = random_model(args.shape, args.device)
        for step in document_speed(timed, args.lengths, args.repeats, args.source):
            if isinstance(step, DocumentSpeed):
                speed = step
            else:
                said(step)
    study = gathered(models, args.questions, args.seed, read_rows(rows_path), speed)
    out.write_bytes(study.to_bytes())
    print_documents(study)
    print(f"rows in {rows_path}, the study in {out}")
    return 0


def print_documents(study: DocumentStudy) -> None:
    """A study of documents as tables for people."""
    floor, ceiling = "PromptCache", study.labels[0]
    head = ("arm", "right", "of", "share", "95%", "own dense", "gap recovered", "TTFT ms", "forwarded")
    rows: list[tuple[str, ...]] = [head]
    for index, label in enumerate(study.labels):
        good, seen, low, high = study.share(label)
        own = study.own_dense(label)
        gap = None if label in (floor, ceiling) else study.recovered(label, floor, ceiling)
        asked = study.correct[index] >= 0
        own_good, own_seen = study.share(own)[:2] if own else (0, 0)
        rows.append(
            (
                label, str(good), str(seen), f"{good / max(1, seen):.1%}", f"{low:.1%} to {high:.1%}",
                f"{own_good / own_seen:.1%}" if own_seen else "-",
                "-" if gap is None else f"{gap[0]:.0%} ({gap[1]:.0%} to {gap[2]:.0%})",
                f"{_median(study.ttft_ms[index][asked]):.1f}",
                f"{_median(study.forwarded_tokens[index][asked]):.0f}",
            )
        )  # fmt: skip
    speed = study.speed
    print_table(rows, left=1)
    if speed is None:
        return
    times: list[tuple[str, ...]] = [("TTFT ms (of it loading)", *(f"{n:,} tokens" for n in speed.lengths))]
    for index, name in enumerate(speed.names):
        pairs = zip(speed.ttft_ms[index], speed.load_ms[index], strict=True)
        times.append((name, *(f"{whole:.1f} ({load:.1f})" for whole, load in pairs)))
    print(f"\n{speed.documents} documents, KV from {speed.source}, {speed.model.name}, {speed.model.device}")
    print_table(times, left=1)


def _median(values: Any) -> float:
    import statistics

    return statistics.median(values.tolist()) if len(values) else float("nan")


def evaluate_embedded(args: argparse.Namespace) -> int:
    from backend.embedded.evaluate import evaluate, suitability
    from backend.model import load_model

    model = load_model(args.model)
    report = {
        "weights": model.info.weights_hash,
        "count": args.count,
        "seed": args.seed,
        "held_out": evaluate(model, args.count, args.seed),
        "suitability": suitability(model, args.count, args.seed),
    }
    print(json.dumps(report, indent=1))
    return 0


def parser() -> argparse.ArgumentParser:
    """All commands and flags."""
    main_parser = argparse.ArgumentParser(
        prog="kvlab", description="See what KV-cache reuse does to a multi-agent LLM pipeline."
    )
    main_parser.add_argument("--version", action="version", version=f"kvlab {__version__}")
    commands = main_parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, handler: Any, help_text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help_text, description=help_text)
        sub.set_defaults(handler=handler)
        return sub

    sub = add("serve", serve, "Serve the lab's page.")
    sub.add_argument("--host", default="127.0.0.1")
    sub.add_argument("--port", type=int, default=7860)
    sub.add_argument("--model", default="embedded", help="'embedded', a folder in hub layout, or a hub id")
    sub.add_argument(
        "--weights",
        action="append",
        default=[],
        metavar="NAME=MODEL",
        help="other weights of the same architecture that agents can run on; may be repeated",
    )
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    sub.add_argument(
        "--budget-mb", type=int, help="memory for each visitor's cached text, MiB (limit visit_mb)"
    )
    sub.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a limit for visitors, such as tokens=100000 (docs/security.md lists them); may be repeated",
    )
    sub.add_argument(
        "--offline",
        action=argparse.BooleanOptionalAction,
        help="refuse every connection that leaves this machine; the default where all models are local",
    )
    sub.add_argument(
        "--frame-ancestor",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a page that may show the lab in a frame, such as https://huggingface.co; may be repeated",
    )
    sub.add_argument(
        "--data",
        default=os.environ.get("KVLAB_DATA", ""),
        metavar="DIR",
        help="folder where shared runs are stored (or KVLAB_DATA in the environment); without it none are",
    )
    sub.add_argument(
        "--mcp",
        action="store_true",
        help="answer MCP clients at /mcp (needs the package mcp; docs/api.md)",
    )
    sub.add_argument("--json-log", action="store_true", help="log one JSON object a line, without any text")

    sub = add("space", space, "Render a folder that Hugging Face Spaces can build.")
    sub.add_argument("kind", choices=("docker", "zerogpu"))
    sub.add_argument("--out", required=True, metavar="DIR", help="a new folder")
    sub.add_argument("--hardware", help="what a docker Space is suggested to run on (cpu-basic)")

    sub = add("report", report, "One HTML file of a saved run that needs neither the lab nor a network.")
    sub.add_argument("run", metavar="RUN", help="a .kvrun file or a bundle")
    sub.add_argument("-o", "--out", required=True, metavar="FILE", help="such as report.html")

    sub = add("methods", methods, "List the reuse methods with their options.")
    sub.add_argument("--markdown", action="store_true", help="as the page docs/methods.md")

    sub = add("certify", certify, "Probe whether a model's keys can be moved to another position.")
    sub.add_argument("model", metavar="MODEL")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    add_loading(sub)
    sub.add_argument("--dtype", choices=("fp32", "bf16", "fp16"))

    sub = add("run", run, "Run a preset over many requests under several methods.")
    sub.add_argument("preset", metavar="PRESET", help="a preset's name or a YAML file")
    sub.add_argument(
        "--methods",
        default="dense,naive,kvcomm",
        help="as in dense,naive,kvcomm:gamma=0.5+rotate=false@label",
    )
    sub.add_argument("--requests", type=int, default=20)
    sub.add_argument("--warmup", type=int, default=0, help="extra first requests that only fill the pools")
    sub.add_argument("--turns", type=int, help="how often the agents run; else as the preset says")
    sub.add_argument("--mode", choices=("pinned", "free", "both"), default="both")
    sub.add_argument(
        "--data", help="JSON lines with question and answer, instead of the preset's own requests"
    )
    sub.add_argument("--model", help="overrides the preset's model")
    sub.add_argument(
        "--weights",
        action="append",
        default=[],
        metavar="NAME=MODEL",
        help="other weights of the same architecture, for agents whose preset names them; may be repeated",
    )
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    add_loading(sub)
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--temperature", type=float, default=0.0)
    sub.add_argument("--max-new-tokens", type=int, help="the longest answer; else each agent's own limit")
    sub.add_argument("--gate", metavar="FILE", help="a trained risk gate, which the judge's reuse must pass")
    sub.add_argument(
        "--shadow", type=float, default=0.0, metavar="SHARE",
        help="share of requests whose last answer is checked against dense afterwards, such as 0.1",
    )  # fmt: skip
    sub.add_argument("--budget-mb", type=int, default=4096)
    sub.add_argument(
        "--json", required=True, metavar="OUT", help="where to write the summary; rows go beside it"
    )

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

    add_sweep(add)
    add_reproduce(add)
    add_break_even(add)

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

    sub = add("loop", loop, "Run a ReAct agent with tools, turn by turn, under several methods.")
    sub.add_argument("--methods", default="dense,prefix,naive,segments", help="as for run")
    sub.add_argument("--episodes", type=int, default=20)
    sub.add_argument("--turns", type=int, default=8, help="the most of an episode")
    sub.add_argument("--mode", choices=("pinned", "free", "both"), default="both")
    sub.add_argument("--memory", type=int, default=25, help="episodes until the store begins empty again")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--max-new-tokens", type=int, default=48, help="the longest turn")
    sub.add_argument("--model", default="embedded", help="'embedded', a folder in hub layout, or a hub id")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    sub.add_argument("--budget-mb", type=int, default=4096)
    sub.add_argument(
        "--json", required=True, metavar="OUT", help="where to write the summary; rows and record lie beside"
    )

    sub = add("hypotheses", hypotheses, "Decide the four hypotheses of segment reuse by an agent loop.")
    sub.add_argument("--episodes", type=int, default=100)
    sub.add_argument("--turns", type=int, default=8, help="the most of an episode")
    sub.add_argument("--memory", type=int, default=25, help="episodes until the stores begin empty again")
    sub.add_argument(
        "--grid",
        choices=("none", "one at a time", "full"),
        default="one at a time",
        help="which settings of layers, halo, tau and context are measured on dense's turns",
    )
    sub.add_argument(
        "--segments",
        default="minimum_tokens=12+maximum_tokens=256+window_tokens=32+shingle=4",
        help="options of segment reuse in every condition (as behind segments: in --methods)",
    )
    sub.add_argument("--reruns", type=int, default=5, help="first episodes, run five times with sampling")
    sub.add_argument("--candidates", type=int, default=4, help="segments of a prompt grafted alone")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--max-new-tokens", type=int, default=48, help="the longest turn")
    sub.add_argument("--model", default="embedded", help="'embedded', a folder in hub layout, or a hub id")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    sub.add_argument(
        "--json", required=True, metavar="OUT", help="where to write the verdicts; rows and record lie beside"
    )

    sub = add(
        "bench",
        bench,
        "Measure time to first token, matching, assembly, batched decoding, memory and recording, both sides "
        "in one run; or the page.",
    )
    sub.add_argument("what", choices=("ttft", "match", "assemble", "decode", "memory", "attention", "page"))
    sub.add_argument(
        "--shape", default="embedded", help="'smollm2-135m', 'llama-8b' (random weights), or a model"
    )
    sub.add_argument(
        "--tokens", type=int, default=1000, help="of the measured agent's prompt, or of the text"
    )
    sub.add_argument("--anchors", type=int, default=20)
    sub.add_argument("--repeats", type=int, default=7)
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))

    sub = add("train-embedded", train_embedded, "Train the embedded model, or continue.")
    sub.add_argument(
        "--out", default="~/.cache/kvlab/train", help="folder of the checkpoint and the exported model"
    )
    sub.add_argument("--tokens", type=int, default=300_000_000, help="tokens of this run")
    sub.add_argument("--size", choices=("main", "small"), default="main")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--batch", type=int, help="sequences of 512 tokens in a step (8; more on a GPU)")
    sub.add_argument("--init", help="a model's folder, or 'embedded': begin with its weights and tokenizer")
    sub.add_argument("--tokens-before", type=int, default=0, help="tokens that the first weights have seen")
    sub.add_argument("--tokenizer", help="a model's folder, or 'embedded': take its tokenizer")
    sub.add_argument("--stop-after-steps", type=int)
    sub.add_argument(
        "--check-every", type=int, default=2000, help="steps between two checks of what the model can do"
    )

    sub = add("train-links", train_links, "Train link tokens for separately encoded documents (KVLink).")
    sub.add_argument("--model", default="embedded", help="whose weights they belong to")
    sub.add_argument("--out", required=True, metavar="FILE.safetensors")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    sub.add_argument("--links", type=int, help="link tokens behind each document (5)")
    sub.add_argument("--no-edges", dest="edges", action="store_false", default=None,
                     help="no KV-START and KV-END; with --links 0 this is Block-Attention")  # fmt: skip
    sub.add_argument("--rank", type=int, help="of the weights' deltas (32); 0 trains the link tokens alone")
    sub.add_argument("--steps", type=int, help="of training (3000)")
    sub.add_argument("--batch", type=int, help="examples in a step (32)")
    sub.add_argument("--rate", type=float, help="learning rate of the deltas (0.001)")
    sub.add_argument("--embedding-rate", type=float, help="learning rate of the link tokens (0.01)")
    sub.add_argument("--warmup-steps", type=int)
    sub.add_argument("--decay-share", type=float, help="last part of the steps, where the rates fall to 0")
    sub.add_argument("--mixture", help="lab, paper, no-summary, no-conversation, qa-only or no-dense")
    sub.add_argument("--compression", help="of documents: none, drop or anchors")
    sub.add_argument("--compressed", type=float, help="share of a document's tokens taken away (0.5)")
    sub.add_argument("--chunk-tokens", type=int, help="text tokens that share one set of anchors (100)")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--stop-after-steps", type=int, help="end early; the same command goes on from there")

    sub = add("documents", documents, "Two-hop questions over documents that are encoded apart (KVLink).")
    sub.add_argument("--model", default="embedded", help="the base")
    sub.add_argument("--links", action="append", default=[], metavar="NAME",
                     help="weights trained for it: a shipped name, or a file; may be repeated")  # fmt: skip
    sub.add_argument("--questions", type=int, default=500)
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--lengths", type=int, nargs="*", default=[], help="time documents of so many tokens")
    sub.add_argument("--shape", help="time a model of random weights instead: smollm2-135m or llama-8b")
    sub.add_argument("--repeats", type=int, default=20, help="of each timing")
    sub.add_argument("--source", choices=("memory", "disk"), default="memory", help="where the KV is kept")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    sub.add_argument("--out", required=True, metavar="FILE", help="the study; rows go beside it")

    sub = add("evaluate-embedded", evaluate_embedded, "Held-out exact match of the embedded model, by task.")
    sub.add_argument("--model", default="embedded")
    sub.add_argument("--count", type=int, default=200, help="documents per task")
    sub.add_argument("--seed", type=int, default=0)
    return main_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; expected failures become one line on stderr and exit code 2."""
    args = parser().parse_args(argv)
    try:
        return int(args.handler(args))
    except LabError as error:
        where = f" [{error.field}]" if error.field else ""
        print(f"kvlab: {error}{where}", file=sys.stderr)
        return 2
    except OSError as error:  # a file or folder named on the command line, a port in use
        place = f"{error.filename}: " if error.filename else ""
        print(f"kvlab: {place}{error.strerror or error}. Choose another one.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "\nkvlab: stopped; finished rows are kept, and the same command goes on from there.",
            file=sys.stderr,
        )
        return 130


if __name__ == "__main__":
    sys.exit(main())
