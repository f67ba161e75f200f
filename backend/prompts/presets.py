"""The presets that ship with the lab, and requests to send through them. Free of torch."""

import functools
import json
import math
import random
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from backend.base.checked_table import NOTHING, checked_table
from backend.base.errors import PromptError
from backend.base.ranges import check_choice
from backend.base.text import check_text, show
from backend.prompts import tasks
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.prompts.template import QUESTION

RequestSource = Literal["generated", "examples", "file"]

MAX_REQUESTS = 10_000
MAX_STEPS = 6  # of a generated problem
MAX_READERS = 4
TRIES = 200  # draws for each distinct request
STOCK_STEPS, OPEN_STEPS = (1, 3), (2, 4)  # of word problems
MAX_PRESET_BYTES = 2**20
MAX_REQUEST_FILE_BYTES = 100 * 2**20
PRESET_FOLDER = Path(__file__).parents[2] / "presets" / "prompts"


@dataclass(frozen=True)
class Example:
    """One request: values of the outside placeholders, and the known answer if there is one."""

    values: Mapping[str, str]
    answer: str | None = None

    def matches(self, values: Mapping[str, str]) -> bool:
        """Whether these values are still the request's own."""
        return all(values.get(name) == value for name, value in self.values.items())


@dataclass(frozen=True)
class TaskSource:
    """Where generated requests come from: a task of the embedded model, and what is fixed in it.

    ``readers`` is for *prefix* alone: how many agents read the message behind prefixes of their own.
    """

    task: str
    kind: str | None = None
    size: int | None = None
    readers: int = 1


@dataclass(frozen=True)
class Preset:
    """A pipeline that ships with the lab, and what it needs.

    ``needs_context`` is the number of tokens a prompt and its answer may take. ``model`` is
    ``embedded`` or ``any``. ``request_source``: problems with known answers made by the lab
    (*generated*, from ``task``), the ``examples``, or a *file* that the person chooses.
    """

    pipeline: Pipeline
    needs_context: int
    request_source: RequestSource
    examples: tuple[Example, ...]
    model: str
    task: TaskSource | None = None

    @property
    def has_open_words(self) -> bool:
        """Whether its problems can be worded in another way than its own."""
        return self.task is not None and self.task.task != "prefix"


class _Strict(yaml.constructor.SafeConstructor):
    """Refuses a key given twice, and merge keys, which can grow without end."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.tag == "tag:yaml.org,2002:merge":
                    raise yaml.constructor.ConstructorError(
                        None, None, "merge keys ('<<') are not allowed", key.start_mark
                    )
                if key.value in keys:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {show(key.value)} appears twice", key.start_mark
                    )
                keys.add(key.value)
        return super().construct_mapping(node, deep)


class _StrictLoader(_Strict, yaml.SafeLoader):
    """A person's file: problems are named as well as they can be."""


class _QuickLoader(_Strict, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The lab's own files: libyaml where it is installed, ten times faster with shorter messages."""


_PRESET_KEYS: dict[str, tuple[type, ...]] = {
    "name": (str,), "title": (str,), "summary": (str,), "agents": (list,), "needs_context": (int,),
    "request_source": (str,), "model": (str,), "declared": (list,), "scoring": (str,),
    "judge": (int, NOTHING), "chat": (bool,), "turns": (int,), "examples": (list,),
    "task": (str,), "kind": (str,), "size": (int,), "readers": (int,),
}  # fmt: skip
_PRESET_REQUIRED = ("name", "title", "summary", "agents", "needs_context", "request_source", "model")
_AGENT_KEYS: dict[str, tuple[type, ...]] = {
    "id": (int,), "name": (str,), "role": (str,), "template": (str,), "max_new_tokens": (int,),
    "tool": (str,), "model": (str,),
}  # fmt: skip
_EXAMPLE_KEYS: dict[str, tuple[type, ...]] = {"values": (dict,), "answer": (str, NOTHING)}


def _table(
    value: object, where: str, field: str, allowed: Mapping[str, tuple[type, ...]], required: Collection[str]
) -> dict[str, Any]:
    return checked_table(value, where, field, allowed, required, PromptError)


def read_text(path: Path, limit: int) -> str:
    """A file's text, if it is UTF-8 and not too large."""
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise PromptError(f"{path.name} cannot be read: {error.strerror}. Choose another file.") from None
    if len(content) > limit:
        raise PromptError(f"{path.name} is larger than {limit // 2**20} MiB. Choose a smaller file.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PromptError(f"{path.name}, line {line}: this is not UTF-8 text. Save it as UTF-8.") from None


def preset_names() -> tuple[str, ...]:
    """Names of the presets that ship with the lab, sorted."""
    return tuple(sorted(path.stem for path in PRESET_FOLDER.glob("*.yaml")))


def load_preset(name_or_path: str | Path) -> Preset:
    """Load a preset: by name (``str``) from the shipped ones, or any file by its ``Path``.

    A ``str`` never opens another file, so a name may come from a web request.

    Raises:
        PromptError: there is no such preset, or the file is not a valid one.
    """
    if isinstance(name_or_path, Path):
        return _preset(read_text(name_or_path, MAX_PRESET_BYTES), name_or_path.name)
    if name_or_path not in preset_names():
        listed = ", ".join(preset_names()) or "none"
        raise PromptError(
            f"There is no preset {show(name_or_path)}. Presets: {listed}. Choose one of them.", field="preset"
        )
    path = PRESET_FOLDER / f"{name_or_path}.yaml"
    return _shipped(path, path.stat().st_mtime_ns)


@functools.cache
def _shipped(path: Path, changed: int) -> Preset:
    """A shipped preset, cached by its file's time of change: the page loads it at every key press."""
    return _preset(read_text(path, MAX_PRESET_BYTES), path.name)


def parse_yaml(text: str, file: str, *, trusted: bool = False) -> object:
    """A file's YAML as plain data; keys given twice and merge keys are refused.

    Args:
        trusted: the file is the lab's own, so the quick loader reads it.

    Raises:
        PromptError: it is no such YAML, with the line.
    """
    try:
        # SafeLoader underneath: plain data only
        return yaml.load(text, Loader=_QuickLoader if trusted else _StrictLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "the text is not YAML"
        raise PromptError(f"{file}{place}: this is not valid YAML: {problem}. Correct the file.") from None
    except (ValueError, RecursionError):
        raise PromptError(f"{file}: a value in the file cannot be read as YAML. Correct the file.") from None


def _preset(text: str, file: str) -> Preset:
    body = parse_yaml(text, file)
    try:
        return _preset_from(body, file)
    except PromptError as error:
        message = str(error)
        raise PromptError(message if file in message else f"{file}: {message}", field=error.field) from None


def _preset_from(body: object, file: str) -> Preset:
    table = _table(body, file, "", _PRESET_KEYS, _PRESET_REQUIRED)
    agents = tuple(
        Agent(**_table(row, f"{file}, agent number {i}", f"agents.{i}", _AGENT_KEYS, tuple(_AGENT_KEYS)[:4]))
        for i, row in enumerate(table["agents"], 1)
    )
    optional = {key: table[key] for key in ("scoring", "judge", "chat", "turns") if key in table}
    pipeline = Pipeline(
        table["name"], table["title"], table["summary"], agents, tuple(table.get("declared", ())), **optional
    )
    if not 1 <= table["needs_context"] <= 10_000_000:
        raise PromptError(
            f"needs_context is {show(table['needs_context'])}; 1 to 10,000,000 are allowed. Correct it.",
            field="needs_context",
        )
    source, sources = table["request_source"], ("generated", "examples", "file")
    check_choice(source, sources, "request_source", error=PromptError)
    task = _task_source(table, pipeline) if source == "generated" else None
    check_choice(table["model"], ("embedded", "any"), "model", error=PromptError)
    examples = []
    for number, row in enumerate(table.get("examples", ()), 1):
        fields = _table(row, f"{file}, example {number}", f"examples.{number}", _EXAMPLE_KEYS, ("values",))
        try:
            pipeline.check_values(fields["values"])
        except PromptError as error:
            where = f"examples.{number}.{error.field}"
            raise PromptError(f"Example {number}: {error}", field=where) from None
        examples.append(Example(**fields))
    if source == "examples" and not examples:
        raise PromptError("request_source is 'examples', but there are none. Add one.", field="examples")
    return Preset(pipeline, table["needs_context"], source, tuple(examples), table["model"], task)


def _task_source(table: Mapping[str, Any], pipeline: Pipeline) -> TaskSource:
    """The task of a preset with generated requests, checked by drawing one."""
    task, task_names = table.get("task"), [name for name in tasks.TASKS if name not in tasks.DRILLS]
    if task not in task_names:
        raise PromptError(
            f"The task is {show(task)}; request_source 'generated' needs one of {', '.join(task_names)}. "
            "Name one.",
            field="task",
        )
    kind, kinds = table.get("kind"), tasks.TASKS[task][1]
    if kind is not None and kind not in kinds:
        raise PromptError(
            f"The kind is {show(kind)}; the task {task} has {', '.join(kinds)}. Choose one.", field="kind"
        )
    size, readers = table.get("size"), table.get("readers", 1)
    low, high = tasks.SIZES.get(task, (1, MAX_STEPS))
    if size is not None and not low <= size <= high:
        raise PromptError(
            f"size is {show(size)}; the task {task} allows {low} to {high}. Correct it.", field="size"
        )
    if not 1 <= readers <= (MAX_READERS if task == "prefix" else 1):
        raise PromptError(
            f"readers is {show(readers)}; 1 to {MAX_READERS} are allowed, and more than one only for the "
            "task prefix. Correct it.",
            field="readers",
        )
    if pipeline.scoring == "selection" and task not in ("judge", "glance"):
        raise PromptError(
            "The scoring 'selection' needs the task judge or glance, but the task is "
            f"{task}. Use 'number' or 'text'.",
            field="scoring",
        )
    source = TaskSource(task, kind, size, readers)
    missing = set(pipeline.required) - set(_draw(source, random.Random(0), pipeline).values)
    if missing:
        raise PromptError(
            f"The task {task} gives no value for {', '.join('{' + name + '}' for name in sorted(missing))}. "
            "Use 'examples', or change the templates.",
            field="request_source",
        )
    return source


def _draw(source: TaskSource, rng: random.Random, pipeline: Pipeline, open_words: bool = False) -> Example:
    """One held-out problem of a task, as a request for the pipeline."""
    if source.task == "prefix":
        kind = source.kind or rng.choice(tasks.prefixes.KINDS)
        steps = source.size or rng.randint(1, 2)
        message = tasks.prefixes.draw_message(rng, kind, True, rng.randint(2, 5), steps, source.readers)
        values = {f"prefix_{i}": book for i, book in enumerate(message.books, 1)} | {QUESTION: message.text}
        expected = str(message.values[-1])
    else:
        limits = OPEN_STEPS if open_words else STOCK_STEPS
        size = source.size or (rng.randint(*limits) if source.task == "solver" else None)
        style = tasks.Style("any" if open_words else "stock")
        document = tasks.make_document(
            rng, source.task, kind=source.kind, held_out=True, style=style, size=size
        )
        values = document.values
        expected = document.selection if pipeline.scoring == "selection" else document.answer
    return Example({name: values[name] for name in pipeline.inputs if name in values}, expected)


def preset_requests(preset: Preset, count: int, seed: int = 0, *, open_words: bool = False) -> list[Example]:
    """``count`` requests for a preset, the same ones for the same arguments.

    ``open_words``: problems worded as people write, where the task has them, and mostly longer than the
    preset's own. They fill pools for a question that somebody typed, which is often longer than those.

    *generated*: distinct problems that the embedded model never saw in training; the same for every
    preset of the same task, and a smaller count gives the first of a larger one. *examples*: the preset's
    own in a cycle; each seed starts a third further, so that warm-up and measurement start differently.
    """
    if type(count) is not int or not 1 <= count <= MAX_REQUESTS:
        raise PromptError(
            f"The number of requests is {show(count)}; 1 to {MAX_REQUESTS:,} are allowed. Change it.",
            field="count",
        )
    if preset.request_source == "file":
        raise PromptError(
            "This preset takes its requests from a file. Choose one, with one JSON object on each line.",
            field="requests",
        )
    if preset.request_source == "examples":
        length = len(preset.examples)
        start = seed * math.ceil(length / 3)
        return [preset.examples[(start + i) % length] for i in range(count)]
    assert preset.task is not None
    return list(_generated(preset.task, preset.pipeline, count, seed, open_words))


@functools.lru_cache(maxsize=32)  # the page asks at every key press
def _generated(
    task: TaskSource, pipeline: Pipeline, count: int, seed: int, open_words: bool
) -> tuple[Example, ...]:
    rng = random.Random(f"requests:{seed}")
    examples: dict[tuple[str, ...], Example] = {}
    for _ in range(TRIES * count):
        example = _draw(task, rng, pipeline, open_words)
        if not example.values.keys() >= set(pipeline.required):
            continue  # an open problem may need fewer texts than the preset reads
        examples.setdefault(tuple(example.values.values()), example)
        if len(examples) == count:
            return tuple(examples.values())
    raise PromptError(
        f"{count:,} requests are wanted, but this preset's task has only {len(examples):,} different ones. "
        "Ask for fewer.",
        field="count",
    )


def read_requests(path: Path) -> list[Example]:
    """Requests from a JSON-lines file in GSM8K's format.

    Each line is an object with ``question`` (or ``user_question``) and, if it is known, ``answer``;
    of an answer with ``####`` only what follows it counts. Other keys are passed over.

    Raises:
        PromptError: with the number of the first line that cannot be used.
    """
    lines = enumerate(read_text(path, MAX_REQUEST_FILE_BYTES).split("\n"), 1)
    examples = [_request(line, f"{path.name}, line {number}") for number, line in lines if line.strip()]
    if not examples:
        raise PromptError(
            f"{path.name} holds no request. Write one JSON object on each line.", field="requests"
        )
    return examples


def _request(line: str, where: str) -> Example:
    def refuse(problem: str) -> PromptError:
        return PromptError(
            f'{where}: {problem}. A line looks like {{"question": "...", "answer": "..."}}. Correct it.',
            field="requests",
        )

    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise refuse("this is not valid JSON") from None
    if not isinstance(row, dict):
        raise refuse(f"{show(row)} is not an object")
    names = [name for name in ("question", QUESTION) if name in row]
    if len(names) != 1:
        raise refuse("both 'question' and 'user_question' are given" if names else "the question is missing")
    question = check_text(row[names[0]], f"{where}: the question", "requests")
    if not question.strip():
        raise refuse("the question is empty")
    answer = row.get("answer")
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = str(answer)
    if answer is not None:
        answer = check_text(answer, f"{where}: the answer", "requests")
        if "####" in answer:
            answer = answer.rpartition("####")[2].strip().replace(",", "")
    return Example({QUESTION: question}, answer)
