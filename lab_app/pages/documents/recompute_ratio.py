"""The study under the Documents page: what recomputing tokens gains, by their share and the mask."""

from collections.abc import Callable, Sequence

from backend.base.ranges import SEEDS
from backend.prompts.presets import load_preset, preset_requests
from backend.records.blend import BlendRequest, BlendStudy
from backend.records.request import RunRequest
from lab_app.ui import fields
from lab_app.ui.fields import Node
from lab_app.ui.measurement import Section
from lab_app.ui.types import Given
from lab_app.ui.validation import FormReader, NumberField, Problem
from lab_app.visits.visits import Visit
from viz.base.format import plural
from viz.studies.recompute_ratio import views

RATIOS = (0.0, 0.1, 0.2, 0.5, 0.9, 1.0)
USUAL = {"prompts": 8, "seed": 7}
NUMBERS = {"prompts": NumberField("Prompts", 2, 40), "seed": NumberField("Seed", *SEEDS)}
SOURCES = [("Drawn, of this kind", "drawn"), ("The one above", "page")]
PAGE_WRONG = "What stands above cannot be read yet. Mend what is marked there, or measure drawn prompts."
#: Gives the chosen kind of example and the page's request, None where that is invalid.
Above = Callable[[Visit, Given], tuple[str, RunRequest | None]]


def boxes(section: Section) -> Sequence[Node]:
    """The boxes with their first values."""
    numbers = [section.number(name, field, USUAL[name]) for name, field in NUMBERS.items()]
    source = section.select("source", "Prompts are", SOURCES, "drawn")
    return [fields.row(*numbers, source, section.button(), css="kv-measure")]


def read(inputs: Given, preset: str, page: RunRequest | None) -> BlendRequest:
    """The checked request: for the page's own prompt, or for drawn ones of the kind ``preset``.

    Raises:
        Problems: everything that is wrong, each with its place.
    """
    reader = FormReader({name: inputs[f"ratio_{name}"] for name in NUMBERS})
    numbers = reader.numbers(NUMBERS)
    from_page = inputs["ratio_source"] != "drawn"
    if from_page and page is None:
        reader.problems.append(Problem("measure", PAGE_WRONG))
    reader.check()
    if from_page and page is not None:
        return BlendRequest(page.pipeline, (dict(page.values),), ratios=RATIOS)
    kind = load_preset(preset)
    examples = preset_requests(kind, numbers["prompts"], numbers["seed"])
    return BlendRequest(kind.pipeline, tuple(dict(example.values) for example in examples), ratios=RATIOS)


def facts(study: BlendStudy) -> str:
    """What was measured."""
    tokens = round(float(study.prompt_tokens.mean()))
    return f"{plural(len(study.prompt_tokens), 'prompt')} of {tokens} tokens"


def section(reads: tuple[str, ...], above: Above) -> Section:
    """The section; ``reads`` names the inputs of the page, from which ``above`` makes a request."""
    return Section(
        "ratio", "Does recomputing some tokens help?",
        "CacheBlend computes the tokens again whose cached values are furthest from true, as a share of all. "
        "Measured here against choosing at random, by the question’s attention and by the true error, under "
        "the exact mask and under the one that is shipped with CacheBlend.",
        boxes, lambda visit, inputs: read(inputs, *above(visit, inputs)), views, facts, kind="blend",
        reads=reads, page="documents", as_run=True,
    )  # fmt: skip
