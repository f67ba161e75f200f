"""Share of prompts whose texts all pass the gate of Eq. 5, by how the distance of two texts is formed.

FINDINGS.md has the figures in "What earlier weights taught". One dense warm-up of 64 requests of math-4;
the gate is then replayed over its second half. Pools of 20; the oldest anchor is dropped first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from backend.cache.samples import Sample
from backend.model.load import load_model
from backend.prompts.presets import load_preset, preset_requests
from backend.records.request import MethodChoice, RunRequest
from backend.session.session import LabSession

Distance = Callable[[Sample, Sample], torch.Tensor]
REQUESTS, CAPACITY, SEED = 64, 20, 3
DISTANCES: dict[str, Distance] = {
    "embeddings, sum over tokens": lambda a, b: (a.descriptor - b.descriptor[: a.tokens]).norm(dim=1).sum(),
    "embeddings, norm of the whole": lambda a, b: (a.descriptor - b.descriptor[: a.tokens]).norm(),
    "base values, norm of the whole": lambda a, b: (a.base.values - b.base.values[:, :, : a.tokens]).norm(),
}


def main() -> None:
    """Measure and print one line per distance and gamma."""
    preset = load_preset("math-4")
    examples = preset_requests(preset, REQUESTS, SEED)
    session = LabSession(load_model("embedded"))
    request = RunRequest(preset.pipeline, dict(examples[0].values), (MethodChoice("dense"),))
    for _ in session.warm_up(request, examples):
        pass
    (stream,) = session.streams.values()
    for name, distance in DISTANCES.items():
        for gamma in (0.3, 0.5, 0.7):
            pools: dict[str, list[Sample]] = {}
            passed: dict[int, list[bool]] = {}
            for past in stream.history:
                shared: dict[int, bool] = {}
                for context in past.contexts:
                    for sample in context.samples.values():
                        if sample.number in shared:
                            continue
                        pool = pools.setdefault(sample.placeholder, [])
                        shared[sample.number] = gate(sample, pool, gamma, distance)
                        if not shared[sample.number]:
                            pool.append(sample)
                            del pool[:-CAPACITY]
                    every = all(shared[s.number] for s in context.samples.values())
                    passed.setdefault(context.prompt.agent, []).append(every)
            half = REQUESTS // 2
            shares = " ".join(f"agent {a} {sum(p[half:]) / half:.0%}" for a, p in passed.items())
            print(f"{name}, gamma {gamma}: {shares}")


def gate(sample: Sample, pool: list[Sample], gamma: float, distance: Distance) -> bool:
    """Eq. 5 with a given distance."""
    longer = [anchor for anchor in pool if anchor.tokens >= sample.tokens]
    if not longer:
        return False
    weights = torch.softmax(-torch.stack([distance(sample, anchor) for anchor in longer]), 0)
    return float(torch.special.entr(weights.double()).sum()) <= gamma * math.log(len(longer))


if __name__ == "__main__":
    main()
