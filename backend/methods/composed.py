"""Any choice of tokens over any reuse, behind any gate, written ``base>selector>gate``.

What is reused, what is computed again and whether the result is kept are separate decisions of the contract
(``plan``, ``select`` and ``accept``), so methods that were published as one can be taken apart and put
together anew: ``kvcomm>prophetkv:ratio=0.3``, or ``naive>none>margin:threshold=2``. KVCOMM's own gate belongs
to its plan. A trained risk gate is asked of a whole request (``--gate``) and goes over every method, these
too.

A base keeps its defaults, or those of the named profile of KVCOMM; a selector its own but for the share.
"""

from dataclasses import dataclass, fields
from typing import Any

from backend.base.clock import Clock
from backend.methods.base import Method, PromptView
from backend.methods.cacheblend import CacheBlendMethod
from backend.methods.epic import EpicMethod
from backend.methods.options import Options, option
from backend.methods.over import KVCOMM, POOLED, OverMethod
from backend.methods.plan import Selection
from backend.methods.prophetkv import ProphetKVMethod
from backend.methods.repair import RepairMethod
from backend.methods.selective import OracleKMethod, QueryNormMethod, RandomKMethod, ratio_option

_CHOOSING = (
    CacheBlendMethod, EpicMethod, ProphetKVMethod, QueryNormMethod, RandomKMethod, OracleKMethod,
    RepairMethod,
)  # fmt: skip
SELECTORS: dict[str, type[Method]] = {method.name: method for method in _CHOOSING}
SHARES = ("ratio", "budget")  # a selector's option that says how much is computed again


@dataclass(frozen=True)
class ComposedOptions(Options):
    """Options of a composition."""

    base: str = option(
        "kvcomm", "Reuses", "What is reused before: repositioned copies, or corrected ones.",
        choices=("naive", *KVCOMM, *POOLED),
    )  # fmt: skip
    selector: str = option(
        "prophetkv", "Chooses", "The method whose choice is computed again, or none.",
        choices=("none", *SELECTORS),
    )  # fmt: skip
    ratio: float = ratio_option(0.2, "the selector's own")
    gate: str = option(
        "none", "Keeps", "Every result; or one whose first token leads the next likeliest by a margin.",
        choices=("none", "margin"),
    )  # fmt: skip
    threshold: float = option(
        1.0, "Least margin", "In logits; below it the whole prompt is read.", minimum=0.0, maximum=100.0,
    )  # fmt: skip

    @property
    def wants_lead_in(self) -> bool:
        return self.base == "kvcomm shipped"


class ComposedMethod(OverMethod):
    """One method's reuse, another's choice of what is computed again, and a gate."""

    name = "composed"
    column = 210
    title = "Composition"
    summary = (
        "Reuses as one method does, computes again what another one chooses, and keeps what a gate passes."
    )
    paper = "a method of this lab: base>selector>gate"
    Options = ComposedOptions

    def __init__(self, options: ComposedOptions) -> None:
        super().__init__(options)
        self._selector: Method | None = None
        if chosen := SELECTORS.get(options.selector):
            own = {f.name for f in fields(chosen.Options)}
            self._selector = chosen(chosen.Options(**{name: options.ratio for name in SHARES if name in own}))

    def select(self, view: PromptView, clock: Clock) -> Selection | None:
        return self._selector.select(view, clock) if self._selector else None

    def accept(self, view: PromptView, clock: Clock) -> str | None:
        if self.options.gate == "none" or view.logits is None:
            return None
        first, second = view.logits.topk(2).values.tolist()
        threshold = self.options.threshold
        if first - second >= threshold:
            return None
        return f"The first token leads by {first - second:.2f} logits; {threshold:g} are wanted."


def expanded(expression: str) -> tuple[str, dict[str, Any]]:
    """``base>selector`` or ``base>selector>gate`` as a method's name and options; any other name as it is,
    with none."""
    base, *others = (part.strip() for part in expression.split(">", 2))
    parts = dict(zip(("selector", "gate"), others, strict=False))
    return (ComposedMethod.name, {"base": base, **parts}) if others else (base, {})
