"""Weights that a reproduction needs: found, trained where they are lacking, resumed and used again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from backend.base.errors import OptionError
from backend.model.link_tokens import Links, base_hash, load_links, save_links
from backend.model.load import LoadedModel
from backend.prompts.tasks.base import is_held_out
from backend.reproduce import training
from backend.reproduce.context import Context, Settings
from backend.reproduce.registry import find, reproductions
from backend.reproduce.run import ReportEvent, reproduce
from backend.reproduce.spec import Reproduction, Weights
from backend.reproduce.training import provide
from backend.training.link_tokens.examples import LAB, Example, draw
from backend.training.link_tokens.train import Feed, LinkRecipe, Trainee

Trained = list[tuple[str, int]]


def put(file: Path, recipe: LinkRecipe, step: int, base: str) -> None:
    """A file as a training leaves it, but for what is in it."""
    facts = asdict(recipe) | {"step": step, "label": recipe.label}
    rate = 0.0 if recipe.compression == "none" else recipe.compressed
    links = Links(
        torch.zeros(2, recipe.links, 4), torch.zeros(2 * recipe.edges, 4), torch.zeros(0, 4),
        recipe.compression, rate, recipe.chunk_tokens, facts,
    )  # fmt: skip
    save_links(file, links, {}, base)


@pytest.fixture
def trained(tiny_model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trained:
    """Trainings that only write a file; what was asked of them, and the step it led to."""
    calls: Trained = []

    def train_links(model: Any, file: Path, recipe: LinkRecipe, **given: Any) -> Path:
        step = min(recipe.steps, training.reached(file) + given["stop_after_steps"])
        assert given["checkpoint_every"] <= given["stop_after_steps"], "else nothing is kept of it"
        put(file, recipe, step, base_hash(tiny_model.module))
        file.with_suffix(".checkpoint.pt").write_bytes(b"")
        calls.append((file.stem, step))
        return file

    monkeypatch.setattr(training, "train_links", train_links)
    monkeypatch.setattr(training, "load_model", lambda *_, **__: tiny_model)
    monkeypatch.setattr(training, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setattr(Context, "load", lambda self, name: tiny_model)
    return calls


@pytest.fixture
def context(tmp_path: Path) -> Callable[..., Context]:
    def made(one: Reproduction, **given: Any) -> Context:
        return Context(one, "embedded", "embedded", Settings(tmp_path, **given))

    return made


def ship(folder: Path, model: LoadedModel, *wanted: Weights, steps: int = 4000) -> Path:
    """A folder of finished weights."""
    for number, one in enumerate(wanted):
        recipe = LinkRecipe(**asdict(one), steps=steps)
        put(folder / f"{number}.safetensors", recipe, steps, base_hash(model.module))
    return folder


def needs(name: str) -> tuple[Weights, ...]:
    return find(name).scales["embedded"].weights


@pytest.mark.parametrize("one", [one for one in reproductions() if one.needs_links], ids=lambda one: one.name)
def test_every_line_has_its_weights_declared(one: Reproduction) -> None:
    made = set()
    for weights in one.scales["embedded"].weights:
        recipe = LinkRecipe(**asdict(weights))
        rate = "0%" if recipe.compression == "none" else f"{recipe.compressed:.0%}"
        made.add((recipe.label, recipe.mixture, recipe.compression, rate))
    for line in one.lines:
        at = line.at.get("embedded", {})
        arm = at.get("arm", at.get("weights", "")).removeprefix("dense on ")
        if arm.startswith(("KVLink", "Block")):
            compression = at["compression"]
            assert (arm, at.get("mixture", "lab"), compression, at.get("rate", "0%")) in made, line.label
    for column in one.columns:
        if (column.metric or "").startswith(("KVLink", "Block")):
            assert column.metric in {label for label, *_ in made}


@pytest.mark.slow
def test_the_declared_needs_decide_what_is_trained(
    trained: Trained, context: Callable[..., Context], tmp_path: Path, tiny_model: LoadedModel
) -> None:
    """All that a plan needs ships, or none of it counts: Table 5 has the lab's mixture trained anew."""
    ship(tmp_path / "shipped", tiny_model, *needs("kvlink-table-1"))
    whole = context(find("kvlink-table-1"))
    assert not list(provide(needs("kvlink-table-1"), whole))
    assert not trained
    assert [one.label for one in whole.trained] == ["KVLink5", "KVLink1", "KVLink0", "Block-Attention"]
    assert whole.notes == [
        "KVLink5, KVLink1, KVLink0, Block-Attention: shipped with the model, trained for 4,000 steps."
    ]

    mixtures = context(find("kvlink-table-5"))
    told = list(provide(needs("kvlink-table-5"), mixtures))
    assert [name for name, step in trained if step == 400] == [
        f"kvlink5-{mixture}-400-seed0" for mixture in ("lab", "no-summary", "no-conversation", "qa-only")
    ]
    assert {one.mixture for one in mixtures.trained} == {"lab", "no-summary", "no-conversation", "qa-only"}
    assert {(one.steps, one.source) for one in mixtures.trained} == {(400, "--out")}
    [note] = mixtures.notes
    assert "trained into --out for 400 steps of 8 examples" in note
    assert (told[0].done, told[0].total) == (0, 1600)
    assert "kvlink5-lab-400-seed0 (1 of 4): 0 of 1,600 steps" in told[0].text
    assert " left" not in told[0].text
    assert " left" in told[1].text

    trained.clear()
    list(provide(needs("kvlink-table-3"), context(find("kvlink-table-3"))))
    finished = [name for name, step in trained if step == 400]
    assert len(finished) == len(set(finished)) == 8
    assert {"kvlink5-lab-drop-75-400-seed0", "block-attention-lab-anchors-50-400-seed0"} <= set(finished)

    trained.clear()
    figure = context(find("kvlink-figure-6"))
    list(provide(needs("kvlink-figure-6"), figure))
    assert {name for name, _ in trained} == {
        "kvlink5-unshuffled-lab-400-seed0", "block-attention-lab-400-seed0",
        "block-attention-unshuffled-lab-400-seed0",
    }, "KVLink5 itself is there from Table 5"  # fmt: skip
    assert [one.label for one in figure.trained] == [
        "KVLink5", "KVLink5, unshuffled", "Block-Attention", "Block-Attention, unshuffled"
    ]  # fmt: skip


def test_training_stops_goes_on_and_is_not_done_twice(
    trained: Trained, context: Callable[..., Context], tmp_path: Path, tiny_model: LoadedModel
) -> None:
    wanted = needs("kvlink-table-5")[:2]
    one = find("kvlink-table-5")
    next(event for event in provide(wanted, context(one)) if event.done == 440)
    assert trained[-1] == ("kvlink5-no-summary-400-seed0", 40)
    folder = tmp_path / "links" / base_hash(tiny_model.module)
    assert not (folder / "kvlink5-lab-400-seed0.checkpoint.pt").exists(), "a finished one needs none"
    assert (folder / "kvlink5-no-summary-400-seed0.checkpoint.pt").exists()

    trained.clear()
    list(provide(wanted, context(one)))
    assert [step for _, step in trained] == list(range(60, 401, 20)), "not from the beginning"
    assert {name for name, _ in trained} == {"kvlink5-no-summary-400-seed0"}

    trained.clear()
    again = context(one)
    assert not list(provide(wanted, again))
    assert not trained
    assert [x.steps for x in again.trained] == [400, 400]

    list(provide(wanted[:1], context(one, seed=1)))
    list(provide(wanted[:1], context(one, training_steps=20)))
    assert {name for name, _ in trained} == {"kvlink5-lab-400-seed1", "kvlink5-lab-20-seed0"}
    own = context(one)
    list(provide(wanted[:1], own))
    assert [x.model.rpartition("/")[2] for x in own.trained] == ["kvlink5-lab-400-seed0.safetensors"]


def test_a_damaged_file_is_trained_again(
    trained: Trained, context: Callable[..., Context], tmp_path: Path, tiny_model: LoadedModel
) -> None:
    folder = tmp_path / "links" / base_hash(tiny_model.module)
    folder.mkdir(parents=True)
    (folder / "kvlink5-lab-20-seed0.safetensors").write_bytes(b"half")
    found = context(find("kvlink-table-5"), training_steps=20)
    list(provide(needs("kvlink-table-5")[:1], found))
    assert [one.steps for one in found.trained] == [20]


def test_a_folder_is_looked_at_first(
    trained: Trained, context: Callable[..., Context], tmp_path: Path, tiny_model: LoadedModel
) -> None:
    wanted = needs("kvlink-table-5")
    given = ship(tmp_path / "mine", tiny_model, *wanted[1:], steps=1000)
    put(given / "other.safetensors", LinkRecipe(), 400, "0" * 16)
    (given / "broken.safetensors").write_bytes(b"")
    found = context(find("kvlink-table-5"), links=given)
    list(provide(wanted, found))
    assert {name for name, _ in trained} == {"kvlink5-lab-400-seed0"}, "only what lacks"
    assert [(one.steps, one.source) for one in found.trained] == [(400, "--out"), *[(1000, "--links")] * 3]
    notes = " ".join(found.notes)
    assert "not trained for equally many steps" in notes
    assert "other.safetensors was left out: it belongs to other weights" in notes
    assert "broken.safetensors holds no link tokens" in notes


def test_link_tokens_alone_and_the_wrong_order_are_other_weights() -> None:
    facts = asdict(LinkRecipe(shuffle=True))
    assert training.fits(facts, Weights())
    assert training.fits({k: v for k, v in facts.items() if k != "shuffle"}, Weights()), "older files"
    assert not training.fits(facts | {"rank": 0}, Weights())
    assert not training.fits(facts, Weights(shuffle=False))
    assert not training.fits(facts, Weights(mixture="qa-only"))
    assert training.fits(facts | {"compressed": 0.75}, Weights()), "nothing was compressed"
    drop = facts | {"compression": "drop", "compressed": 0.75}
    assert training.fits(drop, Weights(compression="drop", compressed=0.75))
    assert not training.fits(drop, Weights(compression="drop"))


@pytest.mark.parametrize(
    "given",
    [
        {"settings": Settings(Path(), training_steps=0)},
        {"model_name": "somebody/a-model"},
        {"scale": "paper"},
    ],
)
def test_without_training_lines_stay_empty_and_the_note_says_how(
    given: dict[str, Any],
    trained: Trained,
    context: Callable[..., Context],
    tmp_path: Path,
    tiny_model: LoadedModel,
) -> None:
    """Another model's training would take hours nobody asked for."""
    ship(tmp_path / "shipped", tiny_model, Weights())
    found = replace(context(find("kvlink-table-5")), **given)
    assert not list(provide(needs("kvlink-table-5"), found))
    assert not trained
    assert len(found.trained) == (found.model_name == "embedded"), "what ships is better than nothing"
    lacking = 4 - len(found.trained)
    assert f"{lacking} of 4 sets of trained weights are not here" in found.notes[-1]
    assert "kvlab train-links" in found.notes[-1]


def test_what_needs_no_weights_asks_for_none(trained: Trained, context: Callable[..., Context]) -> None:
    found = context(find("kvcomm-table-5"))
    assert not list(provide((), found))
    assert not found.notes


def test_steps_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"training-steps is -1; 0 to 100,000 are allowed"):
        list(reproduce(find("kvlink-table-5"), Settings(tmp_path, training_steps=-1)))


@pytest.mark.slow
def test_figure_6_trains_what_it_needs_and_fills_its_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way, with trainings of a step."""
    monkeypatch.setattr(training, "BATCH", 2)
    monkeypatch.setattr("backend.studies.documents.MAX_ANSWER", 2)
    *events, last = reproduce(find("kvlink-figure-6"), Settings(tmp_path, problems=2, training_steps=1))
    assert isinstance(last, ReportEvent)
    assert sum("Training " in event.text for event in events if not isinstance(event, ReportEvent)) == 4
    [early, late] = [line for line in last.report["lines"] if line["label"].startswith("at ")]
    filled = [line for line in (early, late) if any(line["ours"])]
    assert filled
    assert all(value is not None for line in filled for value in line["ours"])
    assert [one["label"] for one in last.report["trained"]] == [
        "KVLink5", "KVLink5, unshuffled", "Block-Attention", "Block-Attention, unshuffled"
    ]  # fmt: skip
    assert str(tmp_path) not in str(last.report), "a report is for others"
    [file] = tmp_path.glob("links/*/kvlink5-unshuffled-lab-1-seed0.safetensors")
    assert load_links(file)[0].facts["shuffle"] is False


@pytest.mark.slow
def test_unshuffled_questions_are_answered_by_the_first_documents() -> None:
    rng = random.Random(7)
    places: dict[bool, list[int]] = {False: [], True: []}
    for shuffle in (False, True):
        for _ in range(1000):  # open documents are rarely ten
            drawn = draw(rng, {name: LAB[name] for name in ("documents apart", "documents")}, shuffle=shuffle)
            pieces = drawn.document.pieces
            # the split is made before white space is left behind a text
            texts = [p.text.strip() for p in pieces if (p.name or "").startswith("document_")]
            stated, _, answer = drawn.document.target.rpartition("The answer is ")
            if not stated or stated.startswith("First "):  # in open words it comes at once
                assert shuffle or any(answer.lower() in text.lower() for text in texts[:2]), texts
                continue
            hops = stated.rstrip(". ").split(". ")
            found = [next(i for i, text in enumerate(texts, 1) if hop in text) for hop in hops]
            if not shuffle:
                first = sorted(set(found))  # one document may hold both facts
                assert first == list(range(1, len(first) + 1)), texts
                assert len(first) <= len(hops), texts
            places[shuffle] += found
            question = next(p.text.strip() for p in pieces if p.name == "user_question")
            assert not is_held_out(question + " ".join(texts)), "no order lets held-out ones in"
    assert set(places[False]) == {1, 2}
    assert set(places[True]) == set(range(1, 11))


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_training_draws_as_its_recipe_says(shuffle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def noted(*args: Any, **given: Any) -> Example:
        asked.append(given.get("shuffle"))
        return draw(*args, **given)

    monkeypatch.setattr("backend.training.link_tokens.train.draw", noted)
    model = tiny.model(seed=3)  # of its own: training freezes its parameters
    recipe = LinkRecipe(batch=2, rank=2, links=1, shuffle=shuffle)
    Feed(model, Trainee(model, recipe)).at(0)
    assert asked == [shuffle] * 2
