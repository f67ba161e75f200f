"""What stands on the page before any event: a finished run, written into the widgets when the page is built.

For every widget that an event changes, the framework's client walks over all of the page's widgets, so a
visit's first event sends only what is not on the page already.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

#: Properties by widget, such as ``{box: {"value": "36", "visible": True}}``.
Props = dict[Any, dict[str, Any]]
_ABSENT = object()


def props_of(*updates: Mapping[Any, Any]) -> Props:
    """Updates by widget as properties by widget; later updates win."""
    out: Props = {}
    for update in updates:
        for widget, change in update.items():
            is_update = isinstance(change, dict) and change.get("__type__") == "update"
            out.setdefault(widget, {}).update(change if is_update else {"value": change})
    for props in out.values():
        props.pop("__type__", None)
    return out


def put(props: Props) -> None:
    """Give widgets that are not served yet these properties, as if made with them."""
    for widget, changes in props.items():
        for name, value in changes.items():
            if name == "value":
                value = widget.postprocess(value)
                value = value.model_dump() if isinstance(value, BaseModel) else value
            if name == "shown":  # messages are empty by default
                value = {
                    node: how for node, how in value.items()
                    if how != {"html": ""} or not node.startswith("error_")
                }  # fmt: skip
            if name in getattr(widget, "props", {}):
                widget.props[name] = value
            else:
                setattr(widget, name, value)
            if name != "value":
                widget.constructor_args[name] = value  # the framework makes each visit's widget of these


def missing(props: Props, shown: Props) -> dict[Any, dict[str, Any]]:
    """Updates that turn a page with ``shown`` on it into one with ``props``."""
    out = {}
    for widget, changes in props.items():
        present = shown.get(widget, {})
        new = {name: value for name, value in changes.items() if present.get(name, _ABSENT) != value}
        if new:
            out[widget] = {"__type__": "update", **new}
    return out
