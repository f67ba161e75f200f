"""``kvlab blame``: over many requests, which part of the cache changed the answers that reuse changed."""

from typing import Any

from typer import Argument, Option

from backend.base.errors import OptionError
from backend.base.text import boundary_words, sum_taxes
from lab_app.cli.common import (
    Device,
    DeviceMap,
    Model,
    Quantise,
    loading,
    named_file,
    named_preset,
    one_method,
    parse_methods,
    print_lines,
    progress,
    write_json,
)  # fmt: skip


def blame(
    preset: str = Argument(..., metavar="PRESET", help="a preset's name or a YAML file"),
    method: str = Option("kvcomm", help="one, as in --methods of run"),
    problems: int = Option(20, help="changed answers to look into"),
    requests: int = Option(200, help="most requests that are sent to find them"),
    warmup: int = Option(20, help="first requests that only fill the pools"),
    passes: int = Option(300, help="most caches put together for each"),
    most_parts: int = Option(4, help="most segments of a set"),
    draws: int = Option(20, help="random sets of equal size for each"),
    share: float = Option(0.1, help="a small set is at most this of the cache"),
    model: Model = "embedded",
    device: Device = None,
    device_map: DeviceMap = None,
    quantise: Quantise = None,
    seed: int = 0,
    budget_mb: int = 4096,
    json: str = Option(..., metavar="OUT", help="where to write the summary and every set"),
) -> int:
    """Find the part of the reused cache that changed each answer reuse changed."""
    from backend.base.machine import versions
    from backend.base.serialization import as_json
    from backend.model.load import load_model
    from backend.prompts.presets import preset_requests
    from backend.records.blame import BlameRecord, BlameRequest
    from backend.records.request import Decoding, RunRequest
    from backend.session.session import LabSession
    from backend.studies.blame_many import blame_many, summary

    out = named_file("json", json, "blame.json")
    label = one_method(method).label
    for name, value, least in (("problems", problems, 1), ("requests", requests, 1), ("warmup", warmup, 0)):
        if value < least:
            raise OptionError(f"--{name} is {value}; at least {least} is needed. Change it.", field=name)
    if not 0 < share <= 1:
        raise OptionError(f"--share is {share:g}; above 0 and up to 1 is allowed.", field="share")
    scenario = named_preset(preset)
    examples = preset_requests(scenario, requests + warmup, seed)
    decoding = Decoding(scenario.pipeline.longest_answer, seed=seed)
    run = RunRequest(
        scenario.pipeline, dict(examples[0].values), parse_methods(f"dense,{method}"), decoding=decoding,
        probe_offsets=False,
    )  # fmt: skip
    request = BlameRequest(run, label, scenario.pipeline.final, passes, most_parts, draws, seed)
    loaded = load_model(model, **loading(device, device_map, quantise))
    session = LabSession(loaded, budget_bytes=budget_mb << 20)
    records: list[BlameRecord] = []
    sent = 0

    def write() -> list[dict[str, Any]]:
        lines = summary(records, share)
        report = {
            "preset": scenario.pipeline.name, "method": method, "warmup": warmup, "sent": sent,
            "passes": passes, "most_parts": most_parts, "draws": draws, "seed": seed,
            "share": share, "model": as_json(loaded.info), "versions": versions(), "summary": lines,
            "boundary_tax": sum_taxes(r.boundary_tax for r in records),
            "problems": [_row(record) for record in records],
        }  # fmt: skip
        write_json(out, report)
        return lines

    with progress() as tell:
        for event in blame_many(session, request, examples[:warmup], examples[warmup:], problems):
            if isinstance(event, tuple):
                sent, record = event
                if record:
                    records.append(record)
                    write()  # so that a stopped run leaves its results
                tell(f"{sent} requests sent, {len(records)} of {problems} changed answers looked into")
    lines = write()
    print(f"{sent} requests sent; {len(records)} changed answers looked into, summary in {out}")
    print_lines(boundary_words(sum_taxes(record.boundary_tax for record in records)))
    for line in lines:
        low, high = line["interval"]
        print(f"{line['what']:<60} {line['count']:>3} of {line['of']:<3} ({low:.0%} to {high:.0%})")
    return 0


def _row(record: Any) -> dict[str, Any]:
    """One search as JSON."""
    from backend.base.serialization import as_json

    return {
        "values": dict(record.request.run.values),
        "dense": record.dense.text, "method": record.nothing.text,
        "found": as_json(record.found.parts) if record.found else None,
        "share": record.share if record.found else None,
        "random_restored": sum(t.restored for t in record.random), "random": len(record.random),
        "whole_restores": record.everything.restored, "spent": record.spent, "passes": record.passes,
        "mapped": record.mapped,
        "recovered": [[round(record.recovered(float(x)), 4) for x in row] for row in record.map],
    }  # fmt: skip
