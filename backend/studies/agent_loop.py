"""Episodes of an agent loop, turn by turn, under every method side by side.

A turn's prompt is everything so far, so each method finds in its store what its turns before left there, and
what earlier episodes did. *Pinned*: every method reads the turns that dense wrote, and nearness to dense is
measured at each. *Free*: each method lives with its own turns and calls the tools itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from backend.base.row_file import RowFile, key_of
from backend.base.serialization import as_json
from backend.prompts.presets import Example
from backend.records.agent_loop import (
    LoopRecord,
    LoopRequest,
    cut,
    is_final,
    loop_questions,
    record_of_rows,
    turns_of,
)
from backend.records.events import Progress, RunDone
from backend.records.request import Mode
from backend.records.run import RunRecord
from backend.session.session import LabSession


@dataclass(frozen=True)
class Plan:
    """One episode to run: its number, its question and its mode, and the key of its row."""

    index: int
    example: Example
    mode: Mode
    key: str


def episode_row(record: RunRecord, plan: Plan) -> dict[str, Any]:
    """What a file keeps of an episode."""
    return {
        "key": plan.key,
        "mode": plan.mode,
        "index": plan.index,
        "question": next(iter(plan.example.values.values())),
        "expected": plan.example.answer,
        "turns": turns_of(record),
        "tools": [{"turn": use.agent, "method": use.method, "text": use.text} for use in record.tools],
    }


def plans(session: LabSession, request: LoopRequest) -> list[Plan]:
    """Every episode of a request, with keys made of all that decides its row."""
    examples = loop_questions(request.episodes, request.seed)
    out = []
    for mode in request.modes:
        for index, example in enumerate(examples):
            facts = replace(request, episodes=index + 1, modes=(mode,))
            out.append(Plan(index, example, mode, key_of(as_json(facts), session.weights_hash)))
    return out


def run_loop(session: LabSession, request: LoopRequest, path: Path) -> Iterator[Progress | LoopRecord]:
    """Run the episodes that ``path`` lacks, appending a row for each; ends with the record of all.

    A store lives for ``request.memory`` episodes. What a restart finds unfinished of such a block is run
    again from the block's beginning, so that its store is what it would have been; a row is written once.

    Raises:
        LabError: an episode cannot be run, or the file is damaged.
    """
    file = RowFile(path)
    rows = file.resume()
    every = plans(session, request)
    blocks = groupby(every, key=lambda plan: (plan.mode, plan.index // request.memory))
    for _, block in blocks:
        episodes = list(block)
        while episodes and episodes[-1].key in rows:
            episodes.pop()
        session.forget()
        for plan in episodes:
            yield Progress(f"{plan.mode}: episode {plan.index + 1}", len(rows), len(every))
            for event in session.run(request.episode(plan.example, plan.mode), ends=is_final):
                if isinstance(event, RunDone) and plan.key not in rows:
                    rows[plan.key] = row = episode_row(cut(event.record), plan)
                    file.append(row)
    yield record_of_rows(request, session.model.info, (rows[plan.key] for plan in every))
