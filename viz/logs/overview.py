"""A log as a whole: what is shared, between which agents, why it was missed, and what to change first."""

from markupsafe import Markup

from backend.logs.advice import Advice
from backend.logs.xray import XRay
from viz.base.format import clip, plural
from viz.base.html import joined, render, table

MOST_MISSED = 8
LONGEST = 28  # characters of an agent's name


def overview_html(found: XRay) -> Markup:
    """What reuse would save, in a sentence."""
    tokens = max(1, found.totals["tokens"])
    shares = {name: found.totals[name] / tokens for name in ("blocks", "anywhere")}
    return render("logs/overview.html", found=found, shares=shares, skipped=found.skipped)


def details_html(found: XRay) -> Markup:
    """What to change, then the causes and the matrix."""
    return render(
        "logs/details.html", agents=agents_html(found), missed=missed_html(found), advice=advice_of(found)
    )


def advice_of(found: XRay) -> list[Advice]:
    """What saves something, most first; of two that save as much, the first."""
    return list({advice.saved: advice for advice in reversed(found.advice) if advice.saved > 0}.values())[
        ::-1
    ]


def agents_html(found: XRay) -> Markup:
    """Who had sent before what an agent reads: a table whose darker cells are more tokens."""
    most = max((cell for row in found.matrix for cell in row), default=0) or 1
    return render(
        "logs/matrix.html", names=[clip(name, LONGEST) for name in found.agents],
        rows=found.matrix, most=most, prefixes=found.prefixes,
    )  # fmt: skip


def missed_html(found: XRay) -> Markup:
    """The causes, the most expensive first."""
    if not found.missed:
        return Markup("<p>No call missed anything that an earlier one had sent.</p>")
    rows = [
        (
            missed.kind, plural(missed.calls, "call"), f"{missed.tokens:,}",
            f"{missed.tokens / max(1, found.totals['tokens']):.0%}", example_html(missed.example.cause),
        )
        for missed in found.missed[:MOST_MISSED]
    ]  # fmt: skip
    return table(("What came first", "in", "tokens missed", "of all", "for example"), [("", rows)])


def example_html(cause: object) -> Markup:
    """How two calls part."""
    before, after = (clip(str(getattr(cause, name, "")), 70) for name in ("before", "after"))
    return joined([Markup('<code class="kv-log-cut">{}</code>').format(text) for text in (before, after)])
