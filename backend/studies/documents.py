"""Two-hop questions over documents that are encoded apart (KVLink, Tables 1, 3 and Figure 6).

Questions of the embedded model's task ``documents``, held out, over 5 to 10 documents; the two facts that
answer one stand in different documents. A method with weights of its own is compared with dense under the
same weights, so each set of weights is a model of its own (``BASE+LINKS``) with a dense arm. The prompts are
identical; each arm decodes its own answer greedily.

One row per question and model goes to an append-only file; a study that is started again skips what is there.
Times leave out what can be done before the question is known, encoding documents and template alone.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backend.base.errors import OptionError
from backend.base.ranges import check_whole
from backend.base.row_file import RowFile, key_of
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.methods.base import Arrived
from backend.methods.kvlink import RATES
from backend.methods.registry import make_options, method_class, option_fields
from backend.model.adapters import adapt
from backend.model.link_tokens import Links
from backend.model.load import LoadedModel
from backend.prompts.scoring import extract_answer, right
from backend.prompts.tasks import Document, Style, make_document
from backend.records.documents import (
    DOCUMENT_LIMITS,
    DocumentArm,
    DocumentRequest,
    DocumentSpeed,
    DocumentStudy,
)
from backend.records.events import Progress
from backend.records.request import Decoding
from backend.session.prompt_run import read_prompt
from backend.session.request_state import RequestState
from backend.session.study import study
from backend.studies.task_requests import as_request

SIZES = (5, 6, 7, 8, 9, 10)
MAX_ANSWER = 64
BATCH = 8  # questions whose answers are decoded together
SMALL_BATCH = 2  # where someone waits, and may stop


@dataclass(frozen=True)
class Question:
    """One question: its document, as generated, and where its facts stand (from 1)."""

    document: Document
    first_position: int
    position: int


def question(seed: int, index: int) -> Question:
    """The question of a number: the same however many are asked."""
    rng = random.Random(f"documents:{seed}:{index}")
    size = SIZES[index % len(SIZES)]
    style = Style("stock")
    document = make_document(rng, "documents", kind="two-hop", held_out=True, style=style, size=size)
    texts = [p.text for p in document.pieces if (p.name or "").startswith("document_")]
    hops = document.target.rpartition(" The answer is ")[0].split(". ")
    first, last = (next(i for i, text in enumerate(texts, 1) if hop.rstrip(".") in text) for hop in hops)
    return Question(document, first, last)


def base_arms(weights: str) -> tuple[DocumentArm, ...]:
    """What is compared on the base's own weights: dense, PromptCache with its keys moved, at its own
    positions, and with the template's text copied as well, and CacheBlend under both masks."""
    arms = [
        DocumentArm("Dense", "dense", {}, weights),
        DocumentArm("PromptCache", "promptcache", {"positions": "prompt"}, weights),
        DocumentArm("PromptCache, own positions", "promptcache", {"positions": "schema"}, weights),
        DocumentArm(
            "PromptCache, template too",
            "promptcache",
            {"positions": "prompt", "modules": "texts and template"},
            weights,
        ),
    ]
    [masks] = [f.choices for f in option_fields(method_class("cacheblend")) if f.name == "mask"]
    arms += [DocumentArm(f"CacheBlend, {mask} mask", "cacheblend", {"mask": mask}, weights) for mask in masks]
    return tuple(arms)


def adapted_arms(weights: str, links: Links) -> tuple[DocumentArm, ...]:
    """Dense, and what the weights were trained for; for KVLink also with its link tokens left out."""
    packet = links.compression == "packet"
    block = not links.tokens and not len(links.edges)
    label = str(links.facts.get("label") or ("Block-Attention" if block else f"KVLink{links.tokens}"))
    if links.facts.get("rank") == 0:
        label += ", links only" * (not packet)
    if links.rate:
        label += f", {links.compression} {links.rate:.0%}"
    options: dict[str, str] = {}
    if links.rate:
        rates = {value: name for name, value in RATES.items()}
        if links.compression == "drop" and links.rate not in rates:
            raise OptionError(
                f"The weights {weights} were trained with {links.rate:.0%} of the tokens dropped; KVLink "
                f"drops {' or '.join(RATES)}. Train them at one of these.",
                field="documents.links",
            )
        options = {"compression": links.compression, "rate": rates.get(links.rate, "half")}
    method = "kvpacket" if packet else "block_attention" if block and not options else "kvlink"
    arms = [
        DocumentArm(f"Dense on {label}’s weights", "dense", {}, weights, True),
        DocumentArm(label, method, options, weights, True, links.compression, links.rate),
    ]
    if links.tokens and links.compression == "none":
        arms.append(DocumentArm(f"{label}, left out", "kvlink", {"links": "0"}, weights, True))
    return tuple(arms)


def arms_of(model: LoadedModel) -> tuple[DocumentArm, ...]:
    """What is compared on a model."""
    name = model.info.name
    return base_arms(name) if model.links is None else adapted_arms(name, model.links)


def row_key(model: LoadedModel, arms: Sequence[DocumentArm], seed: int, index: int) -> str:
    """Identity of a row: the weights, what was compared on them, and the question."""
    compared = [[arm.label, arm.method, dict(arm.options)] for arm in arms]
    return key_of(model.info.weights_hash, compared, seed, index, MAX_ANSWER)


def ask(models: Sequence[LoadedModel], questions: int, seed: int, path: Path) -> Iterator[Progress]:
    """Ask what is missing in ``path``, appending a row per question and model.

    Raises:
        OptionError: a number is out of range.
        RecordError: the file is damaged.
    """
    for name, value in (("questions", questions), ("seed", seed)):
        check_whole(value, *DOCUMENT_LIMITS[name], f"documents.{name}")
    file = RowFile(path)
    for rows, event in ask_missing(models, questions, seed, file.resume()):
        file.append(*rows)
        yield event


def ask_missing(
    models: Sequence[LoadedModel],
    questions: int,
    seed: int,
    row_keys: Collection[str] = (),
    batch: int = BATCH,
) -> Iterator[tuple[list[dict[str, Any]], Progress]]:
    """The rows that are missing from ``row_keys``, ``batch`` questions of a model at a time."""
    total, finished = len(models) * questions, 0
    for model in models:
        arms = arms_of(model)
        keys = [row_key(model, arms, seed, index) for index in range(questions)]
        missing = [index for index in range(questions) if keys[index] not in row_keys]
        finished += questions - len(missing)
        for at in range(0, len(missing), batch):
            part = missing[at : at + batch]
            rows = [
                {"key": keys[index], **row}
                for index, row in zip(part, answer_questions(model, arms, seed, part), strict=True)
            ]
            finished += len(part)
            yield (
                rows,
                Progress(f"{model.info.name}: question {part[-1] + 1} of {questions}", finished, total),
            )


@study(DocumentRequest)
def document_study(model: LoadedModel, request: DocumentRequest) -> Iterator[Progress | DocumentStudy]:
    """Ask a few questions on the model and on weights trained for it; ends with the record.

    Raises:
        ModelError: no such weights belong to the model.
    """
    models = [model, *(adapt(model, name) for name in request.weights)]
    rows: list[dict[str, Any]] = []
    for new_rows, event in ask_missing(models, request.questions, request.seed, batch=SMALL_BATCH):
        rows += new_rows
        yield event
    yield record_of_rows(models, request.questions, request.seed, rows)


def answer_questions(
    model: LoadedModel, arms: Sequence[DocumentArm], seed: int, indices: Sequence[int]
) -> list[dict[str, Any]]:
    """The rows of some questions on one model."""
    engine = Engine(model)
    prefills: list[Prefill] = []
    rows: list[dict[str, Any]] = []
    for index in indices:
        question_asked = question(seed, index)
        context, log = lay_out(engine, question_asked.document)
        outcomes = []
        for arm in arms:
            prefill, outcome = prefill_arm(engine, context, log, arm)
            prefills.append(prefill)
            outcomes.append(outcome)
        rows.append(
            {
                "weights": model.info.name,
                "weights_hash": model.info.weights_hash,
                "seed": seed,
                "index": index,
                "documents": question_asked.document.size,
                "first_position": question_asked.first_position,
                "position": question_asked.position,
                "prompt_tokens": len(context.prompt.ids),
                "boundary_tokens": model.tokens.boundary_tokens(context.prompt.ids),
                "expected": question_asked.document.answer,
                "outcomes": outcomes,
            }
        )
    decoded = iter(engine.decode(prefills, Decoding(max_new_tokens=MAX_ANSWER)))
    for row in rows:
        for outcome in row["outcomes"]:
            outcome["text"] = text = model.tokens.decode(next(decoded).ids)
            outcome["answer"] = answer = extract_answer(text, "text")
            outcome["correct"] = right(answer, row["expected"], "text")
    return rows


def lay_out(engine: Engine, document: Document) -> tuple[PromptInContext, SampleLog]:
    """A question's prompt with a log of its own: nothing seen before may make a text's encoding exact."""
    request = as_request(document, (), own_names=True)
    log = SampleLog("study", 1 << 40)
    state = RequestState(request.pipeline, engine, log)
    state.start(dict(request.values))
    return state.context(request.pipeline.agents[0].id), log


def prefill_arm(
    engine: Engine, context: PromptInContext, log: SampleLog, arm: DocumentArm
) -> tuple[Prefill, dict[str, Any]]:
    """One arm's prefill of a prompt, and its times."""
    method = method_class(arm.method)(make_options(arm.method, arm.options))
    for sample in context.samples.values():
        method.on_event(Arrived(sample), log)
    clock = engine.clock()
    own, prefill = read_prompt(engine, context, method, log, clock)
    offline = clock.parts.pop("base", 0.0)
    return prefill, {
        "arm": arm.label,
        "state": prefill.plan.state,
        "ttft_ms": round(sum(clock.parts.values()), 3),
        "parts_ms": {name: round(ms, 3) for name, ms in clock.parts.items()},
        "encode_ms": round(offline, 3),
        "forwarded_tokens": prefill.forwarded_tokens,
        "read_tokens": len(own.prompt.ids),
    }


def record_of_rows(
    models: Sequence[LoadedModel],
    questions: int,
    seed: int,
    rows: Sequence[Mapping[str, Any]],
    speed: DocumentSpeed | None = None,
) -> DocumentStudy:
    """The record of a study, from its rows; what was not asked yet is marked so."""
    arms: list[DocumentArm] = []
    keys: dict[str, int] = {}
    for model in models:
        model_arms = arms_of(model)
        arms += model_arms
        keys |= {row_key(model, model_arms, seed, index): index for index in range(questions)}
    labels = [arm.label for arm in arms]
    duplicates = sorted({label for label in labels if labels.count(label) > 1})
    if duplicates:
        raise OptionError(
            f"Two sets of weights give an arm of the name {duplicates[0]!r}. Name each kind of weights once.",
            field="documents.links",
        )
    shape = (len(arms), questions)
    columns = {
        name: np.zeros(questions, dtype=np.int64)
        for name in ("documents", "position", "first_position", "prompt_tokens", "boundary_tokens")
    }
    correct = np.full(shape, -1, dtype=np.int8)
    times, forwarded = np.full(shape, np.nan), np.full(shape, -1, dtype=np.int64)
    for row in rows:
        index = keys.get(row["key"])
        if index is None:
            continue
        for name, values in columns.items():
            values[index] = row.get(name, 0)
        for outcome in row["outcomes"]:
            at = labels.index(outcome["arm"]), index
            correct[at] = outcome["correct"]
            times[at], forwarded[at] = outcome["ttft_ms"], outcome["forwarded_tokens"]
    return DocumentStudy(
        models[0].info, seed, tuple(arms), columns["documents"], columns["position"],
        columns["first_position"], columns["prompt_tokens"], correct, times, forwarded, speed,
        columns["boundary_tokens"],
    )  # fmt: skip
