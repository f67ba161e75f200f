"""Does KVCOMM reuse anything for a question that somebody typed, and is it as dense then?

A text finds no offset where it is longer than every anchor, and the presets' problems are short. So the same
typed questions are asked behind pools filled with problems in the presets' words and in open words.
FINDINGS.md has the figures in "What a visitor's edit does to the model".
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.model.load import LoadedModel, load_model
from backend.prompts.presets import Preset, load_preset, preset_requests
from backend.records.events import RunDone
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import Outcome, RunRecord
from backend.session.session import LabSession
from backend.training.edits import typed_questions
from backend.training.evaluate import share

WARM = 20  # as the page offers it
GAMMAS = (0.3, 1.0)
METHODS = (
    MethodChoice("dense"), MethodChoice("naive"),
    *(MethodChoice("kvcomm", {"gamma": gamma}, f"kvcomm at {gamma}") for gamma in GAMMAS),
)  # fmt: skip


def runs(model: LoadedModel, preset: Preset, count: int, open_words: bool) -> Iterator[RunRecord]:
    """Each question behind pools that nothing but the warm-up filled."""
    examples = preset_requests(preset, WARM, seed=1, open_words=open_words)
    pipeline = preset.pipeline.unrolled
    for row in typed_questions("fresh")[:count]:
        request = RunRequest(
            pipeline, {"user_question": row["question"]}, METHODS, "pinned",
            Decoding(pipeline.longest_answer), expected=row["answer"], probe_offsets=False,
        )  # fmt: skip
        session = LabSession(model)
        for _ in session.warm_up(request, examples, shared=True):
            pass
        yield next(event.record for event in session.run(request) if isinstance(event, RunDone))


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
    """Print the figures behind both kinds of pools."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--preset", default="math-3")
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    model, preset = load_model(args.model, dtype="fp32"), load_preset(args.preset)
    facts: dict[str, Any] = {
        "bench": "own questions", "weights": model.info.weights_hash, "preset": args.preset, "warm_up": WARM,
    }  # fmt: skip
    for name, open_words in (("the preset's words", False), ("open words", True)):
        facts[name] = figures(list(runs(model, preset, args.count, open_words)))
        print(json.dumps({name: facts[name]}, indent=1), flush=True)
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
