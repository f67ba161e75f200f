"""Held-out evaluation of the embedded model: greedy, exact match, by task and length."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

from backend.answers import extract_number, same_answer
from backend.batch import wilson
from backend.embedded.tasks import Document, TaskName, make_document
from backend.engine import Engine
from backend.methods.base import Clock, Dense, Plan, Step
from backend.model import LoadedModel
from backend.records import Decoding
from backend.tokens import TokenizedPrompt

BEST = re.compile(r"The best candidate is (\d+)")


def answers(model: LoadedModel, documents: list[Document], batch: int = 16) -> list[str]:
    """Greedy texts for documents, each prompt built of separately tokenised pieces."""
    engine, tokens, out = Engine(model), model.tokens, []
    for at in range(0, len(documents), batch):
        prefills = []
        for document in documents[at : at + batch]:
            ids = list(tokens.opening)
            for piece in document.pieces[:-1]:
                ids += tokens.encode(piece.text)
            ids += tokens.closing
            plan = Plan((Step(0, len(ids), Dense("evaluation")),), "dense", "")
            prefills.append(engine.execute(TokenizedPrompt(1, tuple(ids), ()), plan, Clock()))
        out += [tokens.decode(d.ids) for d in engine.decode(prefills, Decoding(max_new_tokens=160))]
    return out


def evaluate(model: LoadedModel, count: int = 200, seed: int = 0) -> dict[str, Any]:
    """Shares of held-out documents answered right, with 95% intervals.

    ``selection`` is the judge's chosen candidate; ``exact`` the whole text.
    """
    report: dict[str, Any] = {"weights": model.info.weights_hash, "count_per_task": count, "seed": seed}
    tasks: tuple[TaskName, ...] = ("solver", "worker", "judge")
    for task in tasks:
        for wording, canonical in (("stock wording", True), ("any wording", False)):
            rng = random.Random(f"evaluate:{seed}:{task}:{canonical}")
            documents = [make_document(rng, task, held_out=True, canonical=canonical) for _ in range(count)]
            texts = answers(model, documents)
            scores: Counter[str] = Counter()
            seen: Counter[str] = Counter()
            for document, text in zip(documents, texts, strict=True):
                marks = {
                    "answer": same_answer(extract_number(text), str(document.answer)),
                    "exact": text == document.target,
                }
                if document.best is not None:
                    found = BEST.search(text)
                    marks["selection"] = found is not None and int(found[1]) == document.best
                marks[f"answer, {document.steps} steps"] = marks["answer"]
                for name, good in marks.items():
                    seen[name] += 1
                    scores[name] += bool(good)
            report[f"{task}, {wording}"] = {
                name: {
                    "share": round(scores[name] / seen[name], 4),
                    "n": seen[name],
                    "ci": [round(x, 3) for x in wilson(scores[name], seen[name])],
                }
                for name in sorted(seen)
            }
    return report
