"""Trained weights that a plan needs: loaded, or trained at embedded scale before it runs.

Searched in turn: the folder given with ``--links``; the weights that ship with the embedded model, if all
that the plan needs ship; what an earlier run trained into ``--out``. Missing ones are trained for equally
many steps, so that a table does not compare a long training with a short one unless the given folder does.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backend.base.errors import ModelError
from backend.model.link_tokens import SHIPPED, base_hash, load_links
from backend.model.load import SHIPPED as EMBEDDED
from backend.model.load import load_model
from backend.records.events import Progress
from backend.records.sweep import clock_time
from backend.reproduce.context import Context, Linked
from backend.reproduce.spec import Weights
from backend.training.link_tokens.train import LinkRecipe, train_links

STEPS, BATCH, TEACHER = 400, 8, 0.5  # about two minutes of a CPU core each
AT_ONCE = 20  # steps between two checkpoints
Available = dict[Weights, Linked]


def provide(required: Sequence[Weights], context: Context) -> Iterator[Progress]:
    """Put the required weights, in their order, into ``context.trained``, and remarks on them into its notes.

    Raises:
        LabError: they cannot be trained.
    """
    if not required:
        return
    asked = context.settings
    steps = STEPS if asked.training_steps is None else asked.training_steps
    if context.scale != "embedded" or context.model_name not in EMBEDDED:
        steps = 0
    base = base_hash(context.model.module)
    available = find_weights(asked.links, required, "--links", base, context) if asked.links else {}
    if context.model_name == "embedded":
        shipped = find_weights(SHIPPED, required, "shipped", base, context)
        if len(shipped) == len(required) or not steps:  # else some were trained ten times as long
            available = shipped | available
    missing = [weights for weights in required if weights not in available]
    if steps and missing:
        folder = asked.out / "links" / base
        recipes = [
            LinkRecipe(**asdict(weights), seed=asked.seed, steps=steps, batch=BATCH, teacher=TEACHER)
            for weights in missing
        ]
        yield from train([(folder / file_name(recipe), recipe) for recipe in recipes], context)
        available |= find_weights(folder, missing, "--out", base, context, steps)
    context.trained = tuple(available[weights] for weights in required if weights in available)
    context.notes += weights_notes(context, len(required))


def find_weights(
    folder: Path, required: Sequence[Weights], source: str, base: str, context: Context, steps: int = 0
) -> Available:
    """The first file of a folder for each of the required weights; files that cannot be read or belong to
    another base are noted.

    Args:
        base: :func:`backend.model.link_tokens.base_hash` of the model.
        steps: those of another number of steps or another seed do not count; 0 takes any.
    """
    available: Available = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            links, _, links_base = load_links(file)
        except ModelError as error:
            context.notes.append(str(error))
            continue
        if links_base != base:
            context.notes.append(f"{file.name} was left out: it belongs to other weights ({links_base}).")
            continue
        facts = links.facts
        if steps and (facts.get("step"), facts.get("seed")) != (steps, context.settings.seed):
            continue
        for weights in required:
            if weights not in available and fits(facts, weights):
                available[weights] = Linked(
                    f"{context.model_name}+{file}", LinkRecipe(**asdict(weights)).label, weights.mixture,
                    links.compression, f"{links.rate:.0%}", int(facts.get("step", 0)), source,
                )  # fmt: skip
    return available


def fits(facts: Mapping[str, Any], weights: Weights) -> bool:
    """Are these the facts of such weights, with deltas of any rank (not link tokens alone)?"""
    facts = {"shuffle": True, **facts}  # older files do not say: it was always on
    whole = weights.compression == "none"
    expected = {
        name: value for name, value in asdict(weights).items() if not (whole and name == "compressed")
    }
    return bool(facts.get("rank")) and all(facts.get(name) == value for name, value in expected.items())


def file_name(recipe: LinkRecipe) -> str:
    """A name that says what was trained."""
    parts = [recipe.label.lower().replace(", ", "-"), recipe.mixture]
    if recipe.compression != "none":
        parts += [recipe.compression, f"{recipe.compressed:.0%}".rstrip("%")]
    return "-".join([*parts, str(recipe.steps), f"seed{recipe.seed}"]) + ".safetensors"


def train(trainings: Sequence[tuple[Path, LinkRecipe]], context: Context) -> Iterator[Progress]:
    """Train what is not finished, a few steps at a time; an interrupted training goes on where it was."""
    total, offset = sum(recipe.steps for _, recipe in trainings), 0
    model, start, new_steps = None, time.monotonic(), 0
    for number, (file, recipe) in enumerate(trainings, 1):
        step = reached(file)
        while step < recipe.steps:
            model = model or load_model(context.model_name, device=context.settings.device, dtype="fp32")
            measured_speed = (time.monotonic() - start) / new_steps if new_steps else 0.0
            remaining = f", {clock_time(measured_speed * (total - offset - step))} left" if new_steps else ""
            part = f"{file.stem} ({number} of {len(trainings)})"
            yield Progress(
                f"Training {part}: {offset + step:,} of {total:,} steps{remaining}", offset + step, total
            )
            train_links(model, file, recipe, stop_after_steps=AT_ONCE, checkpoint_every=AT_ONCE)
            new_steps, step = new_steps + AT_ONCE, reached(file)
        file.with_suffix(".checkpoint.pt").unlink(missing_ok=True)
        offset += recipe.steps


def reached(file: Path) -> int:
    """The step that a file's training has reached; 0 where there is none that can be read."""
    try:
        return int(load_links(file)[0].facts["step"])
    except (ModelError, KeyError):
        return 0


def weights_notes(context: Context, count: int) -> list[str]:
    """Remarks on the weights for the report: sources, steps, and how many of ``count`` are missing."""
    notes = []
    lots: dict[tuple[str, int], list[str]] = {}
    for linked in context.trained:
        what = linked.label
        if linked.compression != "none":
            what += f" ({linked.compression} {linked.rate})"
        what += "" if linked.mixture == "lab" else f" ({linked.mixture})"
        lots.setdefault((linked.source, linked.steps), []).append(what)
    from_where = {
        "shipped": "shipped with the model, trained for {steps:,} steps",
        "--links": "from --links, trained for {steps:,} steps",
        "--out": f"trained into --out for {{steps:,}} steps of {BATCH} examples, where the next run finds "
        "them",
    }
    for (source, steps), names in lots.items():
        notes.append(f"{', '.join(names)}: {from_where[source].format(steps=steps)}.")
    if len({steps for _, steps in lots}) > 1:
        notes.append("The weights were not trained for equally many steps, so their lines compare badly.")
    if len(context.trained) < count:
        notes.append(
            f"{count - len(context.trained)} of {count} sets of trained weights are not here, so their "
            "lines are empty. Train them into a folder and name it with --links: kvlab train-links "
            f"--model {context.model_name} --links 5 --out FOLDER/kvlink5.safetensors; likewise with --links "
            "1 and --links 0, with --links 0 --no-edges for Block-Attention, and with --mixture, "
            "--compression or --unshuffled where a line needs it."
        )
    return notes
