"""Questions in no generator's words: their files, and how a model's answers to them are counted."""

from __future__ import annotations

from typing import Any

import pytest
import tiny

from backend.prompts.presets import load_preset, preset_names, preset_requests
from backend.training import edits


def every_row() -> list[dict[str, str]]:
    return [row for name in edits.QUESTIONS for row in edits.typed_questions(name)]


def test_every_question_is_whole_and_stands_once() -> None:
    rows = every_row()
    assert [len(edits.typed_questions(name)) for name in edits.QUESTIONS] == [98, 120]
    assert len({row["question"] for row in rows}) == len(rows)
    assert {row["kind"] for row in rows} >= {"names", "words", "extra", "numbers", "ratios", "bare", "mixed"}
    for row in rows:
        assert set(row) == {"kind", "question", "answer"}, row
        assert row["answer"].isdecimal(), row


def test_no_question_is_a_presets_own() -> None:
    own = {
        text
        for name in preset_names()
        for example in preset_requests(load_preset(name), 1)
        for text in example.values.values()
    }
    assert not own & {row["question"] for row in every_row()}


def test_right_answers_are_counted_by_kind_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"kind": kind, "question": f"{kind}?", "answer": "1"} for kind in ("names", "names", "bare")]
    asked: list[Any] = []

    def right(model: object, requests: list[Any]) -> list[bool]:
        asked.extend(requests)
        return [True, False, True]

    monkeypatch.setattr(edits, "typed_questions", lambda name: rows)
    monkeypatch.setattr(edits, "_right", right)
    found = edits.typed_shares(tiny.model())
    assert {kind: (x["share"], x["n"]) for kind, x in found.items()} == {
        "names": (0.5, 2),
        "bare": (1.0, 1),
        "all": (0.6667, 3),
    }
    assert [request.expected for request in asked] == ["1", "1", "1"]
