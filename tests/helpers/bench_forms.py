"""Filled-in forms of the Pipeline page, and what a stream of updates comes to."""

from __future__ import annotations

import dataclasses
from typing import Any

from backend.prompts.presets import load_preset
from lab_app.pages.pipeline.form import Form
from lab_app.pages.pipeline.state import state_of
from lab_app.ui.types import Update
from lab_app.visits.visits import Visit


def make_form(visit: Visit | None = None, **changes: Any) -> Form:
    pipeline = load_preset("math-3").pipeline
    question = (
        state_of(visit).example.values["user_question"]
        if visit and state_of(visit).example
        else "What is 1 + 1?"
    )
    made = Form(
        "math-3", {"user_question": question}, tuple(a.template for a in pipeline.agents),
        methods=("naive", "kvcomm"),
        options={"kvcomm": {"gamma": 0.3, "capacity": 20}},
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def templates(**changes: str) -> tuple[str, ...]:
    made = [a.template for a in load_preset("math-3").pipeline.agents]
    for number, text in changes.items():
        made[int(number[1:])] = text
    return tuple(made)


def last(updates: Any) -> Update:
    """All updates of a stream, later ones on top."""
    merged: Update = {}
    for update in updates:
        merged |= update
    return merged
