"""Data sets' files, how answers are scored, and traces."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.base.errors import OptionError, PromptError
from backend.prompts.presets import load_preset
from backend.prompts.scoring import SCORINGS
from backend.prompts.template import QUESTION
from backend.sweeps.datasets import FORMATS, Problem, read_problems, values_of
from backend.sweeps.grid import shards_of
from backend.sweeps.problems import judge_problems, pipeline_requests
from backend.sweeps.read import parse_sweep
from backend.sweeps.scoring import (
    boxed,
    normalised,
    plain_math,
    rouge,
    same_math,
    score,
    token_f1,
)
from backend.sweeps.spec import JudgeTask, PipelineTask
from backend.sweeps.traces import read_trace

ROWS: dict[str, tuple[dict[str, Any], Problem]] = {
    "gsm8k": (
        {"question": "How many?", "answer": "2 + 1,198 = <<2+1198=1200>>1200\n#### 1,200"},
        Problem("How many?", ("1200",)),
    ),
    "mmlu": (
        {"question": "Which?", "subject": "s", "choices": ["a", "b", "c", "d"], "answer": 2},
        Problem("Which?\nA. a\nB. b\nC. c\nD. d", ("C",)),
    ),
    "humaneval": (
        {"task_id": "H/0", "prompt": "def f(x):\n", "test": "def check(f):\n    assert f(1) == 2",
        "entry_point": "f"}, Problem("def f(x):\n", ("def check(f):\n    assert f(1) == 2\ncheck(f)\n",)),
    ),
    "math500": (
        {"problem": "Find $x$.", "solution": "...", "answer": "\\frac{1}{2}"},
        Problem("Find $x$.", ("\\frac{1}{2}",)),
    ),
    "aime": ({"ID": "2024-I-1", "Problem": "Find it.", "Answer": 204}, Problem("Find it.", ("204",))),
    "hotpotqa": (
        {"question": "Who?", "answer": "Ada", "context": [["One", ["A. ", "B."]], ["Two", ["C."]]]},
        Problem("Who?", ("Ada",), ("One\nA. B.", "Two\nC.")),
    ),
    "2wikimqa": (
        {"_id": "x", "type": "compositional", "question": "Who?", "context": [["One", ["A. ", "B."]], ["Two",
        ["C."]]], "supporting_facts": [["One", 1]], "evidences": [["a", "b", "c"]], "answer": "Ada"},
        Problem("Who?", ("Ada",), ("One\nA. B.", "Two\nC.")),
    ),
    "musique": (
        {"id": "2hop__1_2", "paragraphs": [
            {"idx": 0, "title": "One", "paragraph_text": "A. B.", "is_supporting": False},
            {"idx": 1, "title": "Two", "paragraph_text": "C. ", "is_supporting": True}], "question": "Who?",
        "question_decomposition": [], "answer": "Ada", "answer_aliases": ["Lovelace"], "answerable": True},
        Problem("Who?", ("Ada", "Lovelace"), ("One\nA. B.", "Two\nC.")),
    ),
    "triviaqa": (
        {"question": "Who?", "answers": ["Ada", "Lovelace"], "ctxs": [{"id": "7", "title": "One",
        "text": "A.", "score": "1.5"}]}, Problem("Who?", ("Ada", "Lovelace"), ("One\nA.",)),
    ),
    "nq": (
        {"question": "Who?", "answers": ["Ada", "Lovelace"], "ctxs": [{"title": "One", "text": "A.", "isgold":
        True}]}, Problem("Who?", ("Ada", "Lovelace"), ("One\nA.",)),
    ),
    "samsum": (  # as CacheBlend's files have it
        {"ctxs": [{"title": "", "text": "A: hi\nSummary: Hello. "}, {"text": "B: no\nSummary: Never."}],
        "question": "C: yes ", "answers": ["C agrees."]},
        Problem("C: yes", ("C agrees.",), ("A: hi\nSummary: Hello.", "B: no\nSummary: Never.")),
    ),
    "multinews": (
        {"ctxs": [{"text": "One\nSummary: 1."}], "question": "Two", "answers": ["2."]},
        Problem("Two", ("2.",), ("One\nSummary: 1.",)),
    ),
}  # fmt: skip


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("format", list(FORMATS))
def test_every_format_is_read(tmp_path: Path, format: str) -> None:
    given_row, wanted = ROWS[format]
    assert read_problems(write(tmp_path / "a.jsonl", given_row, given_row), format) == [wanted] * 2
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(given_row).encode()))
    assert read_problems(packed, format) == [wanted]
    whole = tmp_path / "a.json"
    whole.write_text(json.dumps([given_row]))
    assert read_problems(whole, format) == [wanted]


def test_a_formats_example_is_one() -> None:
    for name, known in FORMATS.items():
        problem = known.read(json.loads(known.example))
        assert problem.question, name


def test_csv_and_parquet(tmp_path: Path) -> None:
    bare = tmp_path / "mmlu.csv"  # as MMLU's authors give it: no header
    with bare.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["Which, then?", "a", "b", "c", "d", "B"], ["Or?", "1", "2", "3", "4", "A"]]
        )
    assert read_problems(bare, "mmlu")[0] == Problem("Which, then?\nA. a\nB. b\nC. c\nD. d", ("B",))
    assert len(read_problems(bare, "mmlu")) == 2
    headed = tmp_path / "gsm8k.csv"
    headed.write_text('question,answer\n"How, many?",#### 7\n')
    assert read_problems(headed, "gsm8k") == [Problem("How, many?", ("7",))]
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    context = {"title": ["One"], "sentences": [["A. ", "B."]]}
    table = pyarrow.Table.from_pylist([{"question": "Who?", "answer": "Ada", "context": context}])
    parquet.write_table(table, tmp_path / "h.parquet")
    assert read_problems(tmp_path / "h.parquet", "hotpotqa") == [Problem("Who?", ("Ada",), ("One\nA. B.",))]


def test_what_is_to_be_summarised_has_others_as_examples(tmp_path: Path) -> None:
    """Those behind it, never itself; as many as there are, up to four."""
    rows = [{"document": f" {n} ||||| and more |||||", "summary": f"s{n}"} for n in range(6)]
    found = read_problems(write(tmp_path / "m.jsonl", *rows), "multinews")
    assert found[4].question == "4\n\nand more"
    assert found[4].golds == ("s4",)
    shown = [f"{n}\n\nand more\nSummary: s{n}" for n in (5, 0, 1, 2)]
    assert found[4].documents == tuple(shown)
    assert [len(problem.documents) for problem in found] == [4] * 6
    own = {"dialogue": "A: hi", "summary": "A greets."}
    pair = read_problems(write(tmp_path / "s.jsonl", own, {**own, "dialogue": "B: hi"}), "samsum")
    assert [problem.documents for problem in pair] == [
        ("B: hi\nSummary: A greets.",), ("A: hi\nSummary: A greets.",)
    ]  # fmt: skip
    assert read_problems(write(tmp_path / "o.jsonl", own), "samsum")[0].documents == ()
    same = read_problems(write(tmp_path / "e.jsonl", *[own] * 50, {**own, "dialogue": "B: hi"}), "samsum")
    assert [len(problem.documents) for problem in (same[0], same[45], same[50])] == [0, 1, 4], "no text twice"
    pipeline = load_preset("summaries").pipeline
    values = values_of(found[0], pipeline, "x")
    assert values["document_4"].endswith("Summary: s4")
    assert pipeline.check_values(values)


@pytest.mark.parametrize(
    ("name", "content", "format", "said"),
    [
        ("a.jsonl", b'{"question": "?"}\n', "gsm8k", "line 1: this is no gsm8k problem: 'answer' is missing"),
        ("a.jsonl", b'\n{"question": "?", "answer": "#### "}\n', "gsm8k", "line 2: .*the answer is empty"),
        ("a.jsonl", b"[1]\n", "gsm8k", "is not an object"),
        ("a.jsonl", b"{\n", "gsm8k", "line 1: this is not valid JSON"),
        ("a.jsonl", b"", "gsm8k", "holds no problem"),
        ("a.jsonl", b"\xff", "gsm8k", "not UTF-8"),
        ("a.json", b"{}", "gsm8k", "no list of problems"),
        ("a.csv", b"question,answer\nx\n", "gsm8k", "row 2 has 1 cells, but there are 2"),
        ("a.csv", b"a" + b"," * 1_000_001, "gsm8k", "holds about 1,000,001 cells; up to 1,000,000"),
        ("a.json", b"[" + b"[]," * 500_000 + b"0]", "gsm8k", "holds 1,000,001 values; up to 1,000,000"),
        ("a.gz", b"no gzip", "gsm8k", "cannot be read"),
        ("a.jsonl", b'{"question": "?", "choices": ["a"], "answer": 0}', "mmlu", "are 1 choices, not 4"),
        ("a.jsonl", b'{"question": "?", "choices": [1, 2, 3, 4], "answer": "E"}', "mmlu", "to D"),
        ("a.jsonl", b'{"prompt": "x", "test": "y", "entry_point": "f()"}', "humaneval", "no name"),
        ("a.jsonl", b'{"question": true, "answer": "1"}', "gsm8k", "True is not text"),
        ("a.jsonl", b'{"question": "?", "answer": "1", "context": 3}', "hotpotqa", "no hotpotqa problem"),
        ("a.jsonl", b'{"question": "?", "answer": "1", "paragraphs": [{}]}', "musique", "'title' is missing"),
        ("a.jsonl", b'{"question": "?", "answers": ["1"]}', "triviaqa", "no passages .*Contriever"),
        ("a.jsonl", b'{"dialogue": "?", "summary": "!", "ctxs": ["x"]}', "samsum", "no list of examples"),
        ("a.jsonl", b'{"dialogue": "?", "summary": "!", "ctxs": [null]}', "samsum", "no list of examples"),
        ("a.jsonl", b'{"question": "?", "ctxs": [{"text": "x"}]}', "samsum", "'summary' is missing"),
        ("a.jsonl", b'{"dialogue": null, "summary": "!"}', "samsum", "'dialogue' is missing"),
        ("none.jsonl", None, "gsm8k", "No such file"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_where(
    tmp_path: Path, name: str, content: bytes | None, format: str, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(PromptError, match=said) as caught:
        read_problems(tmp_path / name, format)
    assert name in str(caught.value)


def test_documents_fill_a_pipelines_places() -> None:
    pipeline = load_preset("documents-5").pipeline
    values = values_of(Problem("Who?", ("Ada",), ("one", "two")), pipeline, "x")
    assert values[QUESTION] == "Who?"
    assert [values[f"document_{n}"] for n in range(1, 6)] == ["one", "two", *["(no document)"] * 3]
    assert pipeline.check_values(values)
    with pytest.raises(PromptError, match=r"x has 6 documents.*places for 5.*documents: 6"):
        values_of(Problem("Who?", ("Ada",), ("d",) * 6), pipeline, "x")
    with pytest.raises(PromptError, match=r"has {candidate_1}.*does not fill"):
        values_of(Problem("Who?", ("Ada",)), load_preset("judge-right").pipeline, "x")


def test_a_file_gives_its_first_problems_or_others_for_each_seed(tmp_path: Path) -> None:
    write(tmp_path / "g.jsonl", *({"question": f"q{n}", "answer": f"#### {n}"} for n in range(20)))
    text = (
        "name: a\nmethods: dense\nproblems: 3\nwarmup: 2\nseeds: [0, 1]\n"
        "tasks: [{pipeline: math-2, data: g.jsonl, format: gsm8k, draw: DRAW}]"
    )
    drawn = {}
    for draw in ("first", "random"):
        sweep = parse_sweep(text.replace("DRAW", draw), folder=tmp_path)
        drawn[draw] = [[r.values[QUESTION] for r in shard.requests] for shard in shards_of(sweep)]
    assert drawn["first"] == [["q0", "q1", "q2", "q3", "q4"]] * 2
    assert drawn["random"][0] != drawn["random"][1]
    [task] = sweep.tasks
    assert isinstance(task, PipelineTask)
    _, requests = pipeline_requests(task, 3, 2, 0)
    assert [r.number for r in requests] == [-1, 0, 1, 2, 3]
    assert all(r.scorer == "number" and r.golds == (r.values[QUESTION][1:],) for r in requests)
    with pytest.raises(
        PromptError, match=r"21 problems are wanted, warm-up included, but 'g\.jsonl' holds 20"
    ):
        pipeline_requests(task, 19, 2, 0)


def test_a_judges_problems_from_a_file(tmp_path: Path) -> None:
    write(tmp_path / "g.jsonl", {"question": "q", "answer": "#### 7"})
    text = (
        "name: a\nmethods: dense\nproblems: 1\ntasks: [{judge: {regime: REGIME}, data: g.jsonl, "
        "format: gsm8k}]"
    )
    [task] = parse_sweep(text.replace("REGIME", "parallel"), folder=tmp_path).tasks
    assert isinstance(task, JudgeTask)
    [problem] = judge_problems(task, 1, 0, 0)
    assert (problem.question, problem.expected, problem.regime, problem.candidates) == (
        "q",
        "7",
        "parallel",
        (),
    )
    with pytest.raises(OptionError, match="questions alone"):
        parse_sweep(text.replace("REGIME", "typed"), folder=tmp_path)


# -- scoring


@pytest.mark.parametrize(
    ("text", "golds", "scorer", "correct"),
    [
        ("so 3 and then 1,200", ("1200",), "number", True),
        ("The answer is 1200. Check: 7", ("7",), "number", False),
        ("B) because A is wrong.\nThe answer is C", ("C",), "choice", True),
        ("```python\ndef f(x):\n    return x + 1\n```", ("assert f(1) == 2\n",), "code", True),
        ("```python\ndef f(x):\n    return x\n```", ("assert f(1) == 2\n",), "code", False),
        ("It was Ada Lovelace, I think", ("the Ada Lovelace!",), "contains", True),
        ("It was Ada", ("Ada Lovelace", "Ada"), "contains", True),
        ("nobody", ("Ada",), "contains", False),
        ("", ("ada",), "contains", False),
        ("we get $\\boxed{\\dfrac12}$", ("\\frac{1}{2}",), "math", True),
        ("we get 2", ("\\frac{1}{2}",), "math", False),
        ("no idea", ("1",), "math", False),
    ],
)  # fmt: skip
def test_answers_are_scored_as_the_papers_do(
    text: str, golds: tuple[str, ...], scorer: str, correct: bool
) -> None:
    found = score(text, golds, scorer)
    assert found.correct is correct
    if scorer != "contains":
        assert found.value == correct


def test_a_summary_is_neither_right_nor_wrong() -> None:
    """Rouge-L: the longest common subsequence of stemmed words over what both say."""
    found = score(" The cats sat here.\n", ("nothing", "A cat sits there, here"), "rouge")
    assert (found.answer, found.correct) == ("The cats sat here.", None)
    common, said, wanted = 2, 4, 5  # cat ... here
    precision, recall = common / said, common / wanted
    assert found.value == pytest.approx(2 * precision * recall / (precision + recall))
    assert score("", ("x",), "rouge").value == 0


def test_one_summary_is_one_answer(tmp_path: Path) -> None:
    bare = {"question": "A: hi", "answers": "A greets.", "ctxs": [{"text": "t"}]}
    [problem] = read_problems(write(tmp_path / "s.jsonl", bare), "samsum")
    assert problem.golds == ("A greets.",)


def test_no_judge_takes_summaries(tmp_path: Path) -> None:
    write(tmp_path / "s.jsonl", {"dialogue": "A: hi", "summary": "A greets."})
    task = "{judge: {regime: parallel}, data: s.jsonl, format: samsum}"
    text = f"{{name: t, methods: dense, problems: 1, tasks: [{task}]}}"
    with pytest.raises(OptionError, match=r"none is right or wrong\. Choose gsm8k"):
        parse_sweep(text, "a.yaml", tmp_path)


def test_summaries_are_scored_by_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "s.jsonl", {"dialogue": "A: hi", "summary": "A greets."})
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    rouge.cache_clear()
    task = "{pipeline: summaries, data: s.jsonl, format: samsum}"
    text = f"{{name: t, methods: dense, problems: 1, tasks: [{task}]}}"
    with pytest.raises(OptionError, match=r"pip install 'kv-reuse-lab\[rouge\]'"):
        parse_sweep(text, "a.yaml", tmp_path)


def test_f1_by_hand() -> None:
    assert token_f1("the big red dog", "a red cat") == pytest.approx(2 * 1 / (3 + 2))
    assert token_f1("red red", "red") == pytest.approx(2 / 3)
    assert token_f1("", "x") == 0
    assert score("The answer is Ada.", ("Ada Lovelace",), "contains").value == pytest.approx(2 / 3)
    assert normalised(" The  Answer, an apple! ") == "answer apple"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("\\frac12", "1/2"), ("\\dfrac{1}{2}", "\\frac{1}{2}"), ("x = 5", "5"), ("5.", "5"), (".5", "0.5"),
        ("1,000", "1000"), ("5\\text{ cm}", "5"), ("90^\\circ", "90"), ("\\left( 1, 2 \\right)", "(1,2)"),
        ("\\$4.50", "4.5"), ("50\\%", "50"), ("\\text{even}", "even"), ("\\sqrt2", "\\sqrt{2}"),
        ("-\\frac 34", "-\\frac{3}{4}"),
    ],
)  # fmt: skip
def test_two_ways_to_write_the_same(a: str, b: str) -> None:
    assert same_math(a, b)
    assert same_math(b, a)


@pytest.mark.parametrize(
    ("a", "b"), [("1/2", "2/1"), ("(1,2)", "(2,1)"), ("5", "-5"), ("x", "y"), ("1.5", "15"), ("12", "1,2")]
)
def test_different_answers_differ(a: str, b: str) -> None:
    assert not same_math(a, b)


def test_only_an_equation_with_one_sign_is_cut() -> None:
    assert plain_math("x = 5") == "5"
    assert plain_math("x = y = 5") == "x=y=5"


def test_the_last_closed_box_counts() -> None:
    assert boxed("\\boxed{1} then \\boxed{\\frac{a}{b}} and \\boxed{2") == "\\frac{a}{b}"
    assert boxed("\\boxed{}") is None
    assert boxed("none") is None


SCORERS = sorted({*SCORINGS, *(known.scorer for known in FORMATS.values())} - {"code"})


@given(st.text(max_size=60), st.text(max_size=20), st.sampled_from(SCORERS))
def test_no_text_is_a_traceback(text: str, gold: str, scorer: str) -> None:
    found = score(text, (gold,), scorer)
    assert 0 <= found.value <= 1
    assert plain_math(text) == plain_math(text)


# -- traces


def call(agent: str, prompt: str, response: str = "", request: int = 1, **more: Any) -> dict[str, Any]:
    return {"request": request, "agent": agent, "prompt": prompt, "response": response} | more


def traced(request: int, question: str, answer: str) -> list[dict[str, Any]]:
    return [
        call("Solver", f"Solve: {question}\n", answer, request, question=question),
        call("Judge", f"Judge.\n{question}\nHe said {answer}!", "fine", request),
    ]


def test_a_trace_becomes_a_pipeline(tmp_path: Path) -> None:
    path = write(tmp_path / "My Trace.jsonl", *traced(1, "2+2?", "It is 4"), *traced(2, "1+1?", "It is {2}"))
    pipeline, requests = read_trace(path)
    assert pipeline.name == "my-trace"
    assert [a.template for a in pipeline.agents] == [
        "Solve: {user_question}\n",
        "Judge.\n{user_question}\nHe said {agent_1_current}!",
    ]
    assert [r.values for r in requests] == [{QUESTION: "2+2?"}, {QUESTION: "1+1?"}]
    assert requests[1].recorded == {1: "It is {2}", 2: "fine"}


def test_the_longer_of_two_texts_is_found_first(tmp_path: Path) -> None:
    """An answer that repeats the question is one text, not a question inside."""
    path = write(
        tmp_path / "a.jsonl",
        call("A", "Do: 2+2?", "You asked 2+2? It is 4", question="2+2?"),
        call("B", "A wrote: You asked 2+2? It is 4. Now: 2+2?"),
    )
    assert read_trace(path)[0].agents[1].template == "A wrote: {agent_1_current}. Now: {user_question}"


JUDGE = traced(2, "c?", "x2")[1]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "holds no call"),
        ([{"request": 1}], "line 1: this is no call"),
        ([call("A", "x")], "line 1: the question is ''"),
        ([call("A", "x?", question="x?"), call("B", "y", question="z")], "line 2: the question is 'z'"),
        ([call("A", "x? x?", question="x?")], "'x\\?' stands 2 times"),
        ([call("A", "{user_question}, y", question="x?")], "placeholder's name in braces"),
        (traced(1, "a?", "b") + traced(2, "c?", "d")[:1], "line 3: the agents of this request are Solver"),
        ([*traced(1, "a?", "x1"), call("Solver", "Work: c?", "x2", 2, question="c?"), JUDGE],
         "line 3: apart from what it copies.*they part at 'Work"),
        ([*traced(1, "a?", "x1"), call("Solver", "Solve: c?\nnow", "x2", 2, question="c?"), JUDGE],
         "line 3: apart from what it copies.*they part at 'now"),
    ],
)  # fmt: skip
def test_a_trace_that_cannot_be_replayed_says_why(tmp_path: Path, rows: list[Any], said: str) -> None:
    path = write(tmp_path / "a.jsonl", *rows)
    with pytest.raises(PromptError, match=said):
        read_trace(path)
