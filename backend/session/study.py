"""Studies: measurements beside runs. Each is asked for by a request of its own type.

A study is a function that yields its progress first and its record last. :func:`study` registers it; the lab
(:mod:`backend.lab`) imports all of them and runs the one that a request asks for.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from backend.base.cancel import Cancel
from backend.base.errors import OptionError
from backend.base.text import show
from backend.session.session import LabSession

Study = Callable[..., Iterator[Any]]
Registered = TypeVar("Registered", bound=Study)

#: By the type of its request.
STUDIES: dict[type, Study] = {}


def study(request: type) -> Callable[[Registered], Registered]:
    """Registers the decorated function as the study that a request of this type asks for.

    The function's parameters are filled by their names: ``request``, and of the session that measures any of
    ``session``, ``model``, ``budget_bytes`` and ``clock`` (the device's); ``cancel`` is set to stop it.
    """

    def register(function: Registered) -> Registered:
        STUDIES[request] = function
        return function

    return register


def run_study(session: LabSession, request: object, cancel: Cancel) -> Iterator[Any]:
    """What the study of a request yields.

    Raises:
        LabError: there is no study for it; or see the study.
    """
    function = STUDIES.get(type(request))
    if function is None:
        names = ", ".join(sorted(kind.__name__ for kind in STUDIES))
        raise OptionError(f"There is no study for {show(request)}; there are studies for {names}.")
    arguments = {
        "session": session, "model": session.model, "request": request, "cancel": cancel,
        "budget_bytes": session.budget_bytes, "clock": session.engine.clock(),
    }  # fmt: skip
    return function(**{name: arguments[name] for name in inspect.signature(function).parameters})
