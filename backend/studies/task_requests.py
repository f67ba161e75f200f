"""A document of the embedded model's tasks as a request of the lab."""

from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.prompts.scoring import Scoring
from backend.prompts.tasks import Document
from backend.prompts.template import QUESTION
from backend.records.request import Decoding, MethodChoice, RunRequest

MAX_ANSWER = 224


def as_request(
    document: Document, methods: tuple[MethodChoice, ...], *, own_names: bool = False
) -> RunRequest:
    """A document as a pipeline of one agent, every named piece a placeholder of its own.

    The question keeps its name, by which methods distinguish it from the parallel texts. With ``own_names``
    all pieces do; none of them may be named like an agent's answer.
    """
    names = {
        i: piece.name if own_names or piece.name == QUESTION else f"value_{i}"
        for i, piece in enumerate(document.pieces)
        if piece.name is not None
    }
    template = "".join(
        f"{{{names[i]}}}" if i in names else piece.text for i, piece in enumerate(document.pieces[:-1])
    )
    values = {name: document.pieces[i].text for i, name in names.items()}
    selects = document.best is not None
    agent = Agent(1, "Reader", "", template, max_new_tokens=MAX_ANSWER)
    declared = tuple(name for name in values if name != QUESTION)
    scoring: Scoring = "selection" if selects else "text"
    pipeline = Pipeline("suitability", "suitability", "", (agent,), declared, scoring)
    expected = document.selection if selects else document.answer
    decoding = Decoding(max_new_tokens=MAX_ANSWER)
    return RunRequest(pipeline, values, methods, expected=expected, decoding=decoding, probe_offsets=False)
