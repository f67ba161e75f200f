"""Short facts behind a verdict: right answers, reuse, times, the largest error, the boundary tax."""

import numpy as np

from backend.base.text import boundary_words
from backend.records.run import RunRecord
from viz.base import format as words
from viz.base.format import listing, number


def final_agent(record: RunRecord) -> int:
    """The agent whose answer counts."""
    final = record.request.pipeline.final
    return final if final in record.agents else record.agents[-1]


def facts(record: RunRecord) -> tuple[str, ...]:
    """Up to five plain sentences, with units."""
    points: list[str] = []
    looks, dense = words.styles(record), words.dense_label(record)
    if record.request.expected is not None:
        finals = {m: record.outcome(final_agent(record), m) for m in record.labels}
        right = listing(looks[m].name for m, o in finals.items() if o.correct)
        wrong = listing(looks[m].name for m, o in finals.items() if o.correct is False)
        sentence = "; ".join(f"{w}: {n}" for w, n in (("right", right), ("wrong", wrong)) if n)
        points.append(
            f"Expected answer {words.clip(record.request.expected, 32)}"
            + (f"; {sentence}." if sentence else ".")
        )
    shares: list[tuple[str, int]] = []
    for label in words.others(record):
        hits, total = words.cached_tokens(record, label)
        shares.append((f"{looks[label].name} {words.percent(hits, total)}", total))
    if shares and len({total for _, total in shares}) == 1:
        points.append(
            f"Prompt tokens taken from a cache, of {shares[0][1]:,}: {listing(s for s, _ in shares)}."
        )
    elif shares:
        points.append(f"Prompt tokens taken from a cache: {listing(f'{s} of {n:,}' for s, n in shares)}.")
    reference = words.total_ttft(record, dense)
    times = [(m, words.total_ttft(record, m), words.cached_ttft(record, m)) for m in words.others(record)]
    if times:
        sentence = "; ".join(
            f"{looks[m].name} {words.times_words(first, cached, reference)}" for m, first, cached in times
        )
        points.append(f"Time to first token over all agents, measured once: {sentence}.")
    worst = worst_error(record)
    if worst:
        error, kind, layer, agent, label = worst
        points.append(
            f"Largest relative error of the cache: {kind} at layer {layer} of "
            f"{words.agent_name(record.request.pipeline, agent)} under "
            f"{looks[label].name}, {number(error, 2)} (mean over tokens)."
        )
    if sentence := boundary_words(record.boundary_tax):
        points.append(sentence)
    return tuple(points)


def worst_error(record: RunRecord) -> tuple[float, str, int, int, str] | None:
    """The largest mean relative error: (error, keys or values, layer, agent, method label)."""
    errors: list[tuple[float, str, int, int, str]] = []
    for o in record.outcomes:
        for kind, error in (("keys", o.key_error), ("values", o.value_error)):
            if error is not None and error.size and o.method != words.dense_label(record):
                layers = np.nanmean(error, axis=1)
                errors.append((float(layers.max()), kind, int(layers.argmax()), o.agent, o.method))
    errors = [f for f in errors if f[0] > 0]
    return max(errors) if errors else None
