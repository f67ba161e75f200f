"""Many judged problems, one row each: cancellable, and killing it loses at most the problem in flight.

Rows go to an append-only file (:mod:`backend.studies.batch`), each with a key made of the configuration, the
problems up to it, and the weights. A restarted batch skips what is there. The candidates of finished problems
are taken from their rows, their caches are computed again from the very tokens, and dense reads their judge
prompts once more, so that the pools are what they were.
"""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from backend.base.cancel import stop_if
from backend.base.errors import OptionError, PromptError, RecordError
from backend.base.row_file import RowFile
from backend.base.serialization import as_json, from_json
from backend.base.text import check_text, show
from backend.judge.judge_lab import JudgeLab, check, question_points
from backend.judge.prompts import final_of, same_final
from backend.records.events import Progress
from backend.records.judge import LIMITS, Candidate, Judged, JudgedProblem, JudgeProblem, JudgeRequest


def keys_of(lab: JudgeLab, request: JudgeRequest) -> list[str]:
    """Identity of every row, problem by problem. The number of problems is no part of it, so a longer batch
    goes on from a shorter one."""
    facts = as_json(replace(request, problems=(), count=0))
    weights = [lab.model.info.weights_hash, lab.agents.info.weights_hash]
    running = hashlib.sha256(json.dumps([facts, weights], sort_keys=True).encode())
    keys = []
    for number in range(1 - request.warmup, request.count + 1):
        if request.problems:
            problem = replace(request.problems[number - 1 + request.warmup], number=number)
            running.update(json.dumps(as_json(problem), sort_keys=True).encode())
        running.update(f"problem {number};".encode())
        keys.append(running.hexdigest()[:16])
    return keys[request.warmup :]


def run_judging(
    lab: JudgeLab, request: JudgeRequest, path: Path | None = None, cancel: threading.Event | None = None
) -> Iterator[Progress | JudgedProblem | Judged]:
    """Judge a request's problems in turn; yields each row when it is finished (those found in the file
    first), and last the whole.

    Args:
        path: the file of rows; without one nothing is kept.
        cancel: ends it, also in the middle of a problem, which is then judged anew the next time.

    Raises:
        LabError: the request cannot be run, or the file is damaged.
        RunCancelled: ``cancel`` was set; what was finished is in the file.
    """
    check(request)
    needed = request.count + request.warmup
    if request.problems and len(request.problems) < needed:
        raise OptionError(
            f"{needed} problems are wanted, warm-up included, but {len(request.problems)} are given. Ask for "
            "fewer.",
            field="judge.count",
        )
    keys = keys_of(lab, request)
    stored = _rows(path, keys)
    rows = [stored[key] for key in takewhile(stored.__contains__, keys)]
    yield from rows
    if len(rows) < len(keys):
        yield from _remember(lab, request, rows, cancel)
        for index in range(len(rows), len(keys)):
            stop_if(cancel)
            yield Progress(f"Judging problem {index + 1} of {len(keys)}", index, len(keys))
            row = lab.judged(lab.draw(request, index + 1), request, keys[index], cancel)
            if path is not None:
                RowFile(path).append(as_json(row))
            rows.append(row)
            yield row
    yield record_of_rows(lab, request, rows)


def record_of_rows(lab: JudgeLab, request: JudgeRequest, rows: Sequence[JudgedProblem]) -> Judged:
    """What a batch has so far, as a record."""
    notes = dict.fromkeys([lab.note] if lab.note else [])
    points = question_points(lab.model, [row.problem.question for row in rows])
    return Judged(request, lab.model.info, tuple(rows), tuple(notes), points)


def _remember(
    lab: JudgeLab, request: JudgeRequest, rows: Sequence[JudgedProblem], cancel: threading.Event | None
) -> Iterator[Progress]:
    """Fill the pools: from the warm-up's problems, and again from those that were judged before."""
    warm = [lab.draw(request, number) for number in range(1 - request.warmup, 1)]
    past = [*warm, *(row.problem for row in rows)]
    for index, problem in enumerate(past):
        stop_if(cancel)
        what = "Warming up with" if index < len(warm) else "Taking in what was judged before:"
        yield Progress(f"{what} problem {index + 1} of {len(past)}", index, len(past))
        full, bases = lab.execute(problem, request)
        for order in request.orders:
            lab.learn(full, bases, order, request)


def _rows(path: Path | None, keys: Sequence[str]) -> dict[str, JudgedProblem]:
    """The file's rows that belong to these keys."""
    if path is None:
        return {}
    requested, judged = set(keys), {}
    for key, row in RowFile(path).resume().items():
        if key in requested:
            try:
                judged[key] = from_json(JudgedProblem, row)
            except (TypeError, KeyError, ValueError, AttributeError):
                raise RecordError(
                    f"A row of {path.name} is not one of this version's judged problems. Choose another file."
                ) from None
    return judged


def typed_problem(
    question: str, texts: Sequence[str], expected: str | None = None, number: int = 1
) -> JudgeProblem:
    """A problem from typed candidates.

    Raises:
        PromptError: the question or a candidate is empty or no text, or there are too few or too many.
    """
    low, high = LIMITS["candidates"]
    if not low <= len(texts) <= high:
        raise PromptError(
            f"There are {len(texts)} candidates; {low} to {high} are allowed. Add or remove some.",
            field="candidates",
        )
    for name, text in (("question", question), *((f"candidate {i}", t) for i, t in enumerate(texts, 1))):
        if not check_text(text, f"The {name}", name.replace(" ", "_")).strip():
            raise PromptError(f"The {name} is empty. Write some text.", field=name.replace(" ", "_"))
    candidates = tuple(
        Candidate(
            text, f"agent {i}", right=None if expected is None else same_final(final_of(text), expected)
        )
        for i, text in enumerate(texts, 1)
    )
    return JudgeProblem(number, question, candidates, "typed", expected)


def read_problems(path: Path, request: JudgeRequest) -> tuple[JudgeProblem, ...]:
    """Problems from JSON lines: rows of a judged batch (their candidates are taken as they are), objects with
    ``question``, ``candidates`` (texts) and ``answer``, or with ``question`` and ``answer`` alone, for which
    the request's agents write candidates.

    Raises:
        PromptError: with the number of the first line that cannot be used.
    """
    problems: list[JudgeProblem] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise PromptError(f"{path.name} is not UTF-8 text. Save it as UTF-8.", field="data") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number}"
        try:
            row = json.loads(line)
            problems.append(_problem(row, len(problems) + 1, request, where))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise PromptError(
                f'{where}: this is no problem. A line looks like {{"question": "...", "candidates": ["...", '
                '"..."], "answer": "..."}. Correct it.',
                field="data",
            ) from None
    if not problems:
        raise PromptError(f"{path.name} holds no problem. Write one JSON object on each line.", field="data")
    return tuple(problems)


def _problem(row: Mapping[str, Any], number: int, request: JudgeRequest, where: str) -> JudgeProblem:
    if "problem" in row and "outcomes" in row:
        return replace(from_json(JudgedProblem, {**row, "outcomes": []}).problem, number=number)
    value = row.get("answer")
    answer = None if value is None or isinstance(value, bool) else str(value)
    if answer is not None and "####" in answer:
        answer = answer.rpartition("####")[2].strip().replace(",", "")
    question = row["question"]
    if "candidates" in row:
        try:
            return typed_problem(question, row["candidates"], answer, number)
        except PromptError as error:
            raise PromptError(f"{where}: {error}", field=error.field) from None
    if request.regime == "typed":
        raise PromptError(
            f"{where}: the candidates of {show(question)} are missing. Give them, or choose the regime "
            "parallel or progressive, so that agents write them.",
            field="data",
        )
    if not check_text(question, f"{where}: the question", "data").strip():
        raise PromptError(f"{where}: the question is empty. Write some text.", field="data")
    return JudgeProblem(number, question, (), request.regime, answer)
