"""The gallery holds, example for example, for the weights that ship; and its judging by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.model.load import LoadedModel, load_model
from backend.prompts.presets import load_preset, preset_names
from backend.records.request import MethodChoice
from backend.studies.gallery import (
    GalleryEntry,
    judge_example,
    load_gallery,
    save_gallery,
    try_example,
)

WEIGHTS, ENTRIES = load_gallery()


def holds(model: LoadedModel, entry: GalleryEntry) -> bool:
    preset = load_preset(entry.preset)
    record = try_example(model, preset, entry.example)
    return judge_example(preset, entry.example, record, entry.name) == entry


@pytest.fixture(scope="module")
def embedded() -> LoadedModel:
    return load_model("embedded", device="cpu", dtype="fp32")


def test_it_was_found_with_the_weights_that_ship(embedded: LoadedModel) -> None:
    assert embedded.info.weights_hash == WEIGHTS


def test_there_are_enough_of_both() -> None:
    flips = [entry for entry in ENTRIES if entry.effect == "flip"]
    assert len(flips) >= 20
    assert len(ENTRIES) - len(flips) >= 10
    assert len({entry.preset for entry in flips}) >= 5
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)
    assert {entry.preset for entry in ENTRIES} <= set(preset_names())
    assert all((entry.dense == entry.reused) == (entry.effect == "harmless") for entry in ENTRIES)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_example_still_holds(entry: GalleryEntry, embedded: LoadedModel) -> None:
    assert holds(embedded, entry)


@pytest.mark.slow
def test_the_check_can_fail(embedded: LoadedModel) -> None:
    entry = ENTRIES[0]
    assert not holds(embedded, replace(entry, reused=(entry.reused or "") + "0"))
    assert not holds(embedded, replace(entry, expected=entry.expected + "0"))


@pytest.mark.slow
def test_judging_by_hand(embedded: LoadedModel) -> None:
    entry = ENTRIES[0]
    preset = load_preset(entry.preset)
    record = try_example(embedded, preset, entry.example)
    final = preset.pipeline.final

    def judged(dense: str | None, reused: str | None, expected: str = entry.expected) -> GalleryEntry | None:
        outcomes = tuple(
            replace(o, answer=text, correct=text == expected)
            if o.agent == final and (text := dense if o.method == "dense" else reused) is not None
            else replace(o, answer=None, correct=False)
            for o in record.outcomes
        )
        example = replace(entry.example, answer=expected)
        return judge_example(preset, example, replace(record, outcomes=outcomes), "x")

    right, wrong = entry.expected, entry.expected + "9"
    flip, harmless = judged(right, wrong), judged(right, right)
    assert flip is not None
    assert harmless is not None
    assert (flip.effect, flip.dense, flip.reused) == ("flip", right, wrong)
    assert (harmless.effect, harmless.reused) == ("harmless", right)
    silent = judged(right, None)
    assert silent is not None
    assert (silent.effect, silent.reused) == ("flip", None)
    assert judged(wrong, right) is None, "dense itself is wrong"
    assert judged(None, wrong) is None


def test_it_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "gallery.json"
    save_gallery("abc", tuple(reversed(ENTRIES)), path)
    weights, entries = load_gallery(path)
    assert weights == "abc"
    assert sorted(entries, key=lambda e: e.name) == sorted(ENTRIES, key=lambda e: e.name)
    effects = [entry.effect for entry in entries]
    assert effects == sorted(effects), "flips come first"


@pytest.mark.slow
def test_a_run_asks_for_dense_and_position_only_reuse(embedded: LoadedModel) -> None:
    entry = ENTRIES[0]
    record = try_example(embedded, load_preset(entry.preset), entry.example)
    assert record.request.methods == (MethodChoice("dense"), MethodChoice("naive"))
    assert record.request.mode == "pinned"
    assert record.labels == ("dense", "naive")
