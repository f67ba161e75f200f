"""What several commands share: flags, among them those of models too large for one device; files; tables."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.base.errors import OptionError

if TYPE_CHECKING:
    from backend.prompts.presets import Preset
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


def named_preset(given: str) -> Preset:
    """A preset by its name, or from the YAML file that is named."""
    from backend.prompts.presets import load_preset, preset_names

    return load_preset(given if given in preset_names() or "." not in given else Path(given))


def path_of(given: str) -> Path:
    """A path as typed. A home folder that nobody has stays as it is, so that it is missed like any other."""
    return Path(os.path.expanduser(given))


def print_table(rows: Sequence[Sequence[str]], left: int) -> None:
    """Rows in columns, the first ``left`` of them flush left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = zip(row, widths, strict=True)
        print("  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(cells)))


def show_progress(text: str) -> None:
    """How far it is, in one line of a terminal that the next one overwrites; nothing in a log."""
    if sys.stderr.isatty():
        print(f"\r{text[:100]:<100}", end="", file=sys.stderr, flush=True)


def write_json(path: Path, report: Any) -> None:
    """A report as JSON; what is no number (NaN, infinity), which JSON does not know, is null."""
    plain = json.loads(json.dumps(report), parse_constant=lambda _: None)
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def named_file(flag: str, given: str, example: str) -> Path:
    """The file that a flag names.

    Raises:
        OptionError: it names none, or a folder.
    """
    path = path_of(given)
    if not path.name or path.is_dir():
        raise OptionError(
            f"--{flag} is {given!r}, which names no file. Name one, such as {example}.", field=flag
        )
    return path


def add_weights(sub: argparse.ArgumentParser, purpose: str) -> None:
    """``--weights``, which :func:`parse_weights` reads."""
    sub.add_argument(
        "--weights", action="append", default=[], metavar="NAME=MODEL",
        help=f"other weights of the same architecture, {purpose}; may be repeated",
    )  # fmt: skip


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
