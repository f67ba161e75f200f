"""The agent loop: its prompts and questions, where episodes end, what is counted, and the file of rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from intervals import scipy_wilson

import viz.pages.agent_loop as figures
from backend.base.errors import OptionError
from backend.base.statistics import deviations
from backend.model.load import LoadedModel
from backend.prompts.presets import load_preset
from backend.prompts.tasks.base import is_held_out
from backend.prompts.template import QUESTION
from backend.records.agent_loop import (
    GOES_ON,
    RIGHT,
    UNKNOWN,
    WRONG,
    LoopRecord,
    LoopRequest,
    answer_of,
    cut,
    is_final,
    loop_pipeline,
    loop_questions,
    record_of_rows,
    right_end,
    summary,
    turns_of,
)
from backend.records.events import RunDone
from backend.records.request import MethodChoice, Mode
from backend.records.run import PROVENANCE, Outcome, RunRecord
from backend.session.session import LabSession
from backend.studies.agent_loop import Plan, episode_row, plans, run_loop
from lab_app.cli.main import main
from viz.pages.agent_loop_turns import fragments_html, turns_html

METHODS = tuple(MethodChoice(name) for name in ("dense", "prefix", "naive"))


def asked(**changes: Any) -> LoopRequest:
    settings: dict[str, Any] = {"episodes": 3, "turns": 3, "memory": 2, "max_new_tokens": 6} | changes
    return LoopRequest(METHODS, **settings)


def ran(
    session: LabSession,
    mode: Mode = "pinned",
    number: int = 0,
    ends: Callable[[Outcome], bool] = is_final,
    **changes: Any,
) -> RunRecord:
    *_, last = session.run(asked(**changes).episode(loop_questions(3)[number], mode), ends=ends)
    assert isinstance(last, RunDone)
    return cut(last.record)


@pytest.fixture(scope="module")
def pinned(tiny_model: LoadedModel) -> list[RunRecord]:
    session = LabSession(tiny_model)
    return [ran(session, number=number) for number in range(2)]


# -- prompts and questions


def test_a_turn_reads_everything_so_far_in_the_trained_wording() -> None:
    preset = load_preset("react-tools").pipeline
    assert [a.template for a in loop_pipeline(4).agents] == [a.template for a in preset.agents]
    flow = loop_pipeline(6)
    assert flow.order == (1, 2, 3, 4, 5, 6)
    for before, after in zip(flow.agents, flow.agents[1:], strict=False):
        assert after.template.startswith(before.template)
        assert f"{{agent_{before.id}_current}}" in after.template
        assert f"Observation {before.id}: {{condition_{before.id}_current}}" in after.template


def test_questions_are_unseen_distinct_and_answered_by_the_tools_prices() -> None:
    found = loop_questions(40, seed=3)
    assert found[:7] == loop_questions(7, seed=3), "more questions begin with the fewer ones"
    assert found[:7] != loop_questions(7, seed=4)
    assert len({e.values[QUESTION] for e in found}) == 40
    assert all(is_held_out(e.values[QUESTION]) for e in found)
    prices = {"pens": 12, "books": 14, "keys": 3}
    for question, wanted in (
        ("Ruth buys 2 pens. What does Ruth pay?", 24),
        ("Ruth buys 2 pens and 3 keys. What does Ruth pay?", 33),
        ("What is the difference between the price of keys and the price of books?", 11),
        ("Ruth buys 2 dragons. What does Ruth pay?", None),
        ("How are you?", None),
    ):
        assert answer_of(question, prices) == wanted
    examples = load_preset("react-tools").examples
    from backend.prompts.tools.collection import price_list

    real = {p.title: int(p.value or 0) for p in price_list().passages}
    assert [str(answer_of(e.values[QUESTION], real)) for e in examples] == [e.answer for e in examples]


@pytest.mark.parametrize(
    ("name", "value"),
    [("turns", 1), ("turns", 13), ("episodes", 0), ("memory", 0), ("seed", -1), ("turns", 2.5)],
)
def test_numbers_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{name} is .* are allowed") as refused:
        asked(**{name: value})
    assert refused.value.field == f"loop.{name}"


# -- where an episode ends


def saying(record: RunRecord, text: str) -> Outcome:
    return replace(record.outcomes[0], text=text)


def test_finish_ends_an_episode_and_its_number_decides(pinned: list[RunRecord]) -> None:
    done = saying(pinned[0], "Thought 3: I know the answer. Action 3: finish[24]")
    assert is_final(done)
    assert [right_end(done.text, e) for e in ("24", "42", None)] == [RIGHT, WRONG, UNKNOWN]
    going = saying(pinned[0], "Thought 1: The answer is 24. Action 1: lookup[pens]")
    assert not is_final(going)
    assert right_end(going.text, "24") == WRONG, "only finish gives an answer"
    assert not is_final(saying(pinned[0], "24"))


def test_pinned_every_method_stops_where_dense_does(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    request = asked(turns=4).episode(loop_questions(1)[0], "pinned")
    [last] = [
        e
        for e in session.run(request, ends=lambda o: o.agent == 2 if o.method == "dense" else o.agent == 1)
        if isinstance(e, RunDone)
    ]
    assert [(o.agent, o.method) for o in last.record.outcomes] == [
        (turn, method) for turn in (1, 2) for method in ("dense", "prefix", "naive")
    ]
    [stream] = session.streams.values()
    assert [c.prompt.agent for c in stream.history[0].contexts] == [1, 2]
    assert list(session.run(request))[-1], "the next episode runs on the same store"


def test_free_each_method_stops_by_itself(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    request = asked(turns=4).episode(loop_questions(1)[0], "free")
    stops = {"dense": 1, "prefix": 3, "naive": 2}
    before = session.engine.forwarded_tokens
    [last] = [
        e for e in session.run(request, ends=lambda o: o.agent == stops[o.method]) if isinstance(e, RunDone)
    ]
    turns = {m: [o.agent for o in last.record.outcomes if o.method == m] for m in stops}
    assert turns == {m: list(range(1, end + 1)) for m, end in stops.items()}
    for outcome in last.record.outcomes:
        prompt = last.record.prompts[outcome.prompt]
        assert outcome.actions.shape[1] == len(prompt.token_ids)
    assert session.engine.forwarded_tokens > before
    rows = turns_of(last.record)
    assert [r["end"] for r in rows if r["turn"] < stops[r["method"]]] == [GOES_ON] * 3
    assert {r["method"]: r["end"] for r in rows if r["end"] != GOES_ON} == dict.fromkeys(stops, WRONG)


# -- what is counted


def test_what_the_prefix_cache_reuses_is_the_longest_shared_beginning(pinned: list[RunRecord]) -> None:
    earlier: list[list[int]] = []
    for record in pinned:
        rows = {(r["turn"], r["method"]): r for r in turns_of(record)}
        for prompt in record.prompts:
            ids = prompt.token_ids.tolist()
            shared = max((common(ids, other) for other in earlier), default=0)
            row = rows[prompt.agent, "prefix"]
            assert row["reused_tokens"] == min(shared, len(ids) - 1)
            assert row["kl_first"] <= 1e-6
            assert row["boundary_tokens"] == prompt.boundary_tokens
            assert row["prompt_tokens"] == len(ids) == row["reused_tokens"] + row["forwarded_tokens"]
            earlier.append(ids)
    assert rows[3, "prefix"]["reused_tokens"] > rows[2, "prefix"]["reused_tokens"] > 0


def common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_every_prompt_token_has_one_word_of_provenance(pinned: list[RunRecord]) -> None:
    for record in pinned:
        for row in turns_of(record):
            assert sum(row["provenance"].values()) == row["prompt_tokens"]
            copied = sum(row["provenance"][w] for w in ("exact local", "exact external", "semantic"))
            assert copied == row["reused_tokens"]
            assert row["provenance"]["computed"] > 0
            if row["method"] == "naive":
                assert row["provenance"]["semantic"] > 0
                assert row["kl_first"] > 0
                assert row["ttft_ms"] >= row["prefill_ms"] + row["first_token_ms"]


# -- the file, and its record


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    turns = [{k: v for k, v in t.items() if not k.endswith("_ms")} for t in row["turns"]]
    return row | {"turns": turns}


def lines(path: Path) -> list[dict[str, Any]]:
    return [without_times(json.loads(line)) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_a_killed_run_goes_on_as_if_it_had_not_been(tiny_model: LoadedModel, tmp_path: Path) -> None:
    request = asked(modes=("pinned",))
    whole, torn = tmp_path / "whole.jsonl", tmp_path / "torn.jsonl"
    steps = list(run_loop(LabSession(tiny_model), request, whole))
    record = steps[-1]
    assert isinstance(record, LoopRecord)
    kept = whole.read_text().splitlines(keepends=True)
    assert len(kept) == 3
    torn.write_text(kept[0] + kept[1][:100])
    list(run_loop(LabSession(tiny_model), request, torn))
    assert lines(torn) == lines(whole)
    # a store lives for two episodes: the third one's first turn finds nothing
    first = {row["index"]: row["turns"][1]["reused_tokens"] for row in lines(whole)}
    assert first[0] == first[2] == 0 < first[1]
    before = whole.read_bytes()
    session = LabSession(tiny_model)
    again = list(run_loop(session, request, whole))
    assert len(again) == 1, "nothing was left to run"
    assert session.engine.forwarded_tokens == 0
    assert whole.read_bytes() == before
    assert np.array_equal(again[0].reused_tokens, record.reused_tokens)  # type: ignore[union-attr]


def test_keys_hold_what_decides_a_row_and_not_how_many_follow(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    keys = [p.key for p in plans(session, asked())]
    assert len(set(keys)) == len(keys) == 6
    assert [p.key for p in plans(session, asked(episodes=2))] == [*keys[:2], *keys[3:5]]
    for change in ({"seed": 1}, {"memory": 3}, {"turns": 4}, {"max_new_tokens": 7}):
        assert not set(keys) & {p.key for p in plans(session, asked(**change))}


@pytest.fixture(scope="module")
def record(pinned: list[RunRecord]) -> LoopRecord:
    examples = loop_questions(2)
    rows = [episode_row(r, Plan(i, examples[i], "pinned", str(i))) for i, r in enumerate(pinned)]
    return record_of_rows(asked(), pinned[0].model, json.loads(json.dumps(rows)))


def test_a_record_is_read_back_without_loss(record: LoopRecord) -> None:
    again = LoopRecord.from_bytes(record.to_bytes())
    assert again.labels == ("dense", "prefix", "naive")
    assert again.request == record.request
    assert len(again.turn) == 2 * 3 * 3
    for name in ("mode", "method", "episode", "turn", "reused_tokens", "kl_mean", "provenance", "ends"):
        assert np.array_equal(getattr(again, name), getattr(record, name), equal_nan=name == "kl_mean")


def test_the_summary_counts_what_the_rows_say(record: LoopRecord) -> None:
    ends = np.where(record.ends == GOES_ON, GOES_ON, np.where(record.method == 2, WRONG, RIGHT))
    times = np.where(record.method == 0, 30.0, np.where(record.method == 1, 10.0, 60.0))
    kl = np.where(record.method == 2, np.where(record.turn == 1, 0.3, 0.01), 0.0)
    dense, prefix, naive = summary(replace(record, ends=ends, ttft_ms=times, kl_mean=kl, kl_first=kl / 10))
    assert (dense.right, prefix.right, naive.right) == (2, 2, 0)
    assert (dense.known, dense.episodes, dense.turns, dense.reused) == (2, 2, 3.0, 0.0)
    assert (prefix.ratio, naive.ratio) == (3.0, 0.5)
    # two pairs, both lost: cells 2.5, 0.5, and two more of 0.5 in a total of 4
    # four intervals are read together: two methods in two modes
    wide = deviations(4)
    assert naive.behind == pytest.approx((1.0, 0.5 - wide * (3 - 4 / 4) ** 0.5 / 4, 1.0))
    assert prefix.behind[0] == 0
    assert prefix.behind[1] < 0 < prefix.behind[2], "two episodes prove nothing"
    assert naive.near == pytest.approx(2 / 3)
    assert naive.kl == pytest.approx((0.3 + 0.01 + 0.01) / 3)
    assert naive.kl_first == pytest.approx(naive.kl / 10)
    mine = record.rows("pinned", "prefix")
    assert prefix.reused == record.reused_tokens[mine].sum() / record.prompt_tokens[mine].sum() > 0
    assert all(sum(line.provenance) == pytest.approx(1) for line in (dense, prefix, naive))
    assert dense.provenance[PROVENANCE.index("computed")] == 1
    assert naive.right_high < 1 == dense.right_high


def test_episodes_of_one_store_are_one_draw(record: LoopRecord) -> None:
    """Two episodes of which one is right: in two stores nothing is known of a third."""
    first_right = np.where(record.episode == 0, RIGHT, WRONG)
    ends = np.where(record.ends == GOES_ON, GOES_ON, np.where(record.method == 0, RIGHT, first_right))
    together, apart = (
        summary(replace(record, ends=ends, request=replace(record.request, memory=memory)))[2]
        for memory in (2, 1)
    )
    assert (together.right_low, together.right_high) == pytest.approx(scipy_wilson(1, 2), abs=1e-5)
    assert (apart.right_low, apart.right_high) == (0, 1)
    assert apart.behind[0] == together.behind[0] == 0.5
    assert apart.behind[2] == 1


def test_figures_say_what_they_show(record: LoopRecord) -> None:
    found = {view.key: view for view in figures.views(record)}
    assert len(found) == 5
    for view in found.values():
        assert view.title.endswith("?")
        assert view.finding
        assert view.how_to_read
        assert view.json()
        assert len(view.csv().splitlines()) == len(view.rows) + 1 > 1
    reused = {(r[1], r[2]): r[4] for r in found["loop_reused"].rows}
    mine = record.rows("pinned", "prefix") & (record.turn == 2)
    assert reused["prefix", 2] == pytest.approx(record.reused_tokens[mine].mean())
    free = replace(record, request=replace(record.request, modes=("free",)))
    assert figures.kl_by_turn(free).empty
    assert "pinned" in figures.kl_by_turn(free).finding


def test_turns_are_shown_with_their_fragments(pinned: list[RunRecord]) -> None:
    one = pinned[1]
    odd = replace(one, outcomes=tuple(replace(o, text="<b>finish[1]") for o in one.outcomes))
    shown = turns_html(odd.outcomes, odd.labels, {m: m for m in odd.labels}, tools=one.tools)
    assert shown.count("kv-loop-turn") == 3
    assert "<b>" not in shown
    assert "&lt;b&gt;" in shown
    # pinned, the observation is what the full read's call gave; another call does not claim it
    other = tuple(
        replace(o, text="Action 1: look up[9]") if o.method == "prefix" else o for o in one.outcomes
    )
    said = turns_html(other, one.labels, {}, tools=[u for u in one.tools if u.agent == 1]).split("<article")
    assert "other text: " in said[0]
    assert said[0].count(" open") == 1
    assert "Its own call is not carried out" in said[1 + one.labels.index("prefix")]
    assert "Observation 1: " in said[1]
    words = fragments_html(one, 2)
    plain = unescape(re.sub("<[^>]*>", "", words))
    assert plain.count("".join(one.prompts[1].texts)) == 3, "the whole prompt, under every method"
    assert "kv-prov-semantic" in words
    assert "kv-prov-exact-local" in words
    assert "Turn 4" in turns_html(one.outcomes, one.labels, {}, {"dense": "Thought"})


@pytest.mark.slow
def test_the_command_writes_rows_summary_and_record(
    tiny_model: LoadedModel,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("backend.model.load.load_model", lambda *_, **__: tiny_model)
    out = tmp_path / "loop.json"
    args = ["loop", "--methods", "dense,prefix", "--turns", "2", "--max-new-tokens", "4", "--mode", "free"]
    assert main([*args, "--episodes", "1", "--json", str(out)]) == 0
    assert "tokens reused" in capsys.readouterr().out
    report = json.loads(out.read_text())
    assert [x["method"] for x in report["summary"]] == ["dense", "prefix"]
    assert len((tmp_path / "loop.rows.jsonl").read_text().splitlines()) == 1
    assert LoopRecord.from_bytes((tmp_path / "loop.kvloop").read_bytes()).labels == ("dense", "prefix")
    for bad, words in ((["--turns", "1"], "turns is 1"), (["--methods", "magic"], "no method 'magic'")):
        assert main([*args, *bad, "--json", str(out)]) == 2
        assert words in capsys.readouterr().err
    assert main([*args, "--json", str(tmp_path)]) == 2


def test_the_record_holds_the_turns_that_ran(tiny_model: LoadedModel) -> None:
    record = ran(LabSession(tiny_model), ends=lambda outcome: outcome.agent == 2)
    assert [a.id for a in record.request.pipeline.agents] == [1, 2]
