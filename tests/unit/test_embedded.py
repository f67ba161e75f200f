"""The embedded model's tasks, its packed batches, and a training that can be repeated and resumed."""

from __future__ import annotations

import json
import math
import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.answers import extract_number
from backend.embedded import tasks, train
from backend.embedded.evaluate import BEST, answers, evaluate
from backend.embedded.tasks import Document, make_document, make_problem, wrong_solution
from backend.embedded.train import Packer, Recipe, mixture, rate_factor
from backend.model import LoadedModel, load_model
from backend.presets import load_preset
from backend.tokens import Tokens

SEEDS = st.integers(0, 10**9)
STEP = re.compile(r"(\d+) ([-+*]) (\d+) = (-?\d+)\.")
TASKS = st.sampled_from(["solver", "worker", "judge"])


def question(document: Document) -> str:
    return document.pieces[1].text


def chain(text: str) -> list[tuple[int, str, int, int]]:
    return [(int(a), op, int(b), int(c)) for a, op, b, c in STEP.findall(text)]


# -- problems and documents


@given(seed=SEEDS, steps=st.integers(1, 3))
def test_problems_are_solved_by_their_steps(seed: int, steps: int) -> None:
    problem = make_problem(random.Random(seed), steps)
    value = int(re.search(r"\d+", problem.question)[0])  # type: ignore[index]
    assert len(problem.steps) == steps
    for left, op, right in problem.steps:
        assert left == value
        value = tasks.compute(left, op, right)
        assert 0 <= value <= 99
    assert problem.answer == value
    text = tasks.solution_text(problem.steps)
    assert extract_number(text) == str(value)
    assert all(tasks.compute(a, op, b) == c for a, op, b, c in chain(text))


@given(seed=SEEDS, steps=st.integers(1, 3))
def test_wrong_solutions_are_wrong_once_and_carried_on(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    problem = make_problem(rng, steps)
    text, value = wrong_solution(rng, problem)
    assert value != problem.answer
    assert extract_number(text) == str(value)
    lines = chain(text)
    assert len(lines) == steps
    assert lines[0][0] == problem.steps[0][0]
    assert all(a[3] == b[0] for a, b in pairwise(lines)), "each step starts from the last result"
    slips = sum(
        tasks.compute(a, op, b) != c or op != wanted
        for (a, op, b, c), (_, wanted, _) in zip(lines, problem.steps, strict=True)
    )
    assert slips == 1


@given(seed=SEEDS, task=TASKS, held_out=st.booleans(), canonical=st.booleans())
def test_documents_carry_their_answer(seed: int, task: Any, held_out: bool, canonical: bool) -> None:
    document = make_document(random.Random(seed), task, held_out=held_out, canonical=canonical)
    assert [p.answer for p in document.pieces] == [False] * (len(document.pieces) - 1) + [True]
    assert extract_number(document.target) == str(document.answer)
    assert all(p.text for p in document.pieces)
    assert 1 <= document.steps <= 3
    again = make_document(random.Random(seed), task, held_out=held_out, canonical=canonical)
    assert again == document


@given(seed=SEEDS)
def test_the_judges_best_is_the_first_right_candidate(seed: int) -> None:
    document = make_document(random.Random(seed), "judge")
    shown = [int(extract_number(p.text) or -1) for p in document.pieces[3:-2:2]]
    assert 2 <= len(shown) <= 5
    right = [i for i, value in enumerate(shown, 1) if value == document.answer]
    assert document.best == (right[0] if right else 0)
    assert int(BEST.search(document.target)[1]) == document.best  # type: ignore[index]
    for number, value in enumerate(shown, 1):
        verdict = "right" if number in right else "wrong"
        assert f"Candidate {number}: {value} {verdict}." in document.target


def test_judges_meet_every_case() -> None:
    rng = random.Random(0)
    best = [make_document(rng, "judge").best for _ in range(300)]
    assert set(best) >= {0, 1, 2, 3}


def test_the_drill_is_a_chain() -> None:
    document = make_document(random.Random(1), "drill")
    lines = chain(document.target)
    assert len(lines) == document.steps == 14
    assert all(tasks.compute(a, op, b) == c for a, op, b, c in lines)
    assert all(a[3] == b[0] for a, b in pairwise(lines))
    assert lines[-1][3] == document.answer


def test_what_is_held_out_is_never_trained_on() -> None:
    rng = random.Random(3)
    seen = {question(make_document(rng, task)) for task in ("solver", "worker", "judge") for _ in range(200)}
    held = {
        question(make_document(rng, task, held_out=True)) for task in ("solver", "judge") for _ in range(60)
    }
    assert not seen & held
    for texts, wanted in ((seen, False), (held, True)):
        assert all(tasks.Problem(text, (), 0).held_out == wanted for text in texts)
    share = sum(make_problem(rng, 2).held_out for _ in range(4000)) / 4000
    assert share == pytest.approx(1 / 32, abs=0.012)


# -- the same boundaries in training and in the lab


@pytest.mark.parametrize("name", ["math-2", "math-3", "math-4", "math-5"])
def test_training_sees_the_very_ids_of_the_presets_prompts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(tiny.tokenizer())
    packer = Packer(tiny.tokenizer(), Recipe())
    flow = load_preset(name).pipeline
    for place, agent in enumerate(flow.order):
        task: Any = "judge" if agent == flow.judge else "solver" if place == 0 else "worker"
        document = make_document(random.Random(place), task, others=place or None, canonical=True)
        texts = [p.text for p in document.pieces[1:-1:2]]
        holes = [h.name for h in flow.template(agent).placeholders]
        values = {hole: tokens.encode(text) for hole, text in zip(holes, texts, strict=True)}
        prompt = tokens.prompt(flow, agent, values)
        monkeypatch.setattr(train, "make_document", lambda *_, document=document, **__: document)
        ids, weights = packer.document(random.Random(0), 1.0)
        answer = [*tokens.encode(document.target), tokens.tokenizer.eos_token_id]
        assert ids == [*prompt.ids, *answer]
        assert weights[-len(answer) :] == [1.0] * len(answer)
        assert weights[0] == weights[len(prompt.ids) - 1] == 0, "neither opening token is learnt"
        assert set(weights[1 : len(prompt.ids) - 1]) == {Recipe().prompt_weight}


# -- batches


SMALL = Recipe(
    tokens=3 * 2 * 192, sequence_tokens=192, batch=2, hidden=32, layers=1, heads=2, kv_heads=1,
    intermediate=48, context=256, warmup_steps=1,
)  # fmt: skip


@pytest.mark.parametrize("step", [0, 1, 2])
def test_packed_documents_keep_apart(step: int) -> None:
    packer = Packer(tiny.tokenizer(), SMALL)
    ids, positions, documents, weights = packer.batch(step)
    assert ids.shape == positions.shape == documents.shape == weights.shape == (2, 192)
    for row in range(2):
        numbers = documents[row].tolist()
        used = [n for n in numbers if n >= 0]
        assert used, "a row holds at least one document"
        assert numbers == used + [-1] * (192 - len(used)), "padding comes last"
        assert sorted(used) == used
        assert set(used) == set(range(max(used) + 1))
        assert not weights[row, len(used) :].any()
        for number in set(used):
            places = [i for i, n in enumerate(numbers) if n == number]
            assert positions[row, places].tolist() == list(range(len(places)))
            assert ids[row, places[0]] == packer.bos
            assert weights[row, places[0]] == 0
            if len(places) < 192:
                assert ids[row, places[-1]] == packer.eos, "no document is cut"
                assert weights[row, places[-1]] == 1
            assert (ids[row, places] == packer.bos).sum() == (ids[row, places] == packer.opener).sum() == 1


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    one, other = Packer(tiny.tokenizer(), SMALL), Packer(tiny.tokenizer(), SMALL)
    other.batch(0)  # what was packed before does not matter
    assert all(torch.equal(a, b) for a, b in zip(one.batch(2), other.batch(2), strict=True))
    assert not torch.equal(one.batch(1)[0], one.batch(2)[0])
    seeded = Packer(tiny.tokenizer(), Recipe(**{**vars(SMALL), "seed": 1}))
    assert not torch.equal(one.batch(1)[0], seeded.batch(1)[0])


@given(st.floats(0, 1))
def test_shares_sum_to_one(progress: float) -> None:
    assert sum(share for _, share in mixture(progress)) == pytest.approx(1)


def test_the_rate_rises_stays_and_falls_to_zero() -> None:
    recipe = Recipe(tokens=1000 * 384 * 8)
    factors = [rate_factor(step, recipe) for step in range(recipe.steps)]
    assert recipe.steps == 1000
    assert factors[0] == 0.01
    assert factors[99] == factors[100] == factors[640] == 1
    assert factors[-1] == pytest.approx(1 / 350)
    assert all(0 < f <= 1 for f in factors)
    assert all(a >= b for a, b in pairwise(factors[100:]))


# -- training


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Any:
    def save_tokenizer(folder: Path, seed: int = 0) -> Any:
        tiny.tokenizer().save_pretrained(folder)
        return tiny.tokenizer()

    monkeypatch.setattr(train, "save_tokenizer", save_tokenizer)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # bit for bit is a promise of the CPU

    def go(folder: Path, **more: Any) -> tuple[list[float], dict[str, Any]]:
        train.train(folder, SMALL, compile_model=False, **more)
        rows = [json.loads(x) for x in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()]
        state = torch.load(folder / "checkpoint.pt", weights_only=True)
        return [r["answer_loss"] for r in rows], state

    return go


def test_training_repeats_and_resumes(training: Any, tmp_path: Path) -> None:
    losses, state = training(tmp_path / "one")
    assert state["step"] == SMALL.steps == 3
    assert all(math.isfinite(x) and x > 0 for x in losses)
    again, same = training(tmp_path / "again")
    assert again == losses
    training(tmp_path / "halves", stop_after_steps=1)
    assert torch.load(tmp_path / "halves" / "checkpoint.pt", weights_only=True)["step"] == 1
    _, resumed = training(tmp_path / "halves")
    for other in (same, resumed):
        assert other["step"] == 3
        assert all(torch.equal(state["model"][name], other["model"][name]) for name in state["model"])
    other_seed = Recipe(**{**vars(SMALL), "seed": 1})
    assert not torch.equal(
        train.build_model(other_seed, tiny.tokenizer()).lm_head.weight,
        train.build_model(SMALL, tiny.tokenizer()).lm_head.weight,
    )
    # a finished training has nothing left to do, and its export is a model of the lab
    _, done = training(tmp_path / "one")
    assert done["step"] == 3
    loaded = load_model(str(tmp_path / "one" / "export"), device="cpu", dtype="fp32")
    assert loaded.info.certificate.relocatable
    facts = json.loads((tmp_path / "one" / "export" / "recipe.json").read_text(encoding="utf-8"))
    assert (facts["step"], facts["tokens_seen"], facts["hidden"]) == (3, 3 * 2 * 192, 32)
    for name, tensor in loaded.module.state_dict().items():
        assert torch.equal(tensor, state["model"][name].bfloat16().float())


# -- evaluation


def test_evaluation_reads_what_the_lab_reads(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(5)
    documents = [
        make_document(rng, task, held_out=True, canonical=True) for task in ("solver", "worker", "judge")
    ]
    texts = answers(tiny_model, documents, batch=2)
    assert len(texts) == 3
    assert texts == answers(tiny_model, documents, batch=3), "batching must not show"


def test_evaluation_scores_by_hand(tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Perfect answers score 1 throughout; a judge that names the wrong candidate loses only the selection."""
    monkeypatch.setattr(
        "backend.embedded.evaluate.answers", lambda _, documents: [d.target for d in documents]
    )
    report = evaluate(tiny_model, count=12)
    for name in ("solver", "worker", "judge"):
        for wording in ("stock wording", "any wording"):
            scores = report[f"{name}, {wording}"]
            assert scores["answer"]["share"] == scores["exact"]["share"] == 1
            assert scores["answer"]["n"] == 12
            assert ("selection" in scores) == (name == "judge")
    monkeypatch.setattr(
        "backend.embedded.evaluate.answers",
        lambda _, documents: [BEST.sub("The best candidate is 9", d.target) for d in documents],
    )
    judge = evaluate(tiny_model, count=12)["judge, stock wording"]
    assert (judge["answer"]["share"], judge["selection"]["share"], judge["exact"]["share"]) == (1, 0, 0)
