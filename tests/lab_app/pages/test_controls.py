"""A control of a comparison is declared once; the page, links, flags and parameters follow from it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from bench_forms import make_form

from backend.records.request import CONTROLS, RunRequest, control_values, with_controls
from lab_app.api.requests import RunCall
from lab_app.cli.main import commands
from lab_app.pages.pipeline.form import Form, read_request
from lab_app.pages.pipeline.form_json import form_from_json, form_to_json
from lab_app.pages.pipeline.layout import control_field

#: For each control a value that is not its usual one.
OTHER: dict[str, Any] = {
    "mode": "free", "attention": True, "max_new_tokens": 7, "temperature": 0.5, "top_p": 0.25, "seed": 3,
}  # fmt: skip


def test_every_control_is_known_here() -> None:
    assert set(OTHER) == set(CONTROLS)


@pytest.mark.parametrize("key", CONTROLS)
def test_a_control_goes_from_the_form_through_a_link_into_the_request(key: str) -> None:
    form = make_form(**{key: OTHER[key]})
    assert form_to_json(form)[key] == OTHER[key]
    back, _ = form_from_json(form_to_json(form))
    asked = read_request(back)
    assert control_values(asked)[key] == OTHER[key]
    assert control_values(read_request(make_form()))[key] == CONTROLS[key].default
    assert with_controls(control_values(asked))["decoding"] == asked.decoding


@pytest.mark.parametrize("key", CONTROLS)
def test_a_control_has_a_field_a_flag_and_a_parameter(key: str) -> None:
    assert control_field(CONTROLS[key]).value == CONTROLS[key].default
    assert getattr(Form("", {}, ()), key) == CONTROLS[key].default
    flags = {parameter.name for parameter in commands().commands["run"].params}
    assert {key in flags, key in RunCall.model_fields} == {not CONTROLS[key].shown_only}


def test_every_field_of_a_request_that_a_control_sets_is_there() -> None:
    names = {field.name for field in dataclasses.fields(RunRequest)}
    assert all((found.part or found.field) in names for found in CONTROLS.values())
