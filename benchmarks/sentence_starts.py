"""Does it matter where in its sentence the word stands that a question asks by?

One-hop questions over six facts in open wording, held out, read densely. A model that states the fact before
it answers has to know how the sentence began in whose middle it found the word; one that answers at once has
not. FINDINGS.md has the figures in "What was tried in training".
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path

from backend.model.load import load_model
from backend.prompts.tasks import Document, Style
from backend.prompts.tasks.documents import READER, stock_pieces
from backend.prompts.tasks.facts import Story, draw_story
from backend.prompts.tasks.words import start_sentence
from backend.training.evaluate import answers, marks, share

OTHERS = 5  # facts beside the one that answers


def as_document(rng: random.Random, story: Story) -> Document:
    """A document a fact, in any order, and the story's question."""
    (needed,) = story.needed
    said = [start_sentence(fact.text) + "." for fact in (needed, *story.others)]
    answer = f"The answer is {story.answer}"
    pieces = stock_pieces(READER, rng.sample(said, len(said)), story.question, answer)
    return Document("documents", "one-hop", pieces, story.answer, len(said))


def place(story: Story) -> str:
    """What of the fact the question asks by, and where that stands in the sentence that answers it."""
    (needed,) = story.needed
    by = "subject" if needed.subject.lower() in story.question.lower() else "object"
    first = needed.text.lower().startswith(getattr(needed, by).lower())
    return f"by the {by}, {'first in its sentence' if first else 'later'}"


def main() -> None:
    """Print the shares answered right, by where the asked word stands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    rng = random.Random(f"sentence starts:{args.seed}")
    stories = [draw_story(Style("unseen").draw(rng), 1, OTHERS) for _ in range(args.count)]
    documents = [as_document(rng, story) for story in stories]
    good: Counter[str] = Counter()
    counts = Counter(map(place, stories))
    model = load_model(args.model, dtype="fp32")
    for story, document, text in zip(stories, documents, answers(model, documents), strict=True):
        good[place(story)] += marks(document, text)["answer"]
    report = {where: share(good[where], count) for where, count in sorted(counts.items())}
    weights = model.info.weights_hash
    facts = {
        "bench": "sentence starts", "model": args.model, "weights": weights, "seed": args.seed,
        "right": report,
    }  # fmt: skip
    print(json.dumps(facts, indent=1))
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
