"""Published problems from files or the hub: a question, a pipeline's values, the known answers, the scorer.

Files are JSON lines (also gzipped), a JSON list, CSV or Parquet, as the data sets' owners or hubs give them.

==========  ======================================================  =========
format      columns                                                 scored by
==========  ======================================================  =========
gsm8k       question, answer (after ``####``)                       number
mmlu        question, choices or A to D, answer (letter or index)   choice
humaneval   prompt, test, entry_point                               code
math500     problem, answer                                         math
aime        problem (or question), answer                           number
hotpotqa    question, answer, context                               contains
2wikimqa    the same                                                contains
musique     question, answer, answer_aliases, paragraphs            contains
nq          question, answers, ctxs                                 contains
triviaqa    the same                                                contains
samsum      dialogue, summary; or question, answers, ctxs           rouge
multinews   document, summary; or the same                          rouge
==========  ======================================================  =========

Documents go into the placeholders ``{document_1}``, ``{document_2}`` and so on of a pipeline that has them.
A text to summarise has examples as its documents: those that its row brings (``ctxs``, as CacheBlend's files
have them), else the texts behind it in the file, each with its summary.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from backend.base.errors import PromptError
from backend.base.text import check_text, show
from backend.prompts.pipeline import Pipeline
from backend.prompts.template import QUESTION
from backend.sweeps.data_rows import LETTERS, fetched_rows, read_rows
from backend.sweeps.hub import HubData

NO_DOCUMENT = "(no document)"
EXAMPLES = 4  # texts with their summaries before one that is to be summarised
NOT_ON_HUB = {
    "nq": "google-research-datasets/nq_open has questions alone; files with passages are those of "
    "github.com/nelson-liu/lost-in-the-middle, such as nq-open-10_total_documents_gold_at_0.jsonl.gz",
    "2wikimqa": "files are those of github.com/Alab-NII/2wikimultihop, such as dev.json",
    "multinews": "alexfabbri/multi_news is read by a script of its own; write its rows, document and "
    "summary, as JSON lines",
    "triviaqa": "mandarjoshi/trivia_qa has whole pages; files with passages are what DPR's or Contriever's "
    "retrieval writes, with question, answers and ctxs",
}


@dataclass(frozen=True)
class Problem:
    """A problem as its data set gives it. ``golds``: any of them is right; for *code*, a test program."""

    question: str
    golds: tuple[str, ...]
    documents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """How a data set's rows are read, and how its papers score answers (:mod:`backend.sweeps.scoring`)."""

    read: Callable[[Mapping[str, Any]], Problem]
    scorer: str
    example: str
    examples: bool = False  # where a row brings no documents, other rows are its examples


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{show(value)} is not text")
    return str(value)


def _first(row: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise KeyError(names[0])


def _gsm8k(row: Mapping[str, Any]) -> Problem:
    answer = _text(row["answer"]).rpartition("####")[2].strip().replace(",", "")
    return Problem(_text(row["question"]), (answer,))


def _mmlu(row: Mapping[str, Any]) -> Problem:
    choices = row.get("choices")
    options = [_text(c) for c in (choices if choices is not None else [row[letter] for letter in LETTERS])]
    if len(options) != len(LETTERS):
        raise ValueError(f"there are {len(options)} choices, not {len(LETTERS)}")
    answer = row["answer"]
    number = isinstance(answer, int) or (isinstance(answer, str) and answer.strip().isdecimal())
    letter = (
        LETTERS[int(answer)] if number and 0 <= int(answer) < len(LETTERS) else str(answer).strip().upper()
    )
    if len(letter) != 1 or letter not in LETTERS:
        raise ValueError(f"the answer is {show(answer)}, not A to D or 0 to 3")
    listed = "\n".join(f"{name}. {option}" for name, option in zip(LETTERS, options, strict=True))
    return Problem(f"{_text(row['question'])}\n{listed}", (letter,))


def _humaneval(row: Mapping[str, Any]) -> Problem:
    entry = _text(row["entry_point"])
    if not entry.isidentifier():
        raise ValueError(f"entry_point is {show(entry)}, which is no name")
    return Problem(_text(row["prompt"]), (f"{_text(row['test'])}\ncheck({entry})\n",))


def _math(row: Mapping[str, Any]) -> Problem:
    return Problem(_text(_first(row, "problem", "question")), (_text(row["answer"]),))


def _aime(row: Mapping[str, Any]) -> Problem:
    answer = _text(_first(row, "answer", "Answer")).strip()
    return Problem(_text(_first(row, "problem", "question", "Problem", "Question")), (answer,))


def _hotpotqa(row: Mapping[str, Any]) -> Problem:
    context = row["context"]
    if isinstance(context, Mapping):  # the hub's columns; the owners' file has pairs
        context = list(zip(context["title"], context["sentences"], strict=True))
    documents = tuple(f"{_text(title)}\n{''.join(map(_text, lines)).strip()}" for title, lines in context)
    return Problem(_text(row["question"]), (_text(row["answer"]),), documents)


def _musique(row: Mapping[str, Any]) -> Problem:
    golds = (row["answer"], *(row.get("answer_aliases") or ()))
    documents = tuple(f"{_text(p['title'])}\n{_text(p['paragraph_text']).strip()}" for p in row["paragraphs"])
    return Problem(_text(row["question"]), tuple(map(_text, golds)), documents)


def _retrieved(row: Mapping[str, Any], format: str) -> Problem:
    """Questions with the passages that a retriever found."""
    if not row.get("ctxs"):
        raise ValueError(f"it has no passages (ctxs). {NOT_ON_HUB[format]}")
    documents = tuple(f"{_text(c['title'])}\n{_text(c['text']).strip()}" for c in row["ctxs"])
    return Problem(_text(row["question"]), _golds(row, "answers", "answer"), documents)


def _golds(row: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    """The known answers: a list of texts, or one text."""
    answers = _first(row, *names)
    return (answers,) if isinstance(answers, str) else tuple(map(_text, answers))


def _summary(row: Mapping[str, Any], text: str) -> Problem:
    """A text to summarise, with its examples where the row brings any. MultiNews sets its articles apart by
    five bars."""
    examples = row.get("ctxs") or []
    if not isinstance(examples, list) or not all(
        isinstance(example, Mapping) and "text" in example for example in examples
    ):
        raise ValueError('ctxs is no list of examples, each {"text": "..."}')
    articles = (part.strip() for part in _text(_first(row, text, "question")).split("|||||"))
    golds = tuple(gold.strip() for gold in _golds(row, "summary", "answers", "answer"))
    documents = tuple(_text(example["text"]).strip() for example in examples)
    return Problem("\n\n".join(filter(None, articles)), golds, documents)


def with_examples(problems: Sequence[Problem]) -> list[Problem]:
    """Those without documents get others, those behind them in turn, as examples: never the same text."""

    def behind(at: int) -> Iterator[Problem]:
        steps = range(1, min(len(problems), 4 * EXAMPLES))  # no further: a file may hold one text many times
        others = (problems[(at + step) % len(problems)] for step in steps)
        return islice((other for other in others if other.question != problems[at].question), EXAMPLES)

    return [
        problem if problem.documents else replace(
            problem, documents=tuple(f"{e.question}\nSummary: {e.golds[0]}" for e in behind(at))
        )
        for at, problem in enumerate(problems)
    ]  # fmt: skip


_PASSAGES = '{"question": "...", "answers": ["..."], "ctxs": [{"title": "...", "text": "..."}]}'
FORMATS: dict[str, Format] = {
    "gsm8k": Format(_gsm8k, "number", '{"question": "...", "answer": "... #### 18"}'),
    "mmlu": Format(_mmlu, "choice", '{"question": "...", "choices": ["..", "..", "..", ".."], "answer": 0}'),
    "humaneval": Format(_humaneval, "code", '{"prompt": "...", "test": "...", "entry_point": "f"}'),
    "math500": Format(_math, "math", '{"problem": "...", "answer": "..."}'),
    "aime": Format(_aime, "number", '{"problem": "...", "answer": "204"}'),
    "hotpotqa": Format(
        _hotpotqa, "contains", '{"question": "...", "answer": "...", "context": [["title", ["..."]]]}'
    ),
    "2wikimqa": Format(
        _hotpotqa, "contains", '{"question": "...", "answer": "...", "context": [["title", ["..."]]]}'
    ),
    "musique": Format(
        _musique,
        "contains",
        '{"question": "...", "answer": "...", "paragraphs": [{"title": "...", "paragraph_text": "..."}]}',
    ),
    "nq": Format(partial(_retrieved, format="nq"), "contains", _PASSAGES),
    "triviaqa": Format(partial(_retrieved, format="triviaqa"), "contains", _PASSAGES),
    "samsum": Format(
        partial(_summary, text="dialogue"), "rouge", '{"dialogue": "...", "summary": "..."}', True
    ),
    "multinews": Format(
        partial(_summary, text="document"), "rouge", '{"document": "... ||||| ...", "summary": "..."}', True
    ),
}
#: Where the hub has them; for the others :data:`NOT_ON_HUB` says what to take.
ON_HUB: dict[str, HubData] = {
    "gsm8k": HubData("openai/gsm8k", "main", "test"),
    "mmlu": HubData("cais/mmlu", "all", "test"),
    "humaneval": HubData("openai/openai_humaneval", split="test"),
    "math500": HubData("HuggingFaceH4/MATH-500", split="test"),
    "aime": HubData("HuggingFaceH4/aime_2024", split="train"),
    "hotpotqa": HubData("hotpotqa/hotpot_qa", "distractor", "validation"),
    "samsum": HubData("knkarthick/samsum", split="test"),
    "musique": HubData(
        "dgslibisey/MuSiQue", "default", "musique_ans_v1.0_dev"
    ),  # its split is its file's name
}


def read_problems(path: Path | HubData, format: str) -> list[Problem]:
    """All problems of a file, or of a split that was fetched from the hub.

    Raises:
        PromptError: a file cannot be read, or with the place of the first row that is none of the format.
    """
    layout = FORMATS[format]
    problems = []
    for where, row in read_rows(path) if isinstance(path, Path) else fetched_rows(path):
        try:
            problem = layout.read(row)
            empty = (
                not problem.question.strip() or not all(g.strip() for g in problem.golds) or not problem.golds
            )
            if empty:
                raise ValueError("the question or the answer is empty")
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
            missing = f"{show(error.args[0])} is missing" if isinstance(error, KeyError) else str(error)
            raise PromptError(
                f"{where}: this is no {format} problem: {missing}. A row looks like {layout.example}. "
                "Correct it, or choose another format.",
                field="data",
            ) from None
        for text in (problem.question, *problem.golds, *problem.documents):
            check_text(text, where, "data")
        problems.append(problem)
    if not problems:
        raise PromptError(f"{path.name} holds no problem. Choose another file.", field="data")
    return with_examples(problems) if layout.examples else problems


def values_of(problem: Problem, pipeline: Pipeline, where: str) -> dict[str, str]:
    """A problem's texts as values of a pipeline's outside placeholders.

    Raises:
        PromptError: the pipeline has other placeholders, or too few for the documents.
    """
    holes = sorted(
        (name for name in pipeline.required if re.fullmatch(r"document_[0-9]+", name)),
        key=lambda name: int(name.rpartition("_")[2]),
    )
    other = [name for name in pipeline.required if name not in (QUESTION, *holes)]
    if other or QUESTION not in pipeline.required:
        need = ", ".join("{" + name + "}" for name in other) or "no {user_question}"
        raise PromptError(
            f"The pipeline {show(pipeline.name)} has {need}, which {where} does not fill; a data set fills "
            "{user_question} and {document_1}, {document_2}, ... Choose another pipeline.",
            field="pipeline",
        )
    if holes and len(problem.documents) > len(holes):
        raise PromptError(
            f"{where} has {len(problem.documents)} documents, but the pipeline {show(pipeline.name)} has "
            f"places for {len(holes)}. Give it more with documents: {len(problem.documents)}, beside data.",
            field="pipeline",
        )
    texts = [*problem.documents, *[NO_DOCUMENT] * (len(holes) - len(problem.documents))]
    return {QUESTION: problem.question} | dict(zip(holes, texts, strict=False))
