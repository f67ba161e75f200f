"""Whole runs of KVCOMM *as shipped* beside a reference of the public code (:mod:`reference.kvcomm_shipped`).

Both see the same requests. The lab runs them through its session; the reference gets bases and dense caches
from plain passes of the model, and nothing of the lab's but token ids. Compared are every gate decision,
which agent reused, which anchors are held and how often each was counted, the weights, and every reused key
and value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import kvcomm_shipped as reference
import pytest
import tiny
import torch
from tiny import TOLERANCE, error, run
from torch import Tensor

from backend.cache.kv_cache import made_cache
from backend.methods.registry import profile_options
from backend.model.load import LoadedModel
from backend.prompts.presets import load_preset, preset_requests
from backend.prompts.template import Placeholder
from backend.records.prompt import Prompt
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import RunRecord
from backend.session.session import LabSession
from backend.session.streams import PromptRun

KV = tuple[Tensor, Tensor]
FREQUENCIES = reference.llama3_frequencies(16, 10_000.0, 8.0, 1.0, 4.0, 256)


class Watched(LabSession):
    """A session whose rows can be looked at after the run."""

    rows: dict[int, PromptRun]

    def finish(self, rows: list[PromptRun]) -> None:
        self.rows = {**getattr(self, "rows", {}), rows[1].context.prompt.agent: rows[1]}


class Beside:
    """The reference, fed from plain passes of the model."""

    def __init__(self, loaded: LoadedModel, record: RunRecord, gamma: float, limit: int) -> None:
        self.loaded, self.pipeline = loaded, record.request.pipeline
        self.public = reference.PublicCode(gamma, limit, FREQUENCIES)
        self.templates = {a: self.template(record, a) for a in record.agents}
        self.messages: dict[int, str] = {}  # whose text an observation is

    def forward(self, ids: Sequence[int]) -> KV:
        """A prompt's keys and values, as a plain pass leaves them."""
        with torch.inference_mode():
            layers = made_cache(self.loaded.module(input_ids=torch.tensor([list(ids)]), use_cache=True))
        return (
            torch.stack([layer.keys[0] for layer in layers.layers]),
            torch.stack([layer.values[0] for layer in layers.layers]),
        )

    def template(self, record: RunRecord, agent: int) -> dict[str, tuple[Tensor, Tensor, int]]:
        """By prefix segment its keys and values where names stand in the holes, and where it begins there."""
        prompt = prompt_of(record, agent)
        ids: list[int] = []
        places = {}
        for span in prompt.spans:
            if span.kind == "placeholder":
                ids += self.loaded.tokens.encode("{'" + span.name + "'} ")
            else:
                places[span.name] = (len(ids), len(ids) + span.end - span.start)
                ids += prompt.token_ids[span.start : span.end].tolist()
        keys, values = self.forward(ids)
        return {name: (keys[:, :, at:end], values[:, :, at:end], at) for name, (at, end) in places.items()}

    def base(self, record: RunRecord, hole: str, ids: Sequence[int]) -> tuple[Tensor, Tensor, int]:
        """A text's keys and values where they were encoded, and where that was."""
        placeholder = Placeholder(hole)
        if placeholder.kind == "agent":
            assert placeholder.agent is not None
            before = prompt_of(record, placeholder.agent).token_ids.tolist()
        else:
            before = list(self.loaded.tokens.lead_in(self.pipeline, hole))
        keys, values = self.forward([*before, *ids])
        return keys[:, :, len(before) :], values[:, :, len(before) :], len(before)

    def check(self, record: RunRecord, session: Watched, label: str) -> dict[str, int]:
        """Go through a request beside the lab; counts what was seen."""
        public, seen = self.public, {"reused": 0, "gone": 0, "came before": 0}
        public.begin()
        message = record.request.values["user_question"]
        bases: dict[str, tuple[Tensor, Tensor, int]] = {}
        for agent in record.agents:
            row, outcome = session.rows[agent], record.outcome(agent, label)
            prompt = prompt_of(record, agent)
            spans = prompt.spans
            holes = [s.name for s in spans if s.kind == "placeholder" and s.end > s.start]
            for span in spans:
                if span.name not in holes:
                    continue
                decision = next(g for g in outcome.gate if g.placeholder == span.name)
                if span.name not in bases:
                    ids = prompt.token_ids[span.start : span.end].tolist()
                    bases[span.name] = self.base(record, span.name, ids)
                    outside = Placeholder(span.name).kind != "agent"
                    found = public.arrive(span.name, message, bases[span.name][1], outside)
                    seen["came before"] += found is None
                    self.compare_gate(found, decision, public, span.name, message)
                self.messages[row.context.samples[span.name].number] = message
            texts = {
                span.name: (
                    reference.Part(*bases[span.name], span.start),
                    reference.Part(*self.templates[agent][spans[at + 1].name], spans[at + 1].start),
                )
                for at, span in enumerate(spans)
                if span.name in holes
            }
            if public.reads_densely(str(agent), message, holes):
                assert outcome.state == "fallback"
                real = self.forward(prompt.token_ids.tolist())
                seen["gone"] += public.read_densely(str(agent), message, texts, real)
                continue
            assert outcome.state == "reused"
            seen["reused"] += 1
            cache = row.prefill.cache
            for hole, pair in texts.items():
                for part, (keys, values) in zip(pair, public.reuse(str(agent), hole, pair), strict=True):
                    end = min(part.start + part.tokens, len(prompt.token_ids) - 1)  # the last is read afresh
                    at, kept = slice(part.start, end), end - part.start
                    assert error(cache.keys[:, 0, :, at], keys[:, :, :kept]) <= TOLERANCE
                    assert error(cache.values[:, 0, :, at], values[:, :, :kept]) <= TOLERANCE
                self.compare_weights(outcome, public, hole, pair[0])
        for pool in record.pools:
            named = [self.messages[number] for number in pool.anchors]
            assert named == list(public.anchors[pool.placeholder])
            assert dict(zip(named, pool.uses, strict=True)) == public.counts[pool.placeholder]
        return seen

    def compare_gate(
        self, found: Any, decision: Any, public: reference.PublicCode, hole: str, message: str
    ) -> None:
        """A decision, and the numbers behind it where there are any."""
        if found is None or decision.rule == "came before":
            assert decision.rule == "came before"
            held = message in public.anchors[hole]
            assert decision.shareable == (held or not public.flags[hole][message])
            return
        becomes, entropy, threshold = found
        assert decision.shareable == (not becomes)
        assert (decision.entropy is None) == (entropy is None)
        if entropy is not None and threshold is not None:
            assert abs(decision.entropy / math.log(2) - entropy) <= TOLERANCE
            assert abs(decision.threshold / math.log(2) - threshold) <= TOLERANCE

    def compare_weights(
        self, outcome: Any, public: reference.PublicCode, hole: str, part: reference.Part
    ) -> None:
        """The weights of a text's own tokens, as the record has them."""
        mix = next(m for m in outcome.mixes if m.start == part.start)
        wanted = public.weights[hole]
        for mine, side in ((mix.keys_by_token, "own keys"), (mix.values_by_token, "own values")):
            assert float((torch.from_numpy(mine).double().T - wanted[side]).abs().max()) <= TOLERANCE


def prompt_of(record: RunRecord, agent: int) -> Prompt:
    return next(p for p in record.prompts if p.agent == agent)


@pytest.mark.parametrize(
    ("preset", "seed", "gamma", "limit"),
    [
        ("math-3", 0, 0.3, 20),
        ("math-2", 1, 0.05, 5),
        ("message-who", 2, 0.2, 5),
        ("math-2", 3, 0.15, 6),
    ],
)
@pytest.mark.slow
def test_whole_runs(preset: str, seed: int, gamma: float, limit: int) -> None:
    loaded = tiny.model(seed)
    chosen = load_preset(preset)
    examples = preset_requests(chosen, 12)
    options = profile_options("kvcomm", "shipped") | {"gamma": gamma, "capacity": limit}
    methods = (MethodChoice("dense"), MethodChoice("kvcomm", options, "shipped"))
    session = Watched(loaded)
    beside, seen = None, {"reused": 0, "gone": 0, "came before": 0}
    for n in (*range(8), 7, 3, 8, 9, 0, 10, 11):
        asked = RunRequest(chosen.pipeline, dict(examples[n].values), methods, decoding=Decoding(6))
        record = run(session, asked)
        beside = beside or Beside(loaded, record, gamma, limit)
        for what, count in beside.check(record, session, "shipped").items():
            seen[what] += count
    assert seen["reused"] > 3
    assert seen["came before"] >= 3
    assert (seen["gone"] > 0) == (limit < 20), "room was made"
