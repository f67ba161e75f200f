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
from backend.base.errors import LabError, OptionError, RecordError
from lab_app.cli.agent_loop import add_loop
from lab_app.cli.bench import add_bench
from lab_app.cli.blame import add_blame
from lab_app.cli.break_even import add_break_even
from lab_app.cli.common import add_loading, loading, parse_methods, path_of, print_table, read_gate
from lab_app.cli.judge import add_judge
from lab_app.cli.reproduce import add_reproduce
from lab_app.cli.sweep import add_sweep
from lab_app.cli.train import add_training

if TYPE_CHECKING:
    from backend.methods.registry import OptionField


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
    from backend.session.limits import Limits

    if args.offline:
        from lab_app.server.offline import go_offline

        go_offline(args.host)  # before libraries that look for a network are imported
    from lab_app.server.fast_import import import_lightly

    import_lightly()  # before the large packages are imported
    from lab_app.server.monitoring import log_as_json
    from lab_app.server.serve import serve as run_server

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
        data=path_of(args.data) if args.data else None,
        mcp=args.mcp,
    )
    return 0


def space(args: argparse.Namespace) -> int:
    from lab_app.cli.space import ZERO_HARDWARE, render_docker, render_zero

    out = path_of(args.out)
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
    from lab_app.reports.run_report import read_file
    from lab_app.reports.run_report import report as made

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
    from backend.model.load import load_model

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
        f"Rounding noise (one piece against two): keys {found.floor:.1e} relative, logits "
        f"{found.logit_floor:.1e} absolute"
    )
    return 0 if found.relocatable else 1


def run(args: argparse.Namespace) -> int:
    from backend.base.row_file import RowFile
    from backend.model.load import load_model
    from backend.prompts.notices import notices
    from backend.prompts.presets import load_preset, preset_names, preset_requests, read_requests
    from backend.records.events import Progress
    from backend.records.request import Decoding, RunRequest
    from backend.session.session import LabSession
    from backend.studies.batch import Batch, flip_rates, run_batch, summarise, unusual

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
    rows = [row for row in RowFile(rows_path).rows() if row["key"] in wanted]
    summary = summarise(rows, request.pipeline.final)
    from backend.base.machine import versions
    from backend.base.serialization import encode

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
    print_boundaries(rows)
    if said := unusual(rows):
        print(said)
    for line in report["shadow"]:
        low, high = line["flip_rate_ci"]
        print(
            f"{line['mode']} {line['method']}: {line['checked']} of {line['served']} answers checked, "
            f"{line['flipped']} differ from the full read: {line['flip_rate']:.1%} ({low:.1%} to {high:.1%}) "
            "of all"
        )
    print(f"{len(rows)} rows in {rows_path}, summary in {out}")
    return 0


def print_boundaries(rows: Sequence[dict[str, Any]]) -> None:
    """One line on what tokenising segments separately costs; none for rows of earlier versions."""
    read = [o for row in rows for o in row["outcomes"] if o.get("boundary_tokens") is not None]
    if read:
        taxed, total = (sum(o[key] for o in read) for key in ("boundary_tokens", "prompt_tokens"))
        print(
            f"boundary tax: {taxed / total:.1%} of the prompts' tokens would be others if each prompt were "
            "tokenised at once, the full read's as well"
        )


def print_summary(summary: Sequence[dict[str, Any]]) -> None:
    """The summary as a table for people."""
    from backend.prompts.template import called

    head: tuple[str, ...] = (
        "mode", "agent", "method", "right", "as full read", "agents", "blocks", "tokens", "reuses", "TTFT ms",
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
        help="share of requests whose last answer is checked against the full read afterwards, such as 0.1",
    )  # fmt: skip
    sub.add_argument("--budget-mb", type=int, default=4096)
    sub.add_argument(
        "--json", required=True, metavar="OUT", help="where to write the summary; rows go beside it"
    )

    add_judge(add)
    add_blame(add)
    add_loop(add)
    add_sweep(add)
    add_reproduce(add)
    add_break_even(add)
    add_bench(add)
    add_training(add)
    return main_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; expected failures become one line on stderr and exit code 2."""
    args = parser().parse_args(argv)
    try:
        code = int(args.handler(args))
        if sys.stdout is not None:  # it is where a caller closed it before
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read along, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is dropped at exit
        return 141  # as a shell says that a pipe was closed
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
