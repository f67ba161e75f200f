"""Would a small model keep the same tokens of the candidates as a large one? (Judge study, Section 7, Fig. 5)

The paper's pilot shows "substantial overlap in token selections" between two sizes of Llama, growing with the
retention budget, and leaves open by what tokens are selected. Here it is the attention that they receive, as
in methods that drop cache entries: from every token behind them, or from the prompt's last tokens alone. Two
large sets overlap by chance; that expectation stands beside the figure.

Prints a line for each kind of observers and each budget, means over the requests of a preset with a judge.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from backend.base.errors import ModelError
from backend.engine.engine import Engine
from backend.model.load import LoadedModel, load_model
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example, load_preset, preset_requests
from backend.records.prompt import TokenizedPrompt, slots
from backend.records.request import REFERENCE, Decoding, MethodChoice, RunRequest
from backend.session.probes.attention import watching
from backend.session.session import LabSession

CHUNK_TOKENS = 64  # queries whose attention exists at one time
BUDGETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)  # shares of the candidates' tokens that are kept
OBSERVERS = ("every later token", "the prompt's last tokens")


def judge_prompts(
    model: LoadedModel, pipeline: Pipeline, examples: Sequence[Example]
) -> list[TokenizedPrompt]:
    """The judge's prompts, behind texts that the model generates densely."""
    session = LabSession(model)
    decoding = Decoding(pipeline.longest_answer)
    request = RunRequest(
        pipeline, examples[0].values, (MethodChoice(REFERENCE),), "pinned", decoding, probe_offsets=False
    )
    for _ in session.warm_up(request, examples):
        pass
    [stream] = session.streams.values()
    judge = pipeline.judge or pipeline.final
    contexts = [context for past in stream.history for context in past.contexts]
    return [context.prompt for context in contexts if context.prompt.agent == judge]


def candidate_tokens(prompt: TokenizedPrompt) -> NDArray[np.int64]:
    """Token indices of all candidates' texts, ascending."""
    return np.concatenate([np.arange(s.start, s.end, dtype=np.int64) for s in slots(prompt.spans)])


@torch.inference_mode()
def received(engine: Engine, ids: Sequence[int], last_tokens: int) -> NDArray[np.float32]:
    """Attention that every token gets from those behind it, (observers, tokens), in the order of
    ``OBSERVERS``: the mean over layers, heads and those observers that stand behind the token; 0 where none
    does.

    Args:
        engine: forwards the prompt, a few queries at a time; no map of all by all is kept.
        ids: the prompt.
        last_tokens: how many at its end observe in the second row.

    Raises:
        ModelError: this family's attention cannot be read.
    """
    total, layers = len(ids), engine.model.info.layers
    cache = engine.model.new_cache(total)
    sums = torch.zeros(2, total, device=engine.model.device)
    from_last = max(0, total - last_tokens)
    for at in range(0, total, CHUNK_TOKENS):
        chunk = ids[at : at + CHUNK_TOKENS]
        own = torch.arange(len(chunk), device=engine.model.device)
        late = own + at >= from_last

        def take(
            layer: int, probabilities: Tensor, own: Tensor = own, late: Tensor = late, at: int = at
        ) -> None:
            mean = probabilities.mean(dim=0)  # (queries, places)
            mean[own, own + at] = 0  # a token does not vote for itself
            sums[0, : mean.shape[1]] += mean.sum(dim=0)
            sums[1, : mean.shape[1]] += mean[late].sum(dim=0)

        with watching(engine.model.module, None, take):
            engine.forward(engine.ids(chunk), cache)
    place = torch.arange(total, device=sums.device)
    behind = torch.stack([total - 1 - place, (total - 1 - place).clamp_max(total - from_last)]).clamp_min(1)
    return (sums / behind / layers).cpu().numpy()


def keep(scores: NDArray[np.float32], count: int) -> set[int]:
    """The indices of the highest scores; of equal ones the earlier."""
    return set(np.argsort(-scores, kind="stable")[:count].tolist())


def overlap(a: NDArray[np.float32], b: NDArray[np.float32], count: int) -> float:
    """Jaccard similarity of what two score lists would keep."""
    first, second = keep(a, count), keep(b, count)
    return len(first & second) / len(first | second)


def expected_jaccard(tokens: int, kept: int) -> float:
    """Expected Jaccard similarity of two random sets of ``kept`` out of ``tokens`` (hypergeometric)."""
    shared = np.arange(max(0, 2 * kept - tokens), kept + 1)
    weights = stats.hypergeom.pmf(shared, tokens, kept, kept)
    return float((weights * shared / (2 * kept - shared)).sum())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", help="the other model: a folder in hub layout, or a hub id")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--preset", default="judge-right")
    parser.add_argument("--count", type=int, default=24, help="requests")
    parser.add_argument("--last-tokens", type=int, default=16)
    args = parser.parse_args()
    preset = load_preset(args.preset)
    models = load_model(args.model), load_model(args.other)
    if models[0].tokens.tokenizer.get_vocab() != models[1].tokens.tokenizer.get_vocab():
        raise ModelError(f"{args.other} has another tokenizer than {args.model}. Choose two with the same.")
    prompts = judge_prompts(models[0], preset.pipeline, list(preset_requests(preset, args.count, seed=0)))
    jaccard: dict[tuple[int, float], list[float]] = {}
    chance: dict[float, list[float]] = {}
    correlation: dict[int, list[float]] = {}
    for prompt in prompts:
        places = candidate_tokens(prompt)
        scores = [received(Engine(m), prompt.ids, args.last_tokens)[:, places] for m in models]
        for budget in BUDGETS:
            kept = max(1, round(budget * len(places)))
            chance.setdefault(budget, []).append(expected_jaccard(len(places), kept))
            for observer, (a, b) in enumerate(zip(*scores, strict=True)):
                jaccard.setdefault((observer, budget), []).append(overlap(a, b, kept))
        for observer, (a, b) in enumerate(zip(*scores, strict=True)):
            correlation.setdefault(observer, []).append(stats.spearmanr(a, b).statistic)
    print("kept by the attention of,budget,Jaccard,by chance")
    for (observer, budget), values in jaccard.items():
        print(f"{OBSERVERS[observer]},{budget:g},{np.mean(values):.4f},{np.mean(chance[budget]):.4f}")
    for observer, values in correlation.items():
        print(f"# Spearman's rho, {OBSERVERS[observer]}: {np.nanmean(values):.4f} over {len(values)} prompts")


if __name__ == "__main__":
    main()
