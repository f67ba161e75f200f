"""A tiny random model, its tokenizer and a pipeline of three agents: what the engine's tests run on.

Everything is seeded and in fp32. The weights are drawn wide enough that a wrong key or value shows in
the logits by far more than rounding does.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from backend.base.clock import Clock
from backend.cache.kv_cache import KVCache, KVOffset, KVSegment
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.decoding import Decoded
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.lab import Lab
from backend.methods.dense import dense_plan
from backend.methods.plan import Plan, Reuse, Step, Term
from backend.model.load import LoadedModel, wrap_model
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.records.events import Event, RunDone
from backend.records.request import Decoding, MethodChoice, Mode, RunRequest
from backend.records.run import RunRecord
from backend.session.request_state import RequestState, record_offsets
from backend.session.session import LabSession

# Threads cost more than they bring on tensors of this size, and a busy machine makes them very slow.
torch.set_num_threads(1)

TOLERANCE = 1e-5
QUESTIONS = (
    "Tess has 35 coins. Tess gives away 34. How many coins does Tess have now?",
    "Omar owns 12 books. Omar buys 7 more. How many books are left with Omar?",
    "At first Lena has 9 pens. Lena loses 3. Then Lena has twice as many. How many pens does Lena have now?",
    "Hugo has 50 shells. Hugo sells 8. How many shells does Hugo have in the end?",
    "Iris owns 6 keys. Iris finds 11 more. How many keys does Iris have now?",
    "Noah has 77 nuts. Noah drops 70. Noah gets 5 more. How many nuts are left with Noah?",
)


@cache
def tokenizer() -> Any:
    """The lab's own kind of tokenizer, with few merges; a file, for what the tasks draw may change."""
    return PreTrainedTokenizerFast.from_pretrained(Path(__file__).with_name("tiny_tokenizer"))


def llama(seed: int = 0) -> Any:
    """A random Llama of three layers with llama3's scaling of the rotation.

    The weights are drawn here, name by name, so that they do not depend on a library's order of doing so.
    """
    config = LlamaConfig(
        vocab_size=len(tokenizer()),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=tokenizer().bos_token_id,
        eos_token_id=tokenizer().eos_token_id,
        pad_token_id=tokenizer().pad_token_id,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
        attn_implementation="sdpa",
    )
    module = LlamaForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, weight in sorted(module.named_parameters()):
        if weight.ndim == 2:
            weight.data.normal_(0, 0.12, generator=generator)
        else:
            assert "norm" in name
    return module


def model(seed: int = 0) -> LoadedModel:
    """The tiny model, certified."""
    return wrap_model(llama(seed), tokenizer(), name="tiny")


def pipeline(tokens: int = 8, **changes: str) -> Pipeline:
    """A solver, a checker who reads it, and a judge who reads both; ``t1`` to ``t3`` replace templates."""
    templates = {
        "t1": "Solve the problem step by step.\nThe task is: {user_question}\n",
        "t2": "Check the work of the other agent.\nThe task is: {user_question}\nAgent 1 wrote:\n"
        "{agent_1_current}\n",
        "t3": "You are the judge.\nThe task is: {user_question}\nCandidate 1:\n{agent_1_current}\n"
        "Candidate 2:\n{agent_2_current}\nThe best is:",
    } | changes
    agents = tuple(
        Agent(number, name, "", templates[f"t{number}"], tokens)
        for number, name in enumerate(("Solver", "Checker", "Judge"), 1)
    )
    return Pipeline("tiny", "Tiny", "For tests.", agents, judge=3)


def request(
    methods: Sequence[str | MethodChoice] = ("dense", "naive", "kvcomm"),
    question: str = QUESTIONS[0],
    *,
    mode: Mode = "pinned",
    flow: Pipeline | None = None,
    **more: Any,
) -> RunRequest:
    """A request to the tiny pipeline."""
    chosen = tuple(MethodChoice(m) if isinstance(m, str) else m for m in methods)
    decoding = more.pop("decoding", Decoding(max_new_tokens=8))
    return RunRequest(flow or pipeline(), {"user_question": question}, chosen, mode, decoding, **more)


def lab(loaded: LoadedModel, **settings: Any) -> Lab:
    """A session with every study of it; ``settings`` are the session's."""
    return Lab(LabSession(loaded, **settings))


def run(session: LabSession, asked: RunRequest, cancel: threading.Event | None = None) -> RunRecord:
    """Run a request to its end."""
    last: Event = list(session.run(asked, cancel=cancel))[-1]
    assert isinstance(last, RunDone)
    return last.record


@dataclass
class Walk:
    """A request that went through a pipeline densely, with everything that a plan could need."""

    engine: Engine
    log: SampleLog
    state: RequestState
    contexts: dict[int, PromptInContext] = field(default_factory=dict)
    dense: dict[int, Prefill] = field(default_factory=dict)
    answers: dict[int, Decoded] = field(default_factory=dict)

    def real(self, agent: int) -> KVSegment:
        """The dense KV of an agent's whole prompt, position-free."""
        cache, total = self.dense[agent].cache, len(self.contexts[agent].prompt.ids)
        return cache.segment(0, total, self.engine.model.rotation, exact=True, context="dense")

    def execute(self, agent: int, plan: Plan) -> Prefill:
        """Carry out another plan for the same prompt."""
        return self.engine.execute(self.contexts[agent].prompt, plan, Clock())

    def true_offset_plan(self, agent: int) -> Plan:
        """Every segment's base, corrected by its own true offset."""
        context, real = self.contexts[agent], self.real(agent)
        steps = []
        for span in context.prompt.spans:
            if span.end == span.start:
                continue
            known = context.samples.get(span.name)
            base = known.base if known else context.prefix_bases[span.name]
            offset = KVOffset.between(real.slice(span.start, span.end), base)
            steps.append(Step(span.start, span.end, Reuse(base, (Term(torch.tensor(1.0), offset, 0),))))
        return Plan(tuple(steps), "reused", "true offsets")


def walk(
    loaded: LoadedModel, flow: Pipeline, question: str = QUESTIONS[0], log: SampleLog | None = None
) -> Walk:
    """Send a question through a pipeline, densely; a given log goes on being filled."""
    engine = Engine(loaded)
    log = log if log is not None else SampleLog("test", 1 << 40)
    out = Walk(engine, log, RequestState(flow, engine, log))
    out.state.start({"user_question": question})
    for agent in flow.order:
        context = out.contexts[agent] = out.state.context(agent)
        prefill = out.dense[agent] = engine.execute(
            context.prompt, dense_plan(context.prompt, "test"), Clock()
        )
        record_offsets(context, prefill.cache, engine)
        decoding = Decoding(max_new_tokens=flow.agent(agent).max_new_tokens)
        [decoded] = engine.decode(
            [prefill], decoding, context=f"agent {agent}'s own context", keep_logits=True
        )
        out.answers[agent] = decoded
        out.state.answer(agent, decoded.ids, loaded.tokens.decode(decoded.ids), decoded.kv)
    return out


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Largest difference, relative to the largest wanted value where that is over 1."""
    return float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1.0))


def caches(a: KVCache, b: KVCache, tokens: int) -> float:
    """Largest error of keys and values over the first ``tokens`` places of two single-row caches."""
    return max(
        error(a.keys[:, 0, :, :tokens], b.keys[:, 0, :, :tokens]),
        error(a.values[:, 0, :, :tokens], b.values[:, 0, :, :tokens]),
    )


def assert_same(found: Prefill, wanted: Prefill, tokens: int) -> None:
    """Logits, keys and values agree to 1e-5."""
    assert error(found.logits, wanted.logits) <= TOLERANCE
    assert caches(found.cache, wanted.cache, tokens) <= TOLERANCE
