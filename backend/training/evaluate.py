"""Held-out evaluation of the embedded model: greedy, exact match, by task, kind, length and wording; and its
suitability, which is what reuse does to it."""

import random
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from backend.base.clock import Clock
from backend.base.statistics import wilson
from backend.engine.engine import Engine
from backend.methods.dense import dense_plan
from backend.model.load import LoadedModel, load_model
from backend.prompts.scoring import extract_answer, right
from backend.prompts.tasks import DRILLS, TASKS, Document, Style, make_document
from backend.records.events import RunDone
from backend.records.prompt import TokenizedPrompt
from backend.records.request import Decoding, MethodChoice
from backend.session.session import LabSession
from backend.studies.task_requests import MAX_ANSWER, as_request

EVALUATED = tuple(name for name in TASKS if name not in DRILLS)
JUDGES = ("judge", "glance")
METHODS = (MethodChoice("dense"), MethodChoice("naive"))
APART = (MethodChoice("masked"), MethodChoice("masked", {"scope": "strict"}, "strictly masked"))
WORDINGS = ("stock", "any", "unseen")


def held_out_documents(
    task: str, count: int, wording: str, seed: int, size: int | None = None
) -> list[Document]:
    """``count`` held-out documents of a task, its kinds in turn."""
    rng = random.Random(f"evaluate:{seed}:{task}:{wording}:{size}")
    kinds = TASKS[task][1]
    style = Style(wording)
    return [
        make_document(rng, task, kind=kinds[i % len(kinds)], held_out=True, style=style, size=size)
        for i in range(count)
    ]


def answers(model: LoadedModel, documents: list[Document], batch: int = 16) -> list[str]:
    """Greedy texts for documents, each prompt built of separately tokenised pieces."""
    engine, tokens, out = Engine(model), model.tokens, []
    for start in range(0, len(documents), batch):
        prefills = []
        for document in documents[start : start + batch]:
            ids = list(tokens.opening)
            for piece in document.pieces[:-1]:
                ids += tokens.encode(piece.text)
            ids += tokens.closing
            prompt = TokenizedPrompt(1, tuple(ids), ())
            prefills.append(engine.execute(prompt, dense_plan(prompt, "evaluation"), Clock()))
        out += [tokens.decode(d.ids) for d in engine.decode(prefills, Decoding(max_new_tokens=MAX_ANSWER))]
    return out


def marks(document: Document, text: str) -> dict[str, bool]:
    """What of a document's answer is right in a text.

    *answer*: what follows "The answer is" (a turn of the tool loop counts as a whole). *selection*: the
    judge's candidates, as a set; all that a judge at a glance says. *exact*: the whole text.
    """
    exact = text == document.target
    marked = {"exact": exact}
    if document.task == "tools":
        marked["answer"] = exact
    elif document.task != "glance":
        marked["answer"] = right(extract_answer(text, "text"), document.answer, "text")
    if document.best is not None:
        marked["selection"] = right(extract_answer(text, "selection"), document.selection, "selection")
    return marked


def share(good: int, count: int) -> dict[str, Any]:
    """A share with its 95% interval (Wilson)."""
    return {"share": round(good / count, 4), "n": count, "ci": [round(x, 3) for x in wilson(good, count)]}


def tally(documents: Iterable[Document], texts: Iterable[str]) -> dict[str, Any]:
    """Shares of every mark, over all documents and by kind and size."""
    good: Counter[tuple[str, str]] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    for document, text in zip(documents, texts, strict=True):
        for mark, value in marks(document, text).items():
            for group in ("all", f"kind {document.kind}", f"size {document.size}"):
                counts[group, mark] += 1
                good[group, mark] += value
    report: dict[str, Any] = {}
    for group, rows in groupby(sorted(counts), key=lambda key: key[0]):
        report[group] = {key[1]: share(good[key], counts[key]) for key in rows}
    return report


def evaluate(
    model: LoadedModel, count: int = 200, seed: int = 0, wordings: Iterable[str] = WORDINGS
) -> dict[str, Any]:
    """Shares of held-out documents answered right, by task and wording of the instructions.

    ``judge of 4`` fixes the number of candidates.
    """
    report: dict[str, Any] = {}
    for wording in wordings:
        for task in EVALUATED:
            documents = held_out_documents(task, count, wording, seed)
            report[f"{task}, {wording}"] = tally(documents, answers(model, documents))
        documents = held_out_documents("judge", count, wording, seed, size=4)
        report[f"judge of 4, {wording}"] = tally(documents, answers(model, documents))
    return report


# -- suitability


def suitability(
    model: LoadedModel, count: int = 100, seed: int = 0, tasks: Iterable[str] = EVALUATED
) -> dict[str, Any]:
    """What position-only reuse does to each task's held-out documents in the presets' wording.

    Every placeholder's text is read alone and put behind the prompt with its keys moved (*naive*); the
    judges are also read dense with the candidates hidden from each other: their texts (*masked*), or their
    texts and separators (*strictly masked*).
    """
    report: dict[str, Any] = {}
    for task in tasks:
        methods = METHODS + (APART if task in JUDGES else ())
        good = right_by_method(model, held_out_documents(task, count, "stock", seed), methods)
        report[task] = {choice.label: share(good[choice.label], count) for choice in methods}
    return report


def right_by_method(
    model: LoadedModel, documents: Iterable[Document], methods: tuple[MethodChoice, ...]
) -> Counter[str]:
    """How many documents each method answers right, by its label; of a judge's, how many selections."""
    good: Counter[str] = Counter()
    for document in documents:
        mark = "selection" if document.best is not None else "answer"
        # A session of its own: nothing seen before may make a text's encoding exact.
        for event in LabSession(model).run(as_request(document, methods)):
            if isinstance(event, RunDone):
                for outcome in event.record.outcomes:
                    good[outcome.method] += marks(document, outcome.text)[mark]
    return good


def progress(folder: Path, count: int = 24) -> dict[str, Any]:
    """A short look at an exported model during training: every share of its suitability."""
    model = load_model(str(folder), dtype="fp32")
    return {
        task: {name: row["share"] for name, row in rows.items()}
        for task, rows in suitability(model, count).items()
    }
