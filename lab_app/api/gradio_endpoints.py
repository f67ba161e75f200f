"""The lab's calls as named endpoints of the page's server, for ``gradio_client`` and plain HTTP.

Each is an event of the page without a widget, so it waits in the framework's queue and then for the model, as
a press of a button does. Its signature is made from its parameters' model."""

import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gradio as gr
from gradio.events import api
from pydantic.fields import FieldInfo

from backend.base.errors import LabError
from lab_app.api.callers import Caller, Callers
from lab_app.api.requests import sentence
from lab_app.api.responses import Body
from lab_app.api.tasks import ENDPOINTS
from lab_app.ui import text
from lab_app.visits.visits import VisitStore

LOG = logging.getLogger("lab_app")
#: The session name that the framework gives a caller without one: the call's own id.
NO_SESSION = re.compile(r"[0-9a-f]{32}")


class CallError(Exception):
    """A call failed; the message is for the caller."""


def steps(
    lab: VisitStore, callers: Callers, name: str, arguments: Mapping[str, Any], caller: Caller
) -> Iterator[Body]:
    """An endpoint's answer, step by step.

    Raises:
        CallError: the call failed; the log has the traceback of an unexpected error.
    """
    work, _ = ENDPOINTS[name]
    try:
        yield from work(lab, callers, caller, arguments)
    except LabError as error:
        raise CallError(sentence(error)) from None
    except Exception as error:
        LOG.exception("the call %s failed", name)
        raise CallError(text.CALL_UNEXPECTED.format(kind=type(error).__name__)) from None


def build_endpoints(lab: VisitStore, callers: Callers) -> None:
    """Add the endpoints to the current ``gr.Blocks``."""
    for name, (work, kind) in ENDPOINTS.items():
        help_ = "\n".join(f"{key}: {field.description}" for key, field in kind.model_fields.items())
        api(
            endpoint(lab, callers, name, kind.model_fields),
            api_name=name,
            api_description=f"{inspect.getdoc(work)}\n{help_}",
            concurrency_limit=None,
        )


def endpoint(
    lab: VisitStore, callers: Callers, name: str, fields: Mapping[str, FieldInfo]
) -> Callable[..., Any]:
    """The function that the framework calls: a parameter for each field, then the request."""

    def call(*arguments: Any) -> Iterator[Body]:
        *values, request = arguments
        try:
            yield from steps(lab, callers, name, dict(zip(fields, values, strict=True)), caller_of(request))
        except CallError as error:
            raise gr.Error(str(error), print_exception=False) from None

    kinds: dict[str, Any] = {key: field.annotation for key, field in fields.items()} | {"request": gr.Request}
    defaults = {key: inspect.Parameter.empty if f.is_required() else f.default for key, f in fields.items()}
    parameters = [
        inspect.Parameter(
            key, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=defaults.get(key), annotation=annotation
        )
        for key, annotation in kinds.items()
    ]
    call.__name__ = name
    call.__annotations__ = kinds | {"return": dict}
    call.__signature__ = inspect.Signature(parameters, return_annotation=dict)  # type: ignore[attr-defined]
    return call


def caller_of(request: gr.Request) -> Caller:
    """Who sent a request."""
    session = str(request.session_hash or "")
    address = request.client.host if request.client is not None else ""
    return Caller("" if NO_SESSION.fullmatch(session) else session, str(address))
