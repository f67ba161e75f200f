"""Error against the share of tokens computed again, under both masks: prints JSON last.

    python benchmarks/blend_ratio.py --preset documents-5 --count 200

The exact mask's mean error should fall with the share; whether it does is reported per choice, with the
paired 95% interval of every step.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from backend.lab import Lab
from backend.model.load import load_model
from backend.prompts.presets import load_preset, preset_requests
from backend.records.blend import CHOICES, MASKS, RATIOS, BlendRequest, BlendStudy
from backend.records.events import Progress
from backend.session.session import LabSession


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--preset", default="documents-5")
    parser.add_argument("--count", type=int, default=200, help="prompts")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--agent", type=int, default=0, help="whose prompts; 0: the last agent's")
    parser.add_argument("--choices", nargs="+", default=list(CHOICES), choices=CHOICES)
    parser.add_argument("--masks", nargs="+", default=list(MASKS), choices=MASKS)
    parser.add_argument("--ratios", nargs="+", type=float, default=list(RATIOS))
    parser.add_argument("--out", type=Path, help="keep the record in a file")
    args = parser.parse_args()
    preset = load_preset(args.preset)
    examples = preset_requests(preset, args.count, args.seed)
    request = BlendRequest(
        preset.pipeline, tuple(dict(e.values) for e in examples), args.agent, tuple(args.choices),
        tuple(args.masks), tuple(args.ratios),
    )  # fmt: skip
    for event in Lab(LabSession(load_model(args.model))).study(request):
        if isinstance(event, Progress):
            print(f"\r{event.text}", end="", file=sys.stderr)
            continue
        print(file=sys.stderr)
        if args.out:
            args.out.write_bytes(event.to_bytes())
        print(json.dumps(summary(event, args.preset)))


def summary(study: BlendStudy, preset: str) -> dict[str, object]:
    """The record's means and intervals as JSON."""
    rows = []
    for choice in study.request.choices:
        for mask in study.request.masks:
            row: dict[str, object] = {"choice": choice, "mask": mask}
            for kind in ("keys", "values", "chosen", "kl", "work"):
                mean, low, high = study.mean(kind, choice, mask)
                row[kind] = [[round(float(x), 5) for x in part] for part in zip(mean, low, high, strict=True)]
            for kind in ("keys", "values", "kl"):
                row[f"{kind} falls at every step"] = bool((study.steps(kind, choice, mask)[2] < 0).all())
                row[f"mean {kind} falls"] = bool((study.steps(kind, choice, mask)[0] < 0).all())
            rows.append(row)
    return {
        "bench": "blend_ratio",
        "preset": preset,
        "model": study.model.name,
        "weights": study.model.weights_hash,
        "prompts": len(study.prompt_tokens),
        "prompt_tokens": round(float(study.prompt_tokens.mean()), 1),
        "ratios": list(study.request.ratios),
        "position_only": {
            "keys": round(float(study.copied_keys.mean()), 5),
            "values": round(float(study.copied_values.mean()), 5),
            "kl": round(float(study.copied_kl.mean()), 5),
        },
        "floor_kl": float(study.floor.max()),
        "rows": rows,
        "wall_s": round(study.wall_ms / 1e3, 1),
    }


if __name__ == "__main__":
    main()
