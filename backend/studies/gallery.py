"""The gallery: requests on which reuse changes the answer, and others where it does no harm.

Found by a program (``scripts/gallery.py``) and checked again by a test, for the weights that ship. Free of
torch until an entry is tried.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from backend.prompts.presets import Example, Preset
from backend.records.events import RunDone
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import RunRecord

if TYPE_CHECKING:
    from backend.model.load import LoadedModel

GALLERY = Path(__file__).resolve().parents[2] / "presets" / "gallery.json"
Effect = Literal["flip", "harmless"]
METHODS = (MethodChoice("dense"), MethodChoice("naive"))


@dataclass(frozen=True)
class GalleryEntry:
    """One request of a preset, and what the final agent answers under dense and under position-only reuse.

    ``effect``: *flip* when dense is right and reuse answers something else, *harmless* when both are
    right.
    """

    name: str
    effect: Effect
    preset: str
    values: dict[str, str]
    expected: str
    dense: str
    reused: str | None

    @property
    def example(self) -> Example:
        """The request and its known answer."""
        return Example(self.values, self.expected)


def load_gallery(path: Path = GALLERY) -> tuple[str, tuple[GalleryEntry, ...]]:
    """The weights hash that the gallery was found with, and its entries, flips first."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["weights"], tuple(GalleryEntry(**row) for row in content["entries"])


def save_gallery(weights: str, entries: tuple[GalleryEntry, ...], path: Path = GALLERY) -> None:
    """Write the gallery, flips first."""
    rows = [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.effect)]
    path.write_text(json.dumps({"weights": weights, "entries": rows}, indent=1) + "\n", encoding="utf-8")


def try_example(model: LoadedModel, preset: Preset, example: Example) -> RunRecord:
    """Run one request dense and with position-only reuse, in a session that has seen nothing."""
    from backend.session.session import LabSession

    request = RunRequest(
        preset.pipeline,
        dict(example.values),
        METHODS,
        expected=example.answer,
        decoding=Decoding(max_new_tokens=preset.pipeline.longest_answer),
        probe_offsets=False,
    )
    [record] = [event.record for event in LabSession(model).run(request) if isinstance(event, RunDone)]
    return record


def judge_example(preset: Preset, example: Example, record: RunRecord, name: str) -> GalleryEntry | None:
    """The entry that a run makes, or None when dense itself is wrong."""
    final = preset.pipeline.final
    dense, reused = record.outcome(final, "dense"), record.outcome(final, "naive")
    if not dense.correct or dense.answer is None or example.answer is None:
        return None
    if not reused.correct and reused.answer == dense.answer:
        return None
    effect: Effect = "harmless" if reused.correct else "flip"
    return GalleryEntry(
        name, effect, preset.pipeline.name, dict(example.values), example.answer, dense.answer, reused.answer
    )


def search(
    model: LoadedModel, preset: Preset, examples: Iterator[Example], flips: int, harmless: int
) -> Iterator[GalleryEntry]:
    """The first entries of each effect among the examples, until there are enough of both."""
    totals = {"flip": flips, "harmless": harmless}
    missing = dict(totals)
    for example in examples:
        if not any(missing.values()):
            return
        record = try_example(model, preset, example)
        entry = judge_example(preset, example, record, "")
        if entry is None or not missing[entry.effect]:
            continue
        missing[entry.effect] -= 1
        number = totals[entry.effect] - missing[entry.effect]
        yield replace(entry, name=f"{preset.pipeline.name}-{entry.effect}-{number}")
