"""``kvlab reproduce``: the papers' tables, ours beside theirs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from backend.base.errors import OptionError
from lab_app.cli.common import add_loading, add_workers, check_workers, loading, path_of, write_json
from lab_app.cli.sweep import Told, show_end

HUB = "hub"
ROOT = Path(__file__).parents[2]
RESULTS, IMAGES = ROOT / "benchmarks" / "results" / "reproductions", ROOT / "docs" / "images"


def add_reproduce(add: Any) -> None:
    """Register the command; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add(
        "reproduce",
        reproduce,
        "Run a paper's table or figure and put its figures beside ours; without a name, list them.",
    )
    sub.add_argument("name", nargs="?", metavar="NAME", help="such as kvcomm-table-5; without one, a list")
    sub.add_argument("--list", action="store_true", help="list them, with the minutes of --scale")
    sub.add_argument(
        "--requests",
        type=int,
        metavar="N",
        help="requests, questions, episodes or repetitions; fewer is quicker",
    )
    sub.add_argument("--warmup", type=int, metavar="N", help="requests before them that only fill the pools")
    sub.add_argument(
        "--warmups", type=int, metavar="N",
        help="repeat a sweep behind so many draws of warm-up and requests; intervals are then over the draws",
    )  # fmt: skip
    sub.add_argument(
        "--scale", choices=("embedded", "paper"), help="else paper if --model names another model"
    )
    sub.add_argument("--model", help="a hub id or a folder; for tables of times also llama-8b, smollm2-135m")
    sub.add_argument(
        "--data",
        metavar="FOLDER",
        help="paper scale: a folder with gsm8k.jsonl, mmlu.jsonl, humaneval.jsonl and so on; or hub, which "
        "fetches each format's own data set",
    )
    sub.add_argument("--links", metavar="FOLDER", help="link tokens that kvlab train-links wrote")
    sub.add_argument(
        "--training-steps", type=int, metavar="N",
        help="of weights that a table at embedded scale needs and that are not here (400); 0 trains none",
    )  # fmt: skip
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    add_loading(sub)
    add_workers(sub)
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument(
        "--out", default="reproductions", metavar="FOLDER", help="where report and rows go (reproductions)"
    )
    sub.add_argument("--markdown", action="store_true", help="the list as the page docs/reproductions.md")


def reproduce(args: argparse.Namespace) -> int:
    """Handler of the command."""
    if args.name and (args.list or args.markdown):
        flag = "--list" if args.list else "--markdown"
        raise OptionError(
            f"{flag} is of all reproductions, but one is named: {args.name!r}. Leave one of the two out.",
            field="reproduce.name",
        )
    if not args.name:
        from backend.reproduce.page import listing, page

        print(page(RESULTS, IMAGES) if args.markdown else listing(args.scale or "embedded"), end="")
        return 0
    from backend.reproduce.registry import find
    from backend.reproduce.result import markdown
    from backend.reproduce.run import Asked, Done
    from backend.reproduce.run import reproduce as run

    one = find(args.name)
    out = path_of(args.out)
    if out.exists() and not out.is_dir():
        raise OptionError(f"--out is {args.out!r}, which is a file. Name a folder.", field="reproduce.out")
    check_workers(args)
    folders = {name: path_of(given) if given else None for name, given in (
        ("data", args.data), ("links", args.links))}  # fmt: skip
    asked = Asked(
        out, args.requests, args.warmup, args.scale, args.model,
        "hub" if args.data == HUB else folders["data"], folders["links"],
        seed=args.seed, command=typed(args), ray=args.ray, workers=args.workers,
        training_steps=args.training_steps, warmups=args.warmups, **loading(args),
    )  # fmt: skip
    tell = Told()
    for event in run(one, asked):
        if isinstance(event, Done):
            report = event.report
        else:
            tell(event.text)
    show_end()
    text = markdown(report)
    saved = out / f"{one.name}.json"
    write_json(saved, report)
    saved.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    written = [saved, saved.with_suffix(".md"), *draw(report, out)]
    print(f"Saved as {', '.join(map(str, written[:-1]))} and {written[-1]}")
    return 0


def draw(report: dict[str, Any], out: Path) -> list[Path]:
    """Save a figure's pictures; nothing of a table, or where nothing was measured."""
    if not report.get("picture") or not any(any(line["ours"]) for line in report["lines"]):
        return []
    from viz.run.report import figure_html
    from viz.studies.reproduction import svg, view

    stem = out / report["name"]
    pictures = {stem.with_suffix(".svg"): svg(report)}
    note = f"{report['caveat']} {' '.join(report['notes'])}".strip()
    pictures[stem.with_suffix(".html")] = figure_html(
        view(report), f"{report['name']}: {report['place']}", note
    )
    for path, text in pictures.items():
        path.write_text(text, encoding="utf-8")
    return list(pictures)


def typed(args: argparse.Namespace) -> str:
    """The command again, without folders, which are this machine's."""
    words = ["kvlab reproduce", args.name]
    counted = ("requests", "warmup", "warmups", "training-steps")
    for name in (*counted, "scale", "device", "device-map", "quantise", "workers"):
        given = getattr(args, name.replace("-", "_"))
        if given is not None:
            words.append(f"--{name} {given}")
    if args.ray is not None:
        words.append("--ray ADDRESS" if args.ray else "--ray")
    if args.model:
        words.append(f"--model {Path(args.model).name if path_of(args.model).exists() else args.model}")
    for name in ("data", "links"):
        if given := getattr(args, name):
            words.append(f"--{name} {HUB if name == 'data' and given == HUB else 'FOLDER'}")
    if args.seed:
        words.append(f"--seed {args.seed}")
    return " ".join(words)
