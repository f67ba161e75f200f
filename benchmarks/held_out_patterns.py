"""Which of the sentence patterns that training never shows does the model misread?

Word problems of the two shapes that the edits *other words* and *harmless sentences more* draw, read densely
by one solver: half of them in patterns that training shows, half with held-out ones. The share of right
answers is told for each held-out pattern that stands in enough problems. FINDINGS.md has the figures in "What
a visitor's edit does to the model".
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path

from backend.model.load import load_model
from backend.prompts.tasks import Document, Piece, Style
from backend.prompts.tasks.arithmetic import SOLVER, Problem, question_pieces
from backend.prompts.tasks.situations import draw_situation
from backend.prompts.tasks.stories import draw_chain
from backend.prompts.tasks.story_teller import Story
from backend.prompts.tasks.words import Draw
from backend.training.evaluate import answers, marks, share

STEPS = 3
FEWEST = 10  # problems in which a pattern has to stand


def draw(rng: random.Random, unseen: bool) -> tuple[Document, frozenset[str]]:
    """A solver's document, and the held-out patterns of its problem."""
    d = Draw(rng, unseen)
    text, steps, answer = rng.choice((draw_chain, draw_situation))(d, Story(), STEPS)
    problem = Problem(text, tuple(steps), answer)
    pieces = question_pieces(rng, Style("stock"), SOLVER, problem)
    pieces += [Piece("\n"), Piece(problem.solution, answer=True)]
    return Document("solver", "problem", tuple(pieces), str(answer), len(steps)), frozenset(d.unseen_patterns)


def main() -> None:
    """Print the shares answered right: of both sides, and by held-out pattern, the worst first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--count", type=int, default=400, help="problems of each side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    model = load_model(args.model, dtype="fp32")
    weights = model.info.weights_hash
    facts = {"bench": "held-out patterns", "model": args.model, "weights": weights, "seed": args.seed}
    good, counts = Counter[str](), Counter[str]()
    for side in ("trained", "held out"):
        rng = random.Random(f"held-out patterns:{args.seed}:{side}")
        documents, patterns = zip(*(draw(rng, side == "held out") for _ in range(args.count)), strict=True)
        right = [
            marks(d, text)["answer"]
            for d, text in zip(documents, answers(model, list(documents)), strict=True)
        ]
        facts[side] = share(sum(right), args.count)
        for is_right, held in zip(right, patterns, strict=True):
            counts.update(held)
            good.update(held if is_right else ())
    told = [pattern for pattern, count in counts.items() if count >= FEWEST]
    told.sort(key=lambda pattern: (good[pattern] / counts[pattern], pattern))
    facts["patterns"] = {pattern: share(good[pattern], counts[pattern]) for pattern in told}
    print(json.dumps(facts, indent=1, ensure_ascii=False))
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
