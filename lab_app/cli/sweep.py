"""``kvlab sweep``: run a sweep file, and print and export what it shows."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Argument, Option

from backend.base.errors import OptionError
from backend.base.text import boundary_words, replication
from lab_app.cli.common import (
    LOG_SECONDS,
    Device,
    DeviceMap,
    Quantise,
    Ray,
    Workers,
    check_workers,
    loading,
    print_lines,
    result_of,
    write_json,
)  # fmt: skip

if TYPE_CHECKING:
    from backend.base.statistics import Share
    from backend.records.sweep import Comparison, SweepLine, Swept
    from backend.sweeps.spec import Sweep


def sweep(
    file: str = Argument(..., metavar="FILE.yaml", help="the sweep; presets/sweeps/ has examples"),
    out: str | None = Option(
        None, metavar="FILE.sqlite", help="where the rows go; else NAME.sqlite in this folder"
    ),
    export: Literal["csv", "parquet"] | None = Option(
        None, help="also write the rows as one table, NAME.rows.csv"
    ),
    show: bool = Option(
        False,
        "--show",
        help="only print and export the rows that are there; no model is loaded, nor noticed if it changed",
    ),
    device: Device = None,
    device_map: DeviceMap = None,
    quantise: Quantise = None,
    ray: Ray = None,
    workers: Workers = None,
) -> int:
    """Run a grid of comparisons from a file; the same command goes on where it stopped."""
    from backend.base.machine import versions
    from backend.model.load import load_model
    from backend.records.sweep import Swept
    from backend.sweeps.compare import compare
    from backend.sweeps.export import export as save_table
    from backend.sweeps.read import read_sweep
    from backend.sweeps.run import Recorded, SweepDone, run_sweep
    from backend.sweeps.runner import ModelRunner
    from backend.sweeps.store import SweepStore
    from backend.sweeps.summary import boundary_tax, summarise

    spec = read_sweep(Path(file))
    endings = ("summary.json", f"rows.{export}")
    place, (summary, table) = rows_file(out, spec.name, [Path(file), *spec.files], endings)
    if export == "parquet":
        from backend.sweeps.data_rows import parquet_module

        parquet_module()  # refused before the work, not after it
    check_workers(ray, workers)
    facts: dict[str, Any] = {"versions": versions(), "platform": sys.platform, "device": device}
    if show and ray is not None:
        raise OptionError("--show runs nothing, so --ray has nothing to do. Leave one out.", field="show")
    if show and not place.is_file():
        raise OptionError(
            f"--show prints what is in a file, and there is no {place}. Name one with "
            "--out, or leave --show out.",
            field="show",
        )
    placement = loading(device, device_map, quantise)

    def runner() -> ModelRunner:
        return ModelRunner(lambda name: load_model(name, **placement))

    with ExitStack() as open_now:
        spread, single = None, None
        if ray is not None:
            from backend.sweeps.ray_cluster import Cluster

            gpus = int(device == "cuda")
            single = open_now.enter_context(Cluster(runner, workers=workers, address=ray, gpus=gpus))
            spread = single.spread
        store = open_now.enter_context(SweepStore(place))
        executor = Recorded(store) if show else single or runner()
        events = run_sweep(spec, store, executor, facts=facts, spread=spread)
        outcome = result_of(events, SweepDone, LOG_SECONDS, str)
        facts["weights"] = {name: store.weights(name) for name in spec.models}
    lines, tax = summarise(outcome), boundary_tax(outcome)
    swept = Swept(spec.name, spec.title, lines, len(outcome.rows), outcome.complete, compare(outcome), tax)
    for row in tables(swept):
        print(row)
    print_lines(replication(swept.warmups, "warm-up", "problems"), boundary_words(tax))
    write_summary(spec, swept, facts, summary)
    written = [f"{len(outcome.rows):,} rows in {place}", f"summary in {summary}"]
    if export:
        save_table(outcome.rows, table, export)
        written.append(f"table in {table}")
    print(", ".join(written))
    return 0


def rows_file(
    target: str | None, name: str, inputs: Sequence[Path], endings: Sequence[str]
) -> tuple[Path, list[Path]]:
    """The SQLite file of a sweep, and the files beside it with these ``endings``.

    Raises:
        OptionError: it is no SQLite file's name, or one of the ``inputs`` would be overwritten.
    """
    out = Path(target or f"{name}.sqlite")
    if not out.name or out.is_dir() or out.suffix in ("", ".csv", ".parquet", ".json"):
        raise OptionError(
            f"--out is {str(out)!r}, which names no SQLite file. Name one, such as {name}.sqlite.",
            field="out",
        )
    siblings = [out.with_suffix(f".{ending}") for ending in endings]
    paths = {path.resolve() for path in inputs}
    for place in (out, *siblings):
        if place.resolve() in paths:
            raise OptionError(
                f"The sweep reads {str(place)!r} and would write over it. Name another file with --out, such "
                "as results.sqlite.",
                field="out",
            )
    return out, siblings


def tables(swept: Swept) -> Iterator[str]:
    """The summary for people: answers, costs, and comparisons with other lines than dense's, if there are
    any. Intervals are 95%; each p stands as measured and after Holm's correction."""
    yield from answers(swept)
    yield ""
    yield from costs(swept)
    if swept.against_others:
        yield ""
        yield from others(swept)
    yield from swept.compared.left_out


def answers(swept: Swept) -> Iterator[str]:
    """Right answers and scores, against dense."""
    score = ("score",) * swept.graded
    judged = ("to none %",) * any(x.to_none.of for x in swept.lines)
    shares = ("as full read %", *judged)
    head = ("n", "right %", *score, *shares, "KL first", "lost/won", swept.p_name, "Holm")

    def cells(x: SweepLine, test: Comparison | None) -> tuple[str, ...]:
        return (
            x.counted, share_text(x.accuracy, ".1f", 100), *(share_text(x.score, ".3f") for _ in score),
            share_text(x.as_dense, ".1f", 100), *(share_text(x.to_none, ".1f", 100) for _ in judged),
            share_text(x.kl_first, ".2g"), *right_or_wrong(test),
        )  # fmt: skip

    yield from by_cell(swept, head, cells)


def costs(swept: Swept) -> Iterator[str]:
    """Reuse, and the time to the first token against dense's."""
    head = ("blocks reused %", "tokens reused %", "TTFT ms", "full read's / it", "times p", "Holm")

    def cells(x: SweepLine, test: Comparison | None) -> tuple[str, ...]:
        return (
            share_text(x.blocks, ".1f", 100), share_text(x.tokens, ".1f", 100), share_text(x.ttft_ms, ".1f"),
            share_text(x.ttft_ratio, ".2f"), *times(test),
        )  # fmt: skip

    yield from by_cell(swept, head, cells)


def others(swept: Swept) -> Iterator[str]:
    """Comparisons with other lines than dense's, baseline by baseline."""
    rows: list[tuple[str, ...]] = []
    for against, tests in groupby(swept.against_others, key=lambda x: x.against):
        rows.append((f"against {against}",))
        rows += [
            (
                f"  {x.label}", x.method, str(x.pairs), *right_or_wrong(x), share_text(x.ttft_ratio, ".2f"),
                *times(x),
            )
            for x in tests
        ]  # fmt: skip
    head = ("", "method", "n", "lost/won", swept.p_name, "Holm", "its / this one's", "times p", "Holm")
    yield from aligned([head, *rows], left=2)


def by_cell(
    swept: Swept, head: tuple[str, ...], cells: Callable[[SweepLine, Comparison | None], tuple[str, ...]]
) -> Iterator[str]:
    """A row for each method, under a line with its cell's name."""
    against = swept.against_dense
    rows: list[tuple[str, ...]] = [("method", *head)]
    for _, lines in groupby(swept.lines, key=lambda x: x.cell):
        for place, x in enumerate(lines):
            rows += [(x.label,)] * (place == 0)
            rows.append((f"  {x.method}", *cells(x, against.get((x.cell, x.method)))))
    yield from aligned(rows, left=1)


def aligned(rows: Sequence[tuple[str, ...]], left: int) -> Iterator[str]:
    """Rows in aligned columns; a row of one cell is a heading of any width."""
    full = [row for row in rows if len(row) > 1]
    widths = [max(len(row[i]) for row in full) for i in range(len(full[0]))]
    for row in rows:
        cells = zip(row, widths, strict=False)
        texts = (c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(cells))
        yield "  ".join(texts).rstrip()


def right_or_wrong(test: Comparison | None) -> tuple[str, str, str]:
    """Problems lost and won, p, and p after the correction."""
    if test is None or test.right_p is None:
        return "-", "-", "-"
    return f"{test.only_other}/{test.only_mine}", shown_p(test.right_p), shown_p(test.right_holm)


def times(test: Comparison | None) -> tuple[str, str]:
    """p of the times, and after the correction."""
    return ("-", "-") if test is None else (shown_p(test.wilcoxon), shown_p(test.wilcoxon_holm))


def share_text(share: Share, form: str, unit: float = 1) -> str:
    """A figure with its interval, where there is one; ``-`` where nothing was counted."""
    if not share.of:
        return "-"
    ends = f" [{share.low * unit:{form}}, {share.high * unit:{form}}]"
    return f"{share.value * unit:{form}}" + (ends if math.isfinite(share.high - share.low) else "")


def shown_p(p: float | None) -> str:
    """p with three places."""
    return "-" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def write_summary(spec: Sweep, swept: Swept, facts: dict[str, Any], path: Path) -> None:
    """Write the summary as JSON."""
    from backend.base.serialization import as_json

    report = {"name": spec.name, "title": spec.title, **facts, "sweep": spec.source}
    report["lines"] = as_json(swept.lines)
    report["comparisons"] = as_json(swept.compared.tests)
    report["left_out"] = list(swept.compared.left_out)
    write_json(path, report)
