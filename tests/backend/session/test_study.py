"""Studies are found by the type of their request, and get what their parameters name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from backend.base.cancel import Cancel
from backend.base.errors import OptionError
from backend.lab import Lab
from backend.model.load import LoadedModel
from backend.session.session import LabSession
from backend.session.study import STUDIES, study


@dataclass(frozen=True)
class Asked:
    """A request that a test makes up."""

    number: int = 7


def test_a_study_is_run_by_the_type_of_its_request(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(STUDIES, Asked, raising=False)
    session, cancel = LabSession(tiny_model), threading.Event()

    @study(Asked)
    def numbered(request: Asked, budget_bytes: int, model: Any, cancel: Cancel) -> Iterator[Any]:
        yield request.number, budget_bytes, model, cancel

    try:
        [said] = Lab(session).study(Asked(3), cancel=cancel)
    finally:
        del STUDIES[Asked]
    assert said == (3, session.budget_bytes, tiny_model, cancel)
    with pytest.raises(OptionError, match=r"no study for Asked.*AnchorCostRequest.*ProximityRequest"):
        list(Lab(session).study(Asked()))
