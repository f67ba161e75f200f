"""Task generator of the embedded model: problems with known answers, as lists of segments.

Every document is a list of :class:`Piece` in prompt order. Pieces are the segments that the lab's
templates produce (template text and placeholder content), and they are tokenised one by one, so the
model is trained on exactly the token boundaries that it meets in the lab.

Problems are split by a hash of their text: one in 32 is held out and never trained on.
"""

import random
from collections.abc import Callable
from dataclasses import replace

from backend.prompts.tasks import arithmetic, documents, drills, judging, prefixes, programs, tools
from backend.prompts.tasks.base import Document, Piece, Style, roughen

__all__ = ["DRILLS", "SIZES", "TASKS", "Document", "Piece", "Style", "make_document"]

Maker = Callable[[random.Random, Style, bool, str, int | None], Document]

# task: its maker and its kinds
TASKS: dict[str, tuple[Maker, tuple[str, ...]]] = {
    "solver": (arithmetic.make_solver, ("problem",)),
    "worker": (arithmetic.make_worker, ("inspector", "analyst")),
    "judge": (judging.make_judge, judging.KINDS),
    "glance": (judging.make_glance, judging.GLANCES),
    "documents": (documents.make_documents, documents.KINDS),
    "tools": (tools.make_tools, tools.KINDS),
    "program": (programs.make_program, programs.KINDS),
    "prefix": (prefixes.make_prefix, prefixes.KINDS),
    "drill": (drills.make_drill, ("chain", "program")),
    "recall": (drills.make_recall, tuple(drills.RECALL)),
    "compare": (drills.make_compare, tuple(drills.COMPARE)),
}
DRILLS = ("drill", "recall", "compare")  # for training alone
# smallest and largest size of a document, where there are bounds
SIZES = {
    "worker": (1, 4),
    "judge": (2, 6),
    "glance": (2, 6),
    "documents": (2, 10),
    "tools": (1, 6),
    "prefix": (1, 4),
}


def make_document(
    rng: random.Random,
    task: str,
    *,
    kind: str | None = None,
    held_out: bool = False,
    style: Style | None = None,
    size: int | None = None,
) -> Document:
    """Draw one document of a task.

    ``kind`` and ``size`` (steps, candidates, documents or turn) are drawn when not given. Training draws
    with ``held_out=False``, evaluation and the lab's requests with True.
    """
    maker, kinds = TASKS[task]
    style = style or Style()
    document = maker(rng, style, held_out, kind or rng.choice(kinds), size)
    if task not in DRILLS and style.is_rough(rng):
        return replace(document, pieces=roughen(rng, document.pieces))
    return document
