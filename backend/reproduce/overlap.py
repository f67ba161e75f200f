"""Would a small model keep the same tokens of the candidates as a large one? (Judge study, Section 7, Fig. 5)

The paper's pilot shows "substantial overlap in token selections" between two sizes of Llama, growing with the
retention budget, and does not say how tokens are selected. Here it is by the attention that they receive, as
in methods that drop cache entries: from every token behind them, or from the prompt's last tokens alone. Two
large sets overlap by chance; the expected overlap stands beside the figure.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from backend.base.errors import ModelError
from backend.engine.engine import Engine
from backend.model.load import LoadedModel
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example, load_preset, preset_requests
from backend.records.events import Progress
from backend.records.prompt import TokenizedPrompt, slots
from backend.records.request import REFERENCE, Decoding, MethodChoice, RunRequest
from backend.reproduce.context import Context, Step
from backend.reproduce.spec import Measurement, OverlapPlan, Value
from backend.session.probes.attention import watching
from backend.session.session import LabSession

CHUNK_TOKENS = 64  # queries whose attention exists at one time
LAST_TOKENS = 16  # of the prompt, that observe in the second row
BUDGETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)  # shares of the candidates' tokens that are kept
OBSERVERS = ("every later token", "the last tokens")


def token_overlap(plan: OverlapPlan, context: Context) -> Iterator[Step]:
    """Jaccard similarity at every budget, means over the requests of a preset with a judge; the value
    expected by chance, and the scores' rank correlation.

    Raises:
        LabError: the two models have not the same tokenizer, or a family's attention cannot be read.
    """
    preset = load_preset(plan.preset)
    models = context.model, context.load(plan.other)
    if models[0].tokens.tokenizer.get_vocab() != models[1].tokens.tokenizer.get_vocab():
        raise ModelError(
            f"{plan.other} has another tokenizer than {context.model_name}. Choose two with the same."
        )
    examples = list(preset_requests(preset, context.count(plan.problems), context.settings.seed))
    prompts = judge_prompts(models[0], preset.pipeline, examples)
    same = {observer: {budget: list[float]() for budget in BUDGETS} for observer in OBSERVERS}
    chance: dict[float, list[float]] = {budget: [] for budget in BUDGETS}
    rho: dict[str, list[float]] = {observer: [] for observer in OBSERVERS}
    for number, prompt in enumerate(prompts):
        yield Progress(f"Reading prompt {number + 1} of {len(prompts)} with both", number, len(prompts))
        places = candidate_tokens(prompt)
        scores = [attention_received(Engine(m), prompt.ids, LAST_TOKENS)[:, places] for m in models]
        for budget in BUDGETS:
            count = max(1, round(budget * len(places)))
            chance[budget].append(expected_jaccard(len(places), count))
            for observer, a, b in zip(OBSERVERS, *scores, strict=True):
                same[observer][budget].append(overlap(a, b, count))
        for observer, a, b in zip(OBSERVERS, *scores, strict=True):
            rho[observer].append(float(stats.spearmanr(a, b).statistic))
    for budget in BUDGETS:
        values = {
            observer: Value(float(np.mean(same[observer][budget])), of=len(prompts)) for observer in OBSERVERS
        }
        yield Measurement(
            {"budget": f"{budget:.0%}"}, values | {"chance": Value(float(np.mean(chance[budget])))}
        )
    values = {observer: Value(float(np.nanmean(rho[observer])), of=len(prompts)) for observer in OBSERVERS}
    yield Measurement({"budget": "rank correlation"}, values)


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
def attention_received(engine: Engine, ids: Sequence[int], last_tokens: int) -> NDArray[np.float32]:
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
        rows = torch.arange(len(chunk), device=engine.model.device)
        late = rows + at >= from_last

        def take(
            layer: int, probabilities: Tensor, rows: Tensor = rows, late: Tensor = late, at: int = at
        ) -> None:
            mean = probabilities.mean(dim=0)  # (queries, places)
            mean[rows, rows + at] = 0  # a token does not vote for itself
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
    """Jaccard similarity of the tokens that two score lists would keep."""
    first, second = keep(a, count), keep(b, count)
    return len(first & second) / len(first | second)


def expected_jaccard(tokens: int, count: int) -> float:
    """Expected Jaccard similarity of two random sets of ``count`` out of ``tokens`` (hypergeometric)."""
    shared = np.arange(max(0, 2 * count - tokens), count + 1)
    weights = stats.hypergeom.pmf(shared, tokens, count, count)
    return float((weights * shared / (2 * count - shared)).sum())
