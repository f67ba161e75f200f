"""How the embedded model is evaluated: held-out documents, marks, tallies, suitability."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from task_truths import (
    problem_text,
)

from backend.model.load import LoadedModel
from backend.prompts.tasks import (
    TASKS,
    Document,
    Style,
    judging,
    make_document,
)
from backend.records.events import RunDone
from backend.records.prompt import slots
from backend.records.request import MethodChoice
from backend.session.session import LabSession
from backend.studies import task_requests
from backend.studies.task_requests import as_request
from backend.training import evaluate as evaluation
from backend.training.evaluate import (
    EVALUATED,
    WORDINGS,
    answers,
    evaluate,
    held_out_documents,
    marks,
    suitability,
    tally,
)

# -- evaluation


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> int:
    """A random model does not stop by itself."""
    for module in (evaluation, task_requests):
        monkeypatch.setattr(module, "MAX_ANSWER", 6)
    return 6


def drawn(count: int = 6, wording: str = "stock") -> list[Document]:
    return [d for task in EVALUATED for d in held_out_documents(task, count, wording, 0)]


def test_held_out_documents() -> None:
    for task in EVALUATED:
        documents = held_out_documents(task, 12, "stock", 0)
        kinds = TASKS[task][1]
        assert [d.kind for d in documents] == [kinds[i % len(kinds)] for i in range(12)]
        assert documents == held_out_documents(task, 12, "stock", 0)
        assert documents[:5] == held_out_documents(task, 5, "stock", 0)
        assert documents != held_out_documents(task, 12, "stock", 1)
        for text in map(problem_text, documents):
            assert hashlib.sha256(text.encode()).digest()[0] % 32 == 0
    assert {d.size for d in held_out_documents("judge", 12, "any", 0, size=4)} == {4}


@pytest.mark.slow
def test_evaluation_reads_what_the_lab_reads(tiny_model: LoadedModel, brief: int) -> None:
    documents = [held_out_documents(task, 1, "stock", 0)[0] for task in EVALUATED]
    texts = answers(tiny_model, documents, batch=2)
    assert texts == answers(tiny_model, documents, batch=5), "batching must not show"
    for document, text in zip(documents, texts, strict=True):
        *_, done = LabSession(tiny_model).run(as_request(document, (MethodChoice("dense"),)))
        assert isinstance(done, RunDone)
        [outcome] = done.record.outcomes
        assert outcome.text == text
        tokens = tiny_model.tokens
        ids = [i for piece in document.pieces[:-1] for i in tokens.encode(piece.text)]
        assert done.record.prompts[0].token_ids.tolist() == [*tokens.opening, *ids, *tokens.closing]


def test_a_document_as_a_request() -> None:
    for document in drawn():
        asked = as_request(document, (MethodChoice("dense"),))
        assert asked.pipeline.check_values(asked.values) == asked.values
        assert list(asked.values.values()) == [p.text for p in document.pieces if p.name]
        judge = document.task in ("judge", "glance")
        assert asked.pipeline.scoring == ("selection" if judge else "text")
        assert asked.expected == (document.selection if judge else document.answer)


def judge_of(best: tuple[int, ...]) -> Document:
    """A judge's document with a selection that was wished for."""
    rng = random.Random(1)
    while True:
        document = make_document(rng, "judge", kind="all", size=4)
        if document.best == best:
            return document


def test_marks_by_hand() -> None:
    judge = judge_of((1, 3))
    answer = judge.answer
    every = {"exact": True, "answer": True, "selection": True}
    assert marks(judge, judge.target) == every
    said = "The best candidates are {}. The answer is {}"
    loose = every | {"exact": False}
    assert marks(judge, said.format("3, 1", answer)) == loose, "a selection is a set"
    assert marks(judge, said.format("1 and 2", answer)) == loose | {"selection": False}
    assert marks(judge, said.format("1", answer)) == loose | {"selection": False}
    assert marks(judge, said.format("1 and 3", answer + "0")) == loose | {"answer": False}
    assert marks(judge, "") == dict.fromkeys(every, False)
    none = judge_of(())
    assert marks(none, f"The best candidate is 0. The answer is {none.answer}")["selection"]
    reader = held_out_documents("documents", 1, "stock", 0)[0]
    assert marks(reader, f"The answer is {reader.answer.upper()}.") == {"exact": False, "answer": True}
    assert marks(reader, f"The answer is not {reader.answer}") == {"exact": False, "answer": False}
    turn = make_document(random.Random(0), "tools", kind="one item", size=2)
    assert marks(turn, turn.target) == {"exact": True, "answer": True}
    assert marks(turn, f"{turn.target} The answer is {turn.answer}") == {"exact": False, "answer": False}


def test_tally_by_hand() -> None:
    rng = random.Random(0)
    one, two = (make_document(rng, "program", kind=kind, size=2) for kind in ("straight", "loop"))
    report = tally([one, two], [one.target, f"The answer is {two.answer}"])
    whole = {"share": 1.0, "n": 2, "ci": [0.342, 1.0]}
    half = {"share": 0.5, "n": 2, "ci": [0.095, 0.905]}
    assert report["all"] == report["size 2"] == {"answer": whole, "exact": half}
    assert report["kind straight"]["exact"] == report["kind straight"]["answer"]
    assert report["kind loop"]["exact"] == {"share": 0.0, "n": 1, "ci": [0.0, 0.793]}
    assert set(report) == {"all", "size 2", "kind straight", "kind loop"}
    with pytest.raises(ValueError, match="zip"):
        tally([one, two], [one.target])


@pytest.mark.parametrize(
    ("spoil", "lost"),
    [
        (lambda text: text, set()),
        (lambda text: text + ".", {"exact"}),
        (lambda text: re.sub(r"(The best candidates? (?:is|are)) [^.]*", r"\1 9", text), {"selection"}),
        (lambda text: text.replace("The answer is", "The answer is not"), {"exact", "answer"}),
        (lambda text: "", {"exact", "answer", "selection"}),
    ],
    ids=["perfect", "one sign more", "wrong candidate", "denied", "silent"],
)
@pytest.mark.slow
def test_evaluation_scores_by_hand(spoil: Any, lost: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "answers", lambda _, documents: [spoil(d.target) for d in documents])
    report = evaluate(None, count=12)  # type: ignore[arg-type]
    assert set(report) == {f"{task}, {w}" for task in (*EVALUATED, "judge of 4") for w in WORDINGS}
    for name, groups in report.items():
        task = name.partition(",")[0]
        judge = task.startswith("judge")
        kinds = [rows for group, rows in groups.items() if group.startswith("kind ")]
        assert len(kinds) == len(TASKS[task.split()[0]][1])
        assert {rows["exact"]["n"] for rows in kinds} == {12 // len(kinds)}
        wanted = {"exact", "answer"} | ({"selection"} if judge else set())
        if task == "glance":  # it says nothing else
            wanted, judge = {"exact", "selection"}, True
        assert set(groups["all"]) == wanted
        gone = set(lost)
        if task == "glance":
            said = "The best candidate is 2."
            gone = (lost & {"selection"}) | ({"exact"} if spoil(said) != said else set())
        if task == "tools":  # a turn counts as a whole, and has no words of an answer
            gone = (
                {"exact", "answer"} if spoil("Action 1: lookup[keys]") != "Action 1: lookup[keys]" else set()
            )
        elif judge and "selection" in lost:
            gone |= {"exact"}
        elif not judge and lost == {"selection"}:
            gone = set()
        for mark, found in groups["all"].items():
            assert found["n"] == 12
            assert found["share"] == (mark not in gone), (name, mark)
    if not lost:
        assert set(report["judge of 4, any"]) == {"all", "size 4", *(f"kind {k}" for k in judging.KINDS)}


# -- suitability


def test_suitability_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense always right, naive on every other document, masked judges never, strictly masked ones always."""
    ran: list[Any] = []
    drawn = [d for task in EVALUATED for d in held_out_documents(task, 4, "stock", 0)]

    class Session:
        def __init__(self, model: Any) -> None:
            self.fresh = True

        def run(self, request: Any) -> Iterator[Any]:
            assert self.fresh, "a session of its own for every document"
            self.fresh = False
            ran.append(request)
            document = drawn[len(ran) - 1]
            good = {"dense": True, "naive": len(ran) % 2 == 0, "masked": False, "strictly masked": True}
            outcomes = [
                SimpleNamespace(method=m.label, text=document.target if good[m.label] else "no")
                for m in request.methods
            ]
            yield RunDone(SimpleNamespace(outcomes=outcomes))  # type: ignore[arg-type]

    monkeypatch.setattr(evaluation, "LabSession", Session)
    report = suitability(None, count=4)  # type: ignore[arg-type]
    assert list(report) == list(EVALUATED)
    assert len(ran) == 4 * len(EVALUATED)
    for task, rows in report.items():
        assert (rows["dense"]["share"], rows["naive"]["share"]) == (1, 0.5)
        assert {row["n"] for row in rows.values()} == {4}
        assert ("masked" in rows) == ("strictly masked" in rows) == (task in ("judge", "glance"))
    assert report["judge"]["masked"]["share"] == 0
    assert report["judge"]["strictly masked"]["share"] == 1


def test_suitability_of_the_tiny_model(tiny_model: LoadedModel, brief: int) -> None:
    """A random model runs through it and knows nothing."""
    report = suitability(tiny_model, count=1, tasks=("solver", "judge"))
    none = {"share": 0.0, "n": 1, "ci": [0.0, 0.793]}
    both = dict.fromkeys(("dense", "naive"), none)
    assert report == {"solver": both, "judge": both | dict.fromkeys(("masked", "strictly masked"), none)}


def judge_over(count: int) -> Document:
    return make_document(random.Random(count), "judge", kind="right", size=count, style=Style("stock", 0.0))


def test_a_judges_candidates_and_nothing_else_can_be_kept_apart(tiny_model: LoadedModel, brief: int) -> None:
    document = judge_over(3)
    *_, done = LabSession(tiny_model).run(as_request(document, (MethodChoice("dense"),)))
    assert isinstance(done, RunDone)
    [prompt] = done.record.prompts
    told = ["".join(prompt.texts[s.start : s.end]) for s in slots(prompt.spans)]
    assert told == [piece.text for piece in document.pieces if (piece.name or "").startswith("candidate")]
