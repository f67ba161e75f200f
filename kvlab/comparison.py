"""Runs: dense beside reuse, from one call, and their results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from backend.base.errors import OptionError, PromptError, RecordError
from backend.base.text import show
from backend.prompts.conversation import message_parts, pipeline_of_parts
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example, load_preset, preset_requests
from backend.records.events import RunDone
from backend.records.request import Decoding, MethodChoice, Mode, RunRequest, with_reference
from backend.records.rows import outcome_row
from backend.records.run import RunRecord
from backend.records.sharing.bundle import read_file
from kvlab.notebook import framed
from viz.run.report import report_html
from viz.run.verdict import verdict

if TYPE_CHECKING:
    from pandas import DataFrame

    from backend.model.load import LoadedModel

Messages = Sequence[Mapping[str, Any]]
ANSWER_TOKENS = 96  # of a conversation's answer


@dataclass(frozen=True, repr=False)
class Comparison:
    """A run under dense and under reuse methods. ``record`` holds all of it."""

    record: RunRecord

    @property
    def methods(self) -> tuple[str, ...]:
        """Labels of the methods, dense first."""
        return self.record.labels

    @property
    def answers(self) -> dict[str, str]:
        """What the last agent wrote, by method."""
        final = self.record.agents[-1]
        return {label: self.record.outcome(final, label).text for label in self.methods}

    @property
    def sentence(self) -> str:
        """Whether reuse changed the outcome, in one sentence."""
        return verdict(self.record).sentence_html.striptags()

    def to_frame(self) -> DataFrame:
        """One row for each agent and method: texts, tokens read and reused, times in ms, and how near the
        method came to dense (KL in nats, relative errors of keys and values)."""
        import pandas

        names = {agent.id: agent.name for agent in self.record.request.pipeline.agents}
        rows = [outcome_row(self.record, outcome) for outcome in self.record.outcomes]
        return pandas.json_normalize([{"name": names[row["agent"]], **row} for row in rows])

    def to_html(self) -> str:
        """The report: one HTML file that needs neither the lab nor a network.

        Raises:
            RecordError: the record's parts do not fit one another.
        """
        return report_html(self.record)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the run to one file, which :func:`open` and the lab's page read."""
        return self.record.save(Path(path))

    def _repr_html_(self) -> str:
        return framed(self.to_html(), self.sentence)

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.methods)} on {self.record.model.name}: {self.sentence}>"


def open(path: str | os.PathLike[str] | RunRecord) -> Comparison:
    """A saved run: a ``.kvrun`` file or a bundle of the page's, or a record itself.

    Raises:
        RecordError: the file cannot be read, or holds no run.
    """
    if isinstance(path, RunRecord):
        return Comparison(path)
    record = read_file(Path(path)).record
    if record is None:
        raise RecordError(
            f"{Path(path).name} holds a bench and no run. Press Run on the page, and save that."
        )
    return Comparison(record)


def compare(
    prompt: str | os.PathLike[str] | Pipeline | Messages,
    values: Mapping[str, str] | None = None,
    *,
    model: str | LoadedModel = "embedded",
    methods: Sequence[str | MethodChoice] = ("naive", "kvcomm"),
    earlier: int | Sequence[Mapping[str, str]] = 0,
    mode: Mode = "pinned",
    max_new_tokens: int | None = None,
    temperature: float = 0.0,
    seed: int = 0,
) -> Comparison:
    """Run a prompt densely and under reuse methods on a real model, and say what reuse changed.

    >>> messages = [
    ...     {"role": "system", "content": "Add the numbers."},
    ...     {"role": "user", "content": "Omar owns 12 books. Omar buys 7 more. How many books has Omar now?"},
    ... ]
    >>> found = compare(messages, methods=["naive@copied"], max_new_tokens=8)
    >>> sorted(found.answers)
    ['copied', 'dense']

    Args:
        prompt: the name of a preset (``kvlab.compare("math-3")``), the path of a preset's YAML file, a
            :class:`~backend.prompts.pipeline.Pipeline`, or the messages of one call, in which every message
            behind the system's is a text that reuse may copy.
        values: what fills the pipeline's placeholders; a preset has requests of its own.
        model: ``embedded``, a folder in the hub's layout or a hub id; or a model that is loaded.
        methods: as on the command line (``"kvcomm:gamma=0.5@mine"``), or choices; dense is always there.
        earlier: requests that are sent first and fill the anchor pools; or how many of a preset's own.
        mode: *pinned*: every method reads the texts that dense wrote; *free*: its own.
        max_new_tokens: the longest answer; else each agent's own limit.
        temperature: 0 is greedy; else answers are sampled with ``seed``.
        seed: which requests a preset draws, and what is sampled.

    Returns:
        What came of it.

    Raises:
        LabError: what was asked cannot be run; the message says why and what to do.
    """
    from backend.session.session import LabSession

    pipeline, examples = _asked(prompt, values, earlier, seed, max_new_tokens)
    longest = pipeline.longest_answer if max_new_tokens is None else max_new_tokens
    request = RunRequest(
        pipeline, examples[-1].values, _choices(methods), mode, Decoding(longest, temperature, 1.0, seed),
        expected=examples[-1].answer,
    )  # fmt: skip
    session = LabSession(_loaded(model) if isinstance(model, str) else model)
    if examples[:-1]:
        for _ in session.warm_up(request, examples[:-1]):
            pass
    [record] = [event.record for event in session.run(request) if isinstance(event, RunDone)]
    return Comparison(record)


@lru_cache(maxsize=1)
def _loaded(name: str) -> LoadedModel:
    """A model by its name; the last one is kept for the next call."""
    from backend.model.load import load_model

    return load_model(name)


def _choices(methods: Sequence[str | MethodChoice]) -> tuple[MethodChoice, ...]:
    from backend.methods.registry import parse_methods

    given = methods.split(",") if isinstance(methods, str) else methods
    if not given:
        raise OptionError("No method was named. Name at least one, such as 'naive'.", field="methods")
    read = [m if isinstance(m, MethodChoice) else parse_methods(m)[0] for m in given]
    return with_reference(read)


def _asked(
    prompt: str | os.PathLike[str] | Pipeline | Messages,
    values: Mapping[str, str] | None,
    earlier: int | Sequence[Mapping[str, str]],
    seed: int,
    max_new_tokens: int | None,
) -> tuple[Pipeline, list[Example]]:
    """The pipeline, and its requests; the last one is compared."""
    first = [] if isinstance(earlier, int) else [Example(dict(each)) for each in earlier]
    count = earlier if isinstance(earlier, int) else 0
    if isinstance(prompt, Pipeline):
        if values is None or count:
            raise PromptError(
                f"The pipeline {prompt.name} has no requests of its own. Give values for "
                f"{', '.join(prompt.inputs)}, and earlier ones as a list.",
                field="values",
            )
        return prompt, [*first, Example(dict(values))]
    if isinstance(prompt, str | os.PathLike):
        preset = load_preset(prompt if isinstance(prompt, str) else Path(prompt))
        own = preset_requests(preset, count + 1, seed) if count or values is None else []
        asked = own[-1] if values is None else Example(dict(values))
        return preset.pipeline, [*own[:count], *first, asked]
    if not isinstance(prompt, Sequence):
        raise PromptError(
            f"The prompt is {show(prompt)}; it has to be a preset's name or path, a Pipeline, or a list of "
            "messages. Give one of them.",
            field="prompt",
        )
    if values is not None or earlier:
        raise PromptError(
            "Messages have no placeholders, so values and earlier requests have nowhere to go. Leave them "
            "out, or write a Pipeline.",
            field="values",
        )
    pipeline, found = pipeline_of_parts(
        message_parts(cast(Messages, prompt)), name="messages", title="Messages",
        max_new_tokens=ANSWER_TOKENS if max_new_tokens is None else max_new_tokens,
    )  # fmt: skip
    return pipeline, [Example(found)]
