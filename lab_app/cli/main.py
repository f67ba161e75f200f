"""The command ``kvlab``. Torch and the web framework are loaded only by the commands that need them."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from typer import Argument, Context, Exit, Option, Typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from backend import __version__
from backend.base.errors import LabError, OptionError, RecordError
from lab_app.cli.agent_loop import hypotheses, loop
from lab_app.cli.bench import bench
from lab_app.cli.blame import blame
from lab_app.cli.break_even import break_even
from lab_app.cli.certify import certify
from lab_app.cli.common import Device, Model, Weights, named_file, parse_weights, path_of
from lab_app.cli.frontier import frontier
from lab_app.cli.judge import judge, train_gate
from lab_app.cli.methods import methods
from lab_app.cli.reproduce import reproduce
from lab_app.cli.run import run
from lab_app.cli.schema import schema
from lab_app.cli.sweep import sweep
from lab_app.cli.train import calibrate_familiarity, documents, evaluate_embedded, train_embedded, train_links
from lab_app.cli.verify import verify
from lab_app.cli.xray import run_xray


def serve(
    context: Context,
    host: str = "127.0.0.1",
    port: int = 7860,
    model: Model = "embedded",
    weights: Weights = None,
    device: Device = None,
    budget_mb: int | None = Option(None, help="memory for each visitor's cached text, MiB (limit visit_mb)"),
    limit: list[str] | None = Option(
        None,
        metavar="NAME=VALUE",
        help="a limit for visitors, such as tokens=100000 (docs/security.md lists them); may be repeated",
    ),
    offline: bool | None = Option(
        None, help="refuse every connection that leaves this machine; the default where all models are local"
    ),
    frame_ancestor: list[str] | None = Option(
        None,
        metavar="ORIGIN",
        help="a page that may show the lab in a frame, such as https://huggingface.co; may be repeated",
    ),
    proxy: list[str] | None = Option(
        None,
        metavar="ADDRESS",
        help="a proxy, or a network of them, that is believed when it says whom a request is from "
        "(or KVLAB_PROXIES); may be repeated",
    ),
    static_lab: str | None = Option(
        None,
        metavar="URL",
        help="where visitors are sent while the lab is full: kvlab space static (or KVLAB_STATIC_LAB)",
    ),
    data: str | None = Option(
        None, metavar="DIR", help="folder where shared runs are stored (or KVLAB_DATA in the environment)"
    ),
    data_repository: str | None = Option(
        None,
        metavar="OWNER/NAME",
        help="private dataset repository on the hub that keeps shared runs (or KVLAB_DATA_REPOSITORY)",
    ),
    mcp: bool = Option(
        False, "--mcp", help="answer MCP clients at /mcp (needs the package mcp; docs/api.md)"
    ),
    json_log: bool = Option(False, "--json-log", help="log one JSON object a line, without any text"),
) -> int:
    """Serve the lab's page."""
    from backend.session.limits import Limits

    if offline:
        from lab_app.server.offline import go_offline

        go_offline(host)  # before libraries that look for a network are imported
    from lab_app.server.fast_import import import_lightly

    import_lightly()  # before the large packages are imported
    from lab_app.server.monitoring import log_as_json
    from lab_app.server.serve import serve as run_server

    if json_log:
        log_as_json()
    run_server(
        host=host,
        port=port,
        model_name=model,
        device=device,
        budget_mb=budget_mb,
        weights=parse_weights(weights),
        limits=Limits.read(limit or ()),
        offline=offline,
        hosting=hosting_of(context.params),
        mcp=mcp,
    )
    return 0


def hosting_of(params: Mapping[str, Any]) -> Any:
    """Hosting as the environment says, extended or overridden by the command line."""
    from lab_app.server.hosting import Hosting

    hosting = Hosting.read()
    return replace(
        hosting,
        frame_ancestors=(*(params["frame_ancestor"] or ()), *hosting.frame_ancestors),
        proxies=(*(params["proxy"] or ()), *hosting.proxies),
        static_lab=params["static_lab"] or hosting.static_lab,
        data=path_of(params["data"]) if params["data"] else hosting.data,
        data_repository=params["data_repository"] or hosting.data_repository,
    )


def space(
    kind: Literal["docker", "zerogpu", "static", "dataset"] = Argument(
        ..., help="static: files alone, which any web host can serve"
    ),
    out: str = Option(..., metavar="DIR", help="a new folder"),
    add: list[str] | None = Option(None, metavar="PATH", help="static: a saved run, or a folder of them"),
    examples: int = Option(20, help="static: how many checked examples are run"),
    name: str = Option("", metavar="OWNER/NAME", help="docker, zerogpu: the Space's, for its thumbnail"),
    hardware: str | None = Option(None, help="what a docker Space is suggested to run on (cpu-basic)"),
) -> int:
    """Render a folder that Hugging Face Spaces can build."""
    from lab_app.cli.space import ZERO_HARDWARE, render_dataset, render_docker, render_zero

    folder = path_of(out)
    if kind == "dataset":
        print(f"The dataset is in {render_dataset(folder)}")
        return 0
    if kind == "static":
        if hardware:
            raise OptionError("A static Space runs on no hardware. Leave --hardware out.", field="hardware")
        return static_lab(folder, add or (), examples)
    if kind == "docker":
        target = render_docker(folder, hardware or "cpu-basic", name)
    elif hardware in (None, ZERO_HARDWARE):
        target = render_zero(folder, name)
    else:
        raise OptionError(
            f"--hardware is {hardware!r}, but a zerogpu Space runs on {ZERO_HARDWARE}. Leave it out, or "
            "render a docker Space.",
            field="hardware",
        )
    print(f"The Space is in {target}")
    return 0


def static_lab(out: Path, add: Sequence[str], examples: int) -> int:
    from lab_app.static_lab.build import build

    if not 0 <= examples <= 1000:
        raise OptionError(f"--examples is {examples}; it can be 0 to 1,000.", field="examples")
    size = build(out, [path_of(path) for path in add], examples)
    print(
        f"{out / 'index.html'}: {size / 2**20:.1f} MiB in all, opens without a server and without a network"
    )
    return 0


def report(
    run: str = Argument(..., metavar="RUN", help="a .kvrun file or a bundle"),
    out: str = Option(..., "-o", "--out", metavar="FILE", help="such as report.html"),
) -> int:
    """One HTML file of a saved run that needs neither the lab nor a network."""
    from backend.records.sharing.bundle import read_file
    from viz.run.report import report_html

    file = named_file("out", out, "report.html")
    record = read_file(Path(run)).record
    if record is None:
        raise RecordError(f"{Path(run).name} holds a bench and no run. Open it in the lab and press Run.")
    file.write_text(report_html(record), encoding="utf-8")
    print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB, opens without the lab and without a network")
    return 0


def say_version(requested: bool) -> None:
    """For ``--version``."""
    if requested:
        print(f"kvlab {__version__}")
        raise Exit


def kvlab(
    version: bool = Option(False, "--version", callback=say_version, is_eager=True, help="Say it and end."),
) -> None:
    """See what KV-cache reuse does to a multi-agent LLM pipeline."""


COMMANDS: dict[str, Callable[..., int]] = {
    "serve": serve, "space": space, "report": report, "methods": methods, "certify": certify,
    "schema": schema, "verify": verify, "run": run, "judge": judge, "train-gate": train_gate,
    "blame": blame, "loop": loop, "hypotheses": hypotheses, "sweep": sweep, "frontier": frontier,
    "reproduce": reproduce,
    "break-even": break_even, "bench": bench, "xray": run_xray, "train-embedded": train_embedded,
    "train-links": train_links, "documents": documents, "evaluate-embedded": evaluate_embedded,
    "calibrate-familiarity": calibrate_familiarity,
}  # fmt: skip


def commands() -> TyperGroup:
    """All commands and their flags."""
    app = Typer(add_completion=False)
    app.callback()(kvlab)
    for name, command in COMMANDS.items():
        app.command(name)(command)
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return group


def spread(argv: Sequence[str]) -> list[str]:
    """``--lengths 200 400`` as ``--lengths 200 --lengths 400``; ``--ray`` alone as with an empty address."""
    out: list[str] = []
    many = False
    for word, next_word in zip(argv, [*argv, "--"][1:], strict=True):
        if many and word.isdecimal() and out[-1] != "--lengths":
            out.append("--lengths")
        many = word == "--lengths" or (many and word.isdecimal())
        out.append(word)
        if word == "--ray" and next_word.startswith("-"):
            out.append("")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; expected failures become one line on stderr and exit code 2."""
    try:
        with commands().make_context("kvlab", spread(sys.argv[1:] if argv is None else argv)) as context:
            code = int(context.command.invoke(context))
        if sys.stdout is not None:  # None where a caller closed it before
            sys.stdout.flush()
        return code
    except Exit as end:  # after --help and --version
        return end.exit_code
    except TyperException as error:  # an unknown command or flag, or a wrong value
        at = getattr(error, "ctx", None)
        path = at.command_path if at else "kvlab"
        print(f"kvlab: {error.format_message()} `{path} --help` says what there is.", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as head, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # unwritten output is dropped at exit
        return 141  # a shell's code for a closed pipe
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
