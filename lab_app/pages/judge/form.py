"""What the Judge page and the set below it read alike: numbers, texts, criterion, orders and methods."""

from typing import Any

from backend.records.judge import CRITERIA, PROTOCOLS, REGIMES, Order, Regime, read_orders
from backend.records.request import MethodChoice
from lab_app.ui import fields, text
from lab_app.ui.fields import Node
from lab_app.ui.method_chips import chosen_methods
from lab_app.ui.page import OPTIONS
from lab_app.ui.validation import FormReader, Problem

KEY = "judge"
REPAIR = "repair"  # has a switch of its own
SETTINGS = (
    "criterion", "protocol", "slots_only", "order", "shuffles", "seed", "methods", "repair", "gated",
    "budget", "warm", OPTIONS,
)  # fmt: skip


def read_settings(reader: FormReader, candidates: int) -> dict[str, Any]:
    """Criterion, protocol, orders, methods and pools: what a single problem and a set share."""
    from backend.methods.registry import method_names

    given = reader.values
    if given["criterion"] not in CRITERIA:
        reader.problems.append(
            Problem("criterion", f"There is no criterion {str(given['criterion'])[:30]!r}.")
        )
    if given["protocol"] not in PROTOCOLS:
        reader.problems.append(Problem("criterion", f"There is no protocol {str(given['protocol'])[:30]!r}."))
    shuffles, seed = (reader.number(name, text.JUDGE_NUMBERS[name]) for name in ("shuffles", "seed"))
    kinds = {
        "identity": "identity",
        "shuffle": ",".join(["identity", *(f"shuffle:{seed + n}" for n in range(shuffles))]),
        "all": "all",
    }
    if given["order"] not in kinds:
        reader.problems.append(Problem("order", "Choose one of the kinds of orders."))
    orders = reader.attempt("order", lambda: read_orders(kinds.get(given["order"], "identity"), candidates))
    every = len(method_names())
    methods = reader.attempt("methods", lambda: chosen_methods(given, every)) or ()
    budget = reader.number("budget", text.JUDGE_NUMBERS["budget"])
    if given["repair"]:
        usual = dict(given[OPTIONS].get(REPAIR, {})) | {"budget": budget / 100}
        methods = (*(m for m in methods if m.name != REPAIR), MethodChoice(REPAIR, usual))
    return {
        "criterion": given["criterion"],
        "protocol": given["protocol"],
        "slots_only": bool(given["slots_only"]),
        "orders": orders or (Order(),),
        "methods": tuple(methods),
        "warmup": reader.number("warm", text.JUDGE_NUMBERS["warm"]),
    }


def numbered(name: str, value: float) -> Node:
    """A number with its limits' label, as a field."""
    return fields.number(name, text.JUDGE_NUMBERS[name].label, value, id=f"kv-{KEY}-{name}")


def read_regime(wish: Any, usual: Regime = "typed") -> Regime:
    """Where candidates come from; ``usual`` for anything that is no such place."""
    return next((regime for regime in REGIMES if regime == wish), usual)
