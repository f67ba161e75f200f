"""The keys and values behind a run, as a safetensors file, while the visit's log still holds them.

What is kept is what the correction methods work with: the base KV of every text and the offsets that dense
showed in each agent's context, so a text's KV as dense computed it is base + offset. Keys are position-free:
rotate them to where the text stands.
"""

import json
from collections.abc import Mapping

import numpy as np
from safetensors.torch import save
from torch import Tensor

from backend.base.errors import BudgetError
from backend.records.run import RunRecord
from backend.session.streams import AnsweredRequest, Stream, stream_key

TENSOR_BYTES = 32 << 20


def run_tensors(streams: Mapping[str, Stream], record: RunRecord) -> dict[str, Tensor]:
    """A run's tensors by name; empty when the log does not hold the run (any more).

    ``base/<placeholder>/keys`` and ``values``: a text encoded by itself, or as its producer's decoding left
    it. ``base/agent <n>/<prefix segment>/...``: template text. ``offset/agent <n>/<text or segment>/...``:
    what that agent's context added; a segment's name is followed by the placeholder that stands before it.
    Each is ``(layers, kv_heads, tokens, head_dim)``, in the model's type.
    """
    request = past_of(streams, record)
    if request is None:
        return {}
    out: dict[str, Tensor] = {}

    def add(key: str, keys: Tensor, values: Tensor) -> None:
        out[f"{key}/keys"], out[f"{key}/values"] = keys, values

    for context in request.contexts:
        agent = context.prompt.agent
        for segment, base in context.prefix_bases.items():
            add(f"base/agent {agent}/{segment}", base.keys, base.values)
        for name, sample in context.samples.items():
            add(f"base/{name}", sample.base.keys, sample.base.values)
            entry = sample.offsets.get(agent)
            if entry is not None:
                add(f"offset/agent {agent}/{name}", entry.placeholder.keys, entry.placeholder.values)
                for segment, offset in entry.followers.items():
                    add(f"offset/agent {agent}/{segment} behind {name}", offset.keys, offset.values)
    return out


def tensor_bytes(streams: Mapping[str, Stream], record: RunRecord) -> int:
    """What :func:`run_tensors` would take; 0 when there is nothing."""
    return sum(t.numel() * t.element_size() for t in run_tensors(streams, record).values())


def tensor_file(streams: Mapping[str, Stream], record: RunRecord) -> bytes:
    """A run's tensors as the content of a safetensors file.

    Raises:
        BudgetError: there are none (any more), or they take more than ``TENSOR_BYTES``.
    """
    tensors = run_tensors(streams, record)
    if not tensors:
        raise BudgetError(
            "The tensors of this run are not held any more: a visit keeps those of its latest runs, and "
            "none of opened files. Run it again, or save it without tensors."
        )
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    if size > TENSOR_BYTES:
        raise BudgetError(
            f"The tensors of this run take {size / 2**20:,.1f} MiB; up to {TENSOR_BYTES / 2**20:,.0f} MiB "
            "are put into a bundle. Shorten the prompts, or save it without tensors."
        )
    metadata = {
        "run": record.id,
        "model": record.model.name,
        "weights": record.model.weights_hash,
        "axes": json.dumps(["layers", "kv_heads", "tokens", "head_dim"]),
        "keys": "position-free: rotated back to position 0",
    }
    return save({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, metadata)


def past_of(streams: Mapping[str, Stream], record: RunRecord) -> AnsweredRequest | None:
    """The latest request of the session's logs with exactly the record's prompts."""
    dense = record.request.methods[0]
    stream = streams.get(stream_key(record.request, dense))
    if stream is None:
        return None
    token_ids = {a: record.prompts[record.outcome(a, dense.label).prompt].token_ids for a in record.agents}
    for request in reversed(stream.history):
        prompts = {c.prompt.agent: np.asarray(c.prompt.ids) for c in request.contexts}
        if prompts.keys() == token_ids.keys() and all(
            np.array_equal(token_ids[a], prompts[a]) for a in token_ids
        ):
            return request
    return None
