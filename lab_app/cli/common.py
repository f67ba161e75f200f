"""What several commands share: flags, among them those of models too large for one device; files; tables."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.base.errors import OptionError

if TYPE_CHECKING:
    from backend.records.request import MethodChoice
    from backend.records.risk_gate import RiskGate


def parse_methods(text: str) -> tuple[MethodChoice, ...]:
    """See :func:`backend.methods.parse.parse_methods`."""
    from backend.methods.parse import parse_methods as read

    return read(text)


def read_gate(path: str | None) -> RiskGate | None:
    """The trained gate of a file, if one is named."""
    from backend.records.risk_gate import RiskGate

    return RiskGate.load(path_of(path)) if path else None


def path_of(given: str) -> Path:
    """A path as typed. A home folder that nobody has stays as it is, so that it is missed like any other."""
    return Path(os.path.expanduser(given))


def print_table(rows: Sequence[Sequence[str]], left: int) -> None:
    """Rows in columns, the first ``left`` of them flush left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = zip(row, widths, strict=True)
        print("  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(cells)))


def named_file(flag: str, given: str, example: str) -> Path:
    """The file that a flag names.

    Raises:
        OptionError: it names none, or a folder.
    """
    path = Path(given)
    if not path.name or path.is_dir():
        raise OptionError(
            f"--{flag} is {given!r}, which names no file. Name one, such as {example}.", field=flag
        )
    return path


def add_loading(sub: argparse.ArgumentParser) -> None:
    """``--device-map`` and ``--quantise``."""
    sub.add_argument(
        "--device-map",
        metavar="MAP",
        help="spread the layers over all devices: auto, balanced, balanced_low_0 or sequential (accelerate)",
    )
    sub.add_argument(
        "--quantise",
        metavar="BITS",
        help="round the weights to 4bit or 8bit while loading (needs bitsandbytes and a CUDA device)",
    )


def loading(args: argparse.Namespace) -> dict[str, Any]:
    """The same as :func:`backend.model.load.load_model` takes them."""
    return {"device": args.device, "device_map": args.device_map, "quantise": args.quantise}


def add_workers(sub: argparse.ArgumentParser) -> None:
    """``--ray`` and ``--workers``."""
    sub.add_argument(
        "--ray", nargs="?", const="", metavar="ADDRESS",
        help="run shards at once in workers on Ray: on this machine, or on the cluster at an address",
    )  # fmt: skip
    sub.add_argument("--workers", type=int, help="with --ray: how many at once; else one a processor or GPU")


def check_workers(args: argparse.Namespace) -> None:
    """
    Raises:
        OptionError: there are to be workers, but no Ray.
    """
    if args.workers is not None and args.ray is None:
        raise OptionError("--workers is for --ray, which is not there. Add it.", field="workers")
