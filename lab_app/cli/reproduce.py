"""``kvlab reproduce``: the papers' tables, ours beside theirs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from typer import Argument, Context, Option

from backend.base.errors import OptionError
from lab_app.cli.common import (
    LOG_SECONDS,
    Device,
    DeviceMap,
    Quantise,
    Ray,
    Workers,
    check_workers,
    loading,
    path_of,
    result_of,
    write_json,
)

HUB: Literal["hub"] = "hub"
ROOT = Path(__file__).parents[2]
RESULTS, IMAGES = ROOT / "benchmarks" / "results" / "reproductions", ROOT / "docs" / "images"


def reproduce(
    context: Context,
    name: str | None = Argument(None, metavar="NAME", help="such as kvcomm-table-5; without one, a list"),
    list_: bool = Option(False, "--list", help="list them, with the minutes of --scale"),
    requests: int | None = Option(
        None, metavar="N", help="requests, questions, episodes or repetitions; fewer is quicker"
    ),
    warmup: int | None = Option(None, metavar="N", help="requests before them that only fill the pools"),
    warmups: int | None = Option(
        None,
        metavar="N",
        help="repeat a sweep behind so many draws of warm-up and requests; intervals are then over the draws",
    ),
    scale: Literal["embedded", "paper"] | None = Option(
        None, help="else paper if --model names another model"
    ),
    model: str | None = Option(
        None, help="a hub id or a folder; for tables of times also llama-8b, smollm2-135m"
    ),
    data: str | None = Option(
        None,
        metavar="FOLDER",
        help="paper scale: a folder with gsm8k.jsonl, mmlu.jsonl, humaneval.jsonl and so on; or hub, "
        "which fetches each format's own data set",
    ),
    links: str | None = Option(None, metavar="FOLDER", help="link tokens that kvlab train-links wrote"),
    training_steps: int | None = Option(
        None,
        metavar="N",
        help="of weights that a table at embedded scale needs and that are not here (400); 0 trains none",
    ),
    device: Device = None,
    device_map: DeviceMap = None,
    quantise: Quantise = None,
    ray: Ray = None,
    workers: Workers = None,
    seed: int = 0,
    out: str = Option("reproductions", metavar="FOLDER", help="where report and rows go"),
    markdown: bool = Option(False, "--markdown", help="the list as the page docs/reproductions.md"),
) -> int:
    """Run a paper's table or figure and put its figures beside ours; without a name, list them."""
    if name and (list_ or markdown):
        flag = "--list" if list_ else "--markdown"
        raise OptionError(
            f"{flag} is of all reproductions, but one is named: {name!r}. Leave one of the two out.",
            field="reproduce.name",
        )
    if not name:
        from backend.reproduce.page import listing, page

        print(page(RESULTS, IMAGES) if markdown else listing(scale or "embedded"), end="")
        return 0
    from backend.reproduce.context import Settings
    from backend.reproduce.registry import find
    from backend.reproduce.result import markdown as in_words
    from backend.reproduce.run import ReportEvent
    from backend.reproduce.run import reproduce as run

    reproduction = find(name)
    folder = path_of(out)
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"--out is {out!r}, which is a file. Name a folder.", field="reproduce.out")
    check_workers(ray, workers)
    source = HUB if data == HUB else path_of(data) if data else None
    settings = Settings(
        folder, requests, warmup, scale, model,
        source, path_of(links) if links else None,
        seed=seed, command=command_line(context.params), ray=ray, workers=workers,
        training_steps=training_steps, warmups=warmups, **loading(device, device_map, quantise),
    )  # fmt: skip
    report = result_of(run(reproduction, settings), ReportEvent, LOG_SECONDS).report
    text = in_words(report)
    saved = folder / f"{reproduction.name}.json"
    write_json(saved, report)
    saved.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    written = [saved, saved.with_suffix(".md"), *draw(report, folder)]
    print(f"Saved as {', '.join(map(str, written[:-1]))} and {written[-1]}")
    return 0


def draw(report: dict[str, Any], out: Path) -> list[Path]:
    """Save a figure's pictures; nothing of a table, or where nothing was measured."""
    if not report.get("picture") or not any(any(line["ours"]) for line in report["lines"]):
        return []
    from viz.run.report import figure_html
    from viz.studies.reproduction import svg, view

    stem = out / report["name"]
    note = f"{report['caveat']} {' '.join(report['notes'])}".strip()
    html = figure_html(view(report), f"{report['name']}: {report['place']}", note)
    pictures = {stem.with_suffix(".svg"): svg(report), stem.with_suffix(".html"): html}
    for path, text in pictures.items():
        path.write_text(text, encoding="utf-8")
    return list(pictures)


def command_line(params: Mapping[str, Any]) -> str:
    """The command as text, without the names of this machine's folders."""
    words = ["kvlab reproduce", params["name"]]
    numbers = ("requests", "warmup", "warmups", "training-steps")
    for name in (*numbers, "scale", "device", "device-map", "quantise", "workers"):
        value = params[name.replace("-", "_")]
        if value is not None:
            words.append(f"--{name} {value}")
    if params["ray"] is not None:
        words.append("--ray ADDRESS" if params["ray"] else "--ray")
    if model := params["model"]:
        words.append(f"--model {Path(model).name if path_of(model).exists() else model}")
    for name in ("data", "links"):
        if value := params[name]:
            words.append(f"--{name} {HUB if name == 'data' and value == HUB else 'FOLDER'}")
    if params["seed"]:
        words.append(f"--seed {params['seed']}")
    return " ".join(words)
