"""Where the figures of the break-even formula come from (:mod:`backend.records.break_even`): a data sheet, or
a file that was measured before. Free of torch; measuring anew is :mod:`backend.bench.break_even`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.base.errors import OptionError
from backend.records.break_even import Machine

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
BF16 = 2  # bytes
#: Known shapes of decoders; random weights take as long as trained ones.
SHAPES: dict[str, dict[str, int]] = {
    "smollm2-135m": {
        "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192,
    },
    "llama-8b": {
        "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 16384,
    },
}  # fmt: skip
#: The least and the most of a data sheet's figures: TFLOP/s and GB/s.
OF_SHEET = {"tflops": (1e-3, 1e6), "gb_s": (1e-2, 1e6)}


@dataclass(frozen=True)
class Timed:
    """A prompt that was timed on both sides, ``anchors`` mixed into ``shared`` tokens of it."""

    tokens: int
    shared: int
    anchors: int
    dense_ms: float
    reuse_ms: float


@dataclass(frozen=True)
class Figures:
    """A machine, where its times come from in words, and the prompts that they were taken at (none: a data
    sheet)."""

    machine: Machine
    where: str
    timed: tuple[Timed, ...] = ()


# -- a data sheet --------------------------------------------------------------------------------------------


def given_machine(shape: str, tflops: float, gb_s: float) -> Machine:
    """A known shape in bf16 on hardware of a data sheet (:func:`from_specifications`).

    Args:
        tflops: 1e12 operations a second that a prefill reaches; ``gb_s`` 1e9 bytes a second.

    Raises:
        OptionError: the shape is unknown, or a number is not above 0.
    """
    if shape not in SHAPES:
        raise OptionError(
            f"The shape {shape!r} is unknown; there are: {', '.join(SHAPES)}.", field="break_even.shape"
        )
    kind = SHAPES[shape]
    hidden, layers = kind["hidden_size"], kind["num_hidden_layers"]
    heads, dim = kind["num_key_value_heads"], hidden // kind["num_attention_heads"]
    attention = 2 * hidden * hidden + 2 * hidden * heads * dim
    parameters = layers * (attention + 3 * hidden * kind["intermediate_size"])
    parameters += kind["vocab_size"] * hidden  # the output layer; embedding is a look-up
    return from_specifications(
        f"{shape} on {tflops:g} TFLOP/s and {gb_s:g} GB/s",
        parameters=parameters, layers=layers, hidden=hidden, kv_bytes=2 * layers * heads * dim * BF16,
        weight_bytes=parameters * BF16, embedding_bytes=hidden * BF16, flops=tflops * 1e12,
        bytes_s=gb_s * 1e9,
    )  # fmt: skip


def from_specifications(
    name: str,
    *,
    parameters: float,
    layers: int,
    hidden: int,
    kv_bytes: int,
    weight_bytes: float,
    embedding_bytes: int,
    flops: float,
    bytes_s: float,
) -> Machine:
    """A machine from its data sheet: the least time for its arithmetic and bytes, for both sides alike,
    without launching kernels.

    Args:
        parameters: of the model; a token's forward pass takes twice as many operations.
        layers, hidden: of the model; attention adds 2 x layers x hidden operations for each pair of tokens.
        kv_bytes: keys and values of one token in all layers; ``embedding_bytes`` of its descriptor.
        weight_bytes: read once for the first token.
        flops: operations a second that the device reaches in a prefill.
        bytes_s: bytes a second that it copies.

    Raises:
        OptionError: a number is not above 0.
    """
    values = {
        "parameters": parameters, "layers": layers, "hidden": hidden, "kv_bytes": kv_bytes, "flops": flops,
        "weight_bytes": weight_bytes, "embedding_bytes": embedding_bytes, "bytes_s": bytes_s,
    }  # fmt: skip
    for key, value in values.items():
        if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
            raise OptionError(
                f"{key} is {value!r}; it must be above 0. Correct it.", field=f"break_even.{key}"
            )
    ms_per_token = 2 * parameters / flops * 1e3
    ms_per_byte = 1e3 / bytes_s
    return Machine(
        name,
        (weight_bytes * ms_per_byte, ms_per_token, 2 * layers * hidden / flops * 1e3),
        weight_bytes * ms_per_byte,
        embedding_bytes * ms_per_byte,
        3 * kv_bytes * ms_per_byte,  # the base is read, the cache written, and read by the first token
        kv_bytes * ms_per_byte,
        ms_per_token,
        0.0,
        3 * kv_bytes * ms_per_byte,
        2 * kv_bytes,
    )


# -- measured times ------------------------------------------------------------------------------------------


def measured_figures(machine: Machine, content: Mapping[str, Any]) -> Figures:
    """A measurement's figures.

    Args:
        content: ``measured``, the timed cases, and the conditions (hardware, cores, dtype).

    Raises:
        KeyError, TypeError, ValueError: it is malformed.
    """
    timed = tuple(
        Timed(
            int(row["case"]["prompt"]), int(row["case"]["shared"]), int(row["case"]["mixed"]),
            float(row["dense_ms"]), float(row["reuse_ms"]),
        )
        for row in content["measured"]
    )  # fmt: skip
    conditions = str(content["hardware"])
    if content.get("device", "cpu") == "cpu":  # a GPU's times hardly depend on the CPU's cores
        conditions += f", {content['threads']} of {content['cores']} cores"
    return Figures(machine, f"{conditions}, {content['dtype']}", timed)


def saved_figures(path: Path) -> Figures:
    """What ``kvlab break-even --json`` measured and saved.

    Raises:
        OptionError: the file cannot be read, or holds no such figures.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(
            f"{path} cannot be read: {error.strerror}. Name a file that kvlab break-even saved with --json.",
            field="break_even.machine",
        ) from None
    except (ValueError, RecursionError):
        raise _no_figures(path) from None
    try:
        table = content["machine"]
        a, b, c = table["dense_ms"]
        machine = Machine(**{**table, "dense_ms": (a, b, c)})
        return measured_figures(machine, content) if "measured" in content else Figures(machine, machine.name)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise _no_figures(path) from None


def _no_figures(path: Path) -> OptionError:
    return OptionError(
        f"{path.name} holds no figures of kvlab break-even. Name a file that it saved with --json.",
        field="break_even.machine",
    )


def shipped_figures() -> dict[str, Figures]:
    """The measurements that ship with the lab, by file name; empty where they were left out."""
    return {path.stem: saved_figures(path) for path in sorted(RESULTS.glob("break-even-*.json"))}
