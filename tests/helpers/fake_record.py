"""A made-up run record, for tests of drawing code only; it is never shown to users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.records.model_info import Certificate, LayerCertificate, ModelInfo
from backend.records.pools import PoolState
from backend.records.prompt import Prompt, Span
from backend.records.proximity import Correlation, ProximityRecord, ProximityRequest
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import (
    COMPUTED,
    CORRECTED,
    REUSED,
    Fidelity,
    GateDecision,
    OffsetProbe,
    Outcome,
    RunRecord,
    SpanAction,
    Timing,
)
from backend.records.transfer import Transfer

ROLES = (
    (
        "Math Solver",
        "Solves the problem from the question alone.",
        "You are a math solver. Solve the problem step by step.",
    ),
    (
        "Inspector",
        "Checks the work of the agents before it and solves the problem again.",
        "You are an inspector. Check the work of the other agents and give your own solution.",
    ),
    (
        "Analyst",
        "Reads the hints of the agents before it.",
        "You are a mathematical analyst. Read the hints of the other agents and give your own solution.",
    ),
    ("Checker", "Goes through every step again.", "You are a checker. Go through every step again."),
)
QUESTION = "Tess has 35 coins. Tess gives away 34. Tess buys 37 more. How many coins does Tess have now?"
RIGHT = "35 - 34 = 1. 1 + 37 = 38. The answer is 38"
WRONG = "35 - 34 = 1. 1 + 37 = 36. The answer is 36"


def make_pipeline(agents: int = 3, extra: str = "") -> Pipeline:
    """Solvers that read one another, then a judge."""
    made = []
    for number in range(1, agents + 1):
        judge = number == agents and agents > 1
        name, role, words = (
            ("Judge", "Selects the best candidate.", "You are the judge. Compare the candidates.")
            if judge
            else ROLES[(number - 1) % 4]
        )
        kind = "Candidate {n}:" if judge else "Agent {n}, output is:"
        lines = [words + extra, "The task is: {user_question}"]
        for n in range(1, number):
            lines += [kind.replace("{n}", str(n)), f"{{agent_{n}_current}}"]
        made.append(Agent(number, name, role, "\n".join(lines)))
    return Pipeline(
        "fake",
        "Solvers and a judge",
        "A made-up pipeline.",
        tuple(made),
        judge=agents if agents > 1 else None,
        chat=False,
    )


def split(text: str) -> tuple[str, ...]:
    """A crude tokenizer: words with their leading space, single digits, single marks."""
    out: list[str] = []
    for char in text:
        if (out and char.isalpha() and out[-1][-1:].isalpha()) or (out and char.isalpha() and out[-1] == " "):
            out[-1] += char
        else:
            out.append(char)
    return tuple(out)


def make_prompt(pipeline: Pipeline, agent: int, values: dict[str, str], tokens: int) -> Prompt:
    """A prompt of at least about ``tokens`` tokens: the question is repeated until it is long enough."""
    texts: list[str] = ["<s>"]
    spans: list[Span] = []
    start, number = 0, 0
    for part in pipeline.template(agent).parts:
        if isinstance(part, str):
            texts += split(part)
            continue
        spans.append(Span("prefix", f"prefix {number}", start, len(texts)))
        number, begin = number + 1, len(texts)
        filled = split(values[part.name])
        if part.name == "user_question":
            filled = filled * max(1, round((tokens - 60) / len(filled)))
        texts += filled
        spans.append(Span("placeholder", part.name, begin, len(texts)))
        start = len(texts)
    texts.append("<a>")
    spans.append(Span("prefix", f"prefix {number}", start, len(texts)))
    ids = np.array([hash(t) % 600 for t in texts], dtype=np.int64)
    return Prompt(agent, ids, tuple(texts), tuple(spans))


def make_model(layers: int) -> ModelInfo:
    """Facts of a small model."""
    one = LayerCertificate("rotation", 32, 3e-6, 2e-6)
    certificate = Certificate(
        True, "Every layer's keys turn with their position.", (one,) * layers, 17, 3e-6, 1e-5
    )
    return ModelInfo(
        "fake-4m",
        "made up",
        "0" * 16,
        4_400_000,
        layers,
        8,
        4,
        32,
        622,
        1024,
        "cpu",
        "float32",
        2 * layers * 4 * 32 * 4,
        certificate,
    )


def make_record(
    layers: int = 6,
    methods: Sequence[str] = ("dense", "naive", "kvcomm"),
    agents: int = 3,
    tokens: int = 80,
    seed: int = 0,
    **changes: Any,
) -> RunRecord:
    """A complete and plausible record.

    The last agent's answer changes under *naive*; *kvcomm* keeps it. ``changes`` replace fields of the
    record; ``mode``, ``expected``, ``question`` and ``extra`` (template text) go to the request.
    """
    rng = np.random.default_rng(seed)
    mode, expected = changes.pop("mode", "pinned"), changes.pop("expected", "38")
    question = changes.pop("question", QUESTION)
    pipeline = make_pipeline(agents, changes.pop("extra", ""))
    values = {"user_question": question} | {f"agent_{n}_current": RIGHT for n in range(1, agents + 1)}
    prompts, outcomes, offsets = [], [], []
    for index, agent in enumerate(pipeline.order):
        prompt = make_prompt(pipeline, agent, values, tokens)
        prompts.append(prompt)
        offsets.append(_offsets(rng, layers, prompt, agent, index))
        for method in methods:
            outcomes.append(_outcome(rng, layers, pipeline, prompt, index, method, mode, expected))
    request = RunRequest(
        pipeline,
        {"user_question": question},
        tuple(MethodChoice(m) for m in methods),
        mode,
        Decoding(),
        True,
        expected,
    )
    pools = tuple(
        PoolState(
            "kvcomm",
            f,
            20,
            tuple(range(6)),
            (31, 28, 30, 25, 33, 29),
            (9, 4, 2, 1, 0, 3),
            tuple(f"Omar owns {n} books. Omar sells 3 of them." for n in range(6)),
            6 * 31 * 6144,
        )
        for f in ("user_question", "agent_1_current")
        if "kvcomm" in methods and (agents > 1 or f == "user_question")
    )
    record = RunRecord(
        "fake-0001",
        "2030-01-01T00:00:00Z",
        {"kv-reuse-lab": "0.0", "torch": "2.13.0"},
        make_model(layers),
        request,
        tuple(prompts),
        tuple(outcomes),
        tuple(offsets) if mode == "pinned" else (),
        pools,
        912.0,
    )
    return replace(record, **changes) if changes else record


def _rise(layers: int, low: float, high: float) -> np.ndarray:
    return low + (high - low) * np.sin(np.linspace(0, 0.85 * np.pi, layers))[:, None]


def _offsets(rng, layers: int, prompt: Prompt, agent: int, index: int) -> OffsetProbe:
    tokens = len(prompt.texts)
    noise = rng.uniform(0.6, 1.4, (layers, tokens))
    key, value = _rise(layers, 0, 0.45) * noise, _rise(layers, 0, 0.6) * noise[:, ::-1]
    first = prompt.spans[0].end
    for array in (key, value):
        array[0], array[:, :first] = 0, 0
    for n, span in enumerate(prompt.spans):
        key[:, span.start : span.end] *= 1 / (1 + 0.25 * n)
    unaligned = np.where(key > 0, 0.9 + key, key)
    unaligned[0, first:] = 0.95
    norm = np.full((layers, tokens), 12.0)
    parts = [key * norm, value * norm, unaligned * norm, norm, norm]
    return OffsetProbe(agent, index, *[p.astype(np.float32) for p in parts])


def _outcome(rng, layers, pipeline, prompt, index, method, mode, expected) -> Outcome:
    tokens, agent, dense = len(prompt.texts), prompt.agent, method == "dense"
    last = agent == pipeline.order[-1]
    changed = method == "naive" and last
    text = WRONG if changed else RIGHT
    texts = split(text)
    codes = np.full(tokens, COMPUTED, dtype=np.uint8)
    spans = []
    for span in prompt.spans:
        action = COMPUTED
        if not dense:
            action = CORRECTED if method != "naive" and span.name != "prefix 0" else REUSED
        codes[span.start : span.end] = action
        anchors, weights = ((3, 7), (0.7, 0.3)) if action == CORRECTED else ((), ())
        source = ("forward pass", "encoded alone", "anchors 3, 7")[action]
        spans.append(
            SpanAction(
                span.start,
                span.end,
                action,
                source,
                "copied and moved" if action else "computed",
                action != CORRECTED,
                0 if action == COMPUTED else span.start,
                anchors,
                weights,
            )
        )
    codes[-1] = COMPUTED
    gate: tuple[GateDecision, ...] = ()
    state = "dense" if dense else "reused"
    reason = "The reference." if dense else "Every shared text was copied."
    if method == "kvcomm":
        gate = tuple(_gate(s, n) for n, s in enumerate(prompt.spans) if s.kind == "placeholder")
        if not all(g.shareable for g in gate):
            codes[:], state, reason = (
                COMPUTED,
                "fallback",
                "One placeholder is new to the pool, so the prompt was computed.",
            )
    parts = (
        {"prefill": 8 + 0.35 * tokens, "first_token": 6.2}
        if state in ("dense", "fallback")
        else {
            "base": 5.5 if method == "naive" else 5.6,
            "gate": 0.0 if method == "naive" else 0.9,
            "match": 0.0 if method == "naive" else 2.4,
            "correct": 0.0 if method == "naive" else 4.1,
            "rotate": 1.3,
            "prefill": 0.0,
            "first_token": 6.2,
        }
    )
    fidelity = key = value = None
    if mode == "pinned":
        fidelity = _fidelity(rng, method, texts, changed)
        size = {"dense": 0.0, "naive": 1.0}.get(method, 0.45) * (state != "fallback" or dense)
        bump = 1 + 2.5 * (rng.random(tokens) > 0.93)
        key = (
            size * _rise(layers, 0, 0.4) * rng.uniform(0.4, 1.2, (layers, tokens)) * bump * (codes > 0)
        ).astype(np.float32)
        value = (
            size * _rise(layers, 0, 0.5) * rng.uniform(0.4, 1.2, (layers, tokens)) * bump * (codes > 0)
        ).astype(np.float32)
    answer = text.rsplit(" ", 1)[-1]
    return Outcome(
        agent,
        method,
        index,
        state,
        reason,
        text,
        np.array([hash(t) % 600 for t in texts], dtype=np.int64),
        texts,
        True,
        answer,
        None if expected is None else answer == expected,
        np.repeat(codes[None], layers, axis=0),
        tuple(spans),
        gate,
        Timing({k: v for k, v in parts.items() if v}, sum(parts.values()), 210.0, tokens if dense else 1),
        fidelity,
        key,
        value,
        transfers=tuple(
            _transfer(rng, layers, span, 0.4 if method == "kvcomm" else 1.0)
            for span in spans
            if fidelity and span.action in (REUSED, CORRECTED)
        ),
    )


def _transfer(rng: np.random.Generator, layers: int, span: SpanAction, left: float) -> Transfer:
    """Of 4 heads and 16 channels; ``left`` is the share of the error that the method leaves."""
    keys, values = (rng.uniform(0.2, 0.9, (layers, 4)).astype(np.float32) for _ in range(2))
    layer, head = divmod(int(keys.argmax()), 4)
    tokens = min(span.end - span.start, 12)
    first = span.start - span.moved_by
    return Transfer(
        span.start, span.end, first, span.moved_by, keys, values, left * keys, left * values, layer, head,
        (span.moved_by / 10.0 ** np.linspace(0, 4, 8)).astype(np.float32),
        rng.normal(size=(4, tokens, 16)).astype(np.float16),
        rng.normal(size=(3, tokens, 16)).astype(np.float16),
    )  # fmt: skip


def _gate(span: Span, number: int) -> GateDecision:
    share = span.name != "agent_3_current"
    entropy = 0.21 + 0.04 * number if share else 0.9
    return GateDecision(
        span.name,
        share,
        "entropy",
        f"Entropy {entropy:.2f} is {'within' if share else 'over'} 0.42 (gamma 0.3 x log 4).",
        span.end - span.start,
        6,
        4,
        entropy,
        0.42,
        (3, 7, 9, 11),
        (0.62, 0.21, 0.12, 0.05),
        (1.2, 2.3, 2.9, 3.7),
        (
            "Omar has 31 coins. Omar gives away 12.",
            "Lena owns 46 shells. Lena sells 6.",
            "Hugo has 9 pens.",
            "At first Iris has 22 cards.",
        ),
    )


def _fidelity(rng, method: str, texts: Sequence[str], changed: bool) -> Fidelity:
    if method == "dense":
        return Fidelity(0.0, np.zeros(len(texts), dtype=np.float32), None, "", "", None, 1e-5, 0.0)
    size = 0.02 if method == "naive" else 0.0004
    kl = (size * rng.lognormal(0, 1.4, len(texts))).astype(np.float32)
    first = next((i for i, (a, b) in enumerate(zip(split(RIGHT), split(WRONG), strict=True)) if a != b), 0)
    if changed:
        kl[first] = 1.9
        likely = ("8", "6", "<b>"), (0.9, 0.05, 0.01), (0.1, 0.8, 0.02)
        return Fidelity(float(kl[0]), kl, first, "8", "6", 4.2, 1e-5, 3.1, *likely)
    return Fidelity(float(kl[0]), kl, None, "", "", None, 1e-5, 0.12)


def make_proximity(
    pairs: int = 12,
    layers: int = 4,
    request: ProximityRequest | None = None,
    texts: Sequence[str] = (" the", "\n", "\ufffd"),
) -> ProximityRecord:
    """A made-up measurement; layer 0's offsets are zero, as they are on a real model."""
    rng = np.random.default_rng(pairs)
    embedding = np.sort(rng.random(pairs)).astype(np.float32)

    def distances(first: float = 1.0) -> Any:
        found = (embedding + rng.random((layers, pairs))).astype(np.float32)
        found[0] *= first
        return found

    def correlation(first: float = 0.9) -> Correlation:
        rho = np.linspace(first, 0.2, layers)
        return Correlation(rho, rho - 0.1, np.minimum(rho + 0.1, 1.0))

    keys = distances()
    return ProximityRecord(
        request=request or ProximityRequest("One prefix ", "Another prefix ", 40, pairs),
        model=make_model(layers),
        sampled=40,
        tokens=np.arange(2 * pairs).reshape(pairs, 2),
        texts=tuple((texts[i % len(texts)], texts[(i + 1) % len(texts)]) for i in range(pairs)),
        embedding=embedding,
        keys=keys,
        values=distances(),
        key_offsets=distances(0.0),
        value_offsets=distances(0.0),
        bound=keys * 2,
        correlations={
            "keys": correlation(),
            "values": correlation(),
            "key_offsets": correlation(np.nan),
            "value_offsets": correlation(np.nan),
        },
        wall_ms=12.0,
    )
