"""What the tour says of a run is computed from it: other runs, other words."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from fake_record import make_record

from backend.records.request import MethodChoice
from backend.records.run import RunRecord
from lab_app.pages.tour.steps import Step, recorded, steps
from viz.base import format as words
from viz.base.figure import Panel
from viz.base.glossary import GLOSSARY
from viz.pages import tour


def record_of(key: str, **changes: object) -> RunRecord:
    """A made-up run under the labels of a step."""
    step = next(s for s in steps() if s.key == key)
    labels = ["dense", *(m.label for m in step.run.methods)]
    made = make_record(layers=4, methods=labels)
    methods = (MethodChoice("dense"), *step.run.methods)
    return dataclasses.replace(made, request=dataclasses.replace(made.request, methods=methods), **changes)


def changed(
    record: RunRecord, label: str, agents: tuple[int, ...] | None = None, **changes: object
) -> RunRecord:
    """The record with other outcomes of one method."""
    outcomes = tuple(
        dataclasses.replace(o, **changes)  # type: ignore[arg-type]
        if o.method == label and (agents is None or o.agent in agents)
        else o
        for o in record.outcomes
    )
    return dataclasses.replace(record, outcomes=outcomes)


def acted(record: RunRecord, label: str, code: int) -> RunRecord:
    """The record in which a method did the same to every token."""
    outcomes = tuple(
        dataclasses.replace(o, actions=np.full_like(o.actions, code)) if o.method == label else o
        for o in record.outcomes
    )
    return dataclasses.replace(record, outcomes=outcomes)


def plain(sentences: tuple[str, ...]) -> str:
    return re.sub(r"<[^>]+>", "", " ".join(sentences))


def scaled(record: RunRecord, label: str, factor: float) -> RunRecord:
    """The errors of a method as multiples of those of the first method."""
    first = words.others(record)[0]
    outcomes = []
    for o in record.outcomes:
        if o.method == label:
            ref = record.outcome(o.agent, first)
            o = dataclasses.replace(
                o, actions=ref.actions, key_error=ref.key_error * factor, value_error=ref.value_error * factor
            )
        outcomes.append(o)
    return dataclasses.replace(record, outcomes=tuple(outcomes))


def test_a_step_for_everything_that_is_told() -> None:
    assert [s.key for s in steps()] == list(tour.STEPS)


@pytest.mark.parametrize("step", steps(), ids=lambda s: s.key)
def test_any_run_is_told_in_sentences(step: Step) -> None:
    """Whatever came out, the choice is one of the step's and the sentences hold numbers of the run."""
    told = tour.describe_step(step.key, record_of(step.key))
    assert told.choice is None or told.choice in step.choices
    assert told.sentences
    assert all(s.rstrip().endswith(".") for s in told.sentences)
    assert "nan" not in plain(told.sentences).lower()


@pytest.mark.parametrize(("code", "choice"), [(1, "few"), (0, "all")])
def test_cache_counts_what_was_read(code: int, choice: str) -> None:
    told = tour.cache(acted(record_of("cache"), "prefix", code))
    assert told.choice == choice
    assert told.shows is (choice == "few" and "the answer is the same" in plain(told.sentences))


def test_prefix_counts_answers() -> None:
    record = record_of("prefix")
    agents = record.agents
    ref = {a: record.outcome(a, "dense").answer for a in agents}
    for lost, choice in ((0, "all"), (1, "some"), (len(agents), "none")):
        now = record
        for number, agent in enumerate(agents):
            now = changed(now, "naive", (agent,), answer="999" if number < lost else ref[agent])
        told = tour.prefix(now)
        assert (told.choice, told.shows) == (choice, lost > 0)
        assert f"{len(agents) - lost} of {len(agents)} answers" in plain(told.sentences)
        assert ("999" in plain(told.sentences)) is (lost > 0)


@pytest.mark.parametrize(("left", "choice"), [(0.0, "gone"), (0.5, "part"), (0.9, "none")])
def test_rotation_compares_layer_0(left: float, choice: str) -> None:
    record = record_of("rotation")
    for label, size in (("Moved", 0.8 * left), ("Not moved", 0.8)):
        out = record.outcome(record.agents[-1], label)
        errors = np.full_like(out.key_error, 0.4)
        errors[0] = size
        record = changed(acted(record, label, 1), label, (record.agents[-1],), key_error=errors)
    assert tour.rotation(record).choice == choice
    same = changed(record, "Not moved", key_error=record.outcome(record.agents[-1], "Moved").key_error * 0)
    assert (tour.rotation(same).choice, tour.rotation(same).shows) == (None, False)


@pytest.mark.parametrize(("size", "choice"), [(0.05, "small"), (0.3, "middle"), (0.7, "large")])
def test_offsets_are_read_off_the_values(size: float, choice: str) -> None:
    record = record_of("offsets")
    probes = []
    for probe in record.offsets:
        value = np.zeros_like(probe.value_offset)
        value[2, 5:] = size * probe.value_norm[2, 5:]
        probes.append(dataclasses.replace(probe, value_offset=value, key_offset=value * 0))
    told = tour.offsets(dataclasses.replace(record, offsets=tuple(probes)))
    assert told.choice == choice
    assert "largest at layer 2" in plain(told.sentences)
    assert tour.offsets(dataclasses.replace(record, offsets=())).choice is None


@pytest.mark.parametrize(("factor", "choice"), [(0.3, "most"), (0.7, "some"), (1.2, "none")])
def test_anchors_compare_the_same_tokens(factor: float, choice: str) -> None:
    told = tour.anchors(scaled(acted(record_of("anchors"), "naive", 1), "KVCOMM", factor))
    assert (told.choice, told.shows) == (choice, choice != "none")
    nothing = tour.anchors(acted(record_of("anchors"), "KVCOMM", 0))
    assert (nothing.choice, nothing.shows) == (None, False)
    assert "copied nothing" in plain(nothing.sentences)


def test_gate_counts_agents() -> None:
    record = record_of("gate")
    first, second = words.others(record)
    for code, other, choice in ((2, 0, "all"), (2, 2, "all"), (0, 2, "none"), (0, 0, "none")):
        told = tour.gate(acted(acted(record, first, code), second, other))
        assert (told.choice, told.shows) == (choice, code != other)
        assert f"{len(record.agents) if code else 0} of {len(record.agents)} agents reuse" in plain(
            told.sentences
        )


@pytest.mark.parametrize(("said", "choice"), [("38", "same"), ("4", "other"), (None, "none")])
def test_judge_compares_the_verdict(said: str | None, choice: str) -> None:
    record = record_of("judge")
    told = tour.judge(changed(record, "naive", answer=said))
    assert (told.choice, told.shows) == (choice, choice != "same")
    unread = tour.judge(changed(record, "dense", answer=None))
    assert (unread.choice, unread.shows) == (None, False)


@pytest.mark.parametrize(
    ("kept", "choice"),
    [((), "neither"), ((2,), "half"), ((1, 2), "quarter"), ((1,), "quarter"), ((0, 1, 2), None)],
)
def test_repair_names_the_smallest_that_helps(kept: tuple[int, ...], choice: str | None) -> None:
    record = record_of("repair")
    ref = record.outcome(record.agents[-1], "dense").answer
    for number, label in enumerate(words.others(record)):
        record = changed(record, label, answer=ref if number in kept else "999")
    told = tour.repair(record)
    assert (told.choice, told.shows) == (choice, choice not in (None, "neither"))


@pytest.mark.parametrize(
    ("divided", "right", "choice"),
    [(1.5, True, "hardly"), (4, True, "some"), (4, False, "some"), (20, True, "much")],
)
def test_what_reuse_buys_counts_where_the_answer_holds(divided: float, right: bool, choice: str) -> None:
    record = record_of("pays")
    repaired = words.others(record)[1]
    outcomes = []
    for out in record.outcomes:
        if out.method == repaired:
            full = record.outcome(out.agent, "dense")
            timing = dataclasses.replace(out.timing, ttft_ms=full.timing.ttft_ms / divided)
            out = dataclasses.replace(out, timing=timing, answer=full.answer if right else "999")
        outcomes.append(out)
    told = tour.pays(dataclasses.replace(record, outcomes=tuple(outcomes)))
    assert (told.choice, told.shows) == (choice, right and divided > 2)
    assert f"{words.number(float(divided), 2)} times as soon" in plain(told.sentences)


def test_what_models_wrote_is_escaped() -> None:
    bad = "<script>alert(1)</script>"
    for key in tour.STEPS:
        record = record_of(key)
        for label in record.labels:
            record = changed(record, label, answer=f"{bad}{label[:1]}", reason=bad)
        assert "<script" not in " ".join(tour.describe_step(key, record).sentences), key


# -- the steps as they ship


@pytest.mark.parametrize("step", steps(), ids=lambda s: s.key)
def test_a_step_is_whole(step: Step) -> None:
    from lab_app.pages.tour.html import TERM

    texts = (*step.text, step.asked, step.takeaway)
    assert {found.group(1) for text in texts for found in TERM.finditer(text)} <= GLOSSARY.keys()
    assert 2 <= len(step.choices) <= 4
    assert step.teacher.goal
    assert 1 <= step.teacher.minutes <= 15
    assert step.teacher.ask
    request = step.request()
    assert request.methods[0].label == "dense"
    assert request.pipeline == step.preset.pipeline.unrolled


@pytest.mark.parametrize("step", steps(), ids=lambda s: s.key)
def test_a_recorded_run_is_there_and_tells_something(step: Step) -> None:
    """Renewed by scripts/record_tour.py; what came out may change with the weights, that it is told may "
    "not."""
    record = recorded(step.key)
    assert record is not None
    told = tour.describe_step(step.key, record)
    assert told.sentences
    assert told.choice is None or told.choice in step.choices
    assert len(record.to_bytes()) < 200_000
    assert step.request().values == record.request.values


def test_the_teachers_page_has_every_step() -> None:
    page = " ".join((Path(__file__).parents[3] / "docs" / "teaching.md").read_text(encoding="utf-8").split())
    for at, step in enumerate(steps(), 1):
        goal = step.teacher.goal[:1].lower() + step.teacher.goal[1:]
        for words_ in (f"### {at}. {step.title}", goal, step.question, *step.teacher.ask):
            assert " ".join(words_.split()) in page, words_
    assert f"About {sum(s.teacher.minutes for s in steps())} minutes" in page


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("prefix", "2 Copied"),
        ("rotation", "3 Keys moved"),
        ("offsets", "4 What it lacks"),
        ("anchors", "5 Correction"),
    ],
)
def test_a_step_shows_the_thing_it_talks_about(key: str, name: str) -> None:
    record = record_of(key)
    first = tour.describe_step(key, record).views[0]
    assert isinstance(first, Panel)
    assert first.key == "play"
    assert re.findall(r'aria-pressed="true">(.*?)</button>', first.html) == [name]
    assert re.findall(r'class="kv-now" data-name="(.*?)"', first.html) == [name.replace(" ", ". ", 1)]
    for label in words.others(record):
        record = changed(record, label, transfers=())
    assert tour.describe_step(key, record).views[0].key != "play"
