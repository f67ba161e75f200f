"""Health, metrics, logs and the orderly end."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_record import make_record
from fake_session import FakeModel, FakeSession
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from uvicorn.config import LOGGING_CONFIG

from backend.base.errors import LabError, OptionError, RunCancelled
from backend.records.events import Progress
from backend.records.sharing.store import SharedRuns
from lab_app.server.monitoring import STOPPING, JsonLines, Operations, log_as_json, routes, stop
from lab_app.server.request_limits import ANSWERS, Counts
from lab_app.server.serve import launch
from lab_app.visits.visits import Visit, VisitStore

CANARY = "the visitor's own words"
REQUEST = make_record(layers=2).request


class Waiting(FakeSession):
    """An engine whose run ends when it is told to, or cancelled."""

    go = threading.Event()

    def run(self, request: Any, *, cancel: threading.Event | None = None) -> Iterator[Progress]:
        yield Progress("reading", 0, 1)
        while not self.go.wait(0.01):
            if cancel is not None and cancel.is_set():
                raise RunCancelled("Stopped.")

    def warm_up(self, request: Any, examples: Any, **also: Any) -> Any:
        raise examples


@pytest.fixture
def operations() -> Operations:
    return Operations()


@pytest.fixture
def lab(operations: Operations) -> VisitStore:
    Waiting.go = threading.Event()
    made = VisitStore(FakeModel, operations.counted(Waiting))
    operations.watch(made)
    return made


def metrics(operations: Operations) -> dict[str, float]:
    lines = generate_latest(operations.registry).decode().splitlines()
    return {k: float(v) for k, _, v in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def running(lab: VisitStore) -> tuple[Visit, threading.Thread, list[BaseException]]:
    """A visit whose run is under way in a thread of its own, and what ended it."""
    visit, ends = lab.open(), list[BaseException]()
    visit.cancel = threading.Event()
    began = threading.Event()

    def work() -> None:
        try:
            for _ in visit.engine.run(REQUEST, cancel=visit.cancel):
                began.set()
        except RunCancelled as error:
            ends.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert began.wait(30)
    return visit, thread, ends


def test_health_says_ok_without_loading_the_model_and_503_while_stopping(
    lab: VisitStore, operations: Operations
) -> None:
    with TestClient(Starlette(routes=routes(lab, operations))) as client:
        answer = client.get("/healthz")
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")
        assert answer.json()["model_loaded"] is False
        lab.open()
        assert client.get("/healthz").json()["model_loaded"] is True
        operations.stopping = True
        assert (client.get("/healthz").status_code, client.get("/healthz").json()["status"]) == (
            503,
            "stopping",
        )
        told = client.get("/metrics").text
        assert "kvlab_visits 1.0" in told
        assert "kvlab_cached_bytes 5.24288e+06" in told
        assert "kvlab_record_bytes 0.0" in told
        assert "kvlab_warm_up_bytes " in told
        assert "kvlab_allocated_bytes " in told


def test_work_is_counted_by_how_it_ended(lab: VisitStore, operations: Operations) -> None:
    visit = lab.open()
    Waiting.go.set()
    list(visit.engine.run(REQUEST))
    left = visit.engine.run(REQUEST)
    next(iter(left))
    left.close()  # type: ignore[attr-defined]
    for error in (OptionError(CANARY), RunCancelled(CANARY), ZeroDivisionError(CANARY)):
        with pytest.raises(type(error)):
            list(visit.engine.warm_up(REQUEST, error))
    found = metrics(operations)
    for kind, outcome in (
        ("run", "finished"), ("run", "cancelled"), ("warm_up", "refused"), ("warm_up", "cancelled"),
        ("warm_up", "failed"),
    ):  # fmt: skip
        assert found[f'kvlab_work_total{{kind="{kind}",outcome="{outcome}"}}'] == 1
    assert found['kvlab_work_seconds_count{kind="run"}'] == 2
    assert found["kvlab_under_way"] == 0
    assert CANARY not in generate_latest(operations.registry).decode()


def test_the_quota_page_says_what_is_used_and_left(lab: VisitStore, operations: Operations) -> None:
    counts = Counts()
    counts.open[ANSWERS].enter("10.0.0.1")
    counts.uploads.take("10.0.0.1", 3 << 20)
    lab.open()
    [route] = [r for r in routes(lab, operations, counts) if r.path == "/quota"]
    page = TestClient(Starlette(routes=[route])).get("/quota")
    limit = lab.limits.visits
    assert f"<td>Visits<td>1<td>{limit:,}<td>{limit - 1:,}</tr>" in page.text
    assert "<td>Uploaded within an hour, MiB<td>3<td>1,024<td>1,021</tr>" in page.text
    assert "<td>Other answers<td>1<td>512<td>511</tr>" in page.text
    assert page.headers["cache-control"] == "no-store"


def test_stopping_lets_a_run_finish(lab: VisitStore, operations: Operations) -> None:
    visit, thread, ends = running(lab)
    assert metrics(operations)["kvlab_under_way"] == 1
    assert metrics(operations)["kvlab_visits_busy"] == 1
    ended: list[bool] = []
    stopper = threading.Thread(target=lambda: ended.append(stop(lab, operations, 60)))
    stopper.start()
    while not operations.stopping:
        stopper.join(0.01)
    with pytest.raises(LabError, match="being restarted"):
        next(iter(visit.engine.run(REQUEST)))
    Waiting.go.set()
    thread.join(30)
    stopper.join(30)
    assert (ended, ends) == ([True], [])
    assert lab.visits == ()
    assert "Wait" in STOPPING


def test_stopping_closes_the_store_after_the_last_run(operations: Operations, tmp_path: Path) -> None:
    store = SharedRuns(tmp_path)
    lab = VisitStore(FakeModel, operations.counted(Waiting), shared=store)
    kept = store.put(b"a run")
    assert stop(lab, operations, grace=0.1) is True
    with pytest.raises(LabError, match="being restarted"):
        store.put(b"another")
    assert store.get(kept) == b"a run"


def test_stopping_cancels_what_does_not_finish(lab: VisitStore, operations: Operations) -> None:
    visit, thread, ends = running(lab)
    assert stop(lab, operations, grace=0.1) is False
    thread.join(30)
    assert [type(end) for end in ends] == [RunCancelled]
    with pytest.raises(LabError):
        lab.visit(visit.id)


def test_a_second_signal_does_not_wait(lab: VisitStore, operations: Operations) -> None:
    _, thread, ends = running(lab)
    again = threading.Event()
    again.set()
    assert stop(lab, operations, grace=30, again=again) is False
    thread.join(30)
    assert len(ends) == 1


def test_a_log_line_is_json_and_holds_no_words_of_a_failure() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    log = logging.getLogger("test_operations")
    log.addHandler(handler)
    try:
        try:
            raise ValueError(CANARY) from KeyError(CANARY)
        except ValueError:
            log.exception("a run failed")
    finally:
        log.removeHandler(handler)
    [line] = stream.getvalue().splitlines()
    said = json.loads(line)
    assert (said["message"], said["level"], said["error"]) == ("a run failed", "error", "ValueError")
    assert said["where"][-1].endswith("test_a_log_line_is_json_and_holds_no_words_of_a_failure")
    assert CANARY not in line


@pytest.mark.slow
def test_a_served_lab_answers_for_its_health_and_ends_on_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, said = io.StringIO(), list[dict[str, Any]]()
    for name in ("lab_app", "backend", "uvicorn", "gradio"):
        logger = logging.getLogger(name)
        for kept in ("handlers", "propagate", "level"):
            monkeypatch.setattr(logger, kept, getattr(logger, kept))
    for name in ("default", "access"):
        monkeypatch.setitem(LOGGING_CONFIG["formatters"], name, LOGGING_CONFIG["formatters"][name])
    log_as_json(stream)

    def visit() -> None:
        """Ask for its health once it serves, and ask it to stop whatever came of that."""
        try:
            while "serving at" not in stream.getvalue():
                time.sleep(0.05)
            address = json.loads(stream.getvalue().splitlines()[-1])["message"].split()[-1].rstrip("/")
            for path in ("healthz", "metrics"):
                with urllib.request.urlopen(f"{address}/{path}", timeout=60) as answer:
                    said.append({"path": path, "body": answer.read().decode()})
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    visitor = threading.Thread(target=visit, daemon=True)
    visitor.start()
    launch(FakeModel, "127.0.0.1", 0, engine=FakeSession, first_run=None)
    visitor.join(60)
    assert json.loads(said[0]["body"])["status"] == "ok"
    assert "kvlab_visits 0.0" in said[1]["body"], "the page was made with a visit that has ended"
    lines = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert lines[-2:] == ["stopping", "stopped, all work finished"]
