"""The widgets of the Judge page: inputs at the left, and results (handlers: ``lab_app.pages.judge.page``)."""

import gradio as gr

from backend.records.judge import CRITERIA, LIMITS
from lab_app.pages.judge import problem_set as judge_set
from lab_app.pages.judge.form import KEY, numbered
from lab_app.ui import fields, html, text
from lab_app.ui.components import figure_view, panes, raw_html
from lab_app.ui.method_chips import method_chips
from lab_app.ui.page import PageBuilder
from viz.run.verdict_card import QUESTION_2

CARDS = fields.cards("text", "candidate", *LIMITS["candidates"], ids="kv-judge")
METHODS_AT_FIRST = ("naive", "kvcomm")


def build_inputs(page: PageBuilder) -> None:
    """The left column: problem, orders, methods, candidates."""
    criteria, protocols, sources, orders = (
        [(label, name) for name, label in table.items()]
        for table in (
            text.JUDGE_CRITERIA, text.JUDGE_PROTOCOLS, text.JUDGE_SOURCES, text.JUDGE_ORDER_KINDS,
        )
    )  # fmt: skip
    beside, wide = "kv-value-more", "kv-unnamed kv-wide-choice"
    page.form(
        "asked",
        fields.part(
            text.JUDGE_TITLE,
            f"{KEY}-problem",
            fields.help_text("", text.JUDGE_HELP, f"kv-{KEY}-help"),
            fields.row(
                fields.select(
                    "criterion", text.JUDGE_CRITERION, criteria, CRITERIA[0], event="select",
                    id=f"kv-{KEY}-criterion", css="kv-unnamed",
                ),
                fields.button("next", text.EXAMPLE_NEXT, id=f"kv-{KEY}-next"),
                css="kv-line",
            ),
            fields.message("criterion", f"{KEY}-criterion"),
            fields.select(
                "protocol", text.JUDGE_PROTOCOL, protocols, "joint", id=f"kv-{KEY}-protocol", css=beside
            ),
            fields.text("question", "Question", lines=2, max=8, id=f"kv-{KEY}-question"),
            fields.message("question", f"{KEY}-question"),
            fields.text(
                "expected", text.JUDGE_EXPECTED, placeholder=text.MAY_BE_EMPTY, id=f"kv-{KEY}-expected",
                css=beside,
            ),
            fields.message("expected", f"{KEY}-expected"),
        ),
        fields.part(
            text.JUDGE_CANDIDATES,
            f"{KEY}-cards",
            fields.choice("source", text.JUDGE_CANDIDATES, sources, "typed", id=f"kv-{KEY}-source", css=wide),
            fields.note("source-help", id=f"kv-{KEY}-source-help"),
            fields.panel(
                "write-row",
                fields.row(
                    numbered("temperature", 1),
                    fields.button("write", text.JUDGE_WRITE, event="apply", id=f"kv-{KEY}-write"),
                    css="kv-measure",
                ),
                hidden=True, id=f"kv-{KEY}-write-row",
            ),
            fields.message("temperature", f"{KEY}-temperature"),
        ),
    )  # fmt: skip
    # a component of its own, so that the other boxes can be edited while agents write its texts
    page.form(
        "cards", fields.panel("", CARDS, fields.message("cards", f"{KEY}-cards"), css="kv-part kv-more-of")
    )
    page.form(
        "how",
        fields.part(
            text.JUDGE_ORDERS,
            f"{KEY}-orders",
            fields.choice("order", text.JUDGE_ORDERS, orders, "shuffle", id=f"kv-{KEY}-order", css=wide),
            fields.row(numbered("shuffles", 1), numbered("seed", 0), css="kv-numbers"),
            *(fields.message(name, f"{KEY}-{name}") for name in ("order", "shuffles", "seed")),
        ),
        method_chips(
            KEY,
            METHODS_AT_FIRST,
            fields.panel(
                "",
                fields.switch(
                    "repair", text.JUDGE_REPAIR, help=text.JUDGE_REPAIR_HELP, id=f"kv-{KEY}-repair"
                ),
                fields.switch(
                    "gated", text.JUDGE_GATED, help=text.JUDGE_GATED_HELP, id=f"kv-{KEY}-gated"
                ),
                fields.switch(
                    "slots_only", text.JUDGE_SLOTS_ONLY, help=text.JUDGE_SLOTS_ONLY_HELP,
                    id=f"kv-{KEY}-slots-only",
                ),
                fields.row(numbered("budget", 25), numbered("warm", 4), css="kv-numbers"),
                fields.switch(
                    "own_numbers", text.JUDGE_OWN, help=text.WARM_OWN_HELP, id=f"kv-{KEY}-own-numbers"
                ),
                *(fields.message(name, f"{KEY}-{name}") for name in ("budget", "warm")),
                css="kv-method-panel",
            ),
        ),
    )  # fmt: skip


def build_results(page: PageBuilder) -> None:
    """The results, and the set below them."""
    page.block("status")
    page.block("verdict", html.empty_card(text.JUDGE_EMPTY, text.JUDGE_EMPTY_HELP))
    panes(*text.JUDGE_PANES)
    page.block("grid", elem_classes="kv-pane-1")
    page.block("picks", elem_classes="kv-pane-1")
    page.form(
        "looks",
        fields.note("", html.heading(QUESTION_2)),
        fields.row(
            fields.select("pick_order", text.JUDGE_PICK_ORDER, [], "", id=f"kv-{KEY}-pick-order"),
            fields.select("pick_method", text.JUDGE_PICK_METHOD, [], "", id=f"kv-{KEY}-pick-method"),
            css="kv-measure",
        ),
        visible=False,
        elem_classes="kv-pane-2 kv-pane-3 kv-pane-4",
    )
    page.block("table", elem_classes="kv-pane-2")
    page.block("comparison", elem_classes="kv-pane-2")
    page.add(
        strip=raw_html(f"kv-{KEY}-strip", elem_classes="kv-pane-3"),
        view_attention=figure_view(f"{KEY}-attention", css="kv-folds kv-pane-4"),
    )
    with gr.Accordion(
        text.JUDGE_MORE, open=False, visible=False, elem_id=f"kv-{KEY}-more", elem_classes="kv-more kv-pane-4"
    ) as more:
        page.add(more=more, view_more=figure_view(f"{KEY}-more-figures"))
    with gr.Column(elem_classes="kv-pane-5", min_width=0):
        judge_set.build(page)
    page.closer(text.DOCUMENTS_CLOSER_HELP, save=True)
