"""A sweep that is asked for from a page: its text, two files beside it, and its rows, in a folder of its own.

The text comes from a stranger. It may name only the files beside it, which have fixed names here, and only
the model that is loaded.
"""

import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml

from backend.base.errors import OptionError
from backend.base.machine import processor, versions
from backend.base.text import show
from backend.model.load import LoadedModel
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import (
    MAX_PRESET_BYTES,
    PRESET_FOLDER,
    load_preset,
    parse_yaml,
    preset_names,
    read_text,
)
from backend.records.judge import JudgeRequest
from backend.records.request import RunRequest
from backend.records.sweep import Count, SweepPlan, Swept
from backend.sweeps.compare import compare
from backend.sweeps.export import export
from backend.sweeps.grid import Shard, planned_rows, shards_of
from backend.sweeps.read import parse_sweep
from backend.sweeps.run import SweepDone, run_sweep
from backend.sweeps.runner import ModelRunner
from backend.sweeps.spec import JudgeTask, Sweep
from backend.sweeps.store import SweepStore
from backend.sweeps.summary import boundary_tax, summarise

FILE = "sweep.yaml"
LINES = "lines.jsonl"  # what a text may name: problems, or a trace
UPLOADS = {"jsonl": "upload.jsonl", "json": "upload.json", "csv": "upload.csv"}  # and a file, by its kind
BENCH = "bench.yaml"  # a pipeline whose templates were edited
ROWS = "rows.sqlite"
MOST_ROWS = 20_000
MOST_LINES_BYTES = 16 << 20
MOST_TEXT = 128_000  # characters of the sweep itself, which is read anew whenever it was edited
LOOK_SECONDS = 2.0
KINDS = ("csv", "parquet", "sqlite")


class SweepDesk:
    """One visitor's sweeps. What they computed stays: a changed or longer sweep asks only for what is new.

    Args:
        model: on which they run.
        estimate: foresees ``.seconds`` of so many runs of a request.
        judging: foresees the seconds of so many judged problems, and of so many more that are taken in.
        budget_bytes: what a cell's pools may hold, whatever the text asks for.
    """

    def __init__(
        self,
        model: LoadedModel,
        estimate: Callable[[RunRequest, int], Any],
        judging: Callable[[JudgeRequest, int, int], float],
        budget_bytes: int,
    ) -> None:
        self.model, self.estimate, self.judging, self.budget_bytes = model, estimate, judging, budget_bytes
        self.folder = Path(tempfile.mkdtemp(prefix="kvlab-sweep-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.result: SweepDone | None = None

    def plan(self, text: str, lines: str) -> SweepPlan:
        """What a sweep will ask for.

        Args:
            text: the sweep as YAML.
            lines: of the file beside it, which the text calls ``lines.jsonl``.

        Raises:
            LabError: it cannot be run, with the reason.
        """
        sweep = self._read(text, lines)
        shards, runner = shards_of(sweep), self._runner()
        rows = sum(1 for _ in planned_rows(shards))
        keys: set[str] = set()
        if (self.folder / ROWS).exists():
            with SweepStore(self.folder / ROWS) as store:
                keys = store.keys()
        weights = runner.weights(shards[0])
        stored = sum(planned.key(weights) in keys for planned in planned_rows(shards))
        seconds = sum(self._seconds(shard, keys, weights) for shard in shards)
        cells = len({shard.cell for shard in shards})
        return SweepPlan(sweep.name, sweep.title, cells, rows, stored, seconds)

    def run(self, text: str, lines: str, *, cancel: threading.Event | None = None) -> Iterator[Count | Swept]:
        """Compute what is missing; counts, the lines so far every few seconds, and all of them at the end.

        Raises:
            LabError: it cannot be run.
            RunCancelled: ``cancel`` was set; what was finished stays.
        """
        sweep = self._read(text, lines)
        facts: dict[str, Any] = {"versions": versions(), "machine": processor()}
        with SweepStore(self.folder / ROWS) as store:
            for event in run_sweep(
                sweep, store, self._runner(), cancel=cancel, facts=facts, look_seconds=LOOK_SECONDS
            ):
                if isinstance(event, SweepDone):
                    self.result = event
                    yield Swept(
                        sweep.name, sweep.title, summarise(event), len(event.rows), event.complete,
                        compare(event), boundary_tax(event),
                    )  # fmt: skip
                else:
                    yield event

    def saved(self, kind: str) -> bytes:
        """The rows that were last shown as one table (``csv``, ``parquet``), or the whole file (``sqlite``),
        with which ``kvlab sweep`` goes on.

        Raises:
            OptionError: there are none yet, or no such kind, or Parquet cannot be written here.
        """
        if kind not in KINDS or self.result is None:
            raise OptionError(
                f"There are no rows as {show(kind)}. Run a sweep; there are {', '.join(KINDS)}."
            )
        path = self.folder / f"saved.{kind}"
        path.unlink(missing_ok=True)
        if kind == "sqlite":
            with closing(sqlite3.connect(self.folder / ROWS)) as connection:
                connection.execute("VACUUM INTO ?", (str(path),))
        else:
            export(self.result.rows, path, "parquet" if kind == "parquet" else "csv")
        return path.read_bytes()

    def keep(self, content: bytes) -> tuple[str, int]:
        """Keep an uploaded file beside the text, in the place of the one before. Its content decides its
        kind: JSON lines, a JSON list, or CSV.

        Returns:
            the name by which the text can ask for it, and how many lines it has.

        Raises:
            OptionError: it is too large, empty, or no UTF-8 text.
        """
        if len(content) > MOST_LINES_BYTES:
            raise OptionError(
                f"The file has {len(content) / 2**20:.1f} MiB; a page takes up to {MOST_LINES_BYTES >> 20}. "
                "Upload a part of it, or run it with kvlab sweep.",
                field="lines",
            )
        try:
            text = content.decode("utf-8-sig").strip()
        except UnicodeDecodeError as error:
            raise OptionError(
                f"The file is no UTF-8 text (byte {error.start + 1:,}). JSON lines, a JSON list and CSV are "
                "read; save it as one of them, in UTF-8.",
                field="lines",
            ) from None
        if not text or "\0" in text:
            what = "holds a NUL character, so it is no text" if text else "is empty"
            raise OptionError(f"The file {what}. Choose JSON lines, a JSON list or CSV.", field="lines")
        name = UPLOADS[{"{": "jsonl", "[": "json"}.get(text[0], "csv")]
        for other in UPLOADS.values():
            (self.folder / other).unlink(missing_ok=True)
        (self.folder / name).write_bytes(content)
        return name, text.count("\n") + 1

    def edited(self, pipeline: Pipeline) -> str:
        """Keep a pipeline whose templates were edited beside the text; the name by which that can ask for it.

        Raises:
            OptionError: it is no shipped scenario's, so nothing gives it problems.
        """
        if pipeline.name not in preset_names():
            raise OptionError(
                f"The run on the pipeline's page is of {show(pipeline.name)}, which ships with no problems. "
                f"Run a scenario of the list, or name one: {', '.join(preset_names())}."
            )
        if load_preset(pipeline.name).pipeline == pipeline:
            return pipeline.name
        (self.folder / BENCH).write_text(_as_yaml(pipeline), encoding="utf-8")
        return BENCH

    def _read(self, text: str, lines: str) -> Sweep:
        if len(text) > MOST_TEXT:
            raise OptionError(
                f"The sweep's text has {len(text):,} characters; a page takes up to {MOST_TEXT:,}. Shorten "
                "it, or run it with kvlab sweep."
            )
        body, size = parse_yaml(text, FILE), len(lines.encode())
        if size > MOST_LINES_BYTES:
            raise OptionError(
                f"The file beside the sweep has {size >> 20} MiB; a page takes up to "
                f"{MOST_LINES_BYTES >> 20}. Paste fewer lines, or run it with kvlab sweep.",
                field="lines",
            )
        _check_names(body, (LINES, *(name for name in UPLOADS.values() if (self.folder / name).exists())))
        (self.folder / LINES).write_text(lines, encoding="utf-8")
        sweep = parse_sweep(text, FILE, self.folder)
        own = self.model.info.name
        others = [n for n in sweep.models if n != own] if isinstance(body, dict) and "models" in body else []
        others += [t.request.agents for t in sweep.tasks if isinstance(t, JudgeTask) and t.request.agents]
        if others:
            raise OptionError(
                f"The sweep asks for the model {show(others[0])}; this lab has {own} loaded, and its sweeps "
                "run on that. Leave models out, or run it with kvlab sweep.",
                field="models",
            )
        rows = sweep.lines * sweep.problems
        if rows > MOST_ROWS:
            raise OptionError(
                f"The sweep has {rows:,} rows; a page takes up to {MOST_ROWS:,}. Ask for fewer problems or "
                "shorten an axis, or run it with kvlab sweep.",
                field="problems",
            )
        budget = min(sweep.budget_mb, max(1, self.budget_bytes >> 20))
        return replace(sweep, models=(own,), budget_mb=budget)

    def _runner(self) -> ModelRunner:
        return ModelRunner(lambda _: self.model)

    def _seconds(self, shard: Shard, keys: set[str], weights: str) -> float:
        lacking = sum(any(planned.key(weights) not in keys for planned in unit) for unit in shard.units)
        if not lacking:
            return 0.0
        if shard.judge is not None:
            request = replace(shard.judge, problems=shard.problems, methods=shard.methods)
            return self.judging(request, lacking, len(shard.problems) - lacking)
        assert shard.pipeline is not None
        comparison = RunRequest(
            shard.pipeline, dict(shard.requests[0].values), shard.methods, shard.cell.mode, shard.decoding
        )
        seconds: float = self.estimate(comparison, lacking + shard.warmup).seconds
        return seconds


def _check_names(body: object, beside: tuple[str, ...]) -> None:
    """Refuse what a text names outside its folder, before anything of it is opened.

    Args:
        beside: the files of problems or prompts that there are.
    """
    tasks = body.get("tasks") if isinstance(body, dict) else None
    for number, task in enumerate(tasks if isinstance(tasks, list) else [], 1):
        if not isinstance(task, dict):
            task = {"pipeline": task}
        for key in ("pipeline", "data", "trace"):
            value = task.get(key, [])
            for name in value if isinstance(value, list) else [value]:
                allowed = beside if key != "pipeline" else (BENCH,)
                if isinstance(name, str) and name not in allowed and (key != "pipeline" or _a_path(name)):
                    raise OptionError(
                        f"Task {number} names the file {show(name)}; a sweep of this page reads "
                        f"{' and '.join(allowed)} alone"
                        f"{', what is value below' if key != 'pipeline' else ' and scenarios'}. Name "
                        "that, or run it with kvlab sweep.",
                        field=f"tasks.{number}.{key}",
                    )
                if isinstance(name, dict):
                    raise OptionError(
                        f"Task {number} asks the hub for problems; a page fetches nothing. Paste or upload "
                        "the lines and name them, or run it with kvlab sweep.",
                        field=f"tasks.{number}.{key}",
                    )


def _a_path(name: str) -> bool:
    return any(sign in name for sign in "./\\~")


def _as_yaml(pipeline: Pipeline) -> str:
    """A shipped preset with a pipeline's agents in the place of its own."""
    body: Any = parse_yaml(read_text(PRESET_FOLDER / f"{pipeline.name}.yaml", MAX_PRESET_BYTES), BENCH)
    body["agents"] = [{k: v for k, v in asdict(agent).items() if v != ""} for agent in pipeline.agents]
    body |= {"declared": list(pipeline.declared), "scoring": pipeline.scoring, "chat": pipeline.chat}
    body |= {"judge": pipeline.judge, "turns": pipeline.turns}
    return yaml.safe_dump(body, sort_keys=False, allow_unicode=True)
