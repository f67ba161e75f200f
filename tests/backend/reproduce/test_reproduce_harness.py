"""Public benchmarks under trained weights: the real harness, tasks of our own, the embedded model."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from backend.base.errors import OptionError
from backend.model.link_tokens import SHIPPED
from backend.model.load import LoadedModel, load_model
from backend.reproduce.context import Context, Settings
from backend.reproduce.harness import _value
from backend.reproduce.registry import find
from backend.reproduce.run import ReportEvent, reproduce
from backend.reproduce.spec import (
    HarnessPlan,
    HarnessTask,
    Line,
    Reproduction,
    Scaled,
    SeriesPlan,
    Value,
    Weights,
)

CHOICES = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{label}}}}"
doc_to_choice: "{{{{choices}}}}"
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
metadata: {{version: 1.0}}
"""
GENERATED = """
task: gsm8k
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
output_type: generate_until
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], do_sample: false, max_gen_toks: 40}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
filter_list:
  - name: flexible-extract
    filter:
      - {{function: regex, group_select: -1, regex_pattern: "([0-9]+)"}}
      - {{function: take_first}}
metadata: {{version: 1.0}}
"""
GROUP = """
group: mmlu
task: [mmlu_first, mmlu_second]
aggregate_metric_list: [{metric: acc, weight_by_size: true}]
metadata: {version: 1}
"""
Row = dict[str, Any]


def chosen(first: int, count: int) -> list[Row]:
    """Questions, of whose two answers a model finds one likelier."""
    return [
        {"question": f"There are {n} apples and {n + 1} pears. How many are there? The answer is",
         "choices": [f"{2 * n + 1}", f"{n} and more"], "label": n % 2}
        for n in range(first, first + count)
    ]  # fmt: skip


def right(model: LoadedModel, rows: Sequence[Row]) -> list[bool]:
    """Whether the likelier answer is the labelled one, by the weights themselves."""
    ids = model.tokens.tokenizer.encode
    found = []
    for row in rows:
        likely = []
        for choice in row["choices"]:
            before, whole = (ids(text) for text in (row["question"], f"{row['question']} {choice}"))
            with torch.inference_mode():
                logits = model.module(torch.tensor([whole])).logits[0].float().log_softmax(-1)
            asked = range(len(before), len(whole))
            likely.append(sum(float(logits[at - 1, whole[at]]) for at in asked))
        found.append(likely.index(max(likely)) == row["label"])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Benchmarks: one whose answers are chosen, one of two parts, one whose answers are written, and one
    whose questions are not there."""
    made = tmp_path_factory.mktemp("tasks")
    rows = {"arc_easy": chosen(2, 7), "mmlu_first": chosen(20, 2), "mmlu_second": chosen(30, 5)}
    rows["gsm8k"] = [{"question": "What is 2 + 3?", "answer": "5"}, {"question": "Say 9.", "answer": "9"}]
    for name, mine in rows.items():
        file = made / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in mine), encoding="utf-8")
        text = (GENERATED if name == "gsm8k" else CHOICES).format(name=name, rows=file)
        (made / f"{name}.yaml").write_text(text, encoding="utf-8")
    (made / "mmlu.yaml").write_text(GROUP, encoding="utf-8")
    nowhere = CHOICES.format(name="piqa", rows=made / "nowhere.jsonl")
    (made / "piqa.yaml").write_text(nowhere, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", made / "cache")
        # A description of the machine, from a dozen programs, which no report of ours holds.
        patch.setattr("lm_eval.evaluator.add_env_info", lambda _: None)
        patch.setattr("lm_eval.evaluator.get_git_commit_hash", lambda: None)
        yield made


def table(*tasks: HarnessTask, weights: tuple[Weights, ...] = (), problems: int = 0) -> Reproduction:
    """Table 2 with fewer benchmarks, on the embedded model."""
    titles = [title for task in tasks for title in task.metrics]
    one = find("kvlink-table-2")
    columns = tuple(column for column in one.columns if column.title in titles)
    lines = tuple(
        Line(name, (None,) * len(columns), {"paper": {"weights": name}}) for name in ("base", "KVLink5")
    )
    scaled = Scaled(HarnessPlan(tasks, problems), "a test", 1, "embedded", weights=weights)
    return replace(one, columns=columns, lines=lines, scales={"paper": scaled})


def ours(one: Reproduction, asked: Settings) -> dict[str, Any]:
    *_, last = reproduce(one, asked)
    assert isinstance(last, ReportEvent)
    return {line["label"]: line["ours"] for line in last.report["lines"]}


def asked(out: Path, folder: Path, **more: Any) -> Settings:
    return Settings(out, scale="paper", data=folder, links=SHIPPED, training_steps=0, **more)


ARC = HarnessTask("arc_easy", {"ARC-E": "acc,none"})
MMLU = HarnessTask("mmlu", {"MMLU": "acc,none"})
GSM8K = HarnessTask("gsm8k", {"GSM8K": "exact_match,flexible-extract"}, chat=True)


@pytest.mark.slow
def test_benchmarks_are_asked_under_every_set_of_weights(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shares are those of the weights' own likelihoods; what was answered is not asked again."""
    one = table(ARC, MMLU, GSM8K, weights=(Weights(5),))
    found = ours(one, asked(tmp_path / "out", folder))
    gsm8k, mmlu, arc = 0, 1, 2  # the columns' order is the paper's
    linked = next(f for f in sorted(SHIPPED.glob("*.safetensors")) if "kvlink5" in f.name.lower())
    for name, model in (("base", load_model("embedded")), ("KVLink5", load_model(f"embedded+{linked}"))):
        good = right(model, chosen(2, 7))
        assert found[name][arc]["value"] == pytest.approx(sum(good) / 7)
        assert found[name][arc]["of"] == 7
        assert found[name][arc]["low"] < found[name][arc]["value"] < found[name][arc]["high"]
        parts = right(model, chosen(20, 2)) + right(model, chosen(30, 5))
        assert found[name][mmlu]["value"] == pytest.approx(sum(parts) / 7), "by questions, not by parts"
        assert found[name][mmlu]["of"] == 7
        assert found[name][gsm8k]["of"] == 2
        assert found[name][gsm8k]["value"] in (0, 0.5, 1)
    for call in ("_model_call", "_model_generate"):
        monkeypatch.setattr(f"lm_eval.models.huggingface.HFLM.{call}", None)
    assert ours(one, asked(tmp_path / "out", folder)) == found, "all of it was kept"
    with pytest.raises(OptionError, match="cannot be asked"):
        ours(one, asked(tmp_path / "other", folder))


@pytest.mark.sampled(32)
def test_as_many_questions_as_were_asked_for(folder: Path, tmp_path: Path) -> None:
    one = table(ARC)
    found = ours(one, asked(tmp_path / "out", folder, problems=3))
    assert found["base"][0]["of"] == 3
    one = replace(one, scales={"paper": replace(one.scales["paper"], plan=SeriesPlan((
        HarnessPlan((ARC,), 2), HarnessPlan((ARC,), 4))))})  # fmt: skip
    assert ours(one, asked(tmp_path / "out", folder))["base"][0]["of"] == 2, "one after another"


@pytest.mark.slow
def test_a_model_without_a_chat_template_is_asked_plainly(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model("embedded")
    monkeypatch.setattr(Context, "load", lambda self, name: model)
    seen: list[str] = []
    encode = type(model.tokens.tokenizer).__call__
    monkeypatch.setattr(
        type(model.tokens.tokenizer), "__call__",
        lambda self, text, *more, **named: (seen.extend(text), encode(self, text, *more, **named))[1],
    )  # fmt: skip
    for template in (model.tokens.tokenizer.chat_template, None):
        monkeypatch.setattr(model.tokens.tokenizer, "chat_template", template)
        assert ours(table(GSM8K), asked(tmp_path / str(template is None), folder))["base"][0]["of"] == 2
        assert ("What is 2 + 3?" in seen) is (template is None), "as it stands, or wrapped"


@pytest.mark.slow
def test_a_series_goes_on_where_one_part_has_no_data(folder: Path, tmp_path: Path) -> None:
    whole = find("kvlink-table-5").scales["paper"].plan
    assert isinstance(whole, SeriesPlan)
    one = table(ARC)
    plan = SeriesPlan((whole.plans[0], HarnessPlan((ARC,), 4)))
    one = replace(one, scales={"paper": replace(one.scales["paper"], plan=plan)})
    *_, last = reproduce(one, asked(tmp_path / "out", folder))
    assert isinstance(last, ReportEvent)
    assert last.report["lines"][0]["ours"][0]["of"] == 4
    assert any("reads nq.jsonl" in note for note in last.report["notes"])


def test_intervals_of_shares_end_at_nothing_and_at_all() -> None:
    marks = {"acc,none": 0.75, "acc_stderr,none": 0.25}
    assert _value(marks, "acc,none", 4) == Value(0.75, 0.26, 1.0, 4)
    assert _value({**marks, "acc,none": 0.25}, "acc,none", 4) == Value(0.25, 0.0, 0.74, 4)


@pytest.mark.slow
def test_a_task_that_cannot_be_asked_is_named(folder: Path, tmp_path: Path) -> None:
    lacking = HarnessTask("piqa", {"PiQA": "acc,none"})
    with pytest.raises(OptionError, match=r"The benchmark piqa cannot be asked \(.*FOLDER with one"):
        ours(table(lacking), asked(tmp_path / "out", folder))
    other = replace(MMLU, metrics={"MMLU": "acc_norm,none"})
    with pytest.raises(OptionError, match=r"gives no 'acc_norm,none'; it gives acc,none"):
        ours(table(other), asked(tmp_path / "out", folder))


def test_the_harness_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(OptionError, match=r"not installed. Install it \(pip install 'kv-reuse-lab\[harness"):
        list(reproduce(find("kvlink-table-2"), Settings(tmp_path, scale="paper", data="hub")))


FOLDERS = {"arc_easy": "arc", "arc_challenge": "arc"}


def test_the_harness_knows_the_papers_benchmarks() -> None:
    """Its own tasks of these names, with these metrics: nothing is fetched to look."""
    import lm_eval.tasks

    plan = find("kvlink-table-2").scales["paper"].plan
    assert isinstance(plan, HarnessPlan)
    for task in plan.tasks:
        there = Path(lm_eval.tasks.__file__).parent / FOLDERS.get(task.name, task.name)
        texts = [file.read_text(encoding="utf-8") for file in there.rglob("*.yaml")]
        [mine] = [text for text in texts if re.search(rf"^(task|group): {task.name}$", text, re.MULTILINE)]
        if above := re.match(r"include: (\S+)", mine):
            mine += (there / above[1]).read_text(encoding="utf-8")
        for metric, kind in (written.split(",") for written in task.metrics.values()):
            assert f"metric: {metric}\n" in mine
            assert kind == "none" or f'name: "{kind}"' in mine
    titles = [title for task in plan.tasks for title in task.metrics]
    assert titles == [column.title for column in find("kvlink-table-2").columns[: len(titles)]]
