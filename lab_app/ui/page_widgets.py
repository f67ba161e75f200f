"""A page's widgets by name, and updates by name as updates of widgets."""

import json
from collections.abc import Callable
from typing import Any

import gradio as gr

from backend.records.sharing.links import read_json
from lab_app.ui import text
from lab_app.ui.components import block, error_slot
from lab_app.ui.fields import MOST_CHARACTERS, Fields, Node, Standing
from lab_app.ui.types import Update
from lab_app.visits.visits import Visit

Answer = dict[Any, Any]  # an update by widget


class PageWidgets:
    """What stands on a page.

    Args:
        key: its name.
        ids: how its elements' ids begin.

    Attributes:
        widgets: by name.
        fields: components of many controls (``lab_app.ui.fields``), by name.
        home: the component in which each of their nodes stands, by the node's name.
        rules: how further keys of an update become updates by name.
        forms: how components of many controls are declared, of all pages, by id.
    """

    def __init__(self, key: str, ids: str) -> None:
        self.key, self.ids = key, ids
        self.widgets: dict[str, Any] = {}
        self.fields: dict[str, Fields] = {}
        self.home: dict[str, str] = {}
        self.forms: dict[str, Any] = {}
        self.rules: dict[str, Callable[[Any], Update]] = {}
        self._own_errors: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        return self.widgets[name]

    def add(self, **widgets: Any) -> None:
        """Give widgets their names."""
        self.widgets.update(widgets)

    def block(self, name: str, value: str = "", **extra: Any) -> gr.HTML:
        """A named piece of server-made HTML, morphed into place."""
        self.widgets[name] = widget = block(
            f"{self.ids}-{name.replace('_', '-')}".removeprefix("kv-"), value, **extra
        )
        return widget

    def closer(self, help_text: str, save: bool = False) -> None:
        """The row that opens a result in the pipeline, hidden until there is one. ``save``: with a place for
        a link that saves the result."""
        with gr.Row(visible=False, elem_classes="kv-closer", elem_id=f"{self.ids}-closer-row") as row:
            self.block("closer-help", f'<p class="kv-help">{help_text}</p>')
            if save:
                self.block("save")
            button = gr.Button(
                text.CLOSER, size="sm", scale=0, elem_id=f"{self.ids}-closer", elem_classes="kv-to-pipeline"
            )
        self.widgets |= {"closer": button, "closer-row": row}

    def form(self, name: str, *nodes: Node, own: bool = False, **extra: Any) -> Fields:
        """A component of many controls; its nodes are as other widgets to handlers, by their names.
        ``own``: ``"errors"`` leaves its messages as they are."""
        elem_id = f"{self.ids}-{name}"
        self.fields[name] = fields = Fields(elem_id, *nodes, **extra)
        self.forms[elem_id] = fields.spec
        self.widgets[name] = fields.widget
        self.home |= dict.fromkeys(fields.nodes, name)
        if own:
            self._own_errors |= {node for node in fields.nodes if node.startswith("error_")}
        return fields

    def event(self, name: str) -> Any:
        """What a press on a button is, or a choice in a list with an event of its own, by its name."""
        home = self.home[name]
        return getattr(self.widgets[home], self.fields[home].nodes[name].look["event"])

    def error(self, name: str, own: bool = False) -> gr.HTML:
        """An empty place for messages about ``name``; ``own``: ``"errors"`` leaves it as it is."""
        place = f"{self.ids}-{name}".removeprefix("kv-").replace("_", "-")
        self.widgets[f"error_{name}"] = slot = error_slot(place)
        if own:
            self._own_errors.add(f"error_{name}")
        return slot

    @property
    def outputs(self) -> list[Any]:
        """The widgets that a handler may change."""
        return list(self.widgets.values())

    def standing(self, visit: Visit) -> Standing:
        """How the page's components of many controls stand in a visit."""
        state: Standing = visit.pages.setdefault(f"{self.key} fields", Standing())
        return state

    def kept_boxes(self, sent: Any) -> Update:
        """The boxes that a browser tab kept over a reload (``assets/typed.js``), by name. What cannot be read
        is left out; lists whose choices the server makes stay as they are."""
        try:
            kept = read_json(sent.encode()) if isinstance(sent, str) and len(sent) <= MOST_CHARACTERS else {}
            json.dumps(kept, ensure_ascii=False).encode()  # half of a surrogate pair could not be sent back
        except (ValueError, RecursionError):
            kept = {}
        if not isinstance(kept, dict):
            return {}
        update: Update = {}
        for form in self.fields.values():
            values = kept.get(form.widget.elem_id)
            if isinstance(values, dict):
                update |= {name: value for name, value in form.read(values).items() if name in values}
        for name, widget in self.widgets.items():
            typed = kept.get(widget.elem_id)
            if isinstance(widget, gr.Textbox) and isinstance(typed, str):
                update[name] = typed
        return {name: value for name, value in update.items() if not name.startswith("pick_")}

    def _by_name(self, update: Update) -> Update:
        """An update after the page's rules, with every message in its place and other places emptied."""
        out: Update = {}
        for key, value in update.items():
            if key in self.rules:
                out |= self.rules[key](value)
            elif key == "errors":
                names = (*self.widgets, *self.home)
                slots = {n for n in names if n.startswith("error_") and n not in self._own_errors}
                messages = dict.fromkeys(slots, "")
                for where, message in value.items():
                    messages[f"error_{where}" if f"error_{where}" in slots else "error_run"] += message
                out |= messages
            else:
                out[key] = value
        return out

    def applied(self, update: Update, visit: Visit | None = None) -> Answer:
        """An update by widget; components of many controls change only in a visit."""
        out: Answer = {}
        values: dict[str, dict[str, Any]] = {}
        shown: dict[str, dict[str, dict[str, Any]]] = {}
        for key, value in self._by_name(update).items():
            name, _, what = key.partition(".")
            if (home := self.home.get(name)) is not None:
                if name.startswith("pick_") and isinstance(value, tuple):
                    shown.setdefault(home, {}).setdefault(name, {})["choices"] = value[0]
                    values.setdefault(home, {})[name] = value[1]
                elif name in self.fields[home].values and what in ("", "value"):
                    values.setdefault(home, {})[name] = value
                else:
                    shown.setdefault(home, {}).setdefault(name, {})[what or "html"] = value
                continue
            if what:
                change = gr.update(**{what: value})
            elif name.startswith("pick_") and isinstance(value, tuple):
                change = gr.update(choices=value[0], value=value[1])
            else:
                change = gr.update(value=value)
            out[self.widgets[name]] = {**out.get(self.widgets[name], {}), **change}
        for home in {**values, **shown}:
            assert visit is not None
            change = self.standing(visit).change(
                home, self.fields[home], values.get(home, {}), shown.get(home, {})
            )
            if change:
                out[self.widgets[home]] = {**out.get(self.widgets[home], {}), **gr.update(**change)}
        # the framework takes an answer without any widget for a mistake
        return out or {self.widgets["status"]: gr.update()}


def merged(first: Answer, second: Answer) -> Answer:
    """Two updates by widget as one; the second wins."""
    return first | {widget: {**first.get(widget, {}), **change} for widget, change in second.items()}
