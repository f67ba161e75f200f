"""What can be put on the form: scenarios by family, and the checked examples of the gallery."""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.base.errors import LabError
from backend.prompts.presets import Preset, load_preset, preset_names
from backend.studies.gallery import GalleryEntry, load_gallery
from lab_app.pages.pipeline.form import Form
from lab_app.ui import text
from viz.base.format import clip, listing

LOG = logging.getLogger("lab_app")
FAMILIES = (
    *("math", "judge", "documents", "archive", "message", "react", "program"),
    *("gsm8k", "mmlu", "humaneval", "chat", "summaries"),
)
Choices = list[tuple[str, str]]


def scenario_order(name: str) -> tuple[int, list[int], str]:
    """Sorts presets by family, then by the numbers in their names, then by name."""
    family = name.split("-")[0]
    place = FAMILIES.index(family) if family in FAMILIES else len(FAMILIES)
    return place, [int(number) for number in re.findall(r"\d+", name)], name


def scenarios(first: str) -> Choices:
    """Every scenario as (title, name), by family. Those for the same kind of model as ``first`` come first;
    the titles of the others name their model."""
    kind = load_preset(first).model
    presets = {name: load_preset(name) for name in sorted(preset_names(), key=scenario_order)}
    suited = [(preset.pipeline.title, name) for name, preset in presets.items() if preset.model == kind]
    others = [
        (f"{preset.pipeline.title}, {text.FOR_MODEL[preset.model]}", name)
        for name, preset in presets.items()
        if preset.model != kind
    ]
    return suited + others


def first_scenario(context_tokens: int) -> str:
    """The first scenario for a model of one's own: of those for any model, the first that fits its context,
    else the one that needs least."""
    names = [n for n in sorted(preset_names(), key=scenario_order) if load_preset(n).model == "any"]
    needs = {name: load_preset(name).needs_context for name in names}
    return next((name for name in names if needs[name] <= context_tokens), min(names, key=needs.__getitem__))


@dataclass(frozen=True)
class Gallery:
    """The checked examples, and the hash of the weights that they were checked with."""

    weights: str = ""
    entries: tuple[GalleryEntry, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)  # of the scenarios, by name

    @property
    def effects(self) -> Choices:
        """The effects that have an example, as (words, effect)."""
        counts: Counter[str] = Counter(entry.effect for entry in self.entries)
        return [
            (f"{words} · {counts[effect]}", effect)
            for effect, words in text.EFFECTS.items()
            if counts[effect]
        ]

    def choices(self, effect: str) -> Choices:
        """The examples of one effect as (words, name), after an entry that chooses none."""
        entries = [entry for entry in self.entries if entry.effect == effect]
        labels = [label(entry, self.titles[entry.preset]) for entry in entries]
        counts: Counter[str] = Counter()
        rows: Choices = [(text.CHOOSE_ONE.format(count=len(entries)), "")]
        for entry, words in zip(entries, labels, strict=True):
            counts[words] += 1
            rows.append((f"{words} ({counts[words]})" if labels.count(words) > 1 else words, entry.name))
        return rows

    def find(self, name: object) -> GalleryEntry | None:
        """The example with this name."""
        return next((entry for entry in self.entries if entry.name == name), None)


def label(entry: GalleryEntry, title: str) -> str:
    """An example in a few words: its scenario, and what was answered."""
    dense = short(entry.dense)
    if entry.effect == "harmless":
        return f"{title} · both {dense}"
    return f"{title} · full read {dense}, reused {short(entry.reused or text.NO_ANSWER)}"


def short(answer: str) -> str:
    """An answer for a list: ``1 and 3 and 4`` becomes ``1, 3 and 4``."""
    parts = answer.split(" and ")
    return clip(listing(parts) if all(part.isdigit() for part in parts) else answer, 24)


def checked_settings() -> dict[str, Any]:
    """The settings that the examples were checked with, as an update of the form."""
    from backend.methods.registry import method_class, option_fields

    usual = {option.name: option.default for option in option_fields(method_class("naive"))}
    return {"mode": "pinned", "temperature": 0, "top_p": 1, "options": {"naive": usual}}


def as_checked(form: Form, entry: GalleryEntry) -> bool:
    """Is the form still what was checked?"""
    preset = load_preset(entry.preset)
    settings = checked_settings()
    usual = settings["options"]["naive"]
    return (
        form.preset == entry.preset
        and form.templates[: len(preset.pipeline.agents)] == tuple(a.template for a in preset.pipeline.agents)
        and all(w == a.model for w, a in zip(form.weights, preset.pipeline.agents, strict=False))
        and all(form.values.get(name) == value for name, value in entry.values.items())
        and (form.mode, form.temperature) == (settings["mode"], settings["temperature"])
        and form.max_new_tokens == preset.pipeline.longest_answer
        and form.turns in (None, preset.pipeline.turns)
        and "naive" in form.methods
        and {**usual, **form.options.get("naive", {})} == usual
    )


def read_gallery(path: Path | None) -> Gallery:
    """The gallery of a file, without examples that fit no scenario; empty when it cannot be read."""
    if path is None or not path.is_file():
        return Gallery()
    try:
        weights, entries = load_gallery(path)
        usable = usable_entries(entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        LOG.warning("the gallery %s cannot be read", path.name)
        return Gallery()
    ordered = sorted(usable, key=lambda entry: scenario_order(entry.preset))
    titles = {name: load_preset(name).pipeline.title for name in {entry.preset for entry in usable}}
    return Gallery(weights, tuple(ordered), titles)


def usable_entries(entries: Sequence[GalleryEntry]) -> list[GalleryEntry]:
    """The examples whose scenario exists and takes their values."""
    presets: dict[str, Preset] = {}
    usable = []
    for entry in entries:
        try:
            if entry.preset not in presets:
                presets[entry.preset] = load_preset(entry.preset)
            presets[entry.preset].pipeline.check_values(entry.values)
            usable.append(entry)
        except LabError:
            LOG.warning("the example %s of the gallery fits no scenario", entry.name)
    return usable
