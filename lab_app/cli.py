"""The command ``kvlab``. Torch and the web framework are loaded only by the commands that need them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend import __version__
from backend.errors import LabError, OptionError

if TYPE_CHECKING:
    from backend.methods.registry import OptionField
    from backend.records import MethodChoice


def parse_methods(text: str) -> tuple[MethodChoice, ...]:
    """``dense,naive,kvcomm:gamma=0.5+rotate=false@no rotation`` to choices.

    Methods are separated by commas; options follow a colon, joined by ``+``; a label follows ``@``. The
    option ``profile`` sets a bundle of options; others given beside it win.

    Raises:
        OptionError: it cannot be read so, or an option is unknown or out of range.
    """
    from backend.methods.registry import make_options, method_class, option_fields, profile_options
    from backend.records import MethodChoice

    choices = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        body, _, label = item.partition("@")
        name, _, settings = body.partition(":")
        fields = {f.name: f for f in option_fields(method_class(name.strip()))}
        options: dict[str, Any] = {}
        for setting in filter(None, settings.split("+")):
            key, equals, value = setting.partition("=")
            if not equals:
                raise OptionError(
                    f"{setting!r} is no option; write option=value, as in kvcomm:gamma=0.5.", field="methods"
                )
            if key.strip() == "profile":
                options = profile_options(name.strip(), value.strip()) | options
                continue
            known = fields.get(key.strip())
            options[key.strip()] = _value(value.strip(), known.kind if known else "choice", key.strip())
        make_options(name.strip(), options)
        choices.append(MethodChoice(name.strip(), options, label.strip() or body.strip()))
    if not choices:
        raise OptionError(
            "No method was named. Name at least one, as in --methods dense,naive,kvcomm.", field="methods"
        )
    return tuple(choices)


def _value(text: str, kind: str, name: str) -> Any:
    readers: dict[str, Any] = {
        "bool": lambda t: {
            "true": True,
            "on": True,
            "yes": True,
            "1": True,
            "false": False,
            "off": False,
            "no": False,
            "0": False,
        }[t.lower()],
        "int": int,
        "float": float,
        "choice": str,
    }
    try:
        return readers[kind](text)
    except (KeyError, ValueError):
        wanted = {"bool": "true or false", "int": "a whole number", "float": "a number"}[kind]
        raise OptionError(f"{name} is {text!r}; it must be {wanted}.", field=f"methods.{name}") from None


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
    from lab_app.app import serve as run_server

    run_server(
        host=args.host,
        port=args.port,
        model_name=args.model,
        device=args.device,
        budget_mb=args.budget_mb,
        weights=parse_weights(args.weights),
    )
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

    info = load_model(args.model, device=args.device, dtype=args.dtype).info
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
    from backend.batch import Batch, read_rows, run_batch, summarise
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
    model = load_model(
        args.model or ("embedded" if preset.model == "any" else preset.model), device=args.device
    )
    longest = args.max_new_tokens
    if longest is None:
        longest = preset.pipeline.longest_answer
    decoding = Decoding(longest, args.temperature, 1.0, args.seed)
    request = RunRequest(pipeline, dict(examples[0].values), choices, decoding=decoding)
    modes: Any = ("pinned", "free") if args.mode == "both" else (args.mode,)
    batch = Batch(request, tuple(examples), modes, args.warmup)
    rows_path = out.with_suffix(".rows.jsonl")
    others = {name: load_model(where, device=args.device) for name, where in parse_weights(args.weights)}
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
    }
    out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print_summary(summary)
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
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        cells = zip(row, widths, strict=True)
        print("  ".join(c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(cells)))


def bench(args: argparse.Namespace) -> int:
    from backend.bench import bench_ttft

    print(json.dumps(bench_ttft(args.shape, args.tokens, args.anchors, args.repeats, args.device), indent=1))
    return 0


def train_embedded(args: argparse.Namespace) -> int:
    from backend.embedded.evaluate import progress
    from backend.embedded.train import SIZES, Recipe, train
    from backend.model import EMBEDDED

    recipe = Recipe(seed=args.seed, tokens=args.tokens, tokens_before=args.tokens_before, **SIZES[args.size])
    if args.batch:
        recipe = replace(recipe, batch=args.batch)
    folders = {
        name: EMBEDDED if given == "embedded" else Path(given).expanduser() if given else None
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
    sub.add_argument("--budget-mb", type=int, default=1024, help="memory for each visitor's cached text, MiB")

    sub = add("methods", methods, "List the reuse methods with their options.")
    sub.add_argument("--markdown", action="store_true", help="as the page docs/methods.md")

    sub = add("certify", certify, "Probe whether a model's keys can be moved to another position.")
    sub.add_argument("model", metavar="MODEL")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
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
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--temperature", type=float, default=0.0)
    sub.add_argument("--max-new-tokens", type=int, help="the longest answer; else each agent's own limit")
    sub.add_argument("--budget-mb", type=int, default=4096)
    sub.add_argument(
        "--json", required=True, metavar="OUT", help="where to write the summary; rows go beside it"
    )

    sub = add("bench", bench, "Measure time to first token, dense against reuse, in one run.")
    sub.add_argument("what", choices=("ttft",))
    sub.add_argument(
        "--shape", default="embedded", help="'embedded', 'smollm2-135m' (random weights), or a model"
    )
    sub.add_argument("--tokens", type=int, default=1000, help="prompt length of the measured agent")
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
