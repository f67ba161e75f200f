"""A log as a whole: what is shared, between which agents, why it was missed, and what to change first."""

from markupsafe import Markup

from backend.logs.advice import Advice
from backend.logs.xray import XRay
from viz.base.format import clip, plural
from viz.base.html import joined, render, table

MOST_MISSED = 8
LONGEST = 28  # characters of an agent's name


def overview_html(xray: XRay) -> Markup:
    """What reuse would save."""
    tokens = max(1, xray.totals["tokens"])
    shares = {name: xray.totals[name] / tokens for name in ("blocks", "anywhere")}
    return render("logs/overview.html", xray=xray, shares=shares, skipped=xray.skipped)


def details_html(xray: XRay) -> Markup:
    """What to change, then the causes and the matrix."""
    return render(
        "logs/details.html", agents=agents_html(xray), missed=missed_html(xray), advice=advice_of(xray)
    )


def advice_of(xray: XRay) -> list[Advice]:
    """Advice that saves tokens, by savings; of equal savings the first alone."""
    return list({advice.saved: advice for advice in reversed(xray.advice) if advice.saved > 0}.values())[::-1]


def agents_html(xray: XRay) -> Markup:
    """Which agents had sent before what an agent reads: a table; darker cells are more tokens."""
    most = max((cell for row in xray.matrix for cell in row), default=0) or 1
    return render(
        "logs/matrix.html", names=[clip(name, LONGEST) for name in xray.agents],
        rows=xray.matrix, most=most, prefixes=xray.prefixes,
    )  # fmt: skip


def missed_html(xray: XRay) -> Markup:
    """The causes, the most expensive first."""
    if not xray.missed:
        return Markup("<p>No call missed anything that an earlier one had sent.</p>")
    rows = [
        (
            cause.kind, plural(cause.calls, "call"), f"{cause.tokens:,}",
            f"{cause.tokens / max(1, xray.totals['tokens']):.0%}", example_html(cause.example.cause),
        )
        for cause in xray.missed[:MOST_MISSED]
    ]  # fmt: skip
    return table(("What came first", "in", "tokens missed", "of all", "for example"), [("", rows)])


def example_html(cause: object) -> Markup:
    """The texts where two calls diverge."""
    before, after = (clip(str(getattr(cause, name, "")), 70) for name in ("before", "after"))
    return joined([Markup('<code class="kv-log-cut">{}</code>').format(text) for text in (before, after)])
