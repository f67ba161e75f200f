"""Run the lab's engine on a device that is not the CPU, and print what came out beside the CPU's, as JSON.

``python run_on_fake_device.py [DEVICE]``: on the stand-in for a GPU, with what only it can count, or on a
real one. A process of its own: once torch knows the stand-in, every later test would be run beside it.
"""

from __future__ import annotations

import copy
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import fake_device as far
import numpy as np
import tiny
import torch
from families import FAMILIES, LEFT_OUT, ids, loaded, split
from made_offsets import made_sample
from torch import Tensor

from backend.cache.kv_cache import KVSegment
from backend.cache.row_arena import Arena, ArenaOffset
from backend.cache.samples import SampleLog
from backend.engine.cuda_graph import FixedPass
from backend.engine.engine import Engine
from backend.engine.prefetch import prefetch
from backend.methods.base import Method
from backend.methods.plan import Reuse, Term
from backend.methods.registry import method_class, method_names
from backend.model.load import LoadedModel, wrap_model
from backend.records.request import Decoding, MethodChoice
from backend.records.run import RunRecord
from backend.session.run import Run
from backend.session.session import LabSession

KVCOMM = (
    *(MethodChoice("kvcomm", dict(p.options), name) for name, p in method_class("kvcomm").profiles.items()),
    MethodChoice("kvcomm", {"top_k": 2, "codec": "half"}, "two, half"),
    MethodChoice("kvcomm", {"codec": "lossless"}, "packed"),
)
POOLED = [name for name in method_names() if method_class(name).pools is not Method.pools]
WRITES = Decoding(max_new_tokens=4)
FILLED = tiny.QUESTIONS[:4]  # after three of them KVCOMM mixes for the fourth


def moved(model: LoadedModel, device: str) -> LoadedModel:
    """The model on another device."""
    module = copy.deepcopy(model.module).to(device)
    return wrap_model(module, tiny.tokenizer(), name=model.info.name)


@contextmanager
def waits(into: dict[str, Any], name: str) -> Iterator[None]:
    """Put what waited meanwhile into ``into``."""
    before = Counter(far.counted)
    yield
    now = Counter(far.counted)
    now.subtract(before)
    into[name] = {what: count for what, count in now.items() if count and what != "sent"}


def apart(here: RunRecord, there: RunRecord) -> dict[str, float]:
    """By column: how far the far device's caches and texts are from the CPU's."""
    out: dict[str, float] = {}
    for a, b in zip(here.outcomes, there.outcomes, strict=True):
        same = a.texts == b.texts and np.array_equal(a.actions, b.actions) and a.state == b.state
        gaps = [0.0 if same else np.inf]
        for one, other in ((a.key_error, b.key_error), (a.value_error, b.value_error)):
            if one is not None:
                gaps.append(float(np.abs(one - other).max()))
        out[a.method] = max(out.get(a.method, 0.0), *gaps)
    return out


def columns(
    near: LoadedModel,
    there: LoadedModel,
    choices: Sequence[Any],
    mode: str,
    questions: Sequence[str] = FILLED,
) -> dict[str, float]:
    """Several questions through both devices; the last one's records are compared."""
    here, far_off = LabSession(near), LabSession(there)
    for question in questions[:-1]:
        asked = tiny.request(("dense", *choices), question, mode=mode, decoding=WRITES)
        for session in (here, far_off):
            tiny.run(session, asked)
    asked = replace(asked, values={"user_question": questions[-1]}, probe_attention=True)
    return apart(tiny.run(here, asked), tiny.run(far_off, asked))


def offloaded(near: LoadedModel, there: LoadedModel) -> dict[str, Any]:
    """Offsets of all anchors but one wait in main memory, and come back when they are mixed."""
    here, far_off = LabSession(near), LabSession(there)
    for question in FILLED:
        asked = tiny.request(("dense", MethodChoice("kvcomm", {"on_device": 1})), question, decoding=WRITES)
        before, found = tiny.run(here, asked), tiny.run(far_off, asked)
    return {
        "apart": apart(before, found),
        "mixed": sum(len(o.mixes) for o in found.outcomes),
        "away": [len(view.away) for view in (*before.pool_views, *found.pool_views)],
    }


def there_and_back() -> dict[str, Any]:
    """Two observations whose offsets leave the device and come back, in turn."""
    log = SampleLog("test", 1 << 40)
    made = [made_sample(log, 3, 1) for _ in range(2)]

    def held() -> list[Tensor]:
        seen = [o.offsets[1] for o in made]
        every = [offset for s in seen for offset in (s.placeholder, *s.followers.values())]
        return [x.cpu().clone() for offset in every for x in (offset.keys, offset.values)]

    before, places, same = held(), list[list[str]](), True
    for each in made:
        each.base = KVSegment(each.base.keys.to(far.NAME), each.base.values.to(far.NAME), 0, True, "")
    for cold in (set[int](), {1}, {1, 2}, {2}, set[int]()):
        log.offload(cold)
        places.append([o.offsets[1].placeholder.keys.device.type for o in made])
        same &= all(torch.equal(a, b) for a, b in zip(before, held(), strict=True))
    return {"places": places, "same": same}


def on_their_way() -> dict[str, Any]:
    """Blends whose offsets wait in main memory, asked for one after the other."""
    told, offsets = list[str](), list[Any]()
    base = KVSegment(*(torch.zeros(3, 2, 4, 8, device=far.NAME) for _ in range(2)), 0, True, "")

    def blends() -> Iterator[Reuse]:
        for number in range(3):
            rows = [Arena.over(torch.randn(4, 2, 3, 2, 8, device=far.NAME)) for _ in range(2)]
            rows[0] = rows[0].in_main_memory()
            offsets.append([ArenaOffset(r, 1, 4) for r in rows])
            terms = [Term(torch.ones(()), offset, n) for n, offset in enumerate(offsets[-1])]
            told.append(f"asked {number}")
            yield Reuse(base, tuple(terms))

    same = True
    for number, blend in enumerate(prefetch(blends())):
        told.append(f"there {number}")
        for term, was in zip(blend.terms, offsets[number], strict=True):
            same &= term.offset.rows.arena is blend.terms[0].offset.rows.arena
            same &= term.offset.keys.device.type == far.NAME
            same &= torch.equal(term.offset.keys.cpu(), was.keys.cpu())
            same &= torch.equal(term.offset.values.cpu(), was.values.cpu())
    return {"told": told, "same": same}


def path_to_the_first_token(there: LoadedModel) -> dict[str, Any]:
    """What waits for the device between a request and its first token, with the pools full."""
    out: dict[str, Any] = {}
    session = LabSession(there)
    for question in FILLED:
        tiny.run(session, tiny.request(("dense", "kvcomm"), question, decoding=WRITES))
    plain: Callable[..., Any] = Run.prefill

    def counted(self: Run, lane: Any, agent: int) -> Any:
        with waits(out, f"{lane.choice.label} {agent}"):
            return plain(self, lane, agent)

    Run.prefill = counted
    try:
        tiny.run(session, tiny.request(("dense", "kvcomm"), tiny.QUESTIONS[5], decoding=WRITES))
    finally:
        Run.prefill = plain
    return out


def beside_the_cpu(near: LoadedModel, there: LoadedModel) -> dict[str, Any]:
    """What a device and the CPU make of the same requests, under every method."""
    others = [name for name in method_names() if name != "dense" and name not in POOLED]
    pinned = columns(near, there, [*POOLED, *KVCOMM], "pinned")
    for choices in (others[::2], others[1::2]):  # what they keep they have after one request
        pinned |= columns(near, there, choices, "pinned", FILLED[-2:])
    return {
        "device": there.info.device,
        "relocatable": there.info.certificate.relocatable,
        "pinned": pinned,
        "free": columns(near, there, ("naive", "kvcomm", "cacheblend", "repair"), "free"),
        "offloaded": offloaded(near, there),
    }


def counted_there(there: LoadedModel) -> dict[str, Any]:
    """What the stand-in knows better than a GPU: where things lie, and who waits for it."""
    out: dict[str, Any] = {"there and back": there_and_back(), "on their way": on_their_way()}
    out["waits"] = path_to_the_first_token(there)
    far.counted.clear()
    wrote = tiny.run(LabSession(there), tiny.request(("dense",), probe_offsets=False))
    out["told"] = [far.counted["tolist"], sum(len(o.token_ids) for o in wrote.outcomes), len(wrote.agents)]
    out["recorded"] = {}
    for name in (name for name in FAMILIES if name not in LEFT_OUT):
        family = moved(loaded(name), far.NAME)
        cache, last, position = split(Engine(family), ids(41))
        fixed = FixedPass(family, 64)
        fixed.load(family, last, cache, position)
        before = sum(far.counted.values())
        fixed.forward(family)
        out["recorded"][name] = sum(far.counted.values()) - before
    return out


def main(device: str) -> None:
    if device == far.NAME:
        far.begin()
    near = tiny.model()
    there = moved(near, device)
    out = beside_the_cpu(near, there)
    if device == far.NAME:
        out |= counted_there(there)
    print(json.dumps(out))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:] or [far.NAME])
