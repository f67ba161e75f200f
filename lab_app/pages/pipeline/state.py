"""What the pipeline's page remembers of a visit."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backend.prompts.presets import Example
from backend.studies.gallery import GalleryEntry
from lab_app.pages.pipeline.form import Form
from lab_app.pages.pipeline.undo import UndoStack
from lab_app.ui.scenarios import WarmUpSource
from lab_app.visits.visits import Visit

KEY = "pipeline"


@dataclass
class PipelineState:
    """One visit's pipeline page.

    Attributes:
        run_form: the form that made the record on the screen; None where it is not known.
        tab: the open tab of figures.
        next_example: which request of the scenario's set comes next.
        example: the request of the set that was put on the form.
        gallery_entry: the same as an example of the gallery, if it is one.
        value_names: which placeholder each value box fills.
        study_token: the token that the offset study's figures show; -1 is the default.
        map_requests: how many maps were requested; only the last request is answered.
        pinned: label of the column that the others are compared with, if any.
        form: the form as it stood at the last edit, since the last run began.
        stale_shown: whether the page says that the form was edited after the run.
        from_link: the form that a link brought, until the browser has sent it back.
        run_token: token of the last run of this visit.
        seconds: the expected time of a run of the form, warm-up included.
        forms: the forms of the records as JSON values, by the records' tokens.
        history: the forms for undo and redo.
        filled_from: where the requests came from that filled the pools; None if the page has not filled them.
    """

    run_form: Form | None = None
    tab: str = ""
    next_example: int = 0
    example: Example | None = None
    gallery_entry: GalleryEntry | None = None
    value_names: tuple[str, ...] = ()
    study_token: int = -1
    map_requests: int = 0
    pinned: str = ""
    form: Form | None = None
    stale_shown: bool = False
    seconds: float = math.inf
    from_link: Form | None = None
    run_token: str = ""
    forms: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: UndoStack = field(default_factory=UndoStack)
    filled_from: WarmUpSource | None = None


def state_of(visit: Visit) -> PipelineState:
    """The visit's pipeline page."""
    state: PipelineState = visit.pages.setdefault(KEY, PipelineState())
    return state


def keep_form(visit: Visit, body: Mapping[str, Any]) -> None:
    """Remember the form of the record on the screen, and forget those of dropped records."""
    forms = state_of(visit).forms
    if visit.shown:
        forms[visit.shown] = dict(body)
    for token in set(forms) - visit.records.keys():
        del forms[token]
