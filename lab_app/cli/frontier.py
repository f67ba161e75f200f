"""``kvlab frontier``: search a sweep's methods for the frontier of tokens computed and answers flipped."""

import sys
from pathlib import Path
from typing import Any

from typer import Argument, Option

from backend.base.errors import OptionError
from lab_app.cli.common import (
    LOG_SECONDS,
    Device,
    DeviceMap,
    Quantise,
    loading,
    print_table,
    result_of,
    write_json,
)
from lab_app.cli.sweep import rows_file


def frontier(
    file: str = Argument(..., metavar="FILE.yaml", help="a sweep; its methods are searched, in rounds"),
    out: str | None = Option(
        None, metavar="FILE.sqlite", help="where the rows go; else NAME.sqlite in this folder"
    ),
    first: int = Option(5, help="problems of each cell in the first round; each doubles them"),
    cost: float = Option(1.0, help="the most that the best may compute, of the full read's tokens"),
    held_out: str | None = Option(
        None, metavar="FILE.yaml", help="a sweep of other problems: the best beside its methods"
    ),
    show: bool = Option(False, "--show", help="only show what the rows say; nothing is run"),
    device: Device = None,
    device_map: DeviceMap = None,
    quantise: Quantise = None,
) -> int:
    """Search compositions for those that flip few answers and compute few tokens; the same command goes on
    where it stopped."""
    from backend.base.machine import versions
    from backend.base.serialization import as_json
    from backend.model.load import load_model
    from backend.records.frontier import Frontier
    from backend.sweeps.frontier import search
    from backend.sweeps.read import read_sweep
    from backend.sweeps.run import Recorded
    from backend.sweeps.runner import ModelRunner
    from backend.sweeps.store import SweepStore
    from viz.run.report import figure_html
    from viz.studies.frontier import finding, held_out_rows, rows, view

    spec = read_sweep(Path(file))
    other = read_sweep(Path(held_out)) if held_out else None
    for name, value, most in (("first", first, spec.problems), ("cost", cost, 1)):
        if not 0 < value <= most:
            raise OptionError(f"--{name} is {value:g}; it must be above 0 and at most {most:g}.", field=name)
    inputs = [Path(file), *spec.files]
    if held_out and other:
        inputs += [Path(held_out), *other.files]
    place, (report_file, page_file) = rows_file(out, spec.name, inputs, ("frontier.json", "frontier.html"))
    if show and not place.is_file():
        raise OptionError(
            f"--show shows what is in a file, and there is no {place}. Leave it out.", field="show"
        )
    facts: dict[str, Any] = {"versions": versions(), "platform": sys.platform, "device": device}
    with SweepStore(place) as store:
        placement = loading(device, device_map, quantise)
        runner = Recorded(store) if show else ModelRunner(lambda name: load_model(name, **placement))
        events = search(spec, store, runner, first=first, limit=cost, held_out=other, facts=facts)
        result = result_of(events, Frontier, LOG_SECONDS, str)
        facts["weights"] = {name: store.weights(name) for name in spec.models}
    print_table(rows(result), left=1)
    if result.confirmed is not None:
        print()
        print_table(held_out_rows(result), left=1)
    print(f"\n{finding(result)}")
    facts |= {"sweep": spec.source, "other": other.source if other else ""}
    write_json(report_file, as_json(result) | facts)
    page_file.write_text(figure_html(view(result), result.title or result.name), encoding="utf-8")
    print(f"rows in {place}, summary in {report_file}, figure in {page_file}")
    return 0
