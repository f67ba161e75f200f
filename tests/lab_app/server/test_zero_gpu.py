"""ZeroGPU: what the GPU's process is given and yields can be pickled, and nothing else of it stays."""

from __future__ import annotations

import json
import os
import pickle
import runpy
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from backend.base.errors import BudgetError, RateError, RunCancelled
from backend.prompts.presets import Example
from backend.records.events import RunDone
from backend.records.request import MethodChoice, RunRequest
from backend.records.run import RunRecord
from backend.session.limits import Limits
from backend.session.session import LabSession
from lab_app.cli.main import main
from lab_app.cli.space import ROOT, ZERO_HARDWARE, ZERO_PARTS, split_card
from lab_app.server import zero_gpu as zero
from lab_app.server.zero_gpu import Failed, Job, ZeroSession, on_gpu

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def apart(work: Callable[[Job], Iterator[Any]]) -> Callable[[Job], Iterator[Any]]:
    """As another process would do it: everything goes through pickle."""

    def call(job: Job) -> Iterator[Any]:
        for event in work(pickle.loads(pickle.dumps(job))):
            yield pickle.loads(pickle.dumps(event))

    return call


@pytest.fixture
def made(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ZeroSession]:
    monkeypatch.setattr(zero, "loaded", lambda name: tiny_model)

    def make(**limits: int) -> ZeroSession:
        return ZeroSession(tiny_model, "tiny", apart(on_gpu), Limits(**limits))

    return make


def request_of(pipeline: Any, question: str, *methods: str) -> RunRequest:
    return RunRequest(pipeline, {"user_question": question}, tuple(MethodChoice(m) for m in methods))


def record_of(events: Iterator[Any]) -> RunRecord:
    return next(event.record for event in events if isinstance(event, RunDone))


@pytest.mark.slow
def test_pools_are_those_of_a_session_that_kept_its_tensors(
    made: Callable[..., ZeroSession], tiny_model: Any, tiny_pipeline: Any
) -> None:
    examples = [Example({"user_question": said}) for said in ("a b c d", "e f g h", "c d a b")]
    first = request_of(tiny_pipeline, "d c b a", "kvcomm")
    then = request_of(tiny_pipeline, "a b d c", "kvcomm")
    kept, lent = LabSession(tiny_model), made(requests_a_minute=0)
    found = []
    for session in (kept, lent):
        list(session.warm_up(first, examples))
        found.append([record_of(session.run(request)) for request in (first, then)])
    for one, other in zip(*found, strict=True):
        # What a batch saw is numbered in another order; what the pools hold is the same.
        assert [(p.placeholder, p.previews) for p in one.pools] == [
            (p.placeholder, p.previews) for p in other.pools
        ]
        assert [o.text for o in one.outcomes] == [o.text for o in other.outcomes]
        assert [o.state for o in one.outcomes] == [o.state for o in other.outcomes]
    assert found[1][1].pools[0].anchors, "the pools hold something"
    lent.forget()
    assert lent._before(then) is None


def test_what_cannot_be_run_is_told_as_it_is(made: Callable[..., ZeroSession], tiny_pipeline: Any) -> None:
    with pytest.raises(BudgetError, match="this lab allows 1,000"):
        list(made(tokens=1000).run(request_of(tiny_pipeline, "a b " * 400, "naive", "kvcomm")))
    session = made(requests_a_minute=1)
    list(session.run(request_of(tiny_pipeline, "a b")))
    with pytest.raises(RateError):
        list(session.run(request_of(tiny_pipeline, "a b")))


def test_a_cancelled_call_ends_at_its_next_step(made: Callable[..., ZeroSession], tiny_pipeline: Any) -> None:
    cancel = threading.Event()
    running = made().run(request_of(tiny_pipeline, "a b", "naive"), cancel=cancel)
    next(iter(running))
    cancel.set()
    with pytest.raises(RunCancelled):
        list(running)


def test_a_call_asks_for_the_gpu_as_long_as_its_work_may_take(
    tiny_model: Any, tiny_pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def work(job: Job) -> Iterator[Any]:
        asked.append(zero.seconds_of(job))
        return on_gpu(job)

    monkeypatch.setattr(zero, "loaded", lambda name: tiny_model)
    session = ZeroSession(tiny_model, "tiny", work, Limits(requests_a_minute=0))
    small = request_of(tiny_pipeline, "a b", "naive")
    list(session.run(small))
    list(session.warm_up(small, [Example({"user_question": said}) for said in ("a b c d", "e f g h")]))
    list(session.run(small))
    monkeypatch.setattr(zero, "TOKENS_A_SECOND", 0.1)
    list(session.run(small))
    assert zero.SHORTEST <= asked[0] < asked[1] < asked[2] == zero.SECONDS
    assert zero.seconds_of(Job("tiny", Limits(), "study", ())) == zero.SECONDS


def test_a_failure_keeps_its_words_on_the_way() -> None:
    assert pickle.loads(pickle.dumps(Failed("BudgetError", "too much", "methods"))).field == "methods"


# -- the rendered Space ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("zero") / "lab"
    assert main(["space", "zerogpu", "--out", str(out)]) == 0
    return out


def test_the_space_holds_what_a_gradio_space_needs_and_nothing_else(space: Path) -> None:
    card, _ = split_card((space / "README.md").read_text(encoding="utf-8"))
    assert (card["sdk"], card["app_file"], card["suggested_hardware"]) == ("gradio", "app.py", ZERO_HARDWARE)
    assert "app_port" not in card
    assert f"gradio=={card['sdk_version']}\n" in (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert {path.name for path in space.iterdir()} == {
        *(Path(part).parts[0] for part in ZERO_PARTS),
        "README.md",
        "app.py",
        "requirements.txt",
    }
    lines = (space / "requirements.txt").read_text(encoding="utf-8").splitlines()
    names = {Requirement(line).name for line in lines}
    assert {"torch", "transformers", "spaces", "plotly"} <= names
    assert "gradio" not in names


def test_other_hardware_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["space", "zerogpu", "--out", str(tmp_path / "x"), "--hardware", "t4-small"]) == 2
    assert ZERO_HARDWARE in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


FAKE = """
import functools, pathlib, pickle, sys
assert "torch" not in sys.modules, "spaces comes before torch"
HEARD = pathlib.Path(__file__).with_suffix(".heard")
def GPU(task=None, *, duration=None):
    if task is None:
        return functools.partial(GPU, duration=duration)
    HEARD.write_text(f"decorated {task.__name__}\\n")
    def call(*given):
        with HEARD.open("a") as file:
            file.write(f"lent for {duration(*given)}\\n")
        for event in task(*pickle.loads(pickle.dumps(given))):
            yield pickle.loads(pickle.dumps(event))
    return call
"""


def test_the_rendered_app_asks_for_no_gpu_where_there_is_no_such_package(
    space: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent: list[Any] = []
    monkeypatch.setitem(sys.modules, "spaces", None)  # importing it now raises ImportError
    monkeypatch.setattr(zero, "serve", lent.append)
    runpy.run_path(str(space / "app.py"), run_name="__main__")
    assert lent == [None]


@pytest.mark.slow
def test_the_rendered_app_starts_and_runs(space: Path, tmp_path: Path) -> None:
    (tmp_path / "spaces.py").write_text(FAKE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = {
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{space}", "GRADIO_SERVER_NAME": "127.0.0.1",
        "GRADIO_SERVER_PORT": str(port), "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    running = subprocess.Popen([sys.executable, "app.py"], cwd=space, env=os.environ | given)
    address = f"http://127.0.0.1:{port}"
    try:
        ends = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(f"{address}/healthz", timeout=60) as answer:
                    assert json.load(answer)["status"] == "ok"
                break
            except OSError:
                assert running.poll() is None, "the app ended"
                assert time.monotonic() < ends
                time.sleep(0.3)
        body = json.dumps(
            {"preset": "math-3", "methods": ["kvcomm"], "warm": 2, "max_new_tokens": 8}
        ).encode()
        asked = urllib.request.Request(
            f"{address}/gradio_api/call/v2/run", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            call = json.load(answer)["event_id"]
        with urllib.request.urlopen(f"{address}/gradio_api/call/v2/run/{call}", timeout=300) as answer:
            said = answer.read().decode()
        found = json.loads(said.rpartition("event: complete\ndata: ")[2].splitlines()[0])[0]
        assert found["status"] == "done"
        assert [method["label"] for method in found["methods"]] == ["dense", "kvcomm"]
        heard = (tmp_path / "spaces.heard").read_text().splitlines()
        assert (heard[0], len(heard)) == ("decorated on_gpu", 2)
        assert zero.SHORTEST < int(heard[1].removeprefix("lent for ")) < zero.SECONDS
        running.terminate()
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.wait()
