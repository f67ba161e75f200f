"""How much of the true offset is left after each correction: KVCOMM's profiles and approximations.

For every agent that reused, per segment: the length of (KV under the method minus dense's) over the length of
(the segment's base KV minus dense's), over all layers and tokens. 0: corrected in full; 1: no better than the
copy. Means over requests with bootstrap intervals; and how often the judge's answer differs from dense's.
Pinned, so every method reads the same texts. Prints JSON, the summary last.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.base.machine import versions
from backend.base.statistics import wilson
from backend.methods.registry import profile_options
from backend.model.load import load_model
from backend.prompts.presets import load_preset, preset_requests
from backend.records.events import RunDone
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import Outcome, RunRecord
from backend.session.session import LabSession

PROFILES = ("published", "shipped", "corrected")
OTHERS = {
    "cosine": {"approximation": "cosine"},
    "nearest": {"approximation": "nearest"},
    "uniform": {"approximation": "uniform"},
    "top 2": {"top_k": 2},
    "length gate": {"gate": "length"},
    # appendix 6.4.4: each token's KV compared, for the weights and the gate, and for the weights alone
    "token kv": {"compared": "kv", "distance": "token kv"},
    "token kv, gate by embeddings": {"distance": "token kv"},
}


def choices() -> tuple[MethodChoice, ...]:
    """Dense, naive, every profile, and single changes of the published and the corrected one."""
    methods = [MethodChoice("dense"), MethodChoice("naive")]
    methods += [MethodChoice("kvcomm", profile_options("kvcomm", name), name) for name in PROFILES]
    methods += [MethodChoice("kvcomm", options, name) for name, options in OTHERS.items()]
    # what the corrected profile's estimates are worth where as many texts are shared
    corrected = profile_options("kvcomm", "corrected") | {"gate": "entropy"}
    methods.append(MethodChoice("kvcomm", corrected, "corrected, entropy gate"))
    return tuple(methods)


def remaining_share(record: RunRecord, outcome: Outcome) -> dict[str, float]:
    """Per segment group of one outcome: the fraction of key offsets that is left."""
    probe = next(p for p in record.offsets if p.agent == outcome.agent)
    prompt = record.prompts[probe.prompt]
    assert outcome.key_error is not None
    remaining = outcome.key_error * probe.key_norm
    fractions: dict[str, float] = {}
    placeholders = 0
    for span in prompt.spans:
        if span.end == span.start or span.start == 0:
            continue
        at = slice(span.start, min(span.end, len(prompt.token_ids) - 1))
        whole = float(np.sqrt(np.square(probe.key_offset[:, at]).sum()))
        if whole < 1e-6:
            continue
        placeholders += span.kind == "placeholder"
        group = ("first" if placeholders == 1 else "later") + f" {span.kind}"
        fractions[group] = float(np.sqrt(np.square(remaining[:, at]).sum())) / whole
    return fractions


def interval(values: list[float], rng: np.random.Generator) -> dict[str, float | int]:
    """Mean with a bootstrap 95% interval."""
    data: NDArray[np.float64] = np.asarray(values)
    means = [float(rng.choice(data, len(data)).mean()) for _ in range(1000)]
    low, high = np.percentile(means, [2.5, 97.5])
    return {
        "mean": round(float(data.mean()), 4),
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "n": len(data),
    }


def main() -> int:
    """Measure and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="math-3")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=30)
    parser.add_argument("--only", nargs="+", help="these rows alone, beside dense; else all")
    parser.add_argument("--json", type=Path, help="write the summary here, too")
    args = parser.parse_args()
    preset = load_preset(args.preset)
    examples = preset_requests(preset, args.requests + args.warmup)
    session = LabSession(load_model("embedded"))
    methods = tuple(m for m in choices() if not args.only or m.label in ("dense", *args.only))
    longest = preset.pipeline.longest_answer
    request = RunRequest(
        preset.pipeline, dict(examples[0].values), methods, decoding=Decoding(max_new_tokens=longest)
    )
    for _ in session.warm_up(request, examples[: args.warmup]):
        pass
    fractions: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for example in examples[args.warmup :]:
        for event in session.run(replace(request, values=dict(example.values), expected=example.answer)):
            if not isinstance(event, RunDone):
                continue
            record, final = event.record, preset.pipeline.final
            for label in record.labels:
                last = record.outcome(final, label)
                counts[label]["right"] += bool(last.correct)
                counts[label]["flipped"] += last.answer != record.outcome(final, "dense").answer
                for agent in record.agents:
                    outcome = record.outcome(agent, label)
                    counts[label]["agents"] += 1
                    counts[label]["reused"] += outcome.state == "reused"
                    if label != "dense" and outcome.state == "reused":
                        for group, value in remaining_share(record, outcome).items():
                            fractions[label][group].append(value)
    rng = np.random.default_rng(0)
    total = args.requests
    summary = {
        label: {
            "right": [counts[label]["right"], *map(float, wilson(counts[label]["right"], total))],
            "flipped": [counts[label]["flipped"], *map(float, wilson(counts[label]["flipped"], total))],
            "agents that reused": round(counts[label]["reused"] / counts[label]["agents"], 4),
            "key offset left": {g: interval(v, rng) for g, v in sorted(fractions[label].items())},
        }
        for label in counts
    }
    report = {
        "command": f"python benchmarks/offset_left.py --preset {args.preset} --requests {total} "
        f"--warmup {args.warmup}" + (f" --only {shlex.join(args.only)}" if args.only else ""),
        "weights": session.model.info.weights_hash,
        "versions": versions(),
        "requests": total,
        "summary": summary,
    }
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
