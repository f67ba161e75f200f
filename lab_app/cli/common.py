"""What several commands share: flags, among them those of models too large for one device; files; tables."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import Parameter
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Option

from backend.base.errors import OptionError

if TYPE_CHECKING:
    from backend.prompts.presets import Preset
    from backend.records.request import MethodChoice
    from backend.records.risk_gate import RiskGate

T = TypeVar("T")
WIDEST = 1000  # columns of a table
LOG_SECONDS = 30.0  # between two lines on a long run's progress in a log

# The flags that several commands have.
Model = Annotated[str, Option(help="'embedded', a folder in hub layout, or a hub id")]
Device = Annotated[Literal["cpu", "cuda", "mps"] | None, Option(help="else the best there is")]
Dtype = Annotated[Literal["fp32", "bf16", "fp16"] | None, Option(help="else bf16 on CUDA, fp32 elsewhere")]
Weights = Annotated[
    list[str] | None,
    Option(
        metavar="NAME=MODEL",
        help="other weights of the same architecture, that agents can run on; may be repeated",
    ),
]
DeviceMap = Annotated[
    str | None,
    Option(
        metavar="MAP",
        help="spread the layers over all devices: auto, balanced, balanced_low_0 or sequential (accelerate)",
    ),
]
Quantise = Annotated[
    str | None,
    Option(
        metavar="BITS",
        help="round the weights to 4bit or 8bit while loading (needs bitsandbytes and a CUDA device)",
    ),
]
Ray = Annotated[
    str | None,
    Option(
        metavar="[ADDRESS]",
        help="run shards at once in workers on Ray: on this machine, or on the cluster at an address",
    ),
]
Workers = Annotated[int | None, Option(help="with --ray: how many at once; else one a processor or GPU")]


def parse_methods(text: str) -> tuple[MethodChoice, ...]:
    """See :func:`backend.methods.registry.parse_methods`."""
    from backend.methods.registry import parse_methods as read

    return read(text)


def one_method(text: str) -> MethodChoice:
    """The one reuse method of ``--method``.

    Raises:
        OptionError: there is none, or more than one.
    """
    methods = [m for m in parse_methods(text) if not m.reference]
    if len(methods) != 1:
        raise OptionError(f"--method is {text!r}; name one reuse method, such as kvcomm.", field="method")
    return methods[0]


def read_gate(path: str | None) -> RiskGate | None:
    """The trained gate of a file, if one is named."""
    from backend.records.risk_gate import RiskGate

    return RiskGate.load(path_of(path)) if path else None


def with_control_flags(command: Callable[..., int]) -> Callable[..., int]:
    """The command with a flag for each control of a comparison (:mod:`backend.records.control`) that it does
    not declare itself; it gets their values as ``**controls``."""
    from backend.records.request import CONTROLS

    signature = inspect.signature(command, eval_str=True)
    parameters = [p for p in signature.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    flags = [
        Parameter(
            key,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=control.default,
            annotation=Annotated[control.type, Option(help=control.usage)],
        )
        for key, control in CONTROLS.items()
        if not control.shown_only and key not in signature.parameters
    ]

    @functools.wraps(command)
    def flagged(**values: Any) -> int:
        return command(**values)

    flagged.__signature__ = signature.replace(parameters=[*parameters, *flags])  # type: ignore[attr-defined]
    flagged.__annotations__ = {p.name: p.annotation for p in (*parameters, *flags)}
    return flagged


def parse_weights(flags: Sequence[str] | None) -> list[tuple[str, str]]:
    """``NAME=MODEL`` to pairs.

    Raises:
        OptionError: a text has another form, or a name comes twice.
    """
    pairs: list[tuple[str, str]] = []
    for text in flags or ():
        name, equals, where = (part.strip() for part in text.partition("="))
        if not equals or not name or not where or name in dict(pairs):
            raise OptionError(
                f"--weights is {text!r}; write NAME=MODEL with a new name, as in tuned=~/models/tuned, and "
                "let an agent run on it: as its model in a preset, or on the page.",
                field="weights",
            )
        pairs.append((name, where))
    return pairs


def named_preset(name: str) -> Preset:
    """A preset by its name, or from a YAML file."""
    from backend.prompts.presets import load_preset, preset_names

    return load_preset(name if name in preset_names() or "." not in name else Path(name))


def path_of(text: str) -> Path:
    """A path with ``~`` expanded; an unknown user's ``~name`` stays, and is then missing like any file."""
    return Path(os.path.expanduser(text))


def print_lines(*sentences: str) -> None:
    """Print each sentence that is not empty."""
    for sentence in filter(None, sentences):
        print(sentence)


def print_table(rows: Sequence[Sequence[str]], left: int) -> None:
    """Rows in columns, the first ``left`` of them flush left; the first row is the heads. A row is
    one line, however narrow the terminal."""
    table = Table(box=None, pad_edge=False)
    for index, head in enumerate(rows[0]):
        table.add_column(head, justify="left" if index < left else "right")
    for row in rows[1:]:
        table.add_row(*row)
    Console(width=WIDEST, markup=False, highlight=False).print(table)


@contextmanager
def progress(log_seconds: float = math.inf) -> Iterator[Callable[[str], None]]:
    """A function that shows progress: in a terminal's last line, or in a log every ``log_seconds``."""
    console = Console(stderr=True, markup=False, highlight=False)
    if console.is_terminal:
        with console.status("") as status:
            yield lambda text: status.update(Text(text, overflow="ellipsis", no_wrap=True))
        return
    last = time.monotonic() if math.isinf(log_seconds) else -math.inf

    def tell(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= log_seconds:
            last = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    yield tell


def result_of(
    events: Iterable[Any],
    kind: type[T],
    log_seconds: float = math.inf,
    words: Callable[[Any], str] = attrgetter("text"),
) -> T:
    """The result among events, by its class; all others are shown as :func:`progress`."""
    result: T | None = None
    with progress(log_seconds) as tell:
        for event in events:
            if isinstance(event, kind):
                result = event
            else:
                tell(words(event))
    assert result is not None
    return result


def write_json(path: Path, report: Any) -> None:
    """Write a report as JSON; NaN and infinity become null."""
    clean = json.loads(json.dumps(report), parse_constant=lambda _: None)
    path.write_text(json.dumps(clean, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def named_file(flag: str, text: str, example: str) -> Path:
    """The file that a flag names.

    Raises:
        OptionError: the text names no file, or a folder.
    """
    path = path_of(text)
    if not path.name or path.is_dir():
        raise OptionError(
            f"--{flag} is {text!r}, which names no file. Name one, such as {example}.", field=flag
        )
    return path


def loading(device: str | None, device_map: str | None, quantise: str | None) -> dict[str, Any]:
    """Three flags as :func:`backend.model.load.load_model` takes them."""
    return {"device": device, "device_map": device_map, "quantise": quantise}


def check_workers(ray: str | None, workers: int | None) -> None:
    """
    Raises:
        OptionError: workers are named without Ray.
    """
    if workers is not None and ray is None:
        raise OptionError("--workers is for --ray, which is not there. Add it.", field="workers")
