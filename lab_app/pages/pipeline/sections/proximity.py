"""The Proximity tab: how near tokens' embeddings are, and how near their keys and values. It needs no run."""

from collections.abc import Sequence

from backend.prompts.presets import load_preset
from backend.records.proximity import LIMITS, ProximityRecord, ProximityRequest
from lab_app.ui import fields
from lab_app.ui.fields import Node
from lab_app.ui.measurement import Section
from lab_app.ui.types import Given
from lab_app.ui.validation import NumberField
from lab_app.visits.visits import Visit
from viz.base.format import plural
from viz.studies.proximity import examples, views

#: The prompts whose openings are the first prefixes: (preset, agent).
ROLES = (("math-3", 1), ("judge-majority", 1))
PREFIXES = {"prefix_a": "Prefix A", "prefix_b": "Prefix B"}
LABELS = {"vocabulary": "Tokens sampled", "pairs": "Pairs", "seed": "Seed"}
NUMBERS = {name: NumberField(LABELS[name], *limits) for name, limits in LIMITS.items()}
PLAN = "What will be measured?"
STEPS = (
    "Sample tokens of the vocabulary and take the pairs whose embeddings are nearest, in thirds: near, mid "
    "and far.",
    "Read every token behind prefix A. How far apart are the keys and values of a pair, layer by layer?",
    "Read every token behind prefix B as well. What changes from A to B is a token’s offset: how far apart "
    "are the offsets of a pair?",
    "Correlate those distances with the distance of the embeddings. Reuse by anchors rests on the second "
    "correlation.",
)


def boxes(section: Section) -> Sequence[Node]:
    """The boxes; first with two agents' prompts up to their first placeholder."""
    role_a, role_b = (str(load_preset(name).pipeline.template(agent).parts[0]) for name, agent in ROLES)
    usual = ProximityRequest(role_a, role_b)
    texts = [
        fields.panel(
            "", section.text_box(name, label, getattr(usual, name), lines=3, max=8), section.error(name)
        )
        for name, label in PREFIXES.items()
    ]
    numbers = [section.number(name, field, getattr(usual, name)) for name, field in NUMBERS.items()]
    return [fields.row(*texts, css="kv-prefixes"), fields.row(*numbers, section.button(), css="kv-measure")]


def read(visit: Visit, inputs: Given) -> ProximityRequest:
    """A checked request.

    Raises:
        Problems: everything that is wrong, each with its box.
    """
    reader = SECTION.reader(inputs)
    prefix_a, prefix_b = (reader.text(name, label) for name, label in PREFIXES.items())
    numbers = reader.numbers(NUMBERS)
    reader.check()
    return ProximityRequest(prefix_a, prefix_b, **numbers)


def facts(record: ProximityRecord) -> str:
    """What was measured."""
    pairs = plural(len(record.embedding), "nearest pair")
    return f"The {pairs} of {plural(record.sampled, 'token')}, seed {record.request.seed},"


SECTION = Section(
    "proximity", "",
    "KVCOMM corrects a text by what similar texts needed, so it must hold that similar tokens have similar "
    "KV, and that a change of prefix moves them alike. This measures both on the loaded model, without a "
    "run.",
    boxes, read, lambda record: (*views(record), examples(record)), facts, kind="proximity", tab="anchors",
    label="Proximity",
    question="Does nearness in embedding space predict nearness in the cache? (KVCOMM, Fig. 4)",
    plan=(PLAN, STEPS),
)  # fmt: skip
