"""Renew ``presets/gallery.json``: requests where position-only reuse flips the answer or does no harm.

Goes through the held-out requests of every preset that the embedded model was trained for and keeps the
first of each effect. Prints what it tried and found.
"""

from __future__ import annotations

import argparse
import sys

from backend.model.load import load_model
from backend.prompts.presets import load_preset, preset_names, preset_requests
from backend.studies.gallery import GALLERY, GalleryEntry, save_gallery, search


def main() -> int:
    """Search and write; 1 when there are too few of either effect."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=24, help="requests tried for each preset")
    parser.add_argument("--flips", type=int, default=2, help="flips kept for each preset")
    parser.add_argument("--harmless", type=int, default=1, help="harmless requests kept for each preset")
    args = parser.parse_args()
    model = load_model("embedded", device="cpu", dtype="fp32")
    kept_entries: list[GalleryEntry] = []
    for name in preset_names():
        preset = load_preset(name)
        if preset.request_source != "generated" or any(agent.model for agent in preset.pipeline.agents):
            continue
        examples = iter(preset_requests(preset, args.tries, seed=2))
        entries = list(search(model, preset, examples, args.flips, args.harmless))
        kept_entries += entries
        counts = {effect: sum(e.effect == effect for e in entries) for effect in ("flip", "harmless")}
        tried = args.tries - sum(1 for _ in examples)
        print(
            f"{name}: {counts['flip']} flips, {counts['harmless']} harmless in {tried} requests", flush=True
        )
    save_gallery(model.info.weights_hash, tuple(kept_entries))
    print(f"wrote {GALLERY.name} with {len(kept_entries)} entries")
    flips = sum(entry.effect == "flip" for entry in kept_entries)
    return 0 if flips >= 20 and len(kept_entries) - flips >= 10 else 1


if __name__ == "__main__":
    sys.exit(main())
