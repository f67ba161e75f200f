"""The command ``kvlab``. Torch and the web framework are loaded only by the commands that need them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend import __version__
from backend.base.errors import LabError, OptionError, RecordError
from lab_app.cli.agent_loop import add_loop
from lab_app.cli.bench import add_bench
from lab_app.cli.blame import add_blame
from lab_app.cli.break_even import add_break_even
from lab_app.cli.certify import add_certify
from lab_app.cli.common import add_weights, named_file, parse_weights, path_of
from lab_app.cli.frontier import add_frontier
from lab_app.cli.judge import add_judge
from lab_app.cli.methods import add_methods
from lab_app.cli.reproduce import add_reproduce
from lab_app.cli.run import add_run
from lab_app.cli.schema import add_schema
from lab_app.cli.sweep import add_sweep
from lab_app.cli.train import add_training
from lab_app.cli.verify import add_verify
from lab_app.cli.xray import add_xray


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
        hosting=hosting_of(args),
        mcp=args.mcp,
    )
    return 0


def hosting_of(args: argparse.Namespace) -> Any:
    """What the environment says, and then the command line."""
    from lab_app.server.hosting import Hosting

    known = Hosting.read()
    return replace(
        known,
        frame_ancestors=(*args.frame_ancestor, *known.frame_ancestors),
        proxies=(*args.proxy, *known.proxies),
        static_lab=args.static_lab or known.static_lab,
        data=path_of(args.data) if args.data else known.data,
        data_repository=args.data_repository or known.data_repository,
    )


def space(args: argparse.Namespace) -> int:
    from lab_app.cli.space import ZERO_HARDWARE, render_dataset, render_docker, render_zero

    out = path_of(args.out)
    if args.kind == "dataset":
        print(f"The dataset is in {render_dataset(out)}")
        return 0
    if args.kind == "static":
        if args.hardware:
            raise OptionError("A static Space runs on no hardware. Leave --hardware out.", field="hardware")
        return static_lab(args, out)
    if args.kind == "docker":
        made = render_docker(out, args.hardware or "cpu-basic", args.name)
    elif args.hardware in (None, ZERO_HARDWARE):
        made = render_zero(out, args.name)
    else:
        raise OptionError(
            f"--hardware is {args.hardware!r}, but a zerogpu Space runs on {ZERO_HARDWARE}. Leave it out, or "
            "render a docker Space.",
            field="hardware",
        )
    print(f"The Space is in {made}")
    return 0


def static_lab(args: argparse.Namespace, out: Path) -> int:
    from lab_app.static_lab.build import build

    if not 0 <= args.examples <= 1000:
        raise OptionError(f"--examples is {args.examples}; it can be 0 to 1,000.", field="examples")
    size = build(out, [path_of(path) for path in args.add], args.examples)
    print(
        f"{out / 'index.html'}: {size / 2**20:.1f} MiB in all, opens without a server and without a network"
    )
    return 0


def report(args: argparse.Namespace) -> int:
    from backend.records.sharing.bundle import read_file
    from viz.run.report import report_html

    out = named_file("out", args.out, "report.html")
    record = read_file(Path(args.run)).record
    if record is None:
        raise RecordError(
            f"{Path(args.run).name} holds a bench and no run. Open it in the lab and press Run."
        )
    out.write_text(report_html(record), encoding="utf-8")
    print(f"{out}: {out.stat().st_size / 2**20:.1f} MiB, opens without the lab and without a network")
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
    add_weights(sub, "that agents can run on")
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
        "--proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a proxy, or a network of them, that is believed when it says whom a request is from "
        "(or KVLAB_PROXIES); may be repeated",
    )
    sub.add_argument(
        "--static-lab",
        metavar="URL",
        help="where visitors are sent while the lab is full: kvlab space static (or KVLAB_STATIC_LAB)",
    )
    sub.add_argument(
        "--data", metavar="DIR", help="folder where shared runs are stored (or KVLAB_DATA in the environment)"
    )
    sub.add_argument(
        "--data-repository",
        metavar="OWNER/NAME",
        help="private dataset repository on the hub that keeps shared runs (or KVLAB_DATA_REPOSITORY)",
    )
    sub.add_argument(
        "--mcp", action="store_true", help="answer MCP clients at /mcp (needs the package mcp; docs/api.md)"
    )
    sub.add_argument("--json-log", action="store_true", help="log one JSON object a line, without any text")

    sub = add("space", space, "Render a folder that Hugging Face Spaces can build.")
    sub.add_argument(
        "kind",
        choices=("docker", "zerogpu", "static", "dataset"),
        help="static: files alone, which any web host can serve",
    )
    sub.add_argument("--out", required=True, metavar="DIR", help="a new folder")
    sub.add_argument(
        "--add", action="append", default=[], metavar="PATH", help="static: a saved run, or a folder of them"
    )
    sub.add_argument(
        "--examples", type=int, default=20, help="static: how many checked examples are run (20)"
    )
    sub.add_argument(
        "--name", default="", metavar="OWNER/NAME", help="docker, zerogpu: the Space's, for its thumbnail"
    )
    sub.add_argument("--hardware", help="what a docker Space is suggested to run on (cpu-basic)")

    sub = add("report", report, "One HTML file of a saved run that needs neither the lab nor a network.")
    sub.add_argument("run", metavar="RUN", help="a .kvrun file or a bundle")
    sub.add_argument("-o", "--out", required=True, metavar="FILE", help="such as report.html")

    add_methods(add)

    add_certify(add)
    add_schema(add)
    add_verify(add)
    add_run(add)
    add_judge(add)
    add_blame(add)
    add_loop(add)
    add_sweep(add)
    add_frontier(add)
    add_reproduce(add)
    add_break_even(add)
    add_bench(add)
    add_xray(add)
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
