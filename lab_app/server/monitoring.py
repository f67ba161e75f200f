"""For whoever hosts the lab: health, metrics, logs, and an orderly end.

Nothing here may hold what a visitor typed or a model wrote: metrics are counts, and a failure's log line
holds the error's type and the places in the code, never its message.
"""

import json
import logging
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from uvicorn.config import LOGGING_CONFIG

from backend import __version__
from backend.base.errors import LabError, RunCancelled
from backend.cache.process_memory import allocated_bytes
from backend.session.shared_warm_up import kept_bytes
from lab_app.server.quota import quota_html
from lab_app.server.request_limits import Counts
from lab_app.visits.engine import WORK, Engine, Model
from lab_app.visits.visits import VisitStore

LOG = logging.getLogger("lab_app")
GRACE_SECONDS = 20.0  # for runs to end by themselves; a container engine waits 10 to 30 s before it kills
SECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300)
STOPPING = "The lab is being restarted. Wait a minute, reload the page and run again."
FRESH = {"Cache-Control": "no-store"}


class Operations(Collector):
    """The metrics of one lab; the work of its engine sessions is counted in a registry of its own.

    Attributes:
        stopping: new work is refused.
        under_way: engine calls now running.
        work: engine calls that ended, by what they did and how they ended (finished, cancelled, refused or
            failed).
        seconds: how long they took.
    """

    def __init__(self) -> None:
        self.stopping = False
        self.registry = CollectorRegistry()
        self.work = Counter(
            "kvlab_work", "Engine calls that ended, by kind and outcome", ["kind", "outcome"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "kvlab_work_seconds", "Seconds of engine calls", ["kind"], buckets=SECONDS, registry=self.registry
        )
        self._lab: VisitStore | None = None
        self.under_way, self._changed = 0, threading.Condition()

    def watch(self, lab: VisitStore) -> None:
        """Add this lab's gauges to the registry."""
        self._lab = lab
        self.registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges' values now."""
        lab = self._lab
        if lab is None:
            return
        visits = lab.visits
        gauges = (
            ("visits", "Visits held", len(visits)),
            ("visits_busy", "Visits that run or wait for something", sum(v.busy for v in visits)),
            ("under_way", "Engine calls under way", self.under_way),
            ("records", "Runs held for visits", sum(len(visit.records) for visit in visits)),
            ("record_bytes", "Bytes of these runs' arrays", sum(visit.kept_bytes for visit in visits)),
            ("cached_bytes", "Bytes of cached text held for visits", sum(v.engine.held for v in visits)),
            ("warm_up_bytes", "Bytes of pools kept for whoever comes next", kept_bytes()),
            ("allocated_bytes", "Bytes that the C library has given out", allocated_bytes() or 0),
            ("model_loaded", "Whether the model is loaded", int(lab.loaded)),
        )
        for name, words, value in gauges:
            yield GaugeMetricFamily(f"kvlab_{name}", words, value=value)

    def counted(self, engine: Callable[[Model], Engine]) -> Callable[[Model], Engine]:
        """A factory of the same engine sessions whose work is counted."""
        return lambda model: cast(Engine, Counted(engine(model), self))

    def count(self, kind: str, begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """The events of one engine call.

        Raises:
            LabError: the lab is stopping; or what the call raises.
        """
        if self.stopping:
            raise LabError(STOPPING)
        began, outcome = time.monotonic(), "failed"
        self._step(1)
        try:
            yield from begin()
            outcome = "finished"
        except (RunCancelled, GeneratorExit):  # asked to stop, or nobody listens any more
            outcome = "cancelled"
            raise
        except LabError:
            outcome = "refused"
            raise
        finally:
            self.work.labels(kind, outcome).inc()
            self.seconds.labels(kind).observe(time.monotonic() - began)
            self._step(-1)

    def quiet(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the work under way to end; whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.under_way, timeout=seconds)

    def _step(self, change: int) -> None:
        with self._changed:
            self.under_way += change
            self._changed.notify_all()


class Counted:
    """An engine session whose work is counted. Everything else passes through."""

    def __init__(self, engine: Engine, operations: Operations) -> None:
        self._engine, self._operations = engine, operations

    def study(self, request: object, **kwargs: Any) -> Iterator[Any]:
        """A study, counted under its request's name: ``AnchorCostRequest`` as ``anchor_cost``."""
        name = type(request).__name__.removesuffix("Request")
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        return self._operations.count(kind, lambda: self._engine.study(request, **kwargs))

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._engine, name)
        if name not in WORK:
            return attribute
        return lambda *args, **kwargs: self._operations.count(name, lambda: attribute(*args, **kwargs))


def routes(lab: VisitStore, operations: Operations, counts: Counts | None = None) -> list[Route]:
    """``/healthz``, ``/metrics`` and ``/quota``."""
    counts = counts or Counts()

    def health(_: Request) -> Response:
        state = "stopping" if operations.stopping else "ok"
        body = {"status": state, "version": __version__, "model_loaded": lab.loaded}
        return JSONResponse(body, status_code=503 if operations.stopping else 200, headers=FRESH)

    def scrape(_: Request) -> Response:
        return Response(generate_latest(operations.registry), media_type=CONTENT_TYPE_LATEST, headers=FRESH)

    def quota(_: Request) -> Response:
        return HTMLResponse(quota_html(lab, operations.under_way, counts), headers=FRESH)

    return [Route("/healthz", health), Route("/metrics", scrape), Route("/quota", quota)]


class JsonLines(logging.Formatter):
    """One JSON object a line; of an exception, its type and its frames, innermost last."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])
            line["where"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, ensure_ascii=False)


def log_as_json(stream: TextIO | None = None) -> logging.Handler:
    """Write the logs of the lab and of its server as JSON lines to ``stream`` (standard error).

    The framework keeps its server's access log off: its lines would hold the links that save runs.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for name in ("lab_app", "backend", "uvicorn", "gradio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    LOG.setLevel(logging.INFO)
    for formatter in ("default", "access"):  # the server sets its own handlers up when it starts
        LOGGING_CONFIG["formatters"][formatter] = {"()": JsonLines}
    return handler


def stop(
    lab: VisitStore,
    operations: Operations,
    grace: float = GRACE_SECONDS,
    again: threading.Event | None = None,
) -> bool:
    """End the lab. New work is refused; work under way may finish within ``grace`` seconds or until ``again``
    is set, and is cancelled then. Visits are closed and freed; the store of shared runs is closed.

    Returns:
        whether all work finished by itself.
    """
    operations.stopping = True
    LOG.info("stopping")
    deadline = time.monotonic() + grace
    finished = operations.quiet(0)
    while not finished and time.monotonic() < deadline and not (again is not None and again.is_set()):
        finished = operations.quiet(0.2)
    for visit in lab.visits:
        lab.close(visit.id)
    operations.quiet(grace)  # what was cancelled ends at its next step
    if lab.shared is not None:
        lab.shared.close()
    LOG.info("stopped, %s", "all work finished" if finished else "unfinished work cancelled")
    return finished


def until_asked_to_stop(
    lab: VisitStore, operations: Operations, close: Callable[[], None], grace: float = GRACE_SECONDS
) -> None:
    """Wait for SIGTERM or SIGINT, then end the lab and ``close`` its server. A second one cancels at once."""
    stopping, again = threading.Event(), threading.Event()

    def on_signal(*_: Any) -> None:
        (again if stopping.is_set() else stopping).set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        stopping.wait()
        stop(lab, operations, grace, again)
        close()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
