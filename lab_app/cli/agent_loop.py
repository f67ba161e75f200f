"""``kvlab loop`` and ``kvlab hypotheses``: a ReAct agent with tools, turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from typer import Option

from backend.base.text import boundary_words, replication
from lab_app.cli.common import (
    Device,
    Model,
    named_file,
    parse_methods,
    print_lines,
    print_table,
    result_of,
    write_json,
)

if TYPE_CHECKING:
    from backend.records.agent_loop import LoopLine


def loop(
    methods: str = Option("dense,prefix,naive,segments", help="as for run"),
    episodes: int = 20,
    turns: int = Option(8, help="the most of an episode"),
    mode: Literal["pinned", "free", "both"] = "both",
    memory: int = Option(25, help="episodes until the store begins empty again"),
    seed: int = 0,
    max_new_tokens: int = Option(48, help="the longest turn"),
    model: Model = "embedded",
    device: Device = None,
    budget_mb: int = 4096,
    json: str = Option(..., metavar="OUT", help="where to write the summary; rows and record lie beside"),
) -> int:
    """Run a ReAct agent with tools, turn by turn, under several methods."""
    from backend.base.machine import versions
    from backend.base.serialization import as_json
    from backend.model.load import load_model
    from backend.records.agent_loop import LoopRecord, LoopRequest, summary
    from backend.session.session import LabSession
    from backend.studies.agent_loop import run_loop

    out = named_file("json", json, "loop.json")
    modes: Any = ("pinned", "free") if mode == "both" else (mode,)
    request = LoopRequest(
        parse_methods(methods), episodes, turns, modes, memory, seed,
        max_new_tokens,
    )  # fmt: skip
    loaded = load_model(model, device=device)
    session = LabSession(loaded, budget_bytes=budget_mb << 20)
    rows_path = out.with_suffix(".rows.jsonl")
    record = result_of(
        run_loop(session, request, rows_path), LoopRecord,
        words=lambda event: f"{event.text} ({event.done} of {event.total})",
    )  # fmt: skip
    lines = summary(record)
    report = {
        "request": as_json(request),
        "model": as_json(loaded.info),
        "versions": versions(),
        "summary": [as_json(line) for line in lines],
    }
    write_json(out, report)
    out.with_suffix(".kvloop").write_bytes(record.to_bytes())
    print_loop(lines)
    print_lines(replication(request.stores, "store", "episodes"), boundary_words(record.boundary_tax))
    print(f"rows in {rows_path}, the record in {out.with_suffix('.kvloop')}, summary in {out}")
    return 0


def print_loop(lines: Sequence[LoopLine]) -> None:
    """The summary of an agent loop as a table for people."""
    from backend.records.run import PROVENANCE

    rows: list[tuple[str, ...]] = [
        ("mode", "method", "episodes", "right", "95%", "behind the full read, 95%", "turns", "tokens reused",
         "TTFT ms", "faster", "KL first", "KL along", "95%", "under 0.1", *PROVENANCE),
    ]  # fmt: skip

    def number(value: float, form: str) -> str:
        return "-" if value != value else format(value, form)

    for x in lines:
        rows.append(
            (
                x.mode, x.method, str(x.episodes), f"{x.right / x.known:.1%}" if x.known else "-",
                f"{x.right_low:.0%} to {x.right_high:.0%}",
                " ".join(number(v, ".1%") for v in x.behind), f"{x.turns:.1f}",
                f"{x.reused:.1%} ± {number(x.reused_half, '.1%')}", f"{x.ttft_ms:.1f}",
                f"{number(x.ratio, '.2f')}×", number(x.kl_first, ".4f"), number(x.kl, ".4f"),
                number(x.kl_high, ".4f"), number(x.near, ".0%"), *(f"{share:.0%}" for share in x.provenance),
            )
        )  # fmt: skip
    print_table(rows, left=2)


def hypotheses(
    episodes: int = 100,
    turns: int = Option(8, help="the most of an episode"),
    memory: int = Option(25, help="episodes until the stores begin empty again"),
    grid: Literal["none", "one at a time", "full"] = Option(
        "one at a time",
        help="which settings of layers, halo, tau and context are measured on the full read's turns",
    ),
    segments: str = Option(
        "minimum_tokens=12+maximum_tokens=256+window_tokens=32+shingle=4",
        help="options of segment reuse in every condition (as behind segments: in --methods)",
    ),
    reruns: int = Option(5, help="first episodes, run five times with sampling"),
    candidates: int = Option(4, help="segments of a prompt grafted alone"),
    seed: int = 0,
    max_new_tokens: int = Option(48, help="the longest turn"),
    model: Model = "embedded",
    device: Device = None,
    json: str = Option(..., metavar="OUT", help="where to write the verdicts; rows and record lie beside"),
) -> int:
    """Decide the four hypotheses of segment reuse by an agent loop."""
    from backend.base.machine import versions
    from backend.base.serialization import as_json
    from backend.model.load import load_model
    from backend.records.hypotheses import HypothesesRecord, HypothesesRequest
    from backend.records.hypothesis_verdicts import precision_recall, verdicts
    from backend.studies.hypotheses import hypotheses as measure

    out = named_file("json", json, "segments.json")
    request = HypothesesRequest(
        episodes=episodes, turns=turns, memory=memory, seed=seed, grid=grid,
        reruns=reruns, candidates=candidates, max_new_tokens=max_new_tokens,
        common=parse_methods(f"segments:{segments}")[0].options,
    )  # fmt: skip
    rows_path = out.with_suffix(".rows.jsonl")
    record = result_of(measure(load_model(model, device=device), request, rows_path), HypothesesRecord)
    results = verdicts(record)
    report = {
        "request": as_json(request),
        "model": as_json(record.model),
        "versions": versions(),
        "verdicts": [as_json(verdict) for verdict in results],
        "precision_recall": precision_recall(record),
        "boundary_tax": record.boundary_tax,
    }
    write_json(out, report)
    out.with_suffix(".kvhypotheses").write_bytes(record.to_bytes())
    for verdict in results:
        print(f"{verdict.name} {verdict.word}: {verdict.claim}\n   {verdict.reason}")
    print_lines(replication(request.stores, "store", "episodes"), boundary_words(record.boundary_tax))
    print(f"{len(record.live)} turns in {rows_path}, verdicts in {out}")
    return 0
