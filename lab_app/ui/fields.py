"""Many controls as one component: a declaration in, one value by name out.

A page declares :class:`Node` objects: fields that hold a value, notes and messages that the server fills, and
what they stand in (rows, panels, folds). ``assets/fields.js`` draws them in the browser. The component's
``value`` is a dict of the fields' values by name. How the nodes are shown (hidden or not, a label, a message)
is another of its properties, ``shown``: so an answer about a field never touches what is typed in it.

What a browser sends is checked by its field; a wrong value becomes the field's default.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

MOST_CHARACTERS = 1_000_000  # of one text; the limits of a request say more
MOST_NAMES, MOST_NAME = 100, 200  # of a choice of several, and characters of each
#: fields.js is deferred, so a component may be mounted before it. It brings every component's declaration.
MOUNT = "(function go(){window.KVFields?KVFields.mount(element,props,trigger,watch):setTimeout(go,30)})()"


@dataclass(frozen=True)
class Node:
    """A part of a component: a field if it has a ``value``.

    Attributes:
        kind: of a field ``text``, ``number``, ``bool``, ``choice``, ``select``, ``checks`` or ``cards``; else
            ``button``, ``note``, ``message``, ``profiles``, ``row``, ``panel``, ``copies`` or ``fold``.
        name: by which handlers read it and change it.
        value: what stands in a field at first; None for what is no field.
        items: what stands in it.
        look: what the browser needs to draw it, such as ``id``, ``css``, ``label`` and ``help``.
        reader: makes a value of what was sent, if the kind does not.
    """

    kind: str
    name: str = ""
    value: Any = None
    items: tuple[Node, ...] = ()
    look: Mapping[str, Any] = field(default_factory=dict)
    reader: Callable[[Any], Any] | None = None

    def walk(self) -> Iterator[Node]:
        """This node and all in it."""
        yield self
        for item in self.items:
            yield from item.walk()

    def spec(self) -> dict[str, Any]:
        """The declaration for the browser, without empty entries."""
        entries = {"kind": self.kind, "name": self.name, **self.look}
        entries["items"] = [item.spec() for item in self.items]
        return {key: value for key, value in entries.items() if value not in ("", None, [])}

    def read(self, sent: Any) -> Any:
        """The value that was sent for this field, or its default where that is wrong."""
        if self.reader is not None:
            return self.reader(sent)
        if self.kind == "bool":
            return bool(sent)
        if self.kind == "number":  # an empty box holds None
            number = isinstance(sent, int | float) and not isinstance(sent, bool) and math.isfinite(sent)
            return sent if number else None
        if self.kind == "checks":
            names = sent if isinstance(sent, list) else self.value
            return [name[:MOST_NAME] for name in names[:MOST_NAMES] if isinstance(name, str)]
        if self.kind == "cards":
            texts = sent if isinstance(sent, list) else self.value
            texts = texts[: self.look["most"]] if len(texts) >= self.look["fewest"] else self.value
            return [content[:MOST_CHARACTERS] if isinstance(content, str) else "" for content in texts]
        return sent[:MOST_CHARACTERS] if isinstance(sent, str) else self.value


def text(name: str, label: str, value: str = "", **look: Any) -> Node:
    """A box for a text; ``lines`` at first."""
    return Node("text", name, value, look={"label": label, **look})


def number(name: str, label: str, value: float, **look: Any) -> Node:
    """A box for a number; ``step`` of its arrows, and ``slider``: least and most of one below it."""
    return Node("number", name, value, look={"label": label, "step": 1, **look})


def switch(name: str, label: str, value: bool = False, **look: Any) -> Node:
    """A switch."""
    return Node("bool", name, value, look={"label": label, **look})


def choice(name: str, label: str, choices: list[tuple[str, str]], value: str, **look: Any) -> Node:
    """One of a few visible options; ``choices``: words and values."""
    return Node("choice", name, value, look={"label": label, "choices": choices, **look})


def select(name: str, label: str, choices: list[tuple[str, str]], value: str, **look: Any) -> Node:
    """One of many options in a list that opens; ``choices``: words and values. ``event``: the event of the
    component that a choice sets off; by default its input."""
    return Node("select", name, value, look={"label": label, "choices": choices, **look})


def checks(name: str, label: str, choices: list[tuple[str, str]], value: list[str], **look: Any) -> Node:
    """Some of several, as chips; ``choices``: words and values; the value is a list."""
    return Node("checks", name, value, look={"label": label, "choices": choices, **look})


def button(name: str, label: str, event: str = "submit", **look: Any) -> Node:
    """A button; a press sets off the component's event of this name."""
    return Node("button", name, look={"label": label, "event": event, **look})


def cards(name: str, noun: str, fewest: int, most: int, **look: Any) -> Node:
    """Texts as cards that a person adds, removes, moves and shuffles; the value is a list."""
    look |= {"noun": noun, "fewest": fewest, "most": most}
    return Node("cards", name, [""] * fewest, look=look)


def copies(name: str, read: Callable[[Any], Any], **look: Any) -> Node:
    """Panels of the same component once more, each with values of its own: a list of ``{"of", "number",
    "values"}``, with the panel ``panel_<of>`` and its fields' values by name. ``read`` makes such a list of
    what was sent. Beside it stands the text field ``pinned``: the one that all others are compared with."""
    return Node("copies", name, [], look=look, reader=read)


def profiles(label: str, settings: Sequence[tuple[str, Mapping[str, Any]]], **look: Any) -> Node:
    """Named bundles of values: choosing one sets its fields, and the one that the fields match is marked. The
    browser gets the first bundle whole, and of each its differences from it."""
    first = settings[0][1]
    differences = [(title, {k: v for k, v in values.items() if v != first[k]}) for title, values in settings]
    return Node("profiles", look={"label": label, "usual": first, "settings": differences, **look})


def note(name: str, html: str = "", **look: Any) -> Node:
    """A piece of server-made HTML."""
    return Node("note", name, look={"html": html, **look})


def message(where: str, id_: str, **look: Any) -> Node:
    """The place of messages about ``where``."""
    return Node("message", f"error_{where}", look={"id": f"kv-error-{id_}", **look})


def row(*items: Node, **look: Any) -> Node:
    """Side by side, by its style ``css``."""
    return Node("row", items=items, look=look)


def part(title: str, id_: str, *items: Node, **look: Any) -> Node:
    """A titled part of a page's inputs."""
    head = note("", f'<h2 class="kv-part-title">{title}</h2>')
    return Node("panel", items=(head, *items), look={"id": f"kv-part-{id_}", "css": "kv-part", **look})


def help_text(name: str, sentence: str, id_: str) -> Node:
    """A sentence that explains."""
    return note(name, f'<p class="kv-help">{sentence}</p>', id=id_)


def panel(name: str, *items: Node, **look: Any) -> Node:
    """A part that can be hidden (``hidden``)."""
    return Node("panel", name, items=items, look=look)


def fold(name: str, label: str, *items: Node, **look: Any) -> Node:
    """A part that opens when its head, a piece of HTML, is clicked, or when there is a message in it."""
    return Node("fold", name, items=items, look={"label": label, **look})


class Fields:
    """A component and what is in it.

    Attributes:
        widget: the component.
        nodes: all with a name; the messages of a text on a card have names of their own.
        values: of the fields, at first.
        spec: the declaration for the browser, the same for all visits.
    """

    def __init__(self, elem_id: str, *nodes: Node, **extra: Any) -> None:
        parts = [part for node in nodes for part in node.walk()]
        self.nodes = {node.name: node for node in parts if node.name}
        for node in parts:
            if node.kind == "cards":
                self.nodes |= {f"error_{node.name}_{i}": Node("message") for i in range(node.look["most"])}
        self.values = {node.name: node.value for node in parts if node.value is not None}
        self.spec = [node.spec() for node in nodes]
        self.widget = gr.HTML(
            dict(self.values), html_template='<div class="kv-fields"></div>', js_on_load=MOUNT,
            elem_id=elem_id, apply_default_css=False, shown={}, **extra,
        )  # fmt: skip

    def read(self, sent: Any) -> dict[str, Any]:
        """Every field's value, of what a browser sent."""
        values = sent if isinstance(sent, dict) else {}
        return {
            name: self.nodes[name].read(values.get(name, default)) for name, default in self.values.items()
        }


class Standing:
    """The state of a page's components in one visit: the values last read or written, and what is shown.

    Answers of two events can overtake each other on their way to the browser. So each holds all of
    ``shown``, with a number, and the browser ignores older ones.
    """

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.shown: dict[str, dict[str, Any]] = {}
        self._number = 0
        self._lock = threading.Lock()

    def read(self, name: str, fields: Fields, sent: Any) -> dict[str, Any]:
        """The values that a browser sent for the component ``name``."""
        self.values[name] = values = fields.read(sent)
        return values

    def current(self, name: str, fields: Fields) -> dict[str, Any]:
        """The values of the component ``name`` as far as the server knows."""
        return self.values.get(name, fields.values)

    def change(
        self, name: str, fields: Fields, values: Mapping[str, Any], shown: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Set fields, and how nodes are shown (by name, then by property); the changed properties of the
        component, if any."""
        change: dict[str, Any] = {}
        with self._lock:
            if values:
                self.values[name] = change["value"] = {**self.current(name, fields), **values}
            before = self.shown.get(name, {})
            after = {**before, **{node: {**before.get(node, {}), **how} for node, how in shown.items()}}
            if after != before:
                self._number += 1
                self.shown[name] = after
                change["shown"] = {**after, "number": self._number}
        return change
