"""Write presets/prompts/archive.yaml: one archive of eight long documents and questions about it.

The archive is drawn at random from a seed of its own, so the weights that read it
(``presets/model/variants/long.safetensors``) have met its form and none of its facts. Of the questions drawn,
those are taken that the full read answers rightly: the scenario is about time, and about what reuse changes.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from backend.model.load import load_model
from backend.prompts.presets import Example, load_preset
from backend.prompts.tasks.base import NAMES
from backend.prompts.tasks.documents import READER
from backend.records.events import RunDone
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.session.session import LabSession
from backend.training.link_tokens.examples import draw_archive

OUT = Path(__file__).resolve().parents[1] / "presets" / "prompts" / "archive.yaml"
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
FACTS, QUESTIONS, SEED = 228, 48, 0
HEAD = """\
# Written by scripts/archive.py; do not edit by hand.
name: archive
title: A long archive
summary: >-
  Questions about eight long documents, 1,500 tokens, that the full read answers rightly. A line that changes
  stands before them: a prefix cache has nothing to offer, the documents’ own caches have.
model: embedded
needs_context: 2048
request_source: examples
scoring: text
declared: [{declared}]
agents:
  - id: 1
    name: Reader
    role: Finds the facts in the documents and states each of them.
    model: long
    max_new_tokens: 40
    template: |
      {{asked}}
      {reader}
{blocks}
      The question is: {{user_question}}
examples:
"""


def render(examples: Sequence[Example]) -> str:
    """The preset with these requests; the archive's texts are written once."""
    names = [name for name in examples[0].values if name.startswith("document_")]
    blocks = "\n".join(f"      Document {n}:\n      {{{name}}}" for n, name in enumerate(names, 1))
    text = HEAD.format(declared=", ".join(["asked", *names]), reader=READER, blocks=blocks)
    first = "".join(
        f"      {name}: &d{n} >-\n        {examples[0].values[name]}\n" for n, name in enumerate(names, 1)
    )
    same = ", ".join(f"{name}: *d{n}" for n, name in enumerate(names, 1))
    for at, example in enumerate(examples):
        own = {name: example.values[name] for name in ("asked", "user_question")}
        if at:
            values = ", ".join(f'{name}: "{content}"' for name, content in own.items())
            text += f"  - values: {{{same},\n      {values}}}\n"
        else:
            text += f"  - values:\n{first}" + "".join(
                f"      {name}: {content}\n" for name, content in own.items()
            )
        text += f"    answer: {example.answer}\n"
    return text


def candidates() -> Iterator[Example]:
    """Questions about one archive without end, each behind a line of its own."""
    rng = random.Random(f"archive:{SEED}")
    archive = draw_archive(rng, FACTS)
    texts = {f"document_{number}": text for number, text in enumerate(archive.texts, 1)}
    questions = set[str]()
    while True:
        question, facts = archive.ask(rng)
        if question not in questions and len(facts) == 1:
            questions.add(question)
            line = f"{rng.choice(NAMES)} asks on {rng.choice(DAYS)}."
            yield Example({"asked": line, **texts, "user_question": question}, facts[0][2])


def main() -> int:
    """Write the file with the first questions that the full read answers rightly."""
    OUT.write_text(render([next(candidates())]), encoding="utf-8")
    pipeline = load_preset("archive").pipeline
    session = LabSession(load_model("embedded"))
    ask = RunRequest(pipeline, {}, (MethodChoice("dense"),), decoding=Decoding(pipeline.longest_answer))
    right: list[Example] = []
    tried = 0
    for example in candidates():
        tried += 1
        request = replace(ask, values=dict(example.values), expected=example.answer)
        [record] = [event.record for event in session.run(request) if isinstance(event, RunDone)]
        if record.outcome(1, "dense").correct:
            right.append(example)
        if len(right) == QUESTIONS:
            break
    OUT.write_text(render(right), encoding="utf-8")
    print(f"{OUT.name}: {QUESTIONS} of {tried} questions, those that the full read answers rightly")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
