"""Any choice of tokens over any reuse, written ``base>selector``: ``kvcomm>prophetkv:ratio=0.3``.

What is reused and what is computed again are separate decisions of the contract (``plan`` and ``select``),
so methods that were published as one can be taken apart and put together anew. The third, whether a result
is kept, is asked of a whole request (``--gate``) and goes over every method, these too.

A base keeps its defaults, or those of the named profile of KVCOMM; a selector its own but for the share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backend.base.clock import Clock
from backend.methods.base import Method, PromptView
from backend.methods.cacheblend import CacheBlendMethod
from backend.methods.epic import EpicMethod
from backend.methods.options import Options, option
from backend.methods.over import KVCOMM, POOLED, OverMethod
from backend.methods.plan import Selection
from backend.methods.prophetkv import ProphetKVMethod
from backend.methods.selective import OracleKMethod, QueryNormMethod, RandomKMethod, ratio_option

_CHOOSING = (
    CacheBlendMethod, EpicMethod, ProphetKVMethod, QueryNormMethod, RandomKMethod, OracleKMethod,
)  # fmt: skip
SELECTORS: dict[str, type[Method]] = {method.name: method for method in _CHOOSING}


@dataclass(frozen=True)
class ComposedOptions(Options):
    """Options of a composition."""

    base: str = option(
        "kvcomm", "Reuses", "What is reused before: repositioned copies, or corrected ones.",
        choices=("naive", *KVCOMM, *POOLED),
    )  # fmt: skip
    selector: str = option(
        "prophetkv", "Chooses", "The method whose choice is computed again.", choices=tuple(SELECTORS)
    )
    ratio: float = ratio_option(0.2, "the selector's own")

    @property
    def wants_lead_in(self) -> bool:
        return self.base == "kvcomm shipped"


class ComposedMethod(OverMethod):
    """One method's reuse, another's choice of what is computed again."""

    name = "composed"
    title = "Composition"
    summary = "Reuses as one method does, and computes again what another one chooses."
    paper = "a method of this lab: base>selector"
    Options = ComposedOptions

    def __init__(self, options: ComposedOptions) -> None:
        super().__init__(options)
        chosen = SELECTORS[options.selector]
        shared = {"ratio": options.ratio} if hasattr(chosen.Options, "ratio") else {}
        self._selector = chosen(chosen.Options(**shared))

    def select(self, view: PromptView, clock: Clock) -> Selection | None:
        return self._selector.select(view, clock)


def expanded(expression: str) -> tuple[str, dict[str, Any]]:
    """``base>selector`` as a method's name and options; any other name as it is, with none."""
    base, composed, selector = (part.strip() for part in expression.partition(">"))
    return (ComposedMethod.name, {"base": base, "selector": selector}) if composed else (base, {})
