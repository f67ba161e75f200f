"""Flags of commands that load a model too large, or too wide, for one device."""

from __future__ import annotations

import argparse
from typing import Any


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
    """The same as :func:`backend.model.load_model` takes them."""
    return {"device": args.device, "device_map": args.device_map, "quantise": args.quantise}
