"""Flags of commands that load a model too large, or too wide, for one device, or many at once."""

from __future__ import annotations

import argparse
from typing import Any

from backend.base.errors import OptionError


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
