"""What decides the trained weights: sizes, rates, and the curriculum of the documents."""

from dataclasses import dataclass, replace
from typing import Any, Protocol


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the trained weights."""

    seed: int = 0
    tokens: int = 60_000_000
    step_tokens: int = 4096
    batch_tokens: int = 1024  # read at once, padding included: activations that stay in a CPU core's cache
    hidden: int = 192
    layers: int = 9
    heads: int = 6
    kv_heads: int = 6
    intermediate: int = 512
    context: int = 2048
    muon_rate: float = 0.015
    adam_rate: float = 3e-3
    warmup_steps: int = 60
    decay_share: float = 0.5
    prompt_weight: float = 0.05
    prompt_share: float = 0.25  # of the prompt's tokens that have a loss at all
    look_back: tuple[int, ...] = (1, 2, 3, 4)  # where the first heads look before training
    tokens_before: int = 0  # seen by the weights that this run began with; the curriculum goes on from there

    @property
    def steps(self) -> int:
        return max(1, self.tokens // self.step_tokens)


def continued(recipe: Recipe) -> Recipe:
    """For weights that are trained already: a third of the rates, decaying from the beginning. At the full
    rates the loss of good weights doubled within a million tokens."""
    return replace(recipe, decay_share=1.0, muon_rate=recipe.muon_rate / 3, adam_rate=recipe.adam_rate / 3)


def deepened(recipe: Recipe) -> Recipe:
    """For trained weights that were given more layers (:mod:`backend.training.deepen`): two thirds of the
    rates, since the new layers have everything to learn, constant for the first two fifths."""
    muon, adam = recipe.muon_rate * 2 / 3, recipe.adam_rate * 2 / 3
    return replace(recipe, decay_share=0.6, muon_rate=muon, adam_rate=adam)


# The model that ships, and its sibling with a sixth of the parameters and the same tokenizer.
SIZES: dict[str, dict[str, Any]] = {
    "main": {},
    "small": {"hidden": 96, "layers": 4, "heads": 3, "kv_heads": 3, "intermediate": 256},
}


# The curriculum, by tokens seen: the level (how long and hard documents are, changing evenly from one row to
# the next) and the shares of the documents, by task or by task and kind. Skills come first and nearly alone:
# a model that is taught to copy and to find before anything else does so after half a million tokens, and one
# that is taught everything at once does not after twelve.
CURRICULUM: tuple[tuple[int, float, dict[str, int]], ...] = (
    (0, 0.0, {"recall copy": 4, "recall pairs": 4, "drill chain": 2, "solver": 4}),
    (1_000_000, 0.1, {"recall copy": 2, "recall pairs": 4, "recall facts": 3, "recall sections": 4}
     | {"compare same": 4, "drill chain": 1, "solver": 14, "documents one-hop": 2, "program": 1}),
    (3_000_000, 0.2, {"recall copy": 1, "recall pairs": 2, "recall facts": 2, "recall sections": 3}
     | {"compare same": 4, "recall candidates": 2, "recall roles": 2, "solver": 24, "worker": 5, "judge": 5}
     | {"documents one-hop": 3, "documents two-hop": 3, "prefix": 4, "tools": 3, "program": 3}),
    (8_000_000, 0.6, {"recall copy": 1, "recall pairs": 1, "recall sections": 1, "recall roles": 2}
     | {"compare same": 2, "solver": 26, "worker": 9, "judge": 12, "documents one-hop": 3}
     | {"documents two-hop": 5, "prefix codebook": 2, "prefix units": 2, "prefix who": 4}
     | {"tools": 4, "program": 4}),
    (20_000_000, 1.0, {"recall copy": 1, "recall roles": 1, "compare same": 1}
     | {"solver": 26, "worker": 11, "judge": 16, "documents one-hop": 4, "documents two-hop": 6}
     | {"prefix codebook": 3, "prefix units": 2, "prefix who": 5, "tools": 5, "program": 5}),
    # what is learnt last: the families that are read once, not by a whole pipeline
    (48_000_000, 1.0, {"recall copy": 2, "recall pairs": 1, "recall facts": 2, "recall roles": 1}
     | {"compare same": 1, "solver": 24, "worker": 5, "judge": 12, "documents one-hop": 14}
     | {"documents two-hop": 14}
     | {"prefix codebook": 3, "prefix units": 3, "prefix who": 5, "tools": 10, "program": 10}),
    # more of what an edit still breaks: messages, programs, documents
    (66_000_000, 1.0, {"recall copy": 2, "recall pairs": 1, "recall facts": 1, "recall roles": 1}
     | {"compare same": 1, "solver": 24, "worker": 4, "judge": 11, "documents one-hop": 12}
     | {"documents two-hop": 13}
     | {"prefix codebook": 5, "prefix units": 5, "prefix who": 7, "tools": 10, "program": 15}),
    # judges whose candidates and rules are worded by others
    (88_000_000, 1.0, {"recall copy": 2, "recall pairs": 1, "recall facts": 1, "recall roles": 1}
     | {"compare same": 1, "solver": 24, "worker": 4, "judge": 16, "documents one-hop": 10}
     | {"documents two-hop": 13}
     | {"prefix codebook": 5, "prefix units": 5, "prefix who": 7, "tools": 9, "program": 14}),
    # documents, whose facts and questions are worded in twice as many ways since then
    (108_000_000, 1.0, {"recall copy": 1, "recall pairs": 1, "recall facts": 2, "recall roles": 1}
     | {"compare same": 1, "solver": 24, "worker": 3, "judge": 12, "documents one-hop": 16}
     | {"documents two-hop": 18}
     | {"prefix codebook": 4, "prefix units": 4, "prefix who": 7, "tools": 8, "program": 13}),
    # plain word problems joined the others here
    (121_000_000, 1.0, {"recall copy": 1, "recall pairs": 1, "recall facts": 2, "recall roles": 1}
     | {"compare same": 1, "solver": 32, "worker": 3, "judge": 12, "documents one-hop": 14}
     | {"documents two-hop": 17}
     | {"prefix codebook": 4, "prefix units": 4, "prefix who": 7, "tools": 7, "program": 13}),
    # whole word problems with choices in them, and more documents and messages
    (163_000_000, 1.0, {"recall copy": 1, "recall pairs": 2, "recall facts": 3, "recall roles": 1}
     | {"compare same": 1, "solver": 42, "worker": 3, "judge": 10, "documents one-hop": 17}
     | {"documents two-hop": 17}
     | {"prefix codebook": 5, "prefix units": 5, "prefix who": 8, "tools": 6, "program": 10}),
    # facts written whole stand in the documents
    (179_000_000, 1.0, {"recall copy": 1, "recall pairs": 2, "recall facts": 2, "recall roles": 1}
     | {"compare same": 1, "solver": 40, "worker": 3, "judge": 10, "documents one-hop": 19}
     | {"documents two-hop": 19}
     | {"prefix codebook": 6, "prefix units": 5, "prefix who": 10, "tools": 6, "program": 13}),
    # open documents are answered at once, and asked more than one question
    (179_000_001, 1.0, {"recall copy": 1, "recall pairs": 2, "recall facts": 2, "recall roles": 1}
     | {"compare same": 1, "solver": 64, "worker": 3, "judge": 14, "documents one-hop": 11}
     | {"documents two-hop": 11}
     | {"prefix codebook": 8, "prefix units": 7, "prefix who": 12, "tools": 5, "program": 18}),
    # what a message's prefix says is drilled in its own patterns; more loops, and judges of more candidates
    (221_000_000, 1.0, {"recall copy": 1, "recall pairs": 1, "recall facts": 3, "recall roles": 1}
     | {"recall codes": 6, "recall packs": 4, "recall sides": 5, "compare same": 1, "solver": 64, "worker": 3}
     | {"judge": 14, "documents one-hop": 12, "documents two-hop": 11, "prefix codebook": 7}
     | {"prefix units": 6, "prefix who": 11, "tools": 4, "program": 12, "program loop": 10}),
)  # fmt: skip


def curriculum(tokens: int) -> tuple[dict[str, int], float]:
    """Shares of the tasks' documents and their level after so many tokens of training."""
    stage = max(i for i, row in enumerate(CURRICULUM) if row[0] <= tokens)
    start, level, shares = CURRICULUM[stage]
    if stage + 1 < len(CURRICULUM):
        end, next_level, _ = CURRICULUM[stage + 1]
        level += (next_level - level) * (tokens - start) / (end - start)
    return shares, level


class Schedule(Protocol):
    """What a recipe says of its learning rate."""

    @property
    def steps(self) -> int: ...
    @property
    def warmup_steps(self) -> int: ...
    @property
    def decay_share(self) -> float: ...


def rate_factor(step: int, recipe: Schedule) -> float:
    """Learning-rate multiplier: warm-up, constant, linear decay to zero."""
    if step < recipe.warmup_steps:
        return (step + 1) / recipe.warmup_steps
    decay_from = recipe.steps * (1 - recipe.decay_share)
    if step < decay_from:
        return 1.0
    return max(0.0, (recipe.steps - step) / max(1.0, recipe.steps - decay_from))
