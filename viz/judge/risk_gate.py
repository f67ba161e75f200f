"""Can it be known beforehand that reuse keeps the verdict? (judge study, Fig. 6)"""

from typing import Any

import numpy as np

from backend.records.risk import GateTest, RiskRecord, reliability, roc, trade
from backend.records.risk_gate import EVERY, OWN_FEATURES, TEXT_FEATURES
from viz.base.figure import FigureView, empty_view, figure, interval
from viz.base.format import listing, number, percent, plot_text, plural
from viz.base.theme import DASHES, SYMBOLS, method_styles

BARE = "#8b95a1"  # without a gate
EVERY_COLOUR = "#8b95a1"
PAPER_AUC = 0.82


def views(record: RiskRecord) -> tuple[FigureView, ...]:
    """The figures of a training."""
    return (roc_view(record), calibration_view(record), trade_view(record), weights_view(record))


def _looks(record: RiskRecord) -> dict[str, dict[str, Any]]:
    """Line, marker and name of each target."""
    styles = method_styles(("dense", *record.methods))
    out: dict[str, dict[str, Any]] = {}
    for index, test in enumerate(record.tests):
        style = styles.get(test.target)
        out[test.target] = {
            "name": plot_text("safe under every method" if style is None else style.name),
            "line": {
                "color": style.colour if style else EVERY_COLOUR,
                "width": 2 if style else 3,
                "dash": DASHES[index % len(DASHES)],
            },
            "marker": {"size": 6, "symbol": SYMBOLS[index % len(SYMBOLS)]},
        }
    return out


def _tests(record: RiskRecord) -> list[GateTest]:
    return [test for test in record.tests if test.gate is not None]


def _refusal(record: RiskRecord) -> str:
    return "No gate could be trained. " + listing(f"{t.target}: {t.refused}" for t in record.tests)


def _exclusions(record: RiskRecord) -> str:
    left_out = [t.target for t in record.tests if t.gate is None]
    return f" Nothing to learn for {listing(left_out)}: too few sets of one kind." if left_out else ""


def roc_view(record: RiskRecord) -> FigureView:
    """Receiver operating characteristic of every target, on held-out problems."""
    title = "Can a gate tell beforehand which verdicts survive reuse?"
    columns = (
        "gate",
        "threshold no.",
        "unsafe kept (share)",
        "safe kept (share)",
        "AUC",
        "95% from",
        "95% to",
    )
    tests, looks = _tests(record), _looks(record)
    if not tests:
        return empty_view("risk_roc", title, _refusal(record), columns)
    drawing = figure(360)
    drawing.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", name="guessing", hoverinfo="skip",
        line={"color": BARE, "width": 1, "dash": "dot"},
    )  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    for test in tests:
        false, true = roc(test.score[test.asked], test.safe[test.asked])
        look = looks[test.target] | {"name": f"{looks[test.target]['name']} (AUC {test.auc:.2f})"}
        drawing.add_scatter(
            x=false, y=true, mode="lines",
            hovertemplate="unsafe kept %{x:.0%}, safe kept %{y:.0%}<extra></extra>",
            **{k: v for k, v in look.items() if k != "marker"},
        )  # fmt: skip
        rows += [
            (test.target, i, *(round(float(v), 6) for v in (x, y, test.auc, test.auc_low, test.auc_high)))
            for i, (x, y) in enumerate(zip(false, true, strict=True))
        ]
    share = {"range": [-0.02, 1.02], "tickformat": ".0%"}
    drawing.update_layout(
        xaxis=share | {"title": "unsafe sets that would be kept"},
        yaxis=share | {"title": "safe sets that would be kept"},
    )
    areas = [f"{looks[t.target]['name']} {t.auc:.2f} ({t.auc_low:.2f} to {t.auc_high:.2f})" for t in tests]
    finding = f"AUC with its 95% interval: {listing(areas)}.{_exclusions(record)}"
    count = len(record.problems)
    how = (
        "0.5 is guessing, 1 is perfect; the further up and left a line, the better. "
        f"{plural(count, 'candidate set')} of {plural(len(set(record.problems)), 'problem')}, each scored by "
        f"a gate that did not see its problem; the paper reports {PAPER_AUC} for every method at once."
    )
    return FigureView("risk_roc", title, how, finding, drawing, columns, tuple(rows))


def calibration_view(record: RiskRecord) -> FigureView:
    """Predicted probability against the share that was safe."""
    title = "Does a risk score mean what it says?"
    columns = ("gate", "mean score", "safe (share)", "95% from", "95% to", "sets")
    tests, looks = _tests(record), _looks(record)
    if not tests:
        return empty_view("risk_calibration", title, _refusal(record), columns)
    drawing = figure(340)
    drawing.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", name="as it says", hoverinfo="skip",
        line={"color": BARE, "width": 1, "dash": "dot"},
    )  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    furthest = 0.0
    for test in tests:
        groups = reliability(test.score[test.asked], test.safe[test.asked])
        furthest = max(furthest, float(np.abs(groups.score - groups.share).max()))
        drawing.add_scatter(
            x=groups.score, y=groups.share, mode="lines+markers", customdata=groups.sets,
            error_y=interval(groups.share, groups.low, groups.high),
            hovertemplate="score %{x:.2f}: %{y:.0%} of %{customdata} sets safe<extra></extra>",
            **looks[test.target],
        )  # fmt: skip
        rows += [
            (
                test.target,
                *(round(float(v[i]), 6) for v in (groups.score, groups.share, groups.low, groups.high)),
                int(groups.sets[i]),
            )
            for i in range(len(groups.sets))
        ]  # fmt: skip
    drawing.update_layout(
        xaxis={"title": "mean score of a group (probability of safe)", "range": [-0.02, 1.02]},
        yaxis={"title": "share that was safe", "range": [-0.02, 1.02], "tickformat": ".0%"},
    )
    finding = f"The furthest group is {number(100 * furthest, 2)} points off its score.{_exclusions(record)}"
    how = (
        "Sets in groups of equal size by score; on the dotted line, 0.8 means safe in 80% of cases. Bars are "
        "95% intervals."
    )
    return FigureView("risk_calibration", title, how, finding, drawing, columns, tuple(rows))


def trade_view(record: RiskRecord, threshold: float | None = None, gate: str = EVERY) -> FigureView:
    """Reuse against consistency, as the threshold of one gate falls, for every method.

    Args:
        record: a training.
        threshold: to mark on the lines; by default the gate's own.
        gate: ``EVERY``, or a method's label, whose gate decides for that method alone.
    """
    title = "How much reuse can be kept for how much consistency?"
    columns = (
        "gate", "method", "threshold", "sets kept (share)", "tokens copied (share)", "JCR", "95% from",
        "95% to",
    )  # fmt: skip
    test = next((t for t in record.tests if t.target == gate), record.tests[0])
    if test.gate is None:
        return empty_view("risk_trade", title, test.refused or _refusal(record), columns)
    limit = test.gate.threshold if threshold is None else threshold
    looks, drawing = _looks(record), figure(380)
    rows: list[tuple[Any, ...]] = []
    sentences = []
    for index, method in enumerate(record.methods):
        if test.target not in (EVERY, method):
            continue
        curve = trade(test.score, record.same[:, index], record.copied[:, index])
        look = looks[method]
        drawing.add_scatter(
            x=curve.copied, y=curve.consistency, mode="lines", legendgroup=method,
            customdata=curve.threshold,
            hovertemplate="threshold %{customdata:.2f}: %{x:.0%} copied, JCR %{y:.1%}<extra></extra>",
            **{k: v for k, v in look.items() if k != "marker"},
        )  # fmt: skip
        drawing.add_scatter(
            x=[0, float(curve.copied[-1])], y=[1, float(curve.consistency[-1])], mode="lines",
            line={"color": look["line"]["color"], "width": 1, "dash": "dot"}, legendgroup=method,
            showlegend=False, hoverinfo="skip",
        )  # fmt: skip
        at = int(np.flatnonzero(curve.threshold >= limit)[-1])
        drawing.add_scatter(
            x=[float(curve.copied[at])], y=[float(curve.consistency[at])], mode="markers",
            marker=look["marker"] | {"size": 11, "color": look["line"]["color"]}, legendgroup=method,
            showlegend=False,
            hovertemplate=f"threshold {limit:.2f}: %{{x:.0%}} copied, JCR %{{y:.1%}}<extra></extra>",
            error_y=interval(*([float(x[at])] for x in (curve.consistency, curve.low, curve.high))),
        )  # fmt: skip
        sentences.append(
            f"{look['name']} copies {percent(float(curve.copied[at]), 1)} of the tokens at JCR "
            f"{percent(float(curve.consistency[at]), 1)} (without a gate "
            f"{percent(float(curve.copied[-1]), 1)} at {percent(float(curve.consistency[-1]), 1)})"
        )
        arrays = (curve.threshold, curve.kept, curve.copied, curve.consistency, curve.low, curve.high)
        rows += [
            (test.target, method, *(round(float(v[i]), 6) for v in arrays)) for i in range(len(curve.kept))
        ]
    drawing.update_layout(
        xaxis={"title": "prompt tokens copied", "tickformat": ".0%", "rangemode": "tozero"},
        yaxis={"title": "JCR (selection as full read’s)", "tickformat": ".0%"},
    )
    finding = f"At threshold {limit:.2f}, {listing(sentences)}."
    how = (
        "A set that the gate refuses is read in full and then agrees with the full read. Left: keep nothing; "
        "right: keep all. Above the dotted line the gate does better than refusing at random. The threshold "
        "was chosen on these very sets, so expect a little less on new ones."
    )
    return FigureView("risk_trade", title, how, finding, drawing, columns, tuple(rows))


def weights_view(record: RiskRecord) -> FigureView:
    """The gates' weights by feature."""
    title = "What does the gate go by?"
    columns = ("gate", "feature", "meaning", "weight", "mean", "spread")
    tests, looks = _tests(record), _looks(record)
    if not tests:
        return empty_view("risk_weights", title, _refusal(record), columns)
    words = TEXT_FEATURES | OWN_FEATURES
    rows: list[tuple[Any, ...]] = []
    for test in tests:
        assert test.gate is not None
        gate = test.gate
        rows += [
            (test.target, name, words.get(name, name), round(weight, 6), round(mean, 6), round(scale, 6))
            for name, weight, mean, scale in zip(
                gate.features, gate.weight, gate.mean, gate.scale, strict=True
            )
        ]
    largest = {name: max(abs(r[3]) for r in rows if r[1] == name) for name in {r[1] for r in rows}}
    order = sorted(largest, key=lambda name: largest[name])
    drawing = figure(110 + 26 * len(order), margin={"l": 300})
    for test in tests:
        weights = {r[1]: r[3] for r in rows if r[0] == test.target}
        drawing.add_scatter(
            x=[weights[n] for n in order if n in weights],
            y=[plot_text(words.get(n, n)) for n in order if n in weights],
            mode="markers", name=looks[test.target]["name"],
            marker=looks[test.target]["marker"] | {"size": 9, "color": looks[test.target]["line"]["color"]},
            hovertemplate="%{y}: %{x:.2f}<extra></extra>",
        )  # fmt: skip
    drawing.add_vline(x=0, line={"width": 1, "dash": "dot", "color": BARE})
    drawing.update_layout(
        xaxis={"title": "weight (change of the log odds of safe per standard deviation)"},
        yaxis={"categoryorder": "array", "categoryarray": [plot_text(words.get(n, n)) for n in order]},
    )
    top = max((r for r in rows if r[0] == tests[0].target), key=lambda r: abs(r[3]))
    sign = "safer" if top[3] > 0 else "riskier"
    finding = f"For {looks[top[0]]['name']}, the largest weight says: the more of “{top[2]}”, the {sign}."
    how = "Right of zero speaks for safe, left against. Features that go together share their weight."
    return FigureView("risk_weights", title, how, finding, drawing, columns, tuple(rows))
