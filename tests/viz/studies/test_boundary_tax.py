"""The boundary tax of a study stands beside its figures, and in its record."""

from __future__ import annotations

from dataclasses import replace

import hostile
import numpy as np

from backend.base.text import boundary_words
from viz.judge.metrics import table_panel
from viz.pages.agent_loop import success
from viz.studies.document_study import accuracy

SAID = "Boundary tax: "


def test_nothing_is_said_where_nothing_is_paid_or_known() -> None:
    assert boundary_words(None) == boundary_words((0, 90)) == ""
    assert boundary_words((3, 150)).startswith("Boundary tax: 3 of the prompts’ 150 tokens (2.0%)")


def test_a_judges_table_tells_that_of_the_full_read() -> None:
    judged, table, _ = hostile.judged()
    assert SAID not in table_panel(table, judged).html
    outcomes = [
        replace(o, boundary_tokens=2 if o.method == judged.labels[0] else 5) for o in judged.rows[0].outcomes
    ]
    taxed = replace(judged, rows=tuple(replace(row, outcomes=tuple(outcomes)) for row in judged.rows))
    assert taxed.boundary_tax == (2 * 2 * 3, 90 * 2 * 3)
    assert f"{SAID}12 of the prompts’ 540 tokens" in table_panel(table, taxed).html


def test_a_loop_and_a_study_of_documents_tell_it_too() -> None:
    loop, study = hostile.loop(), hostile.documents()
    assert SAID not in success(loop).how_to_read + accuracy(study).how_to_read
    taxed = replace(loop, boundary_tokens=np.where(loop.method == 0, 4, 1))
    assert taxed.boundary_tax == (4 * int((loop.method == 0).sum()), 90 * int((loop.method == 0).sum()))
    assert f"{SAID}{taxed.boundary_tax[0]} of" in success(taxed).how_to_read
    paid = np.full(len(study.prompt_tokens), 7)
    asked = replace(study, boundary_tokens=paid)
    assert f"{SAID}{paid.sum()} of" in accuracy(asked).how_to_read
