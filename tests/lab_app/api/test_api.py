"""Programs call the lab: sessions of their own, the same limits and line, errors in words, true examples."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import tiny
from fake_session import FakeModel, FakeSession

from backend.base.errors import LabError, OptionError, RateError
from backend.prompts.presets import load_preset, preset_requests
from backend.prompts.variants import other_numbers
from backend.records.run import RunRecord
from backend.session.limits import Limits
from lab_app.api.callers import ADDRESSES, Caller, Callers
from lab_app.api.gradio_endpoints import CallError, steps
from lab_app.api.requests import read_judge, read_run, sentence
from lab_app.api.tasks import ENDPOINTS
from lab_app.server import request_guard as doors
from lab_app.server.serve import launch
from lab_app.visits.visits import VisitStore

# Gradio's queue reads its own statistics in ways that pandas has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
DOCS = Path(__file__).resolve().parents[3] / "docs" / "api.md"
WRITTEN_ADDRESS = "http://127.0.0.1:7860"
ONE, TWO = Caller("the-session-of-one"), Caller("the-session-of-two")
SIDE_BY_SIDE = 3


class Fake(FakeSession):
    """Raises what a test wants, with the visitor's text in it."""

    error: type[Exception] | None = None

    def run(self, request: Any, **more: Any) -> Iterator[Any]:
        if Fake.error is not None:
            raise Fake.error(f"cannot run {request.values}")
        yield from super().run(request, **more)


@pytest.fixture
def lab() -> VisitStore:
    return VisitStore(FakeModel, Fake, limits=Limits(requests_a_minute=3))


def called(lab: VisitStore, callers: Callers, caller: Caller = ONE, name: str = "run", **given: Any) -> Any:
    """Every step of a call."""
    return list(steps(lab, callers, name, given, caller))


# -- who calls ---------------------------------------------------


def test_a_session_finds_its_visit_again_and_nobody_elses(lab: VisitStore) -> None:
    callers = Callers(lab)
    for caller in (ONE, TWO, ONE):
        question = f"canary of {caller.session}"
        called(lab, callers, caller, values={"user_question": question})
    asked = {v.browser: [str(dict(r.values)) for r in v.engine.requests] for v in lab.visits}  # type: ignore[attr-defined]
    assert {name: len(texts) for name, texts in asked.items()} == {ONE.session: 2, TWO.session: 1}
    assert all(name in text for name, texts in asked.items() for text in texts)


def test_a_tab_of_the_page_is_no_callers_session(lab: VisitStore) -> None:
    tab = lab.open(ONE.session)
    called(lab, Callers(lab))
    assert tab.engine.requests == []  # type: ignore[attr-defined]
    assert len(lab.visits) == 2


@pytest.mark.parametrize("session", ["x", "short-session", "a" * 15, "with a space in it", "a" * 200])
def test_a_session_that_could_be_guessed_is_refused(lab: VisitStore, session: str) -> None:
    with pytest.raises(CallError, match="nobody guesses"):
        called(lab, Callers(lab), Caller(session))
    assert lab.visits == ()


def test_a_caller_without_a_session_leaves_nothing_and_is_counted_by_its_address() -> None:
    now = 1000.0
    lab = VisitStore(FakeModel, Fake, limits=Limits(requests_a_minute=3), clock=lambda: now)
    callers = Callers(lab, clock=lambda: now)
    for _ in range(3):
        called(lab, callers, Caller(address="10.0.0.1"))
    with pytest.raises(CallError, match=r"this lab allows 3 to each visitor"):
        called(lab, callers, Caller(address="10.0.0.1"))
    called(lab, callers, Caller(address="10.0.0.2"))
    assert len({visit.id for visit in lab.visits}) == 4
    now += 61
    lab.sweep()
    assert lab.visits == ()


def test_addresses_are_not_remembered_without_end(lab: VisitStore) -> None:
    callers = Callers(lab)
    for number in range(ADDRESSES + 10):
        callers._rate(str(number))
    assert len(callers._rates) == ADDRESSES


def test_pools_are_shared_for_a_scenario_as_it_stands_and_for_nothing_else(lab: VisitStore) -> None:
    callers = Callers(lab)
    asked: dict[str, Any] = {"preset": "math-3", "methods": ["kvcomm"], "warm": 20}
    own = load_preset("math-3").pipeline.agents[0].template + " canary"
    changes: list[dict[str, Any]] = [
        {},
        {"templates": {"1": own}},
        {"warm": 19},
        {"seed": 7},
        {"methods": []},
    ]
    for change in changes:
        called(lab, callers, **(asked | change))
    (visit,) = lab.visits
    assert visit.engine.shared == [True, False, False, False, True]  # type: ignore[attr-defined]


def test_a_session_has_one_call_at_a_time(lab: VisitStore) -> None:
    callers = Callers(lab)
    first = steps(lab, callers, "run", {}, ONE)
    assert next(first)["status"] == "running"
    with pytest.raises(CallError, match="still going on"):
        called(lab, callers)
    assert list(first)[-1]["status"] == "done"
    assert called(lab, callers)[-1]["status"] == "done"


# -- the line, and who has gone ---------------------------------------------------


def test_a_call_waits_in_the_same_line_as_those_who_press_run(lab: VisitStore) -> None:
    callers = Callers(lab)
    with lab.in_line():
        waiting = steps(lab, callers, "run", {}, ONE)
        said = next(waiting)
        assert said["status"] == "waiting"
        assert "1 run before you" in said["said"]
    assert list(waiting)[-1]["status"] == "done"
    assert len(lab.turns) == 0


def test_a_caller_who_goes_stops_the_run_and_gives_the_turn_away(lab: VisitStore) -> None:
    working = steps(lab, Callers(lab), "run", {}, ONE)
    next(working)
    assert len(lab.turns) == 1
    working.close()  # type: ignore[attr-defined]
    assert len(lab.turns) == 0
    assert not lab.visits[0].busy


def test_a_session_that_ends_stops_its_call(lab: VisitStore) -> None:
    working = steps(lab, Callers(lab), "run", {}, ONE)
    next(working)
    lab.leave(ONE.session)
    with pytest.raises(CallError, match="Stopped"):
        list(working)
    assert len(lab.turns) == 0


# -- errors ---------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"preset": "no-such"}, "There is no scenario"),
        ({"prest": "math-3"}, "There is no parameter prest; there are preset, methods"),
        ({"methods": "naive"}, "The parameter methods is 'naive'; it should be a valid list"),
        ({"methods": ["naive,kvcomm"]}, "holds a comma"),
        ({"methods": ["kvcomm:gamma=9"]}, "gamma"),
        ({"methods": ["nothing"]}, "There is no method 'nothing'; there are"),
        ({"methods": ["naive@" + "x" * 300]}, "up to 200 are allowed"),
        ({"methods": ["naive" * 200]}, "up to 500 are allowed"),
        ({"methods": ["kvcomm:pool=" + "9" * 400]}, "kvcomm"),
        ({"values": {"user_question": ""}}, "The question is empty"),
        ({"values": {"nobody": "x"}}, "no template asks for it"),
        ({"values": {"user_question": "\x00"}}, "a NUL character"),
        ({"templates": {"9": "x"}}, "the agents of math-3 are 1, 2, 3"),
        ({"templates": {"2": "{agent_9_current}"}}, "there is no agent 9"),
        ({"agents": [{"name": "x"}], "values": {}}, "Agent 1 has no template"),
        ({"agents": [{"template": "x", "secret": "y"}]}, "an agent may have template (text)"),
        ({"agents": [{"template": "x", "tool": "rm"}], "values": {}}, "the tool 'rm'"),
        ({"agents": [{"template": "x"}]}, "Give `values`"),
        ({"agents": [], "values": {}}, "1 to"),
        ({"mode": "both"}, "it should be 'pinned' or 'free'"),
        ({"warm": 10_000}, "allowed: 0 to 200"),
        ({"example": 0}, "greater than or equal to 1"),
        ({"temperature": float("nan")}, "temperature"),
        ({"max_new_tokens": 10**9}, "allowed: 1 to 4096"),
        ({"turns": 0}, "The number of turns is 0"),
    ],
)
def test_what_is_wrong_with_a_run_is_told(given: dict[str, Any], said: str) -> None:
    with pytest.raises(LabError) as caught:
        read_run(given)
    assert said in sentence(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "The parameter question is missing"),
        ({"candidates": ["a"]}, "candidates is 1"),
        ({"candidates": ["a", " "]}, "Candidate 2 is empty"),
        ({"question": " "}, "The question is empty"),
        ({"orders": "sideways"}, "is not known"),
        ({"criterion": "taste"}, "criterion is 'taste'; allowed: right"),
        ({"protocol": "x"}, "protocol is 'x'"),
        ({"warm": 1000}, "allowed: 0 to 40"),
    ],
)
def test_what_is_wrong_with_a_judgement_is_told(given: dict[str, Any], said: str) -> None:
    usual = {"question": "Which?", "candidates": ["a", "b"]} if given else {}
    with pytest.raises(LabError) as caught:
        read_judge(usual | given)
    assert said in sentence(caught.value)


def test_a_pipeline_of_ones_own_is_run_as_it_is_written() -> None:
    asked = read_run(
        {
            "agents": [{"template": "{user_question} {extra}"}, {"template": "{agent_1_current}"}],
            "declared": ["extra"], "values": {"user_question": "q", "extra": "e"}, "methods": [],
        }
    )  # fmt: skip
    assert asked.request.pipeline.order == (1, 2)
    assert dict(asked.request.values) == {"user_question": "q", "extra": "e"}
    assert asked.request.methods == ()


@pytest.mark.parametrize(
    ("given", "open_words"),
    [({}, False), ({"example": 3}, False), ({"values": {"user_question": "q"}}, True)],
)
def test_pools_are_filled_in_the_wording_of_the_request(given: dict[str, Any], open_words: bool) -> None:
    warm = read_run({"preset": "math-3", "methods": ["kvcomm"], "warm": 3} | given).warm
    assert list(warm) == preset_requests(load_preset("math-3"), 3, seed=1, open_words=open_words)


def test_pools_can_be_filled_with_the_request_in_other_numbers() -> None:
    """Also where there is no set to draw from."""
    values = {"user_question": "Ada had 19 keys and lost 2."}
    job = read_run(
        {"preset": "math-3", "methods": ["kvcomm"], "warm": 20, "warm_own": True, "values": values}
    )
    assert [example.values for example in job.warm] == other_numbers(values, 20)
    assert not job.shipped
    own = {"agents": [{"template": "{user_question}"}], "values": values, "methods": ["kvcomm"], "warm": 2}
    assert len(read_run(own | {"warm_own": True}).warm) == 2
    with pytest.raises(OptionError, match="no set"):
        read_run(own)
    with pytest.raises(OptionError, match="no number"):
        read_run(own | {"warm_own": True, "values": {"user_question": "How many?"}})


@pytest.mark.parametrize("error", [ValueError, RecursionError, MemoryError])
def test_an_unexpected_error_is_told_without_texts(
    lab: VisitStore, error: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Fake, "error", error)
    with pytest.raises(CallError) as caught:
        called(lab, Callers(lab), values={"user_question": "canary-in-error"})
    assert f"did not expect ({error.__name__})" in str(caught.value)
    assert "canary" not in str(caught.value)
    assert "the call run failed" in caplog.text


def test_a_rate_that_is_over_is_told_as_it_is(lab: VisitStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "error", lambda said: RateError("Wait 7 s and try again.", 7.0))
    with pytest.raises(CallError, match="Wait 7 s"):
        called(lab, Callers(lab))


def test_answers_are_json_without_nan(lab: VisitStore) -> None:
    for name in ("run", "methods", "presets", "model"):
        answer = called(lab, Callers(lab), name=name)[-1]
        assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    names = [method["name"] for method in called(lab, Callers(lab), name="methods")[-1]["methods"]]
    assert {"dense", "naive", "kvcomm"} <= set(names)


# -- the server ---------------------------------------------------


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A lab with the model that ships with it."""
    from backend.model.load import load_model

    limits = Limits(methods=SIDE_BY_SIDE)
    model: Any = load_model("embedded", device="cpu")
    blocks, found = launch(
        lambda: model, "127.0.0.1", 0, block=False, first_run=None, limits=limits,
        engine=lambda loaded: tiny.lab(loaded, limits=limits),  # type: ignore[arg-type, return-value]
    )  # fmt: skip
    yield found.rstrip("/")
    blocks.close(verbose=False)


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Any]:
    from gradio_client import Client

    found = Client(address, verbose=False, analytics_enabled=False)
    yield found
    found.close()


def blocks_of(language: str) -> str:
    """All examples of the page in a language, for a lab at any address."""
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL))


@pytest.mark.slow
def test_the_python_examples_work(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    known: dict[str, Any] = {}
    try:
        exec(compile(blocks_of("python").replace(WRITTEN_ADDRESS, address), str(DOCS), "exec"), known)
    finally:
        known["lab"].close()
    said = capsys.readouterr().out
    assert isinstance(known["record"], RunRecord)
    assert known["record"].labels == ("dense", "naive", "kvcomm:gamma=0.5")
    assert {v["order"] for v in known["found"]["verdicts"]} == {"identity", "shuffle 0"}
    assert "flipped:" in said
    assert said.rstrip().endswith("done")
    assert "[('dense', True), ('naive'," in said, "the model solves the question of the example"


@pytest.mark.slow
def test_the_curl_examples_work(address: str) -> None:
    script = "set -eu\n" + blocks_of("bash").replace(WRITTEN_ADDRESS, address)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answers = re.findall(r"event: complete\ndata: (.*)", done.stdout)
    assert len(answers) == 2
    for answer in answers:
        [found] = json.loads(answer)
        assert found["status"] == "done"
        assert [method["label"] for method in found["methods"]] == ["dense", "naive"]
        assert httpx.get(f"{address}/{found['record']}", timeout=60).status_code == 200


@pytest.mark.slow
def test_the_engines_limits_hold_for_programs(client: Any) -> None:
    from gradio_client.exceptions import AppError

    with pytest.raises(AppError, match=f"at most {SIDE_BY_SIDE} run side by side"):
        client.predict(methods=["naive", "kvcomm", "prefix"], api_name="/run")
    with pytest.raises(AppError, match="There is no scenario"):
        client.predict(preset="/etc/passwd", api_name="/run")


@pytest.mark.slow
def test_calls_that_cannot_be_read_are_told(address: str) -> None:
    with httpx.Client(base_url=address, timeout=60) as http:
        wrong = http.post("/gradio_api/call/v2/run", json={"prset": "x"})
        assert (wrong.status_code, wrong.text.split(". ")[0]) == (400, "There is no parameter prset")
        wrong = http.post("/gradio_api/call/v2/judge", json={})
        assert (wrong.status_code, wrong.text.split(". ")[0]) == (400, "The parameter question is missing")
        for data, said in (([1], "it should be a valid string"), (["math-3"] * 40, "up to")):
            call = http.post("/gradio_api/call/run", json={"data": data}).json()["event_id"]
            answer = http.get(f"/gradio_api/call/run/{call}").text
            assert "event: error" in answer
            assert said in answer
            assert "Traceback" not in answer


@pytest.mark.slow
def test_the_server_documents_these_endpoints_and_no_other(address: str) -> None:
    with httpx.Client(base_url=address, timeout=60) as http:
        info = http.get("/gradio_api/info").json()
        assert set(info["named_endpoints"]) == {f"/{name}" for name in ENDPOINTS}
        assert info["unnamed_endpoints"] == {}
        whole = http.get("/config").json()
        public = {e["api_name"] for e in whole["dependencies"] if e["api_visibility"] == "public"}
        assert public == set(ENDPOINTS)


def test_the_doors_know_every_endpoint() -> None:
    assert all(doors.API_PATHS.fullmatch(f"/gradio_api/call/{name}") for name in ENDPOINTS)
    assert all(doors.API_PATHS.fullmatch(f"/gradio_api/call/v2/{name}/{'0' * 32}") for name in ENDPOINTS)
    assert not doors.API_PATHS.fullmatch("/gradio_api/call/arrive")


def test_a_session_of_the_client_is_not_taken_for_none() -> None:
    import uuid

    from lab_app.api.gradio_endpoints import NO_SESSION

    assert NO_SESSION.fullmatch(uuid.uuid4().hex)
    assert not NO_SESSION.fullmatch(str(uuid.uuid4()))
