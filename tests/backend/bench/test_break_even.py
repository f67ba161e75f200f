"""The break-even formula: its identities, its direction, and the cases that were measured."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from fake_record import make_record
from hypothesis import example, given
from hypothesis import strategies as st

from backend.base.errors import BudgetError, OptionError
from backend.bench.break_even import ANCHORS, fit_dense, measure_within
from backend.model.load import LoadedModel
from backend.records.break_even import (
    LONGEST,
    Case,
    Machine,
    answer,
    dense_ms,
    least_share,
    least_tokens,
    most_anchors,
    parts_ms,
    plain,
    reuse_ms,
)
from backend.records.hardware import (
    Figures,
    from_specifications,
    given_machine,
    measured_figures,
    saved_figures,
    shipped_figures,
)
from backend.records.run import RunRecord
from lab_app.cli.main import main
from viz.run.break_even import break_even_view
from viz.studies.break_even_calculator import facts
from viz.studies.break_even_calculator import views as pays_views

ROOT = Path(__file__).parents[3]
SLOW = Machine("slow", (2.0, 0.1, 1e-5), 6.0, 1e-4, 2e-3, 5e-4, 0.1, 0.5, 4e-3, 1000)
CASE = Case(1000, 800, 0, 1, 20, 20)
H100 = {
    "parameters": 8e9, "layers": 32, "hidden": 4096, "kv_bytes": 131072, "weight_bytes": 16e9,
    "embedding_bytes": 8192, "flops": 6e14, "bytes_s": 2.5e12,
}  # fmt: skip
times = st.floats(0, 10, allow_nan=False)
machines = st.builds(
    Machine, st.just("any"), st.tuples(times, st.floats(0, 0.5), st.floats(0, 1e-3)), times,
    st.floats(0, 1e-3), st.floats(0, 0.01), st.floats(0, 0.01), st.floats(0, 0.5), times, st.floats(0, 0.01),
)  # fmt: skip


def drawn(prompt: int, shared: int, outside: int, readers: int, anchors: int) -> Case:
    """Of the numbers what fits into each other."""
    shared %= prompt + 1
    return Case(100 * prompt, 100 * shared, 100 * (outside % (shared + 1)), readers, anchors, anchors)


counts = st.integers(0, 40)
cases = st.builds(drawn, st.integers(1, 40), counts, counts, st.integers(1, 5), st.integers(0, 30))


def cost(machine: Machine, case: Case, share: float) -> float:
    """The module's expression, written out."""
    parts = parts_ms(machine, case)
    around = parts["base"] + parts["gate"]
    refused = dense_ms(machine, case.prompt) + machine.record_ms * case.prompt
    return around + share * (reuse_ms(machine, case) - around) + (1 - share) * refused


@given(machines, cases)
def test_at_the_least_share_both_cost_the_same(machine: Machine, case: Case) -> None:
    share, dense = least_share(machine, case), dense_ms(machine, case.prompt)
    if share is None:
        assert cost(machine, case, 1.0) >= dense - 1e-9
    else:
        assert 0 <= share <= 1
        assert cost(machine, case, share) == pytest.approx(dense, rel=1e-6, abs=1e-9)
        assert cost(machine, case, 1.0) < dense + 1e-9


def scaled(case: Case, factor: float) -> tuple[float, float, float]:
    return case.prompt * factor, case.shared * factor, case.outside * factor


@example(Machine("any", (1.0, 0.0, 0.0), 0.0, 0.0, 1e-12, 0.0, 0.0, 0.0, 0.0, 0), Case(100, 0, 0, 1, 0, 0))
@example(Machine("any", (1.0, 0.0, 1e-15), 0.0, 0.0, 1e-7, 0.0, 0.0, 0.0, 0.0, 0), Case(100, 0, 0, 1, 0, 0))
@example(Machine("any", (1.0, 0.0, 0.0), 0.0, 0.0, 1e-6, 0.0, 0.0, 0.0, 0.0, 0), Case(100, 0, 0, 1, 0, 0))
@example(Machine("any", (1.0, 5e-324, 0.0), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0), Case(100, 0, 0, 1, 0, 0))
@given(machines, cases)
def test_from_the_least_length_on_reuse_gains(machine: Machine, case: Case) -> None:
    """Both sides written out over real lengths, so that rounding tokens plays no part."""

    def gain(tokens: float) -> float:
        prompt, shared, outside = scaled(case, tokens / case.prompt)
        a, b, c = machine.dense_ms
        reuse = machine.encode_ms * outside / case.readers + machine.gate_ms + machine.write_ms * prompt
        reuse += (machine.match_ms * case.anchors + machine.mix_ms * case.mixed) * shared
        return a + b * prompt + c * prompt * prompt - reuse - machine.first_token_ms

    found = least_tokens(machine, case)
    if found is None:
        assert gain(2.0 * LONGEST) <= 1e-3 or gain(float(LONGEST)) <= 1e-3
        return
    rounding = 1e-6 * (1 + dense_ms(machine, found))
    assert all(gain(found * factor) >= -rounding * factor**2 for factor in (1, 1.5, 2, 10))
    if found > 1:
        assert gain(found - 1) <= rounding


@example(Machine("any", (1.0, 0.0, 0.0), 0.0, 5e-324, 0.0, 0.0, 0.0, 0.0, 0.0, 0), Case(100, 100, 0, 1, 0, 0))
@given(machines, cases)
def test_one_anchor_more_than_most_no_longer_gains(machine: Machine, case: Case) -> None:
    most = most_anchors(machine, case)
    if most is None or most > 9_000:
        return

    def gains(anchors: int) -> bool:
        mixing = replace(case, anchors=anchors, mixed=anchors)
        return reuse_ms(machine, mixing) < dense_ms(machine, case.prompt) - 1e-9

    assert not gains(most + 1)
    assert most == 0 or reuse_ms(machine, replace(case, anchors=most, mixed=most)) <= dense_ms(
        machine, case.prompt
    )


@pytest.mark.parametrize(
    ("more", "gains"),
    [
        ({"prompt": 2000, "shared": 1600}, True),
        ({"anchors": 40, "mixed": 40}, False),
        ({"mixed": 2}, True),
        ({"outside": 400}, False),
    ],
)
def test_each_quantity_pulls_in_its_direction(more: dict[str, int], gains: bool) -> None:
    before, after = answer(SLOW, CASE), answer(SLOW, replace(CASE, **more))
    assert (after.ratio > before.ratio) is gains
    assert before.least_share is not None
    assert after.least_share is not None
    assert (after.least_share < before.least_share) is gains


def test_more_readers_share_the_base() -> None:
    alone, many = (answer(SLOW, replace(CASE, outside=400, readers=n)) for n in (1, 4))
    assert many.parts_ms["base"] == pytest.approx(alone.parts_ms["base"] / 4)
    assert many.ratio > alone.ratio


def test_a_pool_is_paid_off_by_what_it_saves() -> None:
    found = answer(SLOW, CASE)
    saved = found.dense_ms - found.reuse_ms
    spent = CASE.anchors * SLOW.record_ms * CASE.prompt
    assert found.pays_after is not None
    assert (found.pays_after - CASE.anchors) * saved >= spent
    assert found.pool_bytes == 20 * 800 * 1000
    slower = replace(SLOW, first_token_ms=1e6)
    assert answer(slower, CASE).pays_after is None
    assert answer(slower, CASE).least_share is None


def test_a_data_sheet_gives_what_bytes_and_operations_need() -> None:
    """Llama 8B, 3,500 tokens, 20 anchors mixed."""
    machine = from_specifications("H100", **H100)  # type: ignore[arg-type]
    case = Case(3500, 3000)
    found = answer(machine, case)
    assert found.dense_ms == pytest.approx(
        16e9 / 2.5e9 + 2 * 8e9 * 3500 / 6e11 + 2 * 32 * 4096 * 3500**2 / 6e11
    )
    assert found.parts_ms["mix"] == pytest.approx(20 * 3000 * 131072 / 2.5e9)
    assert found.ratio > 5
    assert answer(machine, replace(case, mixed=2)).ratio > found.ratio
    with pytest.raises(OptionError, match="flops is 0; it must be above 0"):
        from_specifications("none", **{**H100, "flops": 0})  # type: ignore[arg-type]


def test_a_known_shape_keeps_keys_and_values() -> None:
    machine = given_machine("llama-8b", 600, 2500)
    assert machine.anchor_bytes == 2 * 131072, "8 heads of 128 in 32 layers, keys and values, base and offset"


def test_mixing_as_long_as_dense_is_no_gain() -> None:
    machine = Machine("even", (10.0, 0.0, 0.0), 0.0, 0.0, 0.0, mix_ms=1.0, encode_ms=0.0)
    assert most_anchors(machine, Case(100, 1)) == 9
    assert most_anchors(replace(machine, dense_ms=(10.5, 0.0, 0.0)), Case(100, 1)) == 10


def test_dense_is_fitted() -> None:
    lengths = [100, 200, 400, 800]
    assert fit_dense(lengths, [3 + 0.1 * t + 1e-4 * t * t for t in lengths]) == pytest.approx((3, 0.1, 1e-4))
    assert min(fit_dense(lengths, [50 - 0.01 * t for t in lengths])) >= 0
    with pytest.raises(OptionError, match="two lengths"):
        fit_dense([100, 100], [1, 2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"shared": 2000}, "shared is 2,000, more than prompt"), ({"prompt": 0}, "prompt is 0"),
     ({"mixed": 21}, "more than anchors"), ({"readers": 0}, "readers is 0")],
)  # fmt: skip
def test_a_case_that_cannot_be_is_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        replace(CASE, **changes)
    with pytest.raises(OptionError, match="first_token_ms is nan"):
        replace(SLOW, first_token_ms=math.nan)
    with pytest.raises(OptionError, match="anchor_bytes is -1"):
        replace(SLOW, anchor_bytes=-1)


@pytest.mark.parametrize("file", sorted((ROOT / "benchmarks" / "results").glob("break-even-*.json")))
def test_measured_cases_agree_with_the_formula(file: Path) -> None:
    """Direction and size on the cases that the figures came from, and their order by length."""
    found = json.loads(file.read_text(encoding="utf-8"))
    rows = found["measured"]
    assert len(rows) >= 2
    for row in rows:
        assert (row["ratio"] > 1) is (row["formula_ratio"] > 1)
        assert row["formula_ratio"] == pytest.approx(row["ratio"], rel=0.5)
    ratios = [row["formula_ratio"] for row in rows]
    assert ratios == sorted(ratios), "longer prompts gain more"
    machine = Machine(**{**found["machine"], "dense_ms": tuple(found["machine"]["dense_ms"])})
    again = answer(machine, Case(**found["case"]))
    assert again.ratio == pytest.approx(found["answer"]["ratio"])


@pytest.mark.slow
def test_the_command_measures_saves_and_takes_it_again(
    tmp_path: Path,
    tiny_model: LoadedModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("backend.bench.group.shape_or_model", lambda *_: tiny_model)
    file = tmp_path / "m.json"
    ask = ["break-even", "--prompt", "400", "--anchors", "3"]
    assert main([*ask, "--lengths", "96", "160", "--repeats", "1", "--json", str(file)]) == 0
    first = capsys.readouterr().out
    assert "measured at 160 tokens" in first
    assert main([*ask, "--machine", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == first.splitlines()[:2]
    assert main([*ask, "--tflops", "600", "--gb-s", "2500"]) == 0
    assert "llama-8b on 600 TFLOP/s" in capsys.readouterr().out


SHEET = ["--tflops", "600", "--gb-s", "2500"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--tflops", "600"], "needs both"),
        (["--tflops", "0", "--gb-s", "10"], "--tflops is 0; 0.001 to 1,000,000 are allowed"),
        (["--tflops", "600", "--gb-s", "nan"], "--gb-s is nan; 0.01 to 1,000,000 are allowed"),
        (["--shared", "2"], "a share from 0 to 1"),
        (["--prompt", "9" * 400], "1 to 4,194,304 are allowed"),
        ([*SHEET, "--model", "embedded"], "--model is embedded, but on hardware given by --tflops and --gb-s "
        "nothing is measured. Name a --shape (smollm2-135m, llama-8b), or leave --model out. "
        "[break_even.model]"),
        ([*SHEET, "--lengths", "100", "200"], "--lengths is 100 200, but"),
        ([*SHEET, "--device", "cpu"], "--device is cpu, but"),
        (["--shape", "llama-8b"], "--shape is llama-8b, but this machine is measured"),
        (["--machine", "m.json", "--gb-s", "1"], "--gb-s is 1.0, but the figures are those of --machine"),
        (["--machine", "m.json", "--lengths", "100"], "or leave --lengths out"),
        (["--machine", "m.json", "--repeats", "3"], "one source of figures"),
        (["--machine", "no.json"], "no.json cannot be read: No such file or directory. Name a file that"),
        (["--machine", "~nobody-has-this-name/m.json"], "cannot be read: No such file"),
        (["--machine", str(ROOT / "README.md")], "README.md holds no figures"),
    ],
)  # fmt: skip
def test_the_command_drops_nothing_that_was_typed(
    wrong: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["break-even", *wrong]) == 2
    out, err = capsys.readouterr()
    assert (out, message in err) == ("", True), err


def test_the_command_says_what_it_extrapolates(capsys: pytest.CaptureFixture[str]) -> None:
    """The file's prompts are of 200 to 1,000 tokens; a prompt pays from about a hundred tokens on."""

    def asked(*more: str) -> list[str]:
        assert main(["break-even", "--machine", str(SHIPPED), *more]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if "extrapolated" in line]

    [line] = asked("--prompt", "5000")
    assert line.startswith("Beyond the measured prompts of 200 to 1,000 tokens, so extrapolated: ")
    assert line.endswith(" and 5,000.")
    assert "1,000." not in asked("--prompt", "1000")[0].partition(": ")[2], "it was measured"
    assert asked("--prompt", "1000", "--mixed", "0", "--outside", "1") == [], "it pays from within on"


def test_the_command_has_words_for_none_and_for_any(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["break-even", *SHEET, "--anchors", "0"]) == 0
    out = capsys.readouterr().out
    assert "in reused texts, no anchors." in out
    assert "Without anchors there is no pool to be filled and paid off." in out
    assert "With these shares any length of the prompt pays." in out
    assert "after 0" not in out
    assert main(["break-even", *SHEET, "--shared", "0"]) == 0
    assert "Any number of anchors could be mixed" in capsys.readouterr().out
    bare = replace(CASE, anchors=0, mixed=0)
    paid = {label: value for label, value, _ in facts(bare, answer(SLOW, bare))}["Paid off"]
    assert paid == "nothing to pay off"


def test_the_pages_example_is_what_its_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "break-even.md").read_text(encoding="utf-8")
    example = page[page.index("## An example") : page.index("## Measured cases")]
    commands = [
        shlex.split(line, comments=True) for line in example.splitlines() if line.startswith("kvlab ")
    ]
    printed = []
    for command in commands:
        assert main(command[1:]) == 0
        printed.append(capsys.readouterr().out)
    rows = [line.split("|")[2:5] for line in example.splitlines() if line.startswith("| the formula")]
    for (dense, reuse, ratio), said in zip(rows, printed[:2], strict=True):
        whole, parts = reuse.strip().rstrip(")").split(" (")
        assert (
            f"The full read {dense.strip()}, reuse {whole} to the first token: {ratio.strip()} times" in said
        )
        assert all(f"{part}" in said for part in parts.split(", ")), parts
    for said in printed[:2]:
        assert "3,500 tokens" in said
    assert "300 tokens, 225 of them" in printed[2]
    assert "gains 1.66," in example
    assert "1.66 times" in printed[2]
    assert "26% of the requests pass" in example
    assert "from 26% of the requests" in printed[2]


def test_the_pages_measured_cases_are_the_files() -> None:
    page = (ROOT / "docs" / "break-even.md").read_text(encoding="utf-8")
    for row in json.loads(SHIPPED.read_text(encoding="utf-8"))["measured"]:
        times = f"{row['dense_ms']:.1f} ms | {row['reuse_ms']:.1f} ms"
        ratios = f"{row['ratio']:.2f} | {row['formula_ratio']:.2f}"
        assert f"| {row['case']['prompt']:,} | {times} | {ratios} |" in page


# -- the page's figure


def timed(lines: dict[str, tuple[float, float]], fell_back: int | None = None) -> RunRecord:
    """A record whose times lie on straight lines; one agent may have fallen back, at a time off the line."""
    record = make_record()
    outcomes = []
    for one in record.outcomes:
        at_nothing, each = lines[one.method]
        refused = one.method != "dense" and one.agent == fell_back
        ms = 1e4 if refused else at_nothing + each * one.actions.shape[1]
        state = "dense" if one.method == "dense" else "fallback" if refused else "reused"
        outcomes.append(replace(one, state=state, timing=replace(one.timing, ttft_ms=ms)))
    return replace(record, outcomes=tuple(outcomes))


@pytest.mark.slow
def test_the_figure_finds_where_the_lines_meet() -> None:
    lines = {"dense": (1.0, 0.1), "naive": (0.5, 0.02), "kvcomm": (5.0, 0.02)}
    found = break_even_view(timed(lines))
    assert "Copy and reposition pays at any length" in found.finding
    assert "KVCOMM pays from about 50 tokens on" in found.finding
    again = break_even_view(timed(lines, fell_back=2))
    assert "KVCOMM pays from about 50 tokens on, by these 2 agents" in again.finding
    falling = break_even_view(timed({**lines, "kvcomm": (9.0, -0.02)}))
    assert "KVCOMM pays from about" in falling.finding
    [*_, level] = [trace for trace in falling.figure.data if trace.mode == "lines"]
    assert level.y[0] == level.y[1], "more tokens never cost less"
    steep = break_even_view(timed({**lines, "kvcomm": (0.0, 0.2)}))
    assert "KVCOMM takes more for each token than the full read does" in steep.finding
    far = break_even_view(timed({**lines, "kvcomm": (1e5, 0.02)}))
    assert "KVCOMM does not pay at lengths like these" in far.finding


# -- the calculator's hardware and figures (its boxes: tests/lab_app/pages/test_break_even_calculator.py)


SHIPPED = ROOT / "benchmarks" / "results" / "break-even-embedded-cpu.json"


def test_shipped_figures_say_where_they_come_from() -> None:
    found = shipped_figures()[SHIPPED.stem]
    table = json.loads(SHIPPED.read_text(encoding="utf-8"))
    assert found.where == f"{table['hardware']}, 1 of 2 cores, fp32"
    assert [t.tokens for t in found.timed] == [200, 500, 1000]
    assert found.timed[2].dense_ms == table["measured"][2]["dense_ms"]
    assert found.timed[2].shared == table["measured"][2]["case"]["shared"]
    gpu = measured_figures(found.machine, {**table, "hardware": "NVIDIA H100", "device": "cuda"})
    assert gpu.where == "NVIDIA H100, fp32", "a processor beside it says nothing of its times"


def test_a_file_without_timed_cases_gives_its_machine(tmp_path: Path) -> None:
    file = tmp_path / "sheet.json"
    file.write_text(json.dumps(plain(SLOW, CASE)), encoding="utf-8")
    assert saved_figures(file) == Figures(SLOW, "slow")
    sheet = json.dumps(plain(SLOW, CASE))
    for content in (
        "[]", "{", json.dumps({"machine": {"name": "x"}}), "\x00", "[" * 100_000,
        sheet.replace("[2.0, 0.1, 1e-05]", "[2.0]"),
        sheet[:-1] + ', "measured": [{"case": {"prompt": 1e999}}]}',
    ):  # fmt: skip
        file.write_text(content, encoding="utf-8")
        with pytest.raises(OptionError, match=r"sheet.json holds no figures"):
            saved_figures(file)
    with pytest.raises(OptionError, match=r"none.json cannot be read: No such file"):
        saved_figures(tmp_path / "none.json")


@pytest.mark.slow
def test_this_machine_is_measured_within_its_budget(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.bench.break_even.LONGEST", 400)
    monkeypatch.setattr("backend.bench.break_even.REPEATS", 2)
    monkeypatch.setattr("backend.bench.roofline.PRODUCT_SIDE", {"cpu": 64})
    *steps, found = measure_within(tiny_model, 64 << 20)
    assert len(steps) == 4
    assert isinstance(found, Figures)
    assert found.machine.name == tiny_model.info.name
    assert [t.tokens for t in found.timed] == [100, 200, 400]
    assert {t.anchors for t in found.timed} == {ANCHORS}
    each = 4 * tiny_model.info.kv_bytes_per_token * 400
    *_, few = measure_within(tiny_model, 3 * each)
    assert isinstance(few, Figures)
    assert {t.anchors for t in few.timed} == {3}
    with pytest.raises(BudgetError, match="Two anchors of 400 tokens"):
        next(measure_within(tiny_model, 2 * each - 1))


@example(replace(SLOW, first_token_ms=1e4), CASE)  # pays from a length that is not on the axis
@given(machines, cases)
@pytest.mark.slow
def test_the_figure_draws_any_case(machine: Machine, case: Case) -> None:
    lines, by_length, by_part = pays_views(Figures(machine, "here"), case)
    found = answer(machine, case)
    assert ("does not" in lines.title) is (found.least_share is None)
    row = next(row for row in by_length.rows if row[0] == case.prompt)
    assert row[1:3] == (round(found.dense_ms, 4), round(found.reuse_ms, 4))
    spent = {side: sum(r[2] for r in by_part.rows if r[0] == side) for side in ("Full read", "KVCOMM")}
    assert spent == pytest.approx({"Full read": found.dense_ms, "KVCOMM": found.reuse_ms}, abs=1e-3)
    if found.reuse_ms:
        dotted = [a.text for a in by_length.figure.layout.annotations]
        crosses = found.least_tokens is not None and 1 < found.least_tokens <= by_length.rows[-1][0]
        assert dotted == ([f"pays from {found.least_tokens:,} on"] if crosses else [])


def test_the_facts_say_every_number_and_when_there_is_none() -> None:
    said = {label: value for label, value, _ in facts(CASE, answer(SLOW, CASE))}
    assert said == {
        "First token": "93.9\u00a0ms sooner",
        "Requests that must pass the gate": "4.6\u00a0%",
        "Shortest prompt that pays": "51 tokens",
        "Most anchors": "215",
        "A pool of 20 anchors": "15.3\u00a0MiB",
        "Paid off": "after 21 requests",
    }
    slower = replace(SLOW, first_token_ms=1e4)
    said = {label: value for label, value, _ in facts(CASE, answer(slower, CASE))}
    assert said["First token"].endswith("later")
    assert [said[label] for label in list(said)[1:4]] == ["all are too few", "27,508 tokens", "not even none"]
    assert said["Paid off"] == "never"


def test_timed_prompts_are_marked_where_they_are_seen() -> None:
    found = shipped_figures()[SHIPPED.stem]
    _, near, by_part = pays_views(found, CASE)
    assert [t.name for t in near.figure.data if t.name] == [
        "Full read",
        "Full read, timed",
        "KVCOMM",
        "KVCOMM, timed",
    ]
    assert [bar.name for bar in by_part.figure.data if bar.name][-4:] == [
        "gate", "correct", "move keys", "last token's forward",
    ]  # fmt: skip
    assert list(near.figure.data[-1].y) == [t.reuse_ms for t in found.timed]
    assert "outside the shade" in near.how_to_read
    _, far, _ = pays_views(found, Case(20, 10))
    assert [t.name for t in far.figure.data if t.name] == ["Full read", "KVCOMM"]
