"""Does nearness in embedding space predict nearness in KV and in offset space? (KVCOMM, Fig. 4, Prop. 1, 2)

The paper's recipe (appendix 6.3.1): sample distinct vocabulary tokens, take the pairs that are nearest in
embedding space, put each token behind one prefix (a, b) or behind two (c, d), and correlate.

Readings of open points: *trained vocabulary* leaves out control tokens, tokens whose embedding is less
than half as long as the median one, and those that lie in one heap (:func:`in_cluster`); pairs may share a
token; keys are compared position-free. Layer 0's offsets are zero, so their correlation is undefined there,
not 0. The Lipschitz constants are not known: the bound shown takes the smallest ones that hold on the
measured pairs, so it holds by construction, and how far it lies above the distances says how loose the
inequality is.
"""

import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from backend.base.errors import OptionError
from backend.base.ranges import check_ranges
from backend.base.serialization import Floats
from backend.cache.kv_cache import as_argument
from backend.model.load import LoadedModel
from backend.records.events import Progress
from backend.records.proximity import LIMITS, Correlation, ProximityRecord, ProximityRequest
from backend.session.study import study

MAX_PREFIX_TOKENS = 2000
BATCH_TOKENS = 4096  # forwarded at once
HEAP_SAMPLE = 256  # tokens whose neighbours are counted
BLOCK_ROWS = 1024  # of the distances between tokens, at once


@dataclass(frozen=True)
class LastToken:
    """The last token of every row: hidden states (layers + 1, rows, hidden) before each layer and after the
    last, position-free keys and values (layers, rows, kv_heads * head_dim)."""

    hidden: Tensor
    keys: Tensor
    values: Tensor


@study(ProximityRequest)
def proximity(model: LoadedModel, request: ProximityRequest) -> Iterator[Progress | ProximityRecord]:
    """Measure; yields progress and, last, the record.

    Raises:
        OptionError: a number is out of range, a prefix is too long, or the prefixes are alike.
    """
    began = time.perf_counter()
    prefixes = _check(model, request)
    yield Progress("Choosing pairs of tokens", 0, 1)
    sampled, pairs, embedding = nearest_pairs(model, request)
    unique, places = np.unique(pairs, return_inverse=True)
    places = places.reshape(pairs.shape)
    readings: list[LastToken] = []
    for number, prefix in enumerate(prefixes, 1):
        parts = []
        rows = max(1, BATCH_TOKENS // (len(prefix) + 1))
        for at in range(0, len(unique), rows):
            yield Progress(f"Behind prefix {number} of 2", at + (number - 1) * len(unique), 2 * len(unique))
            parts.append(last_tokens(model, prefix, unique[at : at + rows].tolist()))
        names = ("hidden", "keys", "values")
        readings.append(LastToken(*(torch.cat([getattr(p, name) for p in parts], 1) for name in names)))
    a, b = readings
    first, second = torch.from_numpy(places[:, 0]), torch.from_numpy(places[:, 1])

    def apart(x: Tensor) -> Tensor:
        distance: Tensor = (x[:, first] - x[:, second]).norm(dim=-1)
        return distance

    distances = {
        "keys": apart(a.keys),
        "values": apart(a.values),
        "key_offsets": apart(b.keys - a.keys),
        "value_offsets": apart(b.values - a.values),
    }
    bound = proposition_bound(apart(a.hidden), distances["keys"])
    arrays: dict[str, Any] = {name: x.numpy().astype(np.float32) for name, x in distances.items()}
    yield ProximityRecord(
        request=request,
        model=model.info,
        sampled=sampled,
        tokens=pairs,
        texts=tuple((model.tokens.decode((int(x),)), model.tokens.decode((int(y),))) for x, y in pairs),
        embedding=embedding,
        bound=bound.numpy().astype(np.float32),
        correlations={
            # an offset is a difference of keys or of values, so it is rounded as they are
            name: spearman(embedding, array, float(arrays[name.replace("_offset", "")].max()))
            for name, array in arrays.items()
        },
        wall_ms=(time.perf_counter() - began) * 1e3,
        **arrays,
    )


def _check(model: LoadedModel, request: ProximityRequest) -> list[list[int]]:
    """The two prefixes as token ids."""
    check_ranges(request, LIMITS, "proximity")
    prefixes = []
    for letter, text in (("A", request.prefix_a), ("B", request.prefix_b)):
        ids = [*model.tokens.bos, *model.tokens.encode(text)]
        limit = min(MAX_PREFIX_TOKENS, model.info.context_tokens - 1)
        if not 1 <= len(ids) <= limit:
            raise OptionError(
                f"Prefix {letter} has {len(ids):,} tokens; 1 to {limit:,} are allowed. Change the text.",
                field=f"proximity.prefix_{letter.lower()}",
            )
        prefixes.append(ids)
    if prefixes[0] == prefixes[1]:
        raise OptionError(
            "Prefix B is the same text as prefix A, so nothing changes between them. Change one of them.",
            field="proximity.prefix_b",
        )
    return prefixes


def trained_vocabulary(model: LoadedModel) -> tuple[Tensor, NDArray[np.int64]]:
    """The input embeddings (vocabulary, hidden), fp32, and the ids that training has seen, ascending."""
    table = model.module.get_input_embeddings().weight.detach().float().cpu()
    usable = torch.ones(table.shape[0], dtype=torch.bool)
    usable[[i for i in model.tokens.tokenizer.all_special_ids if i < table.shape[0]]] = False
    usable[len(model.tokens.tokenizer) :] = False
    norms = table.norm(dim=-1)
    usable &= norms >= norms[usable].median() / 2
    ids = usable.nonzero().flatten()
    return table, ids[~in_cluster(table[ids])].numpy()


def in_cluster(points: Tensor) -> Tensor:
    """Which embeddings (tokens, hidden) lie in one heap, as those do that no training text ever held: the
    loss pushes all of them alike, so they stay together whatever the model learns. (tokens,) bool.

    A heap is a hundredth of the tokens, sixteen at least, within a twentieth of the usual distance.
    """
    tokens = len(points)
    sample = points[torch.linspace(0, tokens - 1, min(tokens, HEAP_SAMPLE)).long()]
    apart = torch.cdist(sample, points)
    near = apart < 0.05 * apart.median()
    members = near.sum(dim=1)
    if not tokens or int(members.max()) < max(16, tokens // 100):
        return torch.zeros(tokens, dtype=torch.bool)
    return near[members.argmax()]


def nearest_pairs(model: LoadedModel, request: ProximityRequest) -> tuple[int, NDArray[np.int64], Floats]:
    """How many tokens were sampled, the nearest pairs (pairs, 2) and their distances, ascending."""
    table, trained = trained_vocabulary(model)
    rng = np.random.default_rng(request.seed)
    chosen = np.sort(rng.choice(trained, min(request.vocabulary, len(trained)), replace=False))
    points, total = table[chosen], len(chosen)
    count = min(request.pairs, total * (total - 1) // 2)
    least, places = torch.empty(0), torch.empty(0, dtype=torch.long)
    for at in range(0, total, BLOCK_ROWS):  # the whole matrix would take gigabytes
        apart = torch.cdist(points[at : at + BLOCK_ROWS], points)
        row_numbers = torch.arange(at, at + len(apart))
        apart[torch.arange(total) <= row_numbers[:, None]] = math.inf  # each pair once
        flat = apart.flatten()
        nearest = flat.topk(min(count, len(flat)), largest=False)
        least = torch.cat([least, nearest.values])
        places = torch.cat([places, nearest.indices + at * total])
        best = least.topk(min(count, len(least)), largest=False).indices
        least, places = least[best], places[best]
    rows, columns = places // total, places % total
    pairs = np.stack([chosen[rows.numpy()], chosen[columns.numpy()]], axis=1)
    # the sum of squares loses digits to cancellation: the nearest are measured again
    exact = (points[rows] - points[columns]).norm(dim=-1).numpy()
    order = np.argsort(exact, kind="stable")
    return total, pairs[order].astype(np.int64), exact[order].astype(np.float32)


@torch.inference_mode()
def last_tokens(model: LoadedModel, prefix: list[int], tokens: list[int]) -> LastToken:
    """Forward ``prefix + token`` for every token and keep the last place."""
    ids = torch.tensor([[*prefix, token] for token in tokens], device=model.device)
    cache = model.new_cache(ids.shape[1], rows=len(tokens))
    out = model.module(
        input_ids=ids,
        **as_argument(model.module, cache.cache),
        use_cache=True,
        output_hidden_states=True,
        logits_to_keep=1,
    )
    hidden = torch.stack([h[:, -1].float().cpu() for h in out.hidden_states])
    place = len(prefix)
    layers, rows, heads, _, dim = cache.keys.shape
    keys = cache.keys[:, :, :, place].reshape(layers, rows * heads, 1, dim)
    free = model.rotation.rotate(keys.float(), torch.tensor([-place], device=model.device))
    values = cache.values[:, :, :, place].flatten(2)
    return LastToken(hidden, free.reshape(layers, rows, heads * dim).cpu(), values.float().cpu())


def proposition_bound(hidden: Tensor, keys: Tensor) -> Tensor:
    """Proposition 1's right side (layers, pairs): C_K times the product of growths times the first distance.

    Args:
        hidden: distances of the hidden states before each layer (layers + 1, pairs).
        keys: distances of the keys (layers, pairs).
    """
    tiny = 1e-12
    layers = keys.shape[0]
    growth = (hidden[1:] / hidden[:-1].clamp_min(tiny)).amax(dim=1)
    out, product = [], torch.ones(())
    for layer in range(layers):
        constant = (keys[layer] / hidden[layer].clamp_min(tiny)).max()
        out.append(constant * product * hidden[0])
        product = product * growth[layer]
    return torch.stack(out)


def spearman(embedding: Floats, distances: Floats, scale: float | None = None) -> Correlation:
    """Rank correlation of the embedding distance with each layer's distances, with 95% intervals.

    A layer whose distances are equal up to rounding has none. ``scale``: the largest of the numbers that the
    distances were computed from, which sets the rounding; the largest distance when absent.
    """
    rho = np.full(len(distances), np.nan)
    rounding = 1e-4 * max(1e-9, float(np.abs(distances).max()) if scale is None else scale)
    for layer, row in enumerate(distances):
        if np.ptp(row) > rounding:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", stats.ConstantInputWarning)
                rho[layer] = stats.spearmanr(embedding, row).statistic
    # Fisher's z with the variance of Fieller, Hartley and Pearson (1957) for ranks
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.arctanh(rho)
    half = 1.959964 * math.sqrt(1.06 / max(1, len(embedding) - 3))
    return Correlation(rho, np.tanh(z - half), np.tanh(z + half))
