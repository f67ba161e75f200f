"""How small are KVCOMM's offsets, and what do the codecs make of them? (paper, appendix 6.4.5)

Fills pools with a scenario's requests, then asks one more under each codec. Prints JSON: the share of offset
elements under 0.1 in size and their root mean square by layer, bytes kept against raw, the error that keeping
adds, and the judge's time to mix, the median over the measured requests.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from backend.base.machine import versions
from backend.model.load import load_model
from backend.prompts.presets import load_preset, preset_requests
from backend.records.events import RunDone
from backend.records.pools import PoolView
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.session.session import LabSession

CODECS: dict[str, dict[str, Any]] = {
    "as computed": {},
    "lossless": {"codec": "lossless"},
    "lossy, step 0.01": {"codec": "lossy", "codec_step": 0.01},
    "lossy, step 0.1": {"codec": "lossy", "codec_step": 0.1},
}


def pooled(views: list[PoolView], name: str) -> list[list[float]]:
    """A (2, layers) measure over several pools, weighed by their bytes; squares for sizes and errors."""
    weights = [float(v.offset_bytes.sum()) for v in views]
    power = 1 if name == "small" else 2
    mean = np.average([getattr(v, name) ** power for v in views], axis=0, weights=weights) ** (1 / power)
    return [[round(float(x), 4) for x in row] for row in mean]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="math-3")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--warmup", type=int, default=30)
    parser.add_argument("--requests", type=int, default=10)
    args = parser.parse_args()
    model, preset = load_model(args.model), load_preset(args.preset)
    examples = preset_requests(preset, args.warmup + args.requests, 0)
    choices = [MethodChoice("kvcomm", options, label) for label, options in CODECS.items()]
    decoding = Decoding(max_new_tokens=preset.pipeline.longest_answer)
    request = RunRequest(
        preset.pipeline, dict(examples[0].values), (MethodChoice("dense"), *choices), decoding=decoding
    )
    session = LabSession(model)
    for _ in session.warm_up(request, examples[: args.warmup]):
        pass
    views: list[PoolView] = []
    mixing: dict[str, list[float]] = {label: [] for label in CODECS}
    for example in examples[args.warmup :]:
        for event in session.run(replace(request, values=dict(example.values))):
            if not isinstance(event, RunDone):
                continue
            views = list(event.record.pool_views)
            for outcome in event.record.outcomes:
                last = outcome.agent == preset.pipeline.final
                if last and outcome.method in mixing and outcome.state == "reused":
                    mixing[outcome.method].append(outcome.timing.parts_ms["correct"])
    rows = {}
    for label in CODECS:
        pools = [v for v in views if v.method == label]
        raw, stored = (sum(int(getattr(v, n).sum()) for v in pools) for n in ("offset_bytes", "stored_bytes"))
        rows[label] = {
            "small": pooled(pools, "small"),
            "offset_rms": pooled(pools, "offset_size"),
            "error_rms": pooled(pools, "stored_error"),
            "largest_error": max(v.largest_error for v in pools),
            "kept_of_raw": round(stored / raw, 4),
            "raw_mib": round(raw / 2**20, 2),
            "mix_ms": round(statistics.median(mixing[label]), 2) if mixing[label] else None,
            "mixed": len(mixing[label]),
        }
    facts = {"model": model.info.name, "weights": model.info.weights_hash, "versions": versions()}
    json.dump(vars(args) | facts | {"codecs": rows}, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
