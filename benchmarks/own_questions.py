"""Does KVCOMM reuse anything for a question that somebody typed, and is it as dense then?

A text finds no offset where it is longer than every anchor, and the presets' problems are short. So the same
typed questions are asked behind pools filled with problems in the presets' words, in open words, and with the
question itself in other numbers; and put before a judge with typed candidates, behind drawn problems and
behind the problem itself in other numbers. FINDINGS.md has the figures in "What a visitor's edit does to the
model".
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from backend.judge.batch import typed_problem
from backend.lab import Lab
from backend.model.load import LoadedModel, load_model
from backend.prompts.presets import Example, Preset, load_preset, preset_requests
from backend.prompts.variants import other_numbers
from backend.records.events import RunDone
from backend.records.judge import ANSWER_TOKENS, Judged, JudgedProblem, JudgeRequest
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import Outcome, RunRecord
from backend.session.session import LabSession
from backend.training.edits import typed_questions
from backend.training.evaluate import share

WARM = 20  # as the page offers it
GAMMAS = (0.3, 1.0)
JUDGE_WARM = 4  # as its page offers it
OWN_WARM = 2  # as the buttons of both pages set it
METHODS = (
    MethodChoice("dense"), MethodChoice("naive"),
    *(MethodChoice("kvcomm", {"gamma": gamma}, f"kvcomm at {gamma}") for gamma in GAMMAS),
)  # fmt: skip


Warm = Callable[[Preset, str], Sequence[Example]]


def in_presets_words(preset: Preset, _: str) -> Sequence[Example]:
    """The scenario's problems."""
    return preset_requests(preset, WARM, seed=1)


def in_open_words(preset: Preset, _: str) -> Sequence[Example]:
    """The scenario's problems as people write."""
    return preset_requests(preset, WARM, seed=1, open_words=True)


def in_other_numbers(_: Preset, question: str) -> Sequence[Example]:
    """The question itself."""
    return [Example(values) for values in other_numbers({"user_question": question}, OWN_WARM)]


def runs(model: LoadedModel, preset: Preset, count: int, warm: Warm) -> Iterator[RunRecord]:
    """Each question behind pools that nothing but the warm-up filled."""
    pipeline = preset.pipeline.unrolled
    for row in typed_questions("fresh")[:count]:
        request = RunRequest(
            pipeline, {"user_question": row["question"]}, METHODS, "pinned",
            Decoding(pipeline.longest_answer), expected=row["answer"], probe_offsets=False,
        )  # fmt: skip
        session = LabSession(model)
        shared = warm is not in_other_numbers
        for _ in session.warm_up(request, warm(preset, row["question"]), shared=shared):
            pass
        yield next(event.record for event in session.run(request) if isinstance(event, RunDone))


def judged(model: LoadedModel, count: int, own: bool) -> Iterator[JudgedProblem]:
    """Each question with three typed candidates, two of them right, in two orders."""
    lab, rng = Lab(LabSession(model)), random.Random(0)
    for row in typed_questions("fresh")[:count]:
        answer = int(row["answer"])
        doubt = max(0, answer - rng.randint(1, 9))
        texts = [
            f"I counted it twice. The answer is {answer}.",
            f"The answer is {answer + rng.randint(1, 9)}.",
            f"First I thought {doubt}, but it must be {answer}. The answer is {answer}.",
        ]
        rng.shuffle(texts)
        problem = typed_problem(row["question"], texts, row["answer"])
        request = JudgeRequest(
            "typed", (problem,), 1, candidates=len(texts), max_new_tokens=ANSWER_TOKENS, methods=METHODS,
            warmup=OWN_WARM if own else JUDGE_WARM, own_numbers=own,
        )  # fmt: skip
        yield next(event.rows[0] for event in lab.study(request) if isinstance(event, Judged))


def judge_figures(rows: list[JudgedProblem]) -> dict[str, Any]:
    """Of every method: the judgements in which it reused, and of those the ones with dense's selection."""
    out: dict[str, Any] = {}
    for choice in METHODS[1:]:
        reused = [o for row in rows for o in row.outcomes if o.method == choice.label and o.reused_tokens]
        kept = sum(bool(o.consistent) for o in reused)
        out[choice.label] = {
            "reused": share(len(reused), 2 * len(rows)),
            "dense's selection where reused": share(kept, len(reused)) if reused else None,
        }
    return out


def figures(records: list[RunRecord]) -> dict[str, Any]:
    """Of every method: answers right, runs in which it reused, and those that ended in dense's text."""
    out: dict[str, Any] = {}
    for choice in METHODS:
        last = [record.outcome(record.agents[-1], choice.label) for record in records]
        dense = [record.outcome(record.agents[-1], "dense").text for record in records]
        reused = [any(_shares(record.outcome(a, choice.label)) for a in record.agents) for record in records]
        out[choice.label] = {"right": share(sum(bool(o.correct) for o in last), len(records))}
        if choice.name != "kvcomm":
            continue
        same = sum(o.text == text for o, text, some in zip(last, dense, reused, strict=True) if some)
        rules: Counter[str] = Counter(
            gate.rule
            for record in records
            for gate in record.outcome(record.agents[0], choice.label).gate
            if not gate.shareable
        )
        out[choice.label] |= {
            "reused": share(sum(reused), len(records)), "dense's text where reused": share(same, sum(reused)),
            "first agent's refusals": dict(rules),
        }  # fmt: skip
    return out


def _shares(outcome: Outcome) -> bool:
    return bool(outcome.gate) and all(gate.shareable for gate in outcome.gate)


def main() -> None:
    """Print the figures behind each kind of pools."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--preset", default="math-3")
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    model, preset = load_model(args.model, dtype="fp32"), load_preset(args.preset)
    facts: dict[str, Any] = {
        "bench": "own questions", "weights": model.info.weights_hash, "preset": args.preset, "warm_up": WARM,
        "warm_up in other numbers": OWN_WARM, "warm_up of the judge": JUDGE_WARM,
    }  # fmt: skip

    def note(name: str, found: dict[str, Any]) -> None:
        facts[name] = found
        print(json.dumps({name: found}, indent=1), flush=True)

    kinds = {
        "the preset's words": in_presets_words,
        "open words": in_open_words,
        "other numbers": in_other_numbers,
    }
    for name, warm in kinds.items():
        note(name, figures(list(runs(model, preset, args.count, warm))))
    for name, own in (("a judge behind drawn problems", False), ("a judge behind other numbers", True)):
        note(name, judge_figures(list(judged(model, args.count, own))))
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
