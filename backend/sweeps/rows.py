"""A sweep's rows: one method on one problem of one cell, as columns. Free of torch.

Columns that do not apply are None: ``selection_right`` without a judge, KL in free mode, ``correct`` where no
answer is known.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from backend.base.serialization import from_json
from backend.base.text import Tax
from backend.records.judge import JudgeOutcome


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        key: identity (:mod:`backend.sweeps.grid`); ``problem`` counts from 1 in the order of drawing.
        max_new_tokens: of an answer at most (a judge's: of the judge); ``temperature`` of the agents (a
            judge's: of those that write the candidates). None in rows that an earlier version wrote.
        answer: of the last agent, or the judge's final one; ``correct`` by the task's scorer; ``score`` is
            token F1 for questions over texts, else 1 or 0.
        as_dense: the answer is dense's on the same problem; of a judge, the selection is (JCR).
        selection_right: what the judge selected is right.
        state: of the last agent: dense, reused, partial or fallback.
        agents, agents_reused: agents of the pipeline, and those that reused all their segments; ``blocks``
            placeholder texts (a judge's: candidates) and those copied whole; ``prompt_tokens`` and
            ``reused_tokens``: of all prompts. The three meanings of "reuse rate".
        ttft_ms: time to first token of the last agent, or of all the judge's prompts; ``total_ttft_ms`` of
            all agents.
        kl_first, kl_mean: nats from dense at the first token and along its answer; ``floor`` the largest
            logit difference of dense against dense computed otherwise; ``key_error`` and ``value_error``
            relative.
        wall_ms: of the problem under all the methods that ran beside each other.
        body: JSON with what else was measured.
    """

    key: str
    task: str
    model: str
    mode: str
    request_order: str
    seed: int
    judge_order: str
    max_new_tokens: int | None
    temperature: float | None
    problem: int
    method: str
    request: str
    expected: str | None
    answer: str | None
    correct: bool | None
    score: float | None
    as_dense: bool | None
    selection_right: bool | None
    state: str
    agents: int
    agents_reused: int
    blocks: int
    blocks_reused: int
    prompt_tokens: int
    reused_tokens: int
    ttft_ms: float
    total_ttft_ms: float
    kl_first: float | None = None
    kl_mean: float | None = None
    floor: float | None = None
    near_tie: bool | None = None
    key_error: float | None = None
    value_error: float | None = None
    wall_ms: float = 0.0
    body: str = "{}"

    @property
    def verdict(self) -> JudgeOutcome | None:
        """Of a judge: everything about its outcome, which says how its selection differs from dense's."""
        if not self.judge_order or self.body == "{}":
            return None
        return from_json(JudgeOutcome, json.loads(self.body))

    @property
    def forwarded_tokens(self) -> int:
        """Prompt tokens computed, in whole passes, over all its prompts."""
        return sum(int(part["forwarded_tokens"]) for part in self._parts)

    @property
    def boundary_tax(self) -> Tax | None:
        """Prompt tokens that the texts, tokenised at once, would not have, and all; None in earlier rows."""
        parts = [part.get("boundary_tokens") for part in self._parts]
        counts = [taxed for taxed in parts if taxed is not None]
        return (sum(counts), self.prompt_tokens) if len(counts) == len(parts) else None

    @property
    def _parts(self) -> list[dict[str, Any]]:
        body = json.loads(self.body)
        return list(body.get("outcomes", [body]))

    @staticmethod
    def from_values(values: Sequence[Any]) -> Row:
        """From a database's values in column order; there truth is 0 or 1."""
        columns = dict(zip(COLUMNS, values, strict=True))
        for name in TRUTHS:
            columns[name] = None if columns[name] is None else bool(columns[name])
        return Row(**columns)

    @property
    def values(self) -> tuple[Any, ...]:
        """In column order."""
        return tuple(getattr(self, name) for name in COLUMNS)


@dataclass(frozen=True)
class Finished:
    """A problem that is done: its rows, and what a later process needs to go on behind it."""

    unit: str  # identity of the problem in its shard
    rows: tuple[Row, ...]
    memo: Mapping[str, Any] | None = None

    @property
    def memo_text(self) -> str | None:
        """The memo as JSON."""
        return None if self.memo is None else json.dumps(self.memo, ensure_ascii=False)


COLUMNS = tuple(field.name for field in fields(Row))
_TYPES = typing.get_type_hints(Row)
TRUTHS = tuple(name for name in COLUMNS if bool in (_TYPES[name], *typing.get_args(_TYPES[name])))
_SQL = {str: "TEXT", int: "INTEGER", float: "REAL", bool: "INTEGER"}


def sql_type(name: str) -> str:
    """A column's type in the database."""
    kind = _TYPES[name]
    kinds = [k for k in typing.get_args(kind) if k is not type(None)] or [kind]
    return _SQL[kinds[0]] + ("" if type(None) in typing.get_args(kind) else " NOT NULL")
