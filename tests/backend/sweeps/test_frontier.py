"""The search for the frontier: who stays, who wins, what two readings cost, and that it goes on."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_sweep import FakeRunner, row

from backend.base.errors import OptionError
from backend.records.frontier import AGREE, Frontier
from backend.records.sweep import Count
from backend.sweeps.frontier import Reading, halved, point, regrets, search
from backend.sweeps.grid import PlannedRow
from backend.sweeps.read import parse_sweep
from backend.sweeps.rows import Finished
from backend.sweeps.store import SweepStore
from lab_app.cli.main import main
from viz.studies.frontier import finding, held_out_rows, rows, view

#: Tokens of 100 and the share of answers flipped, by method; the names only stand for them.
TRUE = {
    "dense": (100, 0.0), "naive": (10, 0.6), "kvcomm": (30, 0.3), "kvcomm>epic": (50, 0.02),
    "epic": (60, 0.5), "ape": (70, 0.55), "palkv": (80, 0.6), "kvcomm>epic>margin": (55, 0.02),
    "block_attention": (90, 0.6), "random_k": (85, 0.55),
}  # fmt: skip
TEXT = f"name: small\ntasks: [{{pipeline: [math-2, documents-5]}}]\nmethods: {list(TRUE)}\nproblems: 40\n"


class Runner(FakeRunner):
    """Flips by chance, the same for a row whenever it is asked for."""

    def __init__(self, true: dict[str, tuple[int, float]] | None = None) -> None:
        super().__init__()
        self.true, self.ran = true or TRUE, 0

    def run(self, shard: Any, done: Any, memo: Any, cancel: Any) -> Any:
        for unit in shard.units:
            if any(slot.key(self.name) not in done for slot in unit):
                self.ran += 1
                yield Finished(unit[0].key(self.name), tuple(map(self.row, unit)))

    def row(self, slot: PlannedRow) -> Any:
        tokens, share = self.true[slot.method]
        flipped = random.Random(slot.digest).random() < share
        body = json.dumps({"outcomes": [{"forwarded_tokens": tokens}]})
        return row(slot, as_dense=not flipped, answer=slot.method if flipped else "1", body=body)


def result(path: Path, runner: FakeRunner, text: str = TEXT, **more: Any) -> Frontier:
    with SweepStore(path) as store:
        *_, last = search(parse_sweep(text), store, runner, **more)
    assert isinstance(last, Frontier)
    return last


def test_the_search_finds_the_frontier_and_the_simplest_within_noise(tmp_path: Path) -> None:
    found = result(tmp_path / "rows.sqlite", Runner())
    assert found.rounds == (5, 10, 20, 40)
    by_name = {p.method: p for p in found.points}
    assert all(by_name[m].on for m in ("naive", "kvcomm", "kvcomm>epic"))
    assert not any(by_name[m].on for m in ("epic", "ape", "palkv", "block_attention", "random_k"))
    assert found.simplest == "kvcomm>epic", "one part less than the same behind a gate"
    assert by_name["kvcomm>epic"].share.of == 80
    assert by_name[found.best].flips <= by_name["kvcomm>epic"].flips
    assert by_name["kvcomm>epic"].cost.value == 0.5
    assert not [p.method for p in found.points if p.on and p.cost.value > by_name[found.best].cost.value]
    left = [p.method for p in found.points if p.round < 4]
    assert left, "nobody was left out"
    assert "kvcomm>epic" in finding(found)
    assert len(rows(found)) == len(found.points) + 1 == len(view(found).rows) + 1


def test_two_readings_cost_both_and_the_full_read_where_they_differ(tmp_path: Path) -> None:
    true = TRUE | {"naive": (10, 0.2), "kvcomm": (30, 0.2)}
    found = result(tmp_path / "rows.sqlite", Runner(true), TEXT.replace("problems: 40", "problems: 5"))
    by_name = {p.method: p for p in found.points}
    pair = by_name["naive" + AGREE + "kvcomm"]
    assert pair.flips == 0, "two that flip say different things here"
    assert pair.parts == 3
    differ = (pair.cost.value - 0.4) * 10
    assert differ == pytest.approx(round(differ)), "each difference costs one full read of ten"
    assert 0 < by_name["naive"].flips <= round(differ) < 6
    assert found.tried == 9 + 9 * 8 // 2
    assert not any(AGREE in p.method and p.cost.value >= 1 for p in found.points)


@pytest.mark.slow
def test_a_search_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path, runner = tmp_path / "rows.sqlite", Runner()
    with SweepStore(path) as store:
        for event in search(parse_sweep(TEXT), store, runner):
            if isinstance(event, Count) and event.done == 30:
                break
    again = Runner()
    whole, fresh = result(path, again), Runner()
    assert whole == result(tmp_path / "other.sqlite", fresh)
    assert again.ran == fresh.ran - runner.ran
    idle = Runner()
    assert result(path, idle) == whole
    assert idle.ran == 0


def test_nobody_on_the_frontier_is_left_out_for_another_corner_of_it() -> None:
    def made(label: str, flips: int, cost: int) -> Any:
        reads = {("cell", i): Reading(i < flips, cost, "") for i in range(100)}
        return point(label, reads, {place: Reading(False, 100, "") for place in reads}, 1, 1)  # type: ignore[arg-type]

    points = {p.method: p for p in [made(f"on {i}", 60 - 10 * i, 10 + 10 * i) for i in range(6)]}
    points |= {p.method: p for p in [made(f"off {i}", 45 - i, 70 + i) for i in range(6)]}
    points["dear"] = made("dear", 0, 120)
    points["dear and wrong"] = made("dear and wrong", 1, 110)
    lost = regrets(points.values())
    assert all(lost[name] == 0 for name in points if name.startswith("on"))
    assert lost["off 5"] == pytest.approx(0.3)
    assert lost["dear and wrong"] == pytest.approx(0.01), "the full read costs less and flips none"
    assert halved(points) == {*(f"on {i}" for i in range(6)), "dear"}


HELD_OUT = TEXT.replace("math-2, documents-5", "math-3").replace(str(list(TRUE)), "[naive, epic]")


@pytest.mark.parametrize(("share", "ahead"), [(0.6, True), (0.03, False)])
@pytest.mark.slow
def test_the_winner_is_confirmed_at_equal_tokens_on_other_problems(
    tmp_path: Path, share: float, ahead: bool
) -> None:
    """A rival that costs less has what it saves spent on full reads of problems at random."""
    true = TRUE | {"epic": (60, share), "kvcomm>epic>margin": (90, 0.4)}
    held_out = parse_sweep(HELD_OUT.replace("problems: 40", "problems: 200"))
    found = result(tmp_path / "rows.sqlite", Runner(true), held_out=held_out, limit=0.55)
    assert found.best == "kvcomm>epic"
    assert found.confirmed is not None
    assert found.confirmed.share.of == 200
    naive, epic = found.against
    assert (naive.row.method, epic.row.method) == ("naive", "epic")
    wanted = found.confirmed.share.value - naive.row.share.value * (1 - (0.5 - 0.1) / (1 - 0.1))
    assert naive.difference.value == pytest.approx(wanted)
    spared = found.confirmed.share.value * (1 - (0.6 - 0.5) / (1 - 0.5))
    assert epic.difference.value == pytest.approx(spared - epic.row.share.value)
    assert found.ahead == ahead
    assert ("ahead of every row" in finding(found)) == ahead
    assert len(held_out_rows(found)) == 4


def test_a_search_needs_a_choice(tmp_path: Path) -> None:
    for methods in ("[dense]", "[naive]"):
        with pytest.raises(OptionError, match="at least two methods"):
            result(tmp_path / "rows.sqlite", Runner(), TEXT.replace(str(list(TRUE)), methods))


def test_a_search_over_what_cannot_be_compared_says_so(tmp_path: Path) -> None:
    class Unread(Runner):
        def row(self, slot: PlannedRow) -> Any:
            return replace(super().row(slot), as_dense=None)

    with pytest.raises(OptionError, match="no problem has all methods beside a full read"):
        result(tmp_path / "rows.sqlite", Unread())


def test_the_command_refuses_what_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    wrong: list[tuple[list[str], str]] = [
        (["--first", "0"], "--first is 0"), (["--first", "41"], "at most 40"),
        (["--cost", "1.5"], "at most 1"), (["--show"], "there is no small.sqlite"),
        (["--out", "small.json"], "names no SQLite file"),
    ]  # fmt: skip
    for more, said in wrong:
        assert main(["frontier", str(file), *more]) == 2
        assert said in capsys.readouterr().err


def test_the_command_shows_what_a_file_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    result(tmp_path / "small.sqlite", Runner())
    held = (tmp_path / "small.sqlite").read_bytes()
    assert main(["frontier", str(file), "--show"]) == 0
    assert (tmp_path / "small.sqlite").read_bytes() == held, "showing writes nothing"
    said = capsys.readouterr().out
    assert "kvcomm>epic" in said
    assert "simplest within noise" in said
    report = json.loads((tmp_path / "small.frontier.json").read_text(encoding="utf-8"))
    assert report["rounds"] == [5, 10, 20, 40]
    assert "plotly" in (tmp_path / "small.frontier.html").read_text(encoding="utf-8").lower()
