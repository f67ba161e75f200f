"""How long does a store of many segments take to answer a look-up?

Half of the look-ups ask for stored text, half for text with one of the last four tokens changed, which goes
through the signatures, the index and exact verification. Prints JSON last: milliseconds for one segment, and
for a whole prompt of some thirty candidates.

    python benchmarks/segment_lookup.py --segments 10000
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import torch

from backend.cache.kv_cache import KVSegment
from backend.methods.segments.cutting import Cut
from backend.methods.segments.store import MatchRules, Owner, SegmentStore

TOKENS, CONTEXT, VOCABULARY = 64, 64, 32_000


def measure(segments: int, look_ups: int, seed: int) -> dict[str, float | int]:
    """Fill a store and look things up in it."""
    rng = np.random.default_rng(seed)
    prompts = rng.integers(0, VOCABULARY, (segments, CONTEXT + TOKENS))
    store, owner, cut = SegmentStore(MatchRules(), 1 << 40), Owner("bench"), Cut(CONTEXT, CONTEXT + TOKENS)
    empty = torch.zeros(1, 1, CONTEXT + TOKENS, 1)
    began = time.perf_counter()
    for ids in prompts:
        store.add(owner, ids.tolist(), [cut], KVSegment(empty, empty, 0, True, ""))
    filled = time.perf_counter() - began
    times: dict[bool, list[float]] = {False: [], True: []}
    hits = {False: 0, True: 0}
    for number in range(look_ups):
        ids, changed = prompts[rng.integers(segments)].copy(), bool(number % 2)
        if changed:
            ids[-rng.integers(1, 5)] += (
                VOCABULARY  # further inside, one token already costs more than tau allows
            )
        tokens = ids.tolist()
        began = time.perf_counter()
        [(_, match, _)] = store.find(owner, tokens, [cut])
        times[changed].append((time.perf_counter() - began) * 1e3)
        hits[changed] += match is not None
    prompt = prompts[:8].reshape(-1).tolist()
    many = [Cut(at, at + TOKENS) for at in range(0, len(prompt) - TOKENS, TOKENS // 2)]
    whole = []
    for _ in range(max(3, look_ups // 20)):
        began = time.perf_counter()
        list(store.find(owner, prompt, many))
        whole.append((time.perf_counter() - began) * 1e3)
    both = times[False] + times[True]
    return {
        "segments": segments,
        "look_ups": look_ups,
        "add_ms": filled * 1e3 / segments,
        "median_ms": statistics.median(both),
        "p99_ms": float(np.percentile(both, 99)),
        "median_same_ms": statistics.median(times[False]),
        "median_changed_ms": statistics.median(times[True]),
        "found_same": hits[False] / len(times[False]),
        "found_changed": hits[True] / len(times[True]),
        "prompt_candidates": len(many),
        "prompt_median_ms": statistics.median(whole),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--look-ups", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(json.dumps({k: round(v, 4) for k, v in measure(args.segments, args.look_ups, args.seed).items()}))


if __name__ == "__main__":
    main()
