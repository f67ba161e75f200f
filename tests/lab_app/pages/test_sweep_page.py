"""The Sweeps page without a browser: text, size, rows that stay, figures, files, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import math
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from fake_session import FakeModel, FakeSession
from starlette.applications import Starlette
from starlette.testclient import TestClient

from backend.base.errors import LabError, OptionError
from backend.base.statistics import Share
from backend.prompts.presets import load_preset, preset_requests
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.sweep import Compared, Count, Swept
from backend.sweeps.page_sweep import LINES, SweepDesk
from backend.sweeps.read import parse_sweep
from lab_app.pages import registry as pages
from lab_app.pages.sweeps import page as sweep_page
from lab_app.server.downloads import routes
from lab_app.ui.text import SWEEP_OWN
from lab_app.visits.queue import wait_for_turn as waits
from lab_app.visits.visits import Visit, VisitStore
from viz.studies.sweep import MOST_CELLS, views

TEXT = """
name: small
tasks: [math-2]
methods: [dense, naive, {name: kvcomm, gamma: 0.9}]
request_orders: [given, ascending]
problems: 3
warmup: 1
max_new_tokens: 4
"""
TRACE = "\n".join(
    json.dumps({"request": str(n), "agent": agent, "question": q, "prompt": prompt, "response": said})
    for n, q in enumerate(["How many?", "What for?"])
    for agent, prompt, said in (
        ("Solver", f"Solve this: {q} Think.", f"step {n}"),
        ("Judge", f"Question: {q} Answer: step {n} Right?", "yes"),
    )
)


@pytest.fixture(scope="module")
def lab() -> VisitStore:
    return VisitStore(tiny.model, tiny.lab)


@pytest.fixture
def visit(lab: VisitStore) -> Visit:
    return lab.open()


def given(text: str = TEXT, lines: str = "") -> dict[str, Any]:
    return {"text": text, "lines": lines}


def merged(updates: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for update in updates:
        out |= update
    return out


def swept(visit: Visit, text: str = TEXT, lines: str = "") -> Swept:
    *_, last = visit.engine.sweep(sweep_page.state_of(visit).desk, text, lines)
    assert isinstance(last, Swept)
    return last


def test_an_example_does_not_lose_what_somebody_wrote(lab: VisitStore, visit: Visit) -> None:
    first, second, *_ = sweep_page.arrive(lab, visit)["start.choices"]
    shown = sweep_page.start(lab, visit, {"start": first, "text": "name: mine"})
    assert shown["start.choices"][-1] == SWEEP_OWN
    shown = sweep_page.start(lab, visit, {"start": second, "text": shown["text"]})
    assert sweep_page.start(lab, visit, {"start": SWEEP_OWN, "text": shown["text"]})["text"] == "name: mine"


@pytest.fixture(scope="module")
def swept_visit(lab: VisitStore) -> Visit:
    """A visit that has run the sweep: what only looks at its lines need not run it again."""
    visit = lab.open()
    swept(visit)
    return visit


@pytest.fixture(scope="module")
def small(swept_visit: Visit) -> Swept:
    return swept(swept_visit)


def test_the_page_is_registered() -> None:
    assert sweep_page.PAGE in pages.PAGES
    assert "#kv-page-sweep" in pages.stylesheet()


@pytest.mark.slow
def test_the_examples_are_those_that_can_be_run_here(lab: VisitStore, visit: Visit) -> None:
    """A sweep of the embedded model's variants is left out: the tiny model has other weights."""
    offered = sweep_page.arrive(lab, visit)["start.choices"]
    left_out = set(sweep_page.examples()) - set(offered)
    assert len(offered) > 5
    for title in (*offered, *left_out):
        text = sweep_page.start(lab, visit, {"start": title, "text": ""})["text"]
        update = sweep_page.refresh(visit, given(text))
        assert any(update["errors"].values()) is (title in left_out)
        assert ("rows</b> in" in update["cost"]) is (title in offered)
    assert any("belong to the weights" in _refusal(visit, title) for title in left_out)


def _refusal(visit: Visit, title: str) -> str:
    return str(sweep_page.refresh(visit, given(sweep_page.examples()[title]))["errors"]["text"])


@pytest.mark.slow
def test_a_sweep_runs_shows_and_goes_on(lab: VisitStore, visit: Visit) -> None:
    before = sweep_page.refresh(visit, given())["cost"]
    assert "<b>18 rows</b> in 2 cells; " in before
    updates = list(sweep_page.run(lab, visit, given()))
    done = [u["status"] for u in updates if "of 18 rows" in u.get("status", "")]
    assert any("dense is reading" in status for status in done), "who is at work is told"
    last = merged(updates)
    assert (last["run.visible"], last["cancel.visible"], last["status"]) == (True, False, "")
    assert [v["key"] for v in last["figures"]["views"]] == [
        "sweep_right", "sweep_as_dense", "sweep_tokens", "sweep_ttft", "sweep_table",
    ]  # fmt: skip
    table = last["figures"]["views"][-1]["html"]
    assert table.count("<tr>") == 1 + 2 + 6, "a head, two cells, six lines"
    assert "lab/sweep/" in last["files"]
    assert "18 of them computed already; nothing is missing" in sweep_page.refresh(visit, given())["cost"]
    longer = given(TEXT.replace("problems: 3", "problems: 4").replace(", ascending", ""))
    assert "12 rows</b> in 1 cell, 9 of them" in sweep_page.refresh(visit, longer)["cost"]
    assert "earlier text" in sweep_page.refresh(visit, longer)["status"]
    events = list(visit.engine.sweep(sweep_page.state_of(visit).desk, *longer.values()))
    counts = [event.done for event in events if isinstance(event, Count)]
    assert (counts[0], counts[-1]) == (9, 12), "it goes on"


@pytest.mark.slow
def test_another_visit_has_rows_of_its_own(lab: VisitStore, visit: Visit) -> None:
    swept(visit)
    assert "computed already" not in sweep_page.refresh(lab.open(), given())["cost"]


def test_a_stopped_sweep_keeps_its_rows(lab: VisitStore, visit: Visit) -> None:
    steps = sweep_page.run(lab, visit, given())
    for update in steps:
        if "3 of 18 rows" in update.get("status", ""):
            assert visit.cancel is not None
            visit.cancel.set()
    assert "Stopped" in update.get("status", "") or visit.cancel is None
    stored = sweep_page.state_of(visit).desk.plan(*given().values()).stored
    assert 3 <= stored < 18


def test_between_two_problems_others_have_the_model(lab: VisitStore, visit: Visit) -> None:
    got = threading.Event()
    wait_for_turn: list[threading.Thread] = []

    def other() -> None:
        with lab.in_line() as place:
            for _ in waits(place, threading.Event()):
                pass
            got.set()

    for update in sweep_page.run(lab, visit, given()):
        if "0 of 18 rows" in update.get("status", "") and not wait_for_turn:
            wait_for_turn.append(threading.Thread(target=other, daemon=True))
            wait_for_turn[0].start()
        if "6 of 18 rows" in update.get("status", ""):
            wait_for_turn[0].join(20)
            assert got.is_set(), "it had its turn before the sweep was over"
            break
    else:
        raise AssertionError("the sweep was over")


def test_a_browser_that_goes_stops_it(lab: VisitStore, visit: Visit) -> None:
    steps = sweep_page.run(lab, visit, given())
    for update in steps:
        if "3 of 18 rows" in update.get("status", ""):
            break
    steps.close()  # type: ignore[attr-defined]
    assert visit.cancel is None
    assert len(lab.turns) == 0
    assert swept(visit).complete, "and it can go on"


REFUSED = {
    "no yaml": ("a: [", "text", "not valid YAML"),
    "nothing": ("", "text", "keys"),
    "unknown method": (TEXT.replace("naive", "magic"), "text", "magic"),
    "a bad value": (TEXT.replace("0.9", "7"), "text", "allowed"),
    "a file above": (TEXT.replace("math-2", "../../secret.yaml"), "text", "reads bench.yaml alone"),
    "a path": (TEXT.replace("math-2", "/etc/passwd"), "text", "reads bench.yaml alone"),
    "a file as data": (
        TEXT.replace("[math-2]", "[{pipeline: math-2, data: /etc/passwd, format: gsm8k}]"),
        "text", "reads lines.jsonl alone",
    ),
    "a trace elsewhere": (TEXT.replace("[math-2]", "[{trace: ../x.jsonl}]"), "text", "lines.jsonl alone"),
    "the hub": (
        TEXT.replace("[math-2]", "[{pipeline: math-2, data: {hub: openai/gsm8k}, format: gsm8k}]"),
        "text", "fetches nothing",
    ),
    "a judge's file": (
        TEXT.replace("[math-2]", "[{judge: {regime: parallel}, data: /etc/passwd, format: gsm8k}]"),
        "text", "lines.jsonl alone",
    ),
    "another model": (TEXT + "models: [gpt2]\n", "text", "gpt2"),
    "a judge's other model": (
        TEXT.replace("[math-2]", "[{judge: {regime: parallel, agents: gpt2}}]"), "text", "gpt2",
    ),
    "too long": (TEXT + "#" * 128_000, "text", "up to 128,000"),
    "too many rows": (TEXT.replace("problems: 3", "problems: 9000"), "text", "takes up to"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_page_does_not_take_is_told_before_anything_is_opened(
    name: str, lab: VisitStore, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, slot, said = REFUSED[name]
    opened: list[Path] = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: opened.append(self) or real(self, *a, **k))
    for update in (sweep_page.refresh(visit, given(text)), merged(sweep_page.run(lab, visit, given(text)))):
        assert said in update["errors"][slot]
        assert "text" not in update, "typed text must stay"
    assert not [p for p in opened if "passwd" in str(p) or "secret" in str(p)]
    assert visit.cancel is None


@pytest.mark.slow
def test_lines_are_problems_or_a_trace(visit: Visit) -> None:
    problems = "\n".join(
        json.dumps({"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"}) for n in range(4)
    )
    text = TEXT.replace("[math-2]", f"[{{pipeline: math-2, data: {LINES}, format: gsm8k}}]")
    assert swept(visit, text, problems).rows == 18
    text = TEXT.replace("[math-2]", f"[{{trace: {LINES}}}]").replace("problems: 3", "problems: 1")
    assert swept(visit, text, TRACE).rows == 6
    with pytest.raises(LabError, match=LINES):
        swept(visit, text, "")
    with pytest.raises(OptionError, match="up to 16"):
        sweep_page.state_of(visit).desk.plan(text, "x" * (17 << 20))


PROBLEMS = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(4)]
JSONL = "\n".join(map(json.dumps, PROBLEMS))
CSV = "question,answer\n" + "".join(f"{row['question']},{row['answer']}\n" for row in PROBLEMS)


def uploaded(visit: Visit, content: Any) -> str:
    found = sweep_page.upload(visit, {"upload": content})
    return str(found.get("uploaded", ""))


@pytest.mark.slow
def test_an_earlier_text_is_said_once_and_taken_back(lab: VisitStore, visit: Visit) -> None:
    """What else the status says, such as that a run was stopped, a look at the page does not wipe away."""
    merged(sweep_page.run(lab, visit, given(TEXT)))
    assert "status" not in sweep_page.refresh(visit, given(TEXT))
    assert "earlier text" in sweep_page.refresh(visit, given(TEXT + "seeds: [1]\n"))["status"]
    assert sweep_page.refresh(visit, given(TEXT))["status"] == ""
    assert "status" not in sweep_page.refresh(visit, given(TEXT))


@pytest.mark.parametrize(
    ("content", "name", "lines"),
    [
        (JSONL.encode(), "upload.jsonl", 4),
        (b"\xef\xbb\xbf" + JSONL.encode(), "upload.jsonl", 4),  # with a mark in front, as Windows writes it
        (json.dumps(PROBLEMS, indent=1).encode(), "upload.json", 18),
        (CSV.replace("\n", "\r\n").encode(), "upload.csv", 5),
    ],
)
def test_a_file_of_problems_is_kept_under_a_name_of_ours(
    visit: Visit, content: bytes, name: str, lines: int
) -> None:
    text = TEXT.replace("[math-2]", f"[{{pipeline: math-2, data: {name}, format: gsm8k}}]")
    text = text.replace("problems: 3", "problems: 1").replace(", ascending", "")
    assert "lines.jsonl alone" in sweep_page.refresh(visit, given(text))["errors"]["text"]
    said = uploaded(visit, content)
    assert f"{lines} lines" in said
    assert f"<code>data: {name}</code>" in said
    assert "rows</b> in" in sweep_page.refresh(visit, given(text))["cost"]
    assert swept(visit, text).rows == 3


@pytest.mark.slow
def test_another_upload_takes_the_place_of_the_first(lab: VisitStore, visit: Visit) -> None:
    text = TEXT.replace("[math-2]", "[{pipeline: math-2, data: upload.jsonl, format: gsm8k}]")
    uploaded(visit, JSONL.encode())
    merged(sweep_page.run(lab, visit, given(text)))
    assert "status" not in sweep_page.refresh(visit, given(text)), "what stands there stays"
    uploaded(visit, JSONL.replace("+ 1", "+ 2").encode())
    after = sweep_page.refresh(visit, given(text))
    assert "earlier text" in after["status"]
    assert "computed already" not in after["cost"]
    uploaded(visit, CSV.encode())
    folder = sweep_page.state_of(visit).desk.folder
    assert [path.name for path in folder.glob("upload.*")] == ["upload.csv"]
    told = sweep_page.refresh(visit, given(text))["errors"]["text"]
    assert "reads lines.jsonl and upload.csv alone" in told


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n ", "is empty"),
        (b"\x89PNG\r\n\x1a\n\xff", "no UTF-8 text (byte 1)"),
        (JSONL.encode("utf-16"), "no UTF-8 text"),
        ("question,answer\nGrüße,1".encode("latin-1"), "no UTF-8 text (byte 19)"),
        (b"question\0,answer", "NUL"),
        (b"x" * ((16 << 20) + 1), "has 16.0 MiB; a page takes up to 16"),
    ],
)
def test_a_file_that_cannot_be_taken_is_told_beside_the_button(
    visit: Visit, content: bytes, said: str
) -> None:
    uploaded(visit, CSV.encode())
    assert said in uploaded(visit, content)
    assert [p.name for p in sweep_page.state_of(visit).desk.folder.glob("upload.*")] == ["upload.csv"]
    for nothing in (None, "/etc/passwd", ["x"]):
        assert sweep_page.upload(visit, {"upload": nothing}) == {}


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (b"{", "jsonl", "upload.jsonl, line 1: this is not valid JSON"),
        (b"[1, 2]", "json", "upload.json, problem 1"),
        (b"a,b\n1\n", "csv", "upload.csv, row 2 has 1 cells"),
        (b"any text", "csv", "upload.csv holds no problem"),
        (b"a,b\n1,2\n", "csv", "no gsm8k problem"),
        (b"x" * 200_000, "csv", "is no CSV"),
    ],
)
def test_what_is_wrong_in_a_file_stands_beside_it(visit: Visit, content: bytes, name: str, said: str) -> None:
    uploaded(visit, content)
    text = TEXT.replace("[math-2]", f"[{{pipeline: math-2, data: upload.{name}, format: gsm8k}}]")
    assert said in sweep_page.refresh(visit, given(text))["errors"]["lines"]


def test_the_last_run_becomes_a_sweep(lab: VisitStore, visit: Visit) -> None:
    assert "no run" in sweep_page.take(visit, {})["status"]
    pipeline = load_preset("math-2").pipeline
    values = dict(preset_requests(load_preset("math-2"), 1)[0].values)
    methods = (MethodChoice("dense"), MethodChoice("kvcomm", {"gamma": 0.7, "capacity": 20}))
    request = RunRequest(pipeline, values, methods, "pinned", Decoding(4))
    *_, done = visit.engine.run(request)
    visit.keep(done.record)  # type: ignore[union-attr]
    text = sweep_page.take(visit, {})["text"]
    read = parse_sweep(text)
    assert [m.name for m in read.methods] == ["dense", "kvcomm"]
    assert read.methods[1].options["gamma"] == 0.7
    assert "math-2" in text

    agents = tuple(replace(a, template=a.template + " Be brief.") for a in pipeline.agents)
    *_, done = visit.engine.run(replace(request, pipeline=replace(pipeline, agents=agents)))
    visit.keep(done.record)  # type: ignore[union-attr]
    text = sweep_page.take(visit, {})["text"]
    assert "bench.yaml" in text
    kept = load_preset(sweep_page.state_of(visit).desk.folder / "bench.yaml")
    assert kept.pipeline.agents == agents
    short = text.replace("problems: 20", "problems: 1").replace("warmup: 10", "max_new_tokens: 3")
    assert swept(visit, short).rows == 2


def test_rows_are_saved_as_files_by_whoever_has_the_token(
    lab: VisitStore, visit: Visit, tmp_path: Path
) -> None:
    client = TestClient(Starlette(routes=routes(lab, {})))
    mine = sweep_page.state_of(visit)
    assert client.get(f"/lab/sweep/{mine.token}/csv").status_code == 404, "nothing has been run"
    merged(sweep_page.run(lab, visit, given()))
    found = client.get(f"/lab/sweep/{mine.token}/csv")
    assert found.status_code == 200
    assert "sweep.csv" in found.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(found.text)))
    assert len(rows) == 18
    assert {row["method"] for row in rows} == {"dense", "naive", "kvcomm:gamma=0.9"}
    (tmp_path / "rows.sqlite").write_bytes(client.get(f"/lab/sweep/{mine.token}/sqlite").content)
    with sqlite3.connect(tmp_path / "rows.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (18,)
    assert client.get(f"/lab/sweep/{mine.token}/yaml").text == TEXT
    for wrong in (f"{mine.token}/exe", "x/csv", "é/csv", f"{mine.token}/..%2frows.sqlite"):
        assert client.get(f"/lab/sweep/{wrong}").status_code == 404


def test_pools_hold_no_more_than_the_visitor_may(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[int] = []
    monkeypatch.setattr(
        "backend.sweeps.page_sweep.run_sweep", lambda sweep, *a, **k: iter([budgets.append(sweep.budget_mb)])
    )
    state = SweepDesk(tiny.model(), visit.engine.estimate, visit.engine.estimate_judging, 64 << 20)
    for asked in ("", "budget_mb: 100000\n", "budget_mb: 7\n"):
        list(state.run(TEXT + asked, ""))
    assert budgets == [64, 64, 7]


def test_a_desk_leaves_nothing_behind(visit: Visit) -> None:
    state = SweepDesk(tiny.model(), visit.engine.estimate, visit.engine.estimate_judging, 1 << 20)
    folder = state.folder
    assert folder.exists()
    del state
    assert not folder.exists()


@pytest.mark.slow
def test_figures_say_what_the_lines_do(small: Swept) -> None:
    right, as_dense, cached, sooner, _ = views(small)
    for view in (right, as_dense, cached, sooner):
        assert len(view.rows) == 6  # type: ignore[union-attr]
    lines = {(line.label, line.method): line for line in small.lines}
    for label, method, of, value, *_ in cached.rows:  # type: ignore[union-attr]
        assert (of, value) == (3, round(lines[label, method].tokens.value, 4))
    names = " ".join(cached.figure.layout.yaxis.ticktext)  # type: ignore[union-attr]
    assert "<b>math-2, given</b>" in names
    assert "Copy and reposition" in names
    many = replace(
        small,
        lines=tuple(
            replace(line, cell=replace(line.cell, seed=seed))
            for seed in range(30)
            for line in small.lines[:3]
        ),
    )
    drawn = views(many)[0]
    assert f"first {MOST_CELLS} of 30 cells" in drawn.finding  # type: ignore[union-attr]
    assert len(drawn.rows) == 90, "the table behind it has all"  # type: ignore[union-attr]


def test_scores_stand_beside_or_instead_of_what_is_right(small: Swept) -> None:
    assert not small.graded, "a number is right or wrong"
    assert "sweep_score" not in [view.key for view in views(small)]
    lines = tuple(
        replace(line, score=Share(0.9 - 0.2 * place + 0.1 * (place > 2), 0.1, 0.95, 3))
        for place, line in enumerate(small.lines)
    )
    halves = replace(small, lines=lines)
    assert [view.key for view in views(halves)][:2] == ["sweep_right", "sweep_score"]
    drawn = views(halves)[1]
    assert [row[3] for row in drawn.rows] == [round(x.score.value, 4) for x in lines]  # type: ignore[union-attr]
    # the full read of its own cell
    said = "Most lost: kvcomm:gamma=0.9 in math-2, given, 0.500; the full read has 0.900."
    assert drawn.finding == said  # type: ignore[union-attr]
    even = replace(halves, lines=tuple(replace(x, score=Share(0.5, 0.1, 0.9, 3)) for x in lines))
    assert views(even)[1].finding == "No method scores below the full read."  # type: ignore[union-attr]
    table = next(view for view in views(halves) if view.key == "sweep_table").html  # type: ignore[union-attr]
    assert "<th>score</th>" in table
    assert "0.900 <small>0.100 to 0.950</small>" in table
    bare = replace(halves, lines=tuple(replace(x, accuracy=Share(math.nan, 0, 0, 0)) for x in lines))
    assert [view.key for view in views(bare)][:2] == ["sweep_score", "sweep_as_dense"]


def test_times_have_their_interval_where_there_are_enough_problems(small: Swept) -> None:
    dense, naive, kvcomm, *_ = small.lines
    known = replace(small, lines=(dense, replace(naive, ttft_ratio=Share(2.0, 1.5, 3.0, 9)), kvcomm))
    for shown, bars, said in (
        (small, (0.0, 0.0), (None, None)),  # three problems have none
        (known, (1.0, 0.5), (1.5, 3.0)),
    ):
        sooner = views(shown)[3]
        mine = next(x for x in sooner.figure.data if "Copy and reposition" in x.name)  # type: ignore[union-attr]
        assert (mine.error_x.array[0], mine.error_x.arrayminus[0]) == bars
        assert next(r for r in sooner.rows if r[1] == "naive")[-2:] == said  # type: ignore[union-attr]
    assert "2.00× <small>1.50 to 3.00</small>" in views(known)[4].html  # type: ignore[union-attr]


def test_what_is_compared_with_something_else_has_a_table_of_its_own(
    swept_visit: Visit, small: Swept
) -> None:
    assert "sweep_between" not in [view.key for view in views(small)]
    text = TEXT + "against: [{request_order: given}, {method: naive}]\n"
    found = swept(swept_visit, text)
    *_, table = views(found)
    shown = table.html  # type: ignore[union-attr]
    assert table.key == "sweep_between"
    assert "against request order given" in shown
    assert shown.count('<th scope="row">math-2, ascending</th>') == 3 + 2
    assert shown.count('<th scope="row">math-2, given</th>') == 2
    assert "no difference in what is right is clear" in shown
    assert "nothing is compared with the full read" in views(found)[0].finding  # type: ignore[union-attr]
    [first, *others] = found.compared.tests
    clear = replace(first, right_p=0.001, right_holm=0.004, only_other=8, only_mine=0)
    worse = replace(found, compared=Compared((clear, *others), ("That is not compared: <why>.",)))
    shown = views(worse)[-1].html  # type: ignore[union-attr]
    assert "Full read in math-2, ascending lost 8 that request order given had right, and won 0" in shown
    assert "not compared: &lt;why&gt;." in shown


def test_more_temperatures_are_more_rows(visit: Visit) -> None:
    more = "temperature: [0, 0.5]\n"
    assert "<b>36 rows</b> in 4 cells" in sweep_page.refresh(visit, given(TEXT + more))["cost"]
    many = TEXT.replace("max_new_tokens: 4", f"max_new_tokens: {list(range(1, 51))}")
    many = many.replace("problems: 3", "problems: 70")
    assert "has 21,000 rows" in sweep_page.refresh(visit, given(many))["errors"]["text"]


def test_clear_differences_are_named(small: Swept) -> None:
    worse = tuple(
        replace(test, right_p=0.001, right_holm=0.004, only_other=9, only_mine=1)
        if test.method == "naive"
        else test
        for test in small.compared.tests
    )
    said = views(replace(small, compared=Compared(worse)))[0].finding  # type: ignore[union-attr]
    assert "2 of 4 tests" in said
    assert "Copy and reposition in math-2, given lost 9" in said


@pytest.mark.slow
def test_hostile_names_are_shown_as_text(visit: Visit) -> None:
    text = TEXT.replace("[math-2]", "[{pipeline: math-2, label: '<img src=x onerror=alert(1)>'}]")
    for view in views(swept(visit, text)):
        # what the browser reads, for JSON may be written with escapes
        shown = view.html if hasattr(view, "html") else str(json.loads(view.json()))
        assert "<img" not in shown


def test_a_session_that_fails_is_told() -> None:
    lab = VisitStore(FakeModel, FakeSession)
    other = lab.open()
    last = merged(sweep_page.run(lab, other, given("broken")))
    assert "did not expect" in last["status"]
    assert "ValueError" not in last["status"], "an internal name"
    assert (last["run.visible"], other.cancel) == (True, None)
    assert merged(sweep_page.run(lab, other, given()))["status"] == ""
