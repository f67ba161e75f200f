"""The study under the Documents page: many questions under each method and each set of trained weights."""

from collections.abc import Sequence

from backend.base.ranges import SEEDS
from backend.records.documents import DocumentRequest, DocumentStudy
from lab_app.ui import fields
from lab_app.ui.fields import Node
from lab_app.ui.measurement import Section
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import NumberField
from lab_app.visits.visits import Visit
from viz.base.figure import FigureView
from viz.base.format import plural
from viz.studies.document_study import accuracy, by_documents, by_position

USUAL = {"questions": 24, "seed": 0}
NUMBERS = {"questions": NumberField("Questions", 2, 100), "seed": NumberField("Seed", *SEEDS)}
ENOUGH = 60  # questions; with fewer, each place and number of documents has too few
NONE = (
    "No weights trained for this model are shipped. Train some (kvlab train-links), and ask from the command "
    "line (kvlab documents --links FILE)."
)


def boxes(section: Section) -> Sequence[Node]:
    """The boxes with their first values."""
    numbers = [section.number(name, field, USUAL[name]) for name, field in NUMBERS.items()]
    return [
        fields.checks("trained_weights", "Trained weights", [], [], id=f"{section.ids}-weights"),
        fields.row(*numbers, section.button("Ask"), css="kv-measure"),
        fields.note("trained_none", id=f"{section.ids}-none"),
    ]


def read(visit: Visit, inputs: Given) -> DocumentRequest:
    """The checked request.

    Raises:
        Problems: everything that is wrong, each with its place.
    """
    reader = SECTION.reader(inputs)
    numbers = reader.numbers(NUMBERS)
    reader.check()
    weights = tuple(str(name) for name in inputs["trained_weights"] or ())
    return DocumentRequest(weights, numbers["questions"], numbers["seed"])


def facts(study: DocumentStudy) -> str:
    """What was asked."""
    return f"{plural(len(study.documents), 'question')} in {plural(len(study.arms), 'way')}"


def views(study: DocumentStudy) -> Sequence[FigureView]:
    """How many answers are right."""
    few = len(study.documents) < ENOUGH
    return (accuracy(study),) if few else (accuracy(study), by_position(study), by_documents(study))


def arrive(visit: Visit) -> Update:
    """The trained weights that ship for the loaded model."""
    weights = visit.engine.trained_weights()
    return {
        "trained_weights.choices": [(label, name) for name, label in weights.items()],
        "trained_weights": list(weights)[:1],
        "trained_weights.visible": bool(weights),
        "trained_none": "" if weights else f'<p class="kv-help">{NONE}</p>',
    }


SECTION = Section(
    "trained", "How much accuracy does training recover?",
    "KVLink and Block-Attention train the model to read documents that were encoded apart, and KVLink puts "
    "trained link tokens behind each. Ask two-hop questions under every method, and under each set of "
    "trained weights beside the full read on the same weights; above, all methods read with the model’s own. "
    "From 60 questions on also by where the answer stands.",
    boxes, read, views, facts, kind="documents", page="documents", as_run=True,
)  # fmt: skip
