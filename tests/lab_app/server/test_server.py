"""The real server without a browser: no leaks between visitors, nothing left behind, no traceback shown."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_record import make_record
from fake_session import FakeModel, FakeSession

from backend.base.errors import OptionError
from backend.records.request import RunRequest
from lab_app.app import build_app
from lab_app.server.hosting import Hosting
from lab_app.server.offline import GUARD, go_offline
from lab_app.server.serve import launch
from lab_app.visits.visits import LEFT_SECONDS, VisitStore

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))
from fuzz import SHOWN, Fuzzer, fuzz_files  # noqa: E402
from soak import Soak  # noqa: E402
from visitor import Answer, Page, Visitor  # noqa: E402

# Gradio's queue reads its own statistics in ways that pandas has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
HOSTS: set[str] = set()
RECORDING = False
STATES: list[Any] = []  # what the framework keeps of every tab


def observe(event: str, args: tuple[Any, ...]) -> None:
    """Where this process connects to, and which names it looks up."""
    if RECORDING and event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        where = args[0] if event == "socket.getaddrinfo" else args[1]
        HOSTS.add(str(where[0] if isinstance(where, tuple) else where))


class Breakable(FakeSession):
    """Raises what a test wants, and quotes the visitor's text in it."""

    error: type[Exception] | None = None

    def run(self, request: RunRequest, **more: Any) -> Iterator[Any]:
        if Breakable.error is not None:
            raise Breakable.error(f"cannot run {request.values}")
        yield from super().run(request, **more)


@pytest.fixture(scope="module")
def lab() -> Iterator[tuple[VisitStore, str]]:
    """A server in offline mode, and the lab behind it."""
    global RECORDING
    found: list[VisitStore] = []
    sys.addaudithook(observe)
    go_offline("127.0.0.1")
    before, RECORDING = GUARD.refused, True

    def build(*given: Any, **more: Any) -> Any:
        app = build_app(*given, **more)
        found.append(app.lab)
        return app

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lab_app.server.serve.build_app", build)
            blocks, address = launch(
                FakeModel, "127.0.0.1", 0, block=False, first_run=None,
                engine=lambda model: Breakable(model, 0.005), hosting=Hosting(("https://huggingface.co",)),
            )  # fmt: skip
        STATES.append(blocks.state_holder)
        yield found[0], address
        assert GUARD.refused == before, "something wanted to go outside"
        blocks.close(verbose=False)
    finally:
        GUARD.stop()
        RECORDING = False


@pytest.fixture
def client(lab: tuple[VisitStore, str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=lab[1].rstrip("/"), timeout=60) as found:
        yield found


@pytest.fixture(scope="module")
def page(lab: tuple[VisitStore, str]) -> Page:
    with httpx.Client(base_url=lab[1].rstrip("/"), timeout=60) as client:
        return Page(client)


@pytest.fixture
def visitor(page: Page, client: httpx.Client) -> Iterator[Visitor]:
    found = Visitor(page, client)
    found.arrive()
    yield found
    found.leave()


def until(holds: Any, seconds: float = 60.0) -> bool:
    """Wait for something that another thread does."""
    ends = time.monotonic() + seconds
    while not holds() and time.monotonic() < ends:
        time.sleep(0.02)
    return bool(holds())


def ask(visitor: Visitor, text: str) -> Answer:
    visitor.put("kv-value-0", text)
    visitor.put("kv-warm-first", False)
    return visitor.do("kv-run")


@pytest.mark.slow
def test_the_page_is_there_with_its_headers(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert "gradio_config" in answer.text
    assert answer.headers["content-security-policy"].endswith("frame-ancestors 'self' https://huggingface.co")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_framework_forgets_who_left(
    page: Page, client: httpx.Client, lab: tuple[VisitStore, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep the last value of every widget for each tab that ever came."""
    found = Visitor(page, client)
    found.arrive()
    assert ask(found, "Who?").success
    [visit] = [v for v in lab[0].visits if v.browser == found.tab]
    kept = STATES[0].session_data
    assert found.tab in kept
    found.leave()
    assert until(lambda: visit.left_at is not None)
    assert found.tab in kept, "the tab may come back"
    now = lab[0]._clock()
    monkeypatch.setattr(lab[0], "_clock", lambda: now + LEFT_SECONDS + 1)
    lab[0].sweep()
    assert visit not in lab[0].visits
    assert found.tab not in kept


@pytest.mark.slow
def test_visitors_share_nothing(
    page: Page, client: httpx.Client, lab: tuple[VisitStore, str], caplog: pytest.LogCaptureFixture
) -> None:
    one, two = Visitor(page, client), Visitor(page, client)
    for visitor in (one, two):
        visitor.arrive()
    with caplog.at_level(logging.DEBUG, logger="lab_app"):
        answers = [ask(one, "canary-of-one " * 3), ask(two, "canary-of-two " * 3)]
        answers += [visitor.do("kv-forget") for visitor in (one, two)]
    assert all(answer.success for answer in answers)
    assert "canary-of-two" not in answers[0].text + answers[2].text
    assert "canary-of-one" not in answers[1].text + answers[3].text
    assert "canary-of" not in caplog.text
    asked = [[request.values for request in visit.engine.requests] for visit in lab[0].visits]  # type: ignore[attr-defined]
    assert not any("canary-of-one" in str(values) and "canary-of-two" in str(values) for values in asked)
    for visitor in (one, two):
        visitor.leave()


def test_a_visitor_who_closes_the_tab_in_a_run_leaves_nothing(
    page: Page, client: httpx.Client, lab: tuple[VisitStore, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = set(lab[0]._visits)
    visitor = Visitor(page, client)
    visitor.arrive()
    [mine] = set(lab[0]._visits) - known
    visit = lab[0].visit(mine)
    visit.engine.pause = 0.2  # type: ignore[attr-defined]
    visitor.do("kv-run", until=lambda message: "process_generating" in message and "is reading" in message)
    assert len(lab[0].turns) == 1
    visitor.leave()
    assert until(lambda: visit.left_at is not None), "the server notices"
    assert until(lambda: len(lab[0].turns) == 0 and not visit.busy), "the run ends and gives its turn away"
    monkeypatch.setattr("lab_app.visits.visits.LEFT_SECONDS", 0.0)
    assert until(lambda: lab[0].sweep() >= 0 and mine not in lab[0]._visits)


def test_cancel_stops_a_run_at_once(page: Page, client: httpx.Client, lab: tuple[VisitStore, str]) -> None:
    known = set(lab[0]._visits)
    visitor = Visitor(page, client)
    visitor.arrive()
    [mine] = set(lab[0]._visits) - known
    visit = lab[0].visit(mine)
    visit.engine.pause = 0.1  # type: ignore[attr-defined]

    def press(message: str) -> bool:
        if "is reading" in message and visit.cancel is not None:
            visit.cancel.set()  # what the Cancel button does
        return False

    visitor.put("kv-warm-first", False)
    answer = visitor.do("kv-run", until=press)
    assert answer.success
    assert "Stopped." in answer.text
    assert not visit.busy
    visitor.leave()


@pytest.mark.parametrize("error", [ValueError, RecursionError, MemoryError])
def test_a_model_that_raises_is_told_and_the_next_run_works(
    visitor: Visitor,
    error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(Breakable, "error", error)
    answer = ask(visitor, "canary-in-error")
    assert answer.success
    assert "an error that it did not expect" in answer.text
    assert not any(shown in answer.text for shown in SHOWN)
    assert "a run failed" in caplog.text
    assert "canary-in-error" not in caplog.text
    monkeypatch.setattr(Breakable, "error", None)
    assert "kv-compare" in ask(visitor, "What is 1 + 1?").text


def test_a_damaged_record_is_told(visitor: Visitor, client: httpx.Client) -> None:
    good = make_record(layers=4).to_bytes()
    for content, said in (
        (good, "kv-compare"),
        (good[:-40], "not a complete record"),
        (b"", "not a complete record"),
    ):
        path = client.post("/gradio_api/upload", files={"files": ("x.kvrun", content)}).json()[0]
        visitor.put("kv-upload", {"path": path, "orig_name": "x.kvrun", "meta": {"_type": "gradio.FileData"}})
        answer = visitor.do("kv-upload", "upload")
        assert answer.success
        assert said in answer.text


def test_a_file_of_the_server_is_no_upload(visitor: Visitor) -> None:
    for path in ("/etc/passwd", str(ROOT / "pyproject.toml"), "http://example.com/x"):
        visitor.put("kv-upload", {"path": path, "orig_name": "x", "meta": {"_type": "gradio.FileData"}})
        answer = visitor.do("kv-upload", "upload")
        assert answer.success is False
        assert "root:" not in answer.text
        assert ("does not fetch addresses" in answer.text) == path.startswith("http")
        assert not any(shown in answer.text for shown in SHOWN)


@pytest.mark.slow
def test_a_hundred_malformed_calls(lab: tuple[VisitStore, str]) -> None:
    fuzzer = Fuzzer(lab[1], seed=1)
    fuzzer.run(100)
    assert fuzzer.failed == []
    assert sum(fuzzer.counts.values()) == 100
    assert until(lambda: len(lab[0].turns) == 0), "no abandoned call keeps the model"


def test_damaged_presets_and_records_are_told() -> None:
    assert fuzz_files(60, 1, make_record(layers=2).to_bytes()) == []


@pytest.mark.slow
def test_the_soak_knows_the_page(lab: tuple[VisitStore, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A button of another name, and its visitors would do nothing and fail at nothing."""
    soak = Soak(lab[1], seed=0)
    monkeypatch.setattr(soak, "sleep", lambda seconds: None)

    def study(self: Breakable, request: object, **more: Any) -> Iterator[Any]:
        raise OptionError(f"The made-up model knows no {type(request).__name__}.")

    monkeypatch.setattr(Breakable, "study", study)
    for seed in (*range(6), 51):  # the last one asks the judge
        soak.one_visitor(random.Random(seed), "127.0.0.1")
    assert soak.failed == []
    assert soak.count["records"] >= 3
    assert {"run", "judge"} <= set(soak.count), soak.count
    assert not any("not found" in said or "is empty" in said for said in soak.refused), soak.refused
    assert any("knows no JudgeRequest" in said for said in soak.refused), "the judge's form was complete"


def test_offline_only_this_machine_is_spoken_to(visitor: Visitor) -> None:
    ask(visitor, "What is 1 + 1?")
    assert HOSTS
    assert {"127.0.0.1", "localhost", "::1"} >= HOSTS, HOSTS
    assert threading.active_count() < 500
