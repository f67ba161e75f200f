"""What the Judge page and the set below it read in the same way: criterion, orders, methods, numbers."""

import math
from typing import Any

from backend.records.judge import CRITERIA, MOST_ORDERS, PROTOCOLS, REGIMES, Order, Regime, read_orders
from backend.records.request import MethodChoice
from lab_app.ui import fields, text
from lab_app.ui.fields import Node
from lab_app.ui.method_chips import chosen_methods
from lab_app.ui.page import OPTIONS
from lab_app.ui.validation import FormReader, Problem

KEY = "judge"
SET = "judged_set"  # the kind of a set's measurement; a single problem's is another, and both are kept
REPAIR = "repair"  # the method with a switch of its own
SETTINGS = (
    "criterion", "protocol", "slots_only", "order", "shuffles", "seed", "methods", "repair", "gated",
    "budget", "warm", "own_numbers", OPTIONS,
)  # fmt: skip


def read_settings(reader: FormReader, candidates: int) -> dict[str, Any]:
    """The settings that a single problem and a set share: criterion, protocol, orders, methods, pools."""
    from backend.methods.registry import method_names

    inputs = reader.values
    if inputs["criterion"] not in CRITERIA:
        reader.problems.append(
            Problem("criterion", f"There is no criterion {str(inputs['criterion'])[:30]!r}.")
        )
    if inputs["protocol"] not in PROTOCOLS:
        reader.problems.append(
            Problem("criterion", f"There is no protocol {str(inputs['protocol'])[:30]!r}.")
        )
    shuffles, seed = (reader.number(name, text.JUDGE_NUMBERS[name]) for name in ("shuffles", "seed"))
    orders: tuple[Order, ...] = (Order(),)
    if inputs["order"] == "shuffle":
        orders += tuple(Order("shuffle", seed + n) for n in range(shuffles))
    elif inputs["order"] == "all" and math.factorial(candidates) > MOST_ORDERS:
        reader.problems.append(Problem("order", text.JUDGE_EVERY_ORDER))
    elif inputs["order"] == "all":
        orders = read_orders("all", candidates)
    elif inputs["order"] != "identity":
        reader.problems.append(Problem("order", "Choose one of the kinds of orders."))
    every = len(method_names())
    methods = reader.attempt("methods", lambda: chosen_methods(inputs, every)) or ()
    budget = reader.number("budget", text.JUDGE_NUMBERS["budget"])
    if inputs["repair"]:
        usual = dict(inputs[OPTIONS].get(REPAIR, {})) | {"budget": budget / 100}
        methods = (*(m for m in methods if m.name != REPAIR), MethodChoice(REPAIR, usual))
    return {
        "criterion": inputs["criterion"],
        "protocol": inputs["protocol"],
        "slots_only": bool(inputs["slots_only"]),
        "orders": orders,
        "methods": tuple(methods),
        "warmup": reader.number("warm", text.JUDGE_NUMBERS["warm"]),
    }


def numbered(name: str, value: float) -> Node:
    """The field of a number, labelled as in its limits."""
    return fields.number(name, text.JUDGE_NUMBERS[name].label, value, id=f"kv-{KEY}-{name}")


def read_regime(value: Any, usual: Regime = "typed") -> Regime:
    """Where candidates come from; ``usual`` for an unknown value."""
    return next((regime for regime in REGIMES if regime == value), usual)
