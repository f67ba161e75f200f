"""A judge that reads densely only where two verdicts disagree: one problem in words, many as a table."""

from markupsafe import Markup

from backend.records.disagreement import DisagreementLine, disagreement
from backend.records.judge import Judged
from viz.base.figure import Panel
from viz.base.format import order_words, percent, plural
from viz.base.html import html, table
from viz.base.theme import method_styles
from viz.judge.metrics import share_words
from viz.judge.verdict_grid import ORACLES

TITLE = "What if the judge reads densely only where two verdicts disagree?"
NONE = "That takes two verdicts that reuse, of two methods or in two orders, and a readable full read."
SHOWN = 8  # pairs in the table, those that keep most
HOW = (
    "Counted from the verdicts above; nothing was run again. Where the two select the same it is taken, else "
    "the full read decides, in the first one’s order. Tokens: of both verdicts and of those full reads, as a "
    "share of full reads alone. At random: the better of the two alone, with as many full reads at random as "
    "the same tokens buy. The best of many pairs flatters: look at it again on other problems."
)
HEADS = (
    "first verdict", "second verdict", "read densely", "selects as the full read", "tokens", "better alone",
    "its tokens", "at random",
)  # fmt: skip


def gate_words(judged: Judged) -> Markup:
    """The results of all pairs of verdicts on one problem, and the cheapest that ends as the full read."""
    lines = _lines(judged)
    if not lines:
        return html("Reading densely where two verdicts disagree: {}", NONE)
    disagreements, unchanged = sum(x.dense.value > 0 for x in lines), [x for x in lines if not x.flips]
    sentence = html(
        "Reading densely where two verdicts disagree, in {} of {}, ends at the full read’s selection in {}.",
        disagreements, plural(len(lines), "pair"), len(unchanged),
    )  # fmt: skip
    if not unchanged:
        return sentence
    names, tokens = " and ".join(_names(judged, unchanged[0])), percent(unchanged[0].cost, 1)
    spares = "" if unchanged[0].cost < 1 else ", which spares nothing"
    return sentence + html(" The cheapest of these, {}, reads {} of its tokens{}.", names, tokens, spares)


def gate_panel(judged: Judged) -> Panel:
    """The pairs over a batch that end most often as the full read."""
    lines = _lines(judged)
    if not lines:
        return Panel("judge_disagreement", TITLE, html("<p>{}</p>", NONE))
    best, top = lines[0], lines[:SHOWN]
    first, second = _names(judged, best)
    finding = (
        f"Of {plural(len(lines), 'pair')}, {first} and {second} end most often as the full read: "
        f"{share_words(best.jcr)}, at {best.cost:.0%} of its tokens; the better of them alone "
        f"{best.alone:.0%}, at {best.alone_cost:.0%}."
    )
    rows = [
        (
            *_names(judged, x), share_words(x.dense), share_words(x.jcr), f"{x.cost:.0%}", f"{x.alone:.0%}",
            f"{x.alone_cost:.0%}", f"{x.at_random:.0%}",
        )
        for x in top
    ]  # fmt: skip
    body = table(HEADS, [("", rows)]) + html('<p class="kv-how">{}</p>', HOW)
    return Panel("judge_disagreement", TITLE, body, finding)


def _lines(judged: Judged) -> list[DisagreementLine]:
    """All pairs of verdicts with reuse, without oracles; those that keep most selections first, then the
    cheapest."""
    seers = {choice.label for choice in judged.request.methods if choice.name in ORACLES}
    reused = {o.method for row in judged.rows for o in row.outcomes if o.reused_tokens} - seers
    lines = [x for x in disagreement(judged) if reused >= {method for _, method in x.verdicts}]
    return sorted(lines, key=lambda x: (-x.jcr.value, x.cost))


def _names(judged: Judged, line: DisagreementLine) -> tuple[str, ...]:
    looks = method_styles(judged.labels, {choice.label: choice.name for choice in judged.request.methods})
    return tuple(f"{looks[method].name} ({order_words(order)})" for order, method in line.verdicts)
