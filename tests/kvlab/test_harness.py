"""``lm_eval --model kvlab``: a task's prompts under a reuse method, against the weights themselves."""

from __future__ import annotations

import importlib
import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from backend.base.errors import OptionError
from backend.model.load import load_model

lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is an extra (harness)")
harness = importlib.import_module("kvlab.harness")

EXAMPLES = (
    "Question: Omar owns 12 books. Omar buys 7 more. How many books has Omar now?\nAnswer: The answer is 19",
    "Question: Lena has 9 pens. Lena loses 3. How many pens has Lena now?\nAnswer: The answer is 6",
    "Question: Iris owns 6 keys. Iris finds 11 more. How many keys has Iris now?\nAnswer:",
)
PROMPT = "\n\n".join(EXAMPLES)
TASK = """
task: tiny_sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{label}}}}"
doc_to_choice: ["17", "40"]
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
metadata: {{version: 1.0}}
"""


def asked(*args: Any) -> Any:
    return SimpleNamespace(args=args)


def scores(method: str, *requests: Any) -> list[tuple[float, bool]]:
    found: list[tuple[float, bool]] = harness.ReuseLM(method=method).loglikelihood(list(requests))
    return found


def by_the_weights(context: str, continuation: str) -> tuple[float, bool]:
    """A continuation's log probability, from one pass of the module over all of it."""
    model = load_model("embedded")
    parts = [
        part for n, example in enumerate(context.split("\n\n")) for part in (["\n\n"] * bool(n) + [example])
    ]
    before = [*model.tokens.bos, *(token for part in parts for token in model.tokens.encode(part) if part)]
    behind = model.tokens.encode(continuation)
    with torch.inference_mode():
        logits = model.module(torch.tensor([[*before, *behind]])).logits[0, len(before) - 1 : -1].float()
    chances = logits.log_softmax(-1)[range(len(behind)), list(behind)]
    return float(chances.sum()), logits.argmax(-1).tolist() == list(behind)


@pytest.mark.slow
def test_densely_a_continuation_is_as_likely_as_the_weights_say() -> None:
    requests = [asked(PROMPT, " The answer is 17"), asked(PROMPT, " 40"), asked(EXAMPLES[2], " No")]
    for request, (found, greedy) in zip(requests, scores("dense", *requests), strict=True):
        wanted, likeliest = by_the_weights(*request.args)
        assert found == pytest.approx(wanted, abs=1e-3)
        assert greedy == likeliest
    # Blanks at a context's end go with the word behind them; nothing in front is read by itself.
    assert scores("dense", asked(PROMPT + " ", "40")) == scores("dense", asked(PROMPT, " 40"))
    [rolling] = harness.ReuseLM().loglikelihood_rolling([asked("Omar owns 12 books.")])
    assert rolling == pytest.approx(by_the_weights("", "Omar owns 12 books.")[0], abs=1e-3)
    assert scores("naive", asked("", "Omar owns 12 books."))[0][0] == pytest.approx(rolling)


@pytest.mark.slow
def test_a_method_reads_the_paragraphs_by_itself() -> None:
    one = asked(PROMPT, " The answer is 17")
    [dense], [oracle], [naive] = (scores(method, one) for method in ("dense", "oracle", "naive"))
    assert oracle[0] == pytest.approx(dense[0], abs=1e-3)
    assert abs(naive[0] - dense[0]) > 0.01
    alone = asked(EXAMPLES[2], " No")
    assert scores("naive", alone)[0][0] == pytest.approx(scores("dense", alone)[0][0], abs=1e-3)


@pytest.mark.slow
def test_answers_end_where_the_task_says() -> None:
    options = {"until": ["\n\n"], "max_gen_toks": 24, "do_sample": False}
    model = harness.ReuseLM(method="dense")
    [whole] = model.generate_until([asked(PROMPT, {"max_gen_toks": 24})])
    assert whole.strip()
    word = whole.split()[1]
    [cut] = model.generate_until([asked(PROMPT, {**options, "until": word})])
    assert cut == whole.partition(word)[0]
    [short] = model.generate_until([asked(PROMPT, {**options, "max_gen_toks": 2})])
    assert whole.startswith(short)
    assert len(short) < len(whole)


@pytest.mark.slow
def test_a_task_of_the_harness_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval.tasks import TaskManager

    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda _: None)
    monkeypatch.setattr("lm_eval.evaluator.get_git_commit_hash", lambda: None)
    rows = [{"question": PROMPT, "label": 0}, {"question": EXAMPLES[2], "label": 1}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "task.yaml").write_text(TASK.format(rows=tmp_path / "rows.jsonl"))
    found = lm_eval.simple_evaluate(
        "kvlab", model_args="model=embedded,method=naive", tasks=["tiny_sums"], bootstrap_iters=0,
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
    )  # fmt: skip
    likelier = [
        scores("naive", asked(row["question"], " 17"))[0] > scores("naive", asked(row["question"], " 40"))[0]
        for row in rows
    ]
    right = [likelier[0], not likelier[1]]
    assert found["results"]["tiny_sums"]["acc,none"] == sum(right) / 2


def test_what_cannot_be_asked_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(OptionError, match="one is allowed"):
        harness.ReuseLM(method="naive,epic")
    monkeypatch.setattr(sys, "argv", ["harness", "--help"])
    monkeypatch.setattr("lm_eval.api.registry.register_model", lambda *_: lambda kind: kind)  # it has one
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(harness.__file__, run_name="__main__")
    assert ended.value.code in (None, 0)
    assert "lm-eval" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    with pytest.raises(ImportError, match=r"Install it with pip install 'kv-reuse-lab\[harness\]'"):
        runpy.run_path(harness.__file__)
    with pytest.raises(SystemExit, match="needs lm_eval"):
        runpy.run_path(harness.__file__, run_name="__main__")
