"""``kvlab bench ttft``: time to first token of an agent that reads what others have read and written.

Both sides in one run, interleaved: *dense* is one plain prefill of the whole prompt with the model's
own attention (SDPA), logits for the last token only, and no mask where none is needed; *reuse* is
KVCOMM's whole path after the last upstream token: gate of the newest sample, matching, correction with
all eligible anchors, rotation, and the last prompt token's forward. Medians of repeats after a warm-up.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from backend.engine import Engine, Prefill
from backend.errors import OptionError
from backend.flow import see_offsets
from backend.kv import KVCache
from backend.methods.base import Arrived, Blend, Clock
from backend.methods.kvcomm import KVCommMethod, KVCommOptions
from backend.model import LoadedModel, load_model, wrap_model
from backend.records import Span
from backend.session import versions
from backend.store import Observation, ObservationLog, PromptInContext
from backend.tokens import TokenizedPrompt

QUESTION_SHARE, ANSWER_SHARE = 0.4, 0.35  # of the prompt's tokens; the rest is template text


class NoText:
    """A stand-in tokenizer for random-weight models: the benchmark works on ids alone."""

    bos_token_id = 1
    eos_token_id = 2
    chat_template = None


def random_model(shape: str, device: str | None, dtype: str | None = None) -> LoadedModel:
    """A randomly initialised model of a known shape: its times are those of the real one."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from backend.model import DTYPES, pick_device

    shapes = {
        "smollm2-135m": {
            "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
            "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192,
        },
        "llama-8b": {
            "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 16384,
        },
    }  # fmt: skip
    if shape not in shapes:
        raise OptionError(
            f"The shape {shape!r} is unknown; there are: {', '.join(shapes)}.", field="bench.shape"
        )
    where = pick_device(device)
    torch.manual_seed(0)
    kind = DTYPES[dtype or ("bf16" if where == "cuda" else "fp32")]
    config = LlamaConfig(**shapes[shape], tie_word_embeddings=shape != "llama-8b", attn_implementation="sdpa")
    with torch.device(where):
        module = LlamaForCausalLM(config).to(kind).eval()
    return wrap_model(module, NoText(), name=f"random {shape}")


def bench_ttft(
    shape: str, tokens: int, anchors: int, repeats: int, device: str | None = None
) -> dict[str, Any]:
    """Measure; see the module's docstring.

    Args:
        shape: ``embedded``, ``smollm2-135m``, ``llama-8b`` (random weights) or a model's name or folder.
        tokens: prompt length of the measured agent: its first prefix, a question, a prefix, an upstream
            answer, a last prefix.
        anchors: pool size V; every pool is full and all its anchors are eligible.
        repeats: timed repetitions of each side.
    """
    if not 32 <= tokens <= 8000 or not 1 <= anchors <= 64 or not 1 <= repeats <= 1000:
        raise OptionError(
            f"tokens {tokens}, anchors {anchors}, repeats {repeats}: allowed are 32 to 8000, 1 to 64 "
            "and 1 to 1000.",
            field="bench",
        )
    known = shape in ("smollm2-135m", "llama-8b")
    model = random_model(shape, device) if known else load_model(shape, device=device)
    engine = Engine(model)
    generator = torch.Generator().manual_seed(1)

    def draw(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(5, model.info.vocabulary - 1, (count,), generator=generator).tolist())

    question, answer = int(tokens * QUESTION_SHARE), int(tokens * ANSWER_SHARE)
    rest = tokens - question - answer
    sizes = {"prefix 0": rest // 2, "prefix 1": rest // 4, "prefix 2": rest - rest // 2 - rest // 4}
    fixed = {name: draw(size) for name, size in sizes.items()}
    log = ObservationLog("bench", 1 << 40)
    method = KVCommMethod(KVCommOptions(capacity=anchors, gamma=1.0))
    bases = {name: engine.encode(ids, (), "alone") for name, ids in fixed.items()}

    def request() -> tuple[PromptInContext, list[Observation]]:
        parts = [
            ("prefix 0", fixed["prefix 0"]),
            ("user_question", draw(question)),
            ("prefix 1", fixed["prefix 1"]),
            ("agent_1_current", draw(answer)),
            ("prefix 2", fixed["prefix 2"]),
        ]
        spans: list[Span] = []
        ids: list[int] = []
        samples: dict[str, Observation] = {}
        for name, part in parts:
            spans.append(
                Span(
                    "prefix" if name.startswith("prefix") else "placeholder",
                    name,
                    len(ids),
                    len(ids) + len(part),
                )
            )
            ids += part
            if not name.startswith("prefix"):
                samples[name] = log.add(name, part, "", engine.encode(part, (1,), "alone"), model.embed(part))
        return PromptInContext(TokenizedPrompt(2, tuple(ids), tuple(spans)), samples, bases), list(
            samples.values()
        )

    for _ in range(anchors):
        context, samples = request()
        cache, _ = engine.prefill(context.prompt.ids)
        see_offsets(context, cache, engine)
        for sample in samples:
            pool = method.pool(sample.placeholder)
            pool.insert(sample)
    context, samples = request()

    def dense() -> Prefill | tuple[KVCache, torch.Tensor]:
        return engine.prefill(context.prompt.ids)

    def reuse(clock: Clock) -> Prefill:
        with clock.part("gate"):
            method.observe(Arrived(samples[-1]), log)
        plan = method.plan(context, log, clock)
        if not all(isinstance(step.action, Blend) for step in plan.steps):
            raise OptionError(
                f"The gate refused reuse, so there is nothing to time: {plan.reason}", field="bench"
            )
        return engine.execute(context.prompt, plan, clock)

    synchronise: Callable[[], object] = (
        torch.cuda.synchronize if model.device.type == "cuda" else (lambda: None)
    )
    for sample in samples:
        method.observe(Arrived(sample), log)
    times: dict[str, list[float]] = {"dense": [], "reuse": []}
    parts: dict[str, list[float]] = {}
    for turn in range(repeats + 2):
        for side in ("dense", "reuse"):
            clock = engine.clock()
            synchronise()
            began = time.perf_counter()
            dense() if side == "dense" else reuse(clock)
            synchronise()
            if turn >= 2:
                times[side].append((time.perf_counter() - began) * 1e3)
                for name, value in clock.parts.items():
                    parts.setdefault(name, []).append(value)
    dense_ms, reuse_ms = statistics.median(times["dense"]), statistics.median(times["reuse"])
    copied = sum(o.tokens for o in samples) + sizes["prefix 1"] + sizes["prefix 2"]
    return {
        "bench": "ttft",
        "shape": shape,
        "tokens": tokens,
        "anchors": anchors,
        "repeats": repeats,
        "dense_ms": round(dense_ms, 2),
        "reuse_ms": round(reuse_ms, 2),
        "ratio": round(dense_ms / reuse_ms, 2),
        "reuse_parts_ms": {name: round(statistics.median(v), 3) for name, v in parts.items()},
        "spread": {side: [round(min(v), 2), round(max(v), 2)] for side, v in times.items()},
        "anchor_bytes_read": anchors * copied * model.info.kv_bytes_per_token,
        "hardware": torch.cuda.get_device_name()
        if model.device.type == "cuda"
        else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "dtype": model.info.dtype,
        "versions": versions(),
    }
