"""Texts as cards that a person adds, removes, moves and shuffles.

Every change goes through the server with what stands in all boxes, so nothing typed is lost. The visit
remembers how many cards there are; the boxes hold their texts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from lab_app.ui import text
from lab_app.ui.method_choice import read_methods
from lab_app.ui.page import Act, PageBuilder
from lab_app.ui.types import Given, Update
from viz.base.format import escape

#: What a button does to the texts. The page shows an icon; a screen reader says the words.
MOVES = {"up": "Move up", "down": "Move down", "remove": "Remove"}


@dataclass(frozen=True)
class Cards:
    """A row of cards on a page: ``noun`` names one, ``fewest`` to ``most`` of them."""

    noun: str
    fewest: int
    most: int

    @property
    def boxes(self) -> tuple[str, ...]:
        """Names of the text boxes, for a handler that reads them."""
        return tuple(f"text_{slot}" for slot in range(self.most))

    def build(self, page: PageBuilder, lines: int = 2) -> None:
        """The widgets, inside the current column."""
        key = page.key
        for slot in range(self.most):
            with gr.Column(
                visible=slot < self.fewest, elem_id=f"kv-{key}-card-{slot}", elem_classes="kv-text-card",
                min_width=0,
            ) as card:  # fmt: skip
                with gr.Row(elem_classes="kv-card-head"):
                    page.block(f"head_{slot}", self.head(slot), elem_classes="kv-card-name")
                    for what, words in MOVES.items():
                        button = gr.Button(
                            words, size="sm", scale=0, min_width=0, elem_id=f"kv-{key}-{what}-{slot}",
                            elem_classes=f"kv-card-button kv-card-{what}",
                        )  # fmt: skip
                        page.add(**{f"{what}_{slot}": button})
                box = gr.Textbox(
                    label=f"{self.noun.capitalize()} {slot + 1}", show_label=False, container=False,
                    lines=lines, max_lines=12, elem_id=f"kv-{key}-text-{slot}", elem_classes="kv-card-text",
                )  # fmt: skip
                page.add(**{f"card_{slot}": card, f"text_{slot}": box})
                page.error(f"text_{slot}")
        with gr.Row(elem_classes="kv-line kv-card-tools"):
            page.add(
                add=gr.Button(text.CARD_ADD.format(noun=self.noun), size="sm", elem_id=f"kv-{key}-add"),
                shuffle=gr.Button(text.CARD_SHUFFLE, size="sm", elem_id=f"kv-{key}-shuffle"),
            )
        page.error("cards")

    def connect(self, page: PageBuilder, change: Callable[[str, int], Act], names: Sequence[str]) -> None:
        """Wire the buttons; ``change(what, slot)`` gives the handler of one."""
        for what in MOVES:
            for slot in range(self.most):
                page.on(page[f"{what}_{slot}"].click, change(what, slot), *names, follow=True)
        for what in ("add", "shuffle"):
            page.on(page[what].click, change(what, 0), *names, follow=True)

    def head(self, slot: int, note: str = "") -> str:
        """A card's name, and a word about it (HTML)."""
        return f'<p class="kv-card-title-line"><b>{escape(self.noun.capitalize())} {slot + 1}</b>{note}</p>'

    def read(self, given: Given, count: int) -> list[str]:
        """The texts of the cards that are shown."""
        return [str(given[f"text_{slot}"] or "") for slot in range(count)]

    def show(self, texts: Sequence[str], notes: Mapping[int, str] | None = None) -> Update:
        """Cards with these texts."""
        update: Update = {}
        for slot in range(self.most):
            there = slot < len(texts)
            update[f"card_{slot}.visible"] = there
            update[f"text_{slot}"] = texts[slot] if there else ""
            update[f"head_{slot}"] = self.head(slot, (notes or {}).get(slot, ""))
            update[f"up_{slot}.interactive"] = there and slot > 0
            update[f"down_{slot}.interactive"] = slot + 1 < len(texts)
            update[f"remove_{slot}.interactive"] = there and len(texts) > self.fewest
        update["add.interactive"] = len(texts) < self.most
        update["shuffle.interactive"] = len(texts) > 1
        return update

    def changed(self, texts: Sequence[str], what: str, slot: int, seed: int = 0) -> list[int | None]:
        """The order after a button was pressed: indices into ``texts``, None for a new card."""
        order: list[int | None] = list(range(len(texts)))
        if what == "add" and len(order) < self.most:
            order.append(None)
        elif what == "remove" and len(order) > self.fewest and slot < len(order):
            del order[slot]
        elif what in ("up", "down"):
            other = slot + (1 if what == "down" else -1)
            if 0 <= other < len(order) and slot < len(order):
                order[slot], order[other] = order[other], order[slot]
        elif what == "shuffle" and len(order) > 1:
            before, rng = list(order), random.Random(seed)
            while order == before:
                rng.shuffle(order)
        return order


def method_chips(page: PageBuilder, at_first: Sequence[str]) -> None:
    """The methods as chips, dense left out: it always runs."""
    from backend.methods.registry import method_class, method_names

    key = page.key
    chips = [(method_class(name).title, name) for name in method_names() if name != "dense"]
    known = [name for name in at_first if name in method_names()]
    page.add(
        methods=gr.CheckboxGroup(
            chips, value=known, show_label=False, label=text.METHODS, container=False,
            elem_id=f"kv-{key}-methods", elem_classes="kv-chips",
        )
    )  # fmt: skip
    page.block("method-help", f'<p class="kv-help">{text.METHODS_ELSEWHERE}</p>')
    page.error("methods")


def usable_methods(page: PageBuilder) -> Update:
    """The chips of the methods that run on the loaded model, and why others do not."""
    from backend.methods.registry import method_class, method_names

    info = page.lab.model.info
    refused = {name: method_class(name).supports(info) for name in method_names() if name != "dense"}
    update: Update = {
        "methods.choices": [(method_class(name).title, name) for name, why in refused.items() if not why]
    }
    why_not = "".join(
        f'<p class="kv-help">{escape(method_class(name).title)}: {escape(why)}</p>'
        for name, why in refused.items()
        if why
    )
    update["method-help"] = f'<p class="kv-help">{text.METHODS_ELSEWHERE}</p>{why_not}'
    return update


def chosen_methods(given: Given, most: int) -> Any:
    """The chosen methods with the pipeline page's options, dense first.

    Raises:
        LabError: a method or an option is wrong.
    """
    return read_methods(tuple(given["methods"] or ()), given["options"], most=most)
