"""``kvlab run``: a preset over many requests under several methods."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from typer import Argument, Option

from backend.base.errors import OptionError
from backend.base.text import boundary_words, replication
from lab_app.cli.common import (
    Device,
    DeviceMap,
    Quantise,
    Weights,
    loading,
    named_file,
    named_preset,
    parse_methods,
    parse_weights,
    print_lines,
    print_table,
    progress,
    read_gate,
    with_control_flags,
    write_json,
)  # fmt: skip


@with_control_flags
def run(
    preset: str = Argument(..., metavar="PRESET", help="a preset's name or a YAML file"),
    methods: str = Option("dense,naive,kvcomm", help="as in dense,naive,kvcomm:gamma=0.5+rotate=false@label"),
    requests: int = 20,
    warmup: int = Option(0, help="extra first requests that only fill the pools"),
    turns: int | None = Option(None, help="how often the agents run; else as the preset says"),
    mode: Literal["pinned", "free", "both"] = "both",
    data: str | None = Option(
        None, help="JSON lines with question and answer, instead of the preset's own requests"
    ),
    model: str | None = Option(None, help="overrides the preset's model"),
    weights: Weights = None,
    device: Device = None,
    device_map: DeviceMap = None,
    quantise: Quantise = None,
    seed: int = 0,
    max_new_tokens: int | None = Option(None, help="the longest answer; else each agent's own limit"),
    gate: str | None = Option(
        None, metavar="FILE", help="a trained risk gate, which the judge's reuse must pass"
    ),
    shadow: float = Option(
        0.0,
        metavar="SHARE",
        help="share of requests whose last answer is checked against the full read afterwards, such as 0.1",
    ),
    budget_mb: int = 4096,
    json: str = Option(..., metavar="OUT", help="where to write the summary; rows go beside it"),
    **controls: Any,
) -> int:
    """Run a preset over many requests under several methods."""
    from backend.base.machine import versions
    from backend.base.row_file import RowFile
    from backend.base.serialization import as_json
    from backend.model.load import LoadedModel, load_model
    from backend.prompts.notices import notices
    from backend.prompts.presets import preset_requests, read_requests
    from backend.records.events import Progress
    from backend.records.request import RunRequest, with_controls
    from backend.session.session import LabSession
    from backend.studies.batch import Batch, flip_rates, run_batch, summarise, unusual

    choices = parse_methods(methods)
    scenario = named_preset(preset)
    pipeline = scenario.pipeline
    if turns is not None:
        pipeline = replace(pipeline, turns=turns)
    for hint in notices(pipeline):
        print(f"kvlab: note: {hint}", file=sys.stderr)
    out = named_file("json", json, "out.json")
    if requests < 1 or warmup < 0:
        raise OptionError(
            f"requests is {requests} and warmup {warmup}; at least 1 and 0 are needed. Change them.",
            field="requests",
        )
    count = requests + warmup
    examples = read_requests(Path(data))[:count] if data else preset_requests(scenario, count, seed)
    if len(examples) < count:
        raise OptionError(
            f"{count} requests are wanted, but the file holds {len(examples)}. Ask for fewer.",
            field="requests",
        )
    load: Callable[[str], LoadedModel] = partial(load_model, **loading(device, device_map, quantise))
    loaded = load(model or ("embedded" if scenario.model == "any" else scenario.model))
    longest = scenario.pipeline.longest_answer if max_new_tokens is None else max_new_tokens
    settings = with_controls({"max_new_tokens": longest, "seed": seed, **controls})
    request = RunRequest(pipeline, dict(examples[0].values), choices, gate=read_gate(gate), **settings)
    modes: Any = ("pinned", "free") if mode == "both" else (mode,)
    batch = Batch(request, tuple(examples), modes, warmup, shadow)
    rows_path = out.with_suffix(".rows.jsonl")
    others = {name: load(where) for name, where in parse_weights(weights)}
    session = LabSession(loaded, budget_bytes=budget_mb << 20, others=others)
    with progress() as tell:
        for event in run_batch(session, batch, rows_path):
            if isinstance(event, Progress) and event.agent is None:
                tell(event.text)
    keys = {key for mode in modes for key in batch.keys(mode, session.weights_hash)[warmup:]}
    rows = [row for row in RowFile(rows_path).rows() if row["key"] in keys]
    summary = summarise(rows, request.pipeline.final)
    report = {
        "preset": scenario.pipeline.name,
        "methods": methods,
        "turns": pipeline.turns,
        "requests": requests,
        "warmup": warmup,
        "seed": seed,
        "model": as_json(loaded.info),
        "versions": versions(),
        "summary": summary,
        "shadow": flip_rates(rows),
    }
    write_json(out, report)
    print_summary(summary)
    print(replication(1, "warm-up", "requests"))
    print_boundaries(rows)
    if warning := unusual(rows):
        print(warning)
    for line in report["shadow"]:
        low, high = line["flip_rate_ci"]
        print(
            f"{line['mode']} {line['method']}: {line['checked']} of {line['served']} answers checked, "
            f"{line['flipped']} differ from the full read: {line['flip_rate']:.1%} ({low:.1%} to {high:.1%}) "
            "of all"
        )
    print(f"{len(rows)} rows in {rows_path}, summary in {out}")
    return 0


def print_boundaries(rows: Sequence[dict[str, Any]]) -> None:
    """One line on what tokenising segments separately costs; none for rows of earlier versions."""
    outcomes = [o for row in rows for o in row["outcomes"] if o.get("boundary_tokens") is not None]
    boundary, total = (sum(o[key] for o in outcomes) for key in ("boundary_tokens", "prompt_tokens"))
    print_lines(boundary_words((boundary, total)))


def print_summary(summary: Sequence[dict[str, Any]]) -> None:
    """The summary as a table for people."""
    from backend.prompts.template import agent_label

    head: tuple[str, ...] = (
        "mode", "agent", "method", "right", "as full read", "agents", "blocks", "tokens", "reuses", "TTFT ms",
        "ratio", "KL first", "KL mean", "K err", "V err", "floor",
    )  # fmt: skip
    columns = (
        ("accuracy", ".1%"), ("same_answer", ".1%"), ("reuse_agents", ".0%"), ("reuse_blocks", ".0%"),
        ("reuse_tokens", ".0%"), ("reuse_events", "d"), ("ttft_ms", ".1f"), ("ttft_ratio", ".2f"),
        ("kl_first", ".4f"), ("kl_mean", ".4f"), ("key_error", ".3f"), ("value_error", ".3f"),
        ("floor", ".1e"),
    )  # fmt: skip
    rows = [head]
    for line in summary:
        cells = ("-" if line.get(key) is None else format(line[key], form) for key, form in columns)
        agent = agent_label(line["agent"]) if line["agent"] else "all"
        rows.append((line["mode"], agent, line["method"], *cells))
    print_table(rows, left=3)
