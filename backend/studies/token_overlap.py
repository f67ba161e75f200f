"""Would a small model keep the same tokens of the candidates as a large one? (Judge study, Section 7, Fig. 5)

The paper's pilot shows "substantial overlap in token selections" between two sizes of Llama, growing with the
retention budget, and leaves open by what tokens are selected. Here it is the attention that they receive, as
in methods that drop cache entries: from every token behind them, or from the prompt's last tokens alone. Two
large sets overlap by chance; that expectation stands beside the figure.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from backend.base.errors import BudgetError, ModelError, OptionError
from backend.engine.engine import Engine
from backend.model.load import LoadedModel
from backend.prompts.presets import Example
from backend.records.events import Progress
from backend.records.prompt import TokenizedPrompt, slots
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.token_overlap import MOST_OVERLAPPED, OBSERVERS, OverlapRequest, TokenOverlap
from backend.session.probes.attention import watching
from backend.session.session import LabSession

CHUNK_TOKENS = 64  # queries whose attention exists at one time


def token_overlap(
    model: LoadedModel, other: LoadedModel, request: OverlapRequest, budget_bytes: int = 1 << 30
) -> Iterator[Progress | TokenOverlap]:
    """Measure; yields progress and, last, the record.

    Args:
        model: generates what the judge reads, and scores it.
        other: scores the same prompts; its size does not matter, its tokenizer does.
        request: what is measured.
        budget_bytes: how much the prompts' caches may hold while they are made.

    Raises:
        OptionError: a number is out of range, or the agent reads no candidate.
        ModelError: the tokenizers differ, or a model's attention cannot be read.
        BudgetError: the requests do not fit.
    """
    began = time.perf_counter()
    _check(model, other, request)
    pipeline = request.pipeline
    agent = pipeline.judge or pipeline.final
    session = LabSession(model, budget_bytes=budget_bytes)
    run = RunRequest(
        pipeline, request.values[0], (MethodChoice("dense"),), "pinned", Decoding(request.max_new_tokens),
        probe_offsets=False,
    )  # fmt: skip
    for event in session.warm_up(run, [Example(dict(values)) for values in request.values]):
        if isinstance(event, Progress):
            yield event
    [stream] = session.streams.values()
    if len(stream.history) < len(request.values):
        raise BudgetError(
            f"Only {len(stream.history)} of {len(request.values)} requests fit into "
            f"{budget_bytes / 2**20:,.0f} MiB. Ask for fewer.",
            field="overlap.values",
        )
    contexts = [context for past in stream.history for context in past.contexts]
    prompts = [context.prompt for context in contexts if context.prompt.agent == agent]
    if not all(slots(prompt.spans) for prompt in prompts):
        raise OptionError(
            f"Agent {agent} reads no candidates, so there is nothing to keep. Choose a pipeline with a "
            "judge.",
            field="overlap.pipeline",
        )
    engines = (Engine(model), Engine(other))
    jaccard = np.zeros((len(OBSERVERS), len(prompts), len(request.budgets)))
    correlation = np.zeros((len(OBSERVERS), len(prompts)))
    kept = np.zeros((len(prompts), len(request.budgets)), dtype=np.int64)
    chance, counts = np.zeros(kept.shape), np.zeros(len(prompts), dtype=np.int64)
    first: NDArray[np.float32] | None = None
    for number, prompt in enumerate(prompts):
        yield Progress(f"Prompt {number + 1} of {len(prompts)}", number, len(prompts))
        places = _places(prompt)
        scores = np.stack([received(e, prompt.ids, request.last_tokens)[:, places] for e in engines], axis=1)
        first = scores if first is None else first
        counts[number] = len(places)
        kept[number] = [max(1, round(share * len(places))) for share in request.budgets]
        for budget, k in enumerate(kept[number]):
            chance[number, budget] = expected_jaccard(len(places), int(k))
            for observer, (mine, theirs) in enumerate(scores):
                jaccard[observer, number, budget] = overlap(mine, theirs, int(k))
        for observer, (mine, theirs) in enumerate(scores):
            alike = len(places) < 3 or np.ptp(mine) == 0 or np.ptp(theirs) == 0
            correlation[observer, number] = np.nan if alike else stats.spearmanr(mine, theirs).statistic
    shown = _places(prompts[0])
    texts = model.tokens.texts(prompts[0].ids)
    sides = slots(prompts[0].spans)
    assert first is not None
    yield TokenOverlap(
        request=request,
        model=model.info,
        other=other.info,
        agent=agent,
        tokens=counts,
        kept=kept,
        jaccard=jaccard,
        chance=chance,
        correlation=correlation,
        texts=tuple(texts[i] for i in shown),
        scores=first,
        places=shown,
        slot=np.repeat(np.arange(1, len(sides) + 1), [s.end - s.start for s in sides]),
        wall_ms=(time.perf_counter() - began) * 1e3,
    )


def _places(prompt: TokenizedPrompt) -> NDArray[np.int64]:
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

        def take(layer: int, found: Tensor, own: Tensor = own, late: Tensor = late, at: int = at) -> None:
            mean = found.mean(dim=0)  # (queries, places)
            mean[own, own + at] = 0  # a token does not vote for itself
            sums[0, : mean.shape[1]] += mean.sum(dim=0)
            sums[1, : mean.shape[1]] += mean[late].sum(dim=0)

        with watching(engine.model.module, None, take) as seen:
            engine.forward(engine.ids(chunk), cache)
        if len(seen) != layers:
            raise ModelError(
                f"Only {len(seen)} of the {layers} layers of {engine.model.info.name} tell what they attend "
                "to. Choose another model.",
                field="overlap.model",
            )
    place = torch.arange(total, device=sums.device)
    behind = torch.stack([total - 1 - place, (total - 1 - place).clamp_max(total - from_last)]).clamp_min(1)
    return (sums / behind / layers).cpu().numpy()


def keep(scores: NDArray[np.float32], count: int) -> set[int]:
    """The indices of the highest scores; of equal ones the earlier."""
    return set(np.argsort(-scores, kind="stable")[:count].tolist())


def overlap(a: NDArray[np.float32], b: NDArray[np.float32], count: int) -> float:
    """Jaccard similarity of what two score lists would keep."""
    mine, theirs = keep(a, count), keep(b, count)
    return len(mine & theirs) / len(mine | theirs)


def expected_jaccard(tokens: int, kept: int) -> float:
    """Expected Jaccard similarity of two random sets of ``kept`` out of ``tokens`` (hypergeometric)."""
    shared = np.arange(max(0, 2 * kept - tokens), kept + 1)
    weights = stats.hypergeom.pmf(shared, tokens, kept, kept)
    return float((weights * shared / (2 * kept - shared)).sum())


def _check(model: LoadedModel, other: LoadedModel, request: OverlapRequest) -> None:
    if model.tokens.tokenizer.get_vocab() != other.tokens.tokenizer.get_vocab():
        raise ModelError(
            f"{other.info.name} has another tokenizer than {model.info.name}, so they do not read the same "
            "tokens. Choose two models with one tokenizer.",
            field="overlap.other",
        )
    budgets = request.budgets
    good = all(isinstance(b, int | float) and math.isfinite(b) and 0 < b <= 1 for b in budgets)
    if not budgets or not good or list(budgets) != sorted(set(budgets)):
        raise OptionError(
            f"The budgets are {', '.join(map(str, budgets)) or 'none'}; shares over 0 and up to 1 are "
            "allowed, ascending, each once. Change them.",
            field="overlap.budgets",
        )
    if not 1 <= len(request.values) <= MOST_OVERLAPPED:
        raise OptionError(
            f"{len(request.values)} requests were given; 1 to {MOST_OVERLAPPED} are allowed. Change their "
            "number.",
            field="overlap.values",
        )
    if type(request.last_tokens) is not int or not 1 <= request.last_tokens <= 1024:
        raise OptionError(
            f"last_tokens is {request.last_tokens!r}; 1 to 1,024 are allowed. Change it.",
            field="overlap.last_tokens",
        )
