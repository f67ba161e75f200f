"""One judged problem: the selection under every order and method, and the slots that the judge took.

Selections are candidates' numbers, independent of their slots. All are compared with dense in the same order
(judge study, Section 5), since dense itself depends on the order.
"""

from collections import Counter
from collections.abc import Mapping

from markupsafe import Markup

from backend.records.judge import Change, JudgedProblem, JudgeOutcome, JudgeRequest
from viz.base.format import clip, listing, order_words, percent, plural
from viz.base.html import html, joined, render
from viz.base.theme import MethodStyle, method_styles
from viz.run.verdict import Tone

SLOTS = 6  # colours of candidates
ORACLES = ("oracle", "oracle_k")  # they use dense's cache, so they are no repair


def looks_of(row: JudgedProblem, request: JudgeRequest) -> dict[str, MethodStyle]:
    """Every method of a row, dense first, in its look."""
    labels = tuple(dict.fromkeys(o.method for o in row.outcomes))
    return method_styles(labels, {choice.label: choice.name for choice in request.methods})


def orders_of(row: JudgedProblem) -> dict[str, dict[str, JudgeOutcome]]:
    """Outcomes by order and method, in the order of judging."""
    by_order: dict[str, dict[str, JudgeOutcome]] = {}
    for outcome in row.outcomes:
        by_order.setdefault(outcome.order, {})[outcome.method] = outcome
    return by_order


def slot_words(row: JudgedProblem, label: str) -> str:
    """An order's name, with the candidate in each slot, since a judge writes the slot's number."""
    layout = next(o.layout for o in row.outcomes if o.order == label)
    return f"{order_words(label)} (slots hold {' '.join(map(str, layout))})"


def selection_words(outcome: JudgeOutcome) -> str:
    """What was selected: ``candidate 2``, ``none``, or that it cannot be read."""
    if outcome.selected is None:
        return "nothing readable"
    if outcome.selected == (0,):
        return "none of them"
    word = "candidate" if len(outcome.selected) == 1 else "candidates"
    return f"{word} {listing(map(str, outcome.selected))}"


def tone(row: JudgedProblem) -> Tone:
    """Whether any method differs from dense, in the selection beyond a near tie or in the final answer
    alone."""
    changes = [o for o in row.outcomes if o.consistent is False]
    if any(not o.near_tie for o in changes) or any(o.consistent and not o.same_answer for o in row.outcomes):
        return "changed"
    any_same = any(o.consistent for o in row.outcomes if o.method != _dense(row))
    return "unclear" if changes or not any_same else "same"


def sentence(row: JudgedProblem, request: JudgeRequest) -> Markup:
    """Whether reuse changed the verdict, in a sentence."""
    looks, orders, dense = looks_of(row, request), orders_of(row), _dense(row)
    changed: dict[str, list[JudgeOutcome]] = {}
    for outcome in row.outcomes:
        if outcome.consistent is False:
            changed.setdefault(outcome.method, []).append(outcome)
    others = [label for label in looks if label != dense]
    if not others:
        return _head(
            f"The full read selects {_selections(row, dense)}. Choose a method to see what reuse changes."
        )
    if request.protocol == "rewriting":
        return _rewritten(looks, orders, dense)
    if all(by[dense].selected is None for by in orders.values()):
        reason = listing(dict.fromkeys(by[dense].failure or "no selection" for by in orders.values()))
        return _head(
            f"The full read’s own verdict cannot be read ({reason}), so consistency is undefined.",
            "The text is below. Another question or criterion may help.",
        )
    equal = [label for label in others if label not in changed]
    other = [o for o in row.outcomes if o.consistent and not o.same_answer]
    if not changed and other:
        example = other[0]
        was = orders[example.order][dense]
        names = _names(looks, list(dict.fromkeys(o.method for o in other)))
        return _head(
            f"The selection held, but {names} gave another final answer: {_answer(example)} where the full "
            f"read says {_answer(was)} ({order_words(example.order)})."
        )
    if not changed:
        return _head(
            f"Nothing changed: {_names(looks, equal)} select{'s' if len(equal) == 1 else ''} what the full "
            f"read does in {_orders(len(orders))}: {_selections(row, dense)}."
        )
    first = next(iter(changed.values()))[0]
    was = orders[first.order][dense]
    subject = "" if len(changed) == 1 else f"{looks[first.method].name} took "
    head = (
        f"{_names(looks, list(changed))} changed the selection: {subject}{selection_words(first)} instead of "
        f"{selection_words(was)}"
    )
    if len(orders) > 1:
        head += f" ({order_words(first.order)})"
    notes = [_change_words([o for outcomes in changed.values() for o in outcomes])]
    if equal:
        any_reused = any(o.reused_tokens for o in row.outcomes if o.method in equal)
        notes.append(f"Kept by {_names(looks, equal)}{'.' if any_reused else ', which reused nothing.'}")
    same = [o for outcomes in changed.values() for o in outcomes if o.same_answer]
    if same and request.protocol != "selection":  # there, no answer is given
        total = plural(sum(map(len, changed.values())), "change")
        notes.append(
            f"The final answer stayed the full read’s in {len(same)} of {total}: the verdict can change "
            "while the answer does not."
        )
    ties = sum(o.near_tie for outcomes in changed.values() for o in outcomes)
    if ties:
        notes.append(
            f"{plural(ties, 'of them is a near tie', 'of them are near ties')}: rounding alone could do it."
        )
    return _head(head + ".", *notes)


def _change_words(changed: list[JudgeOutcome]) -> str:
    """What the changed selections took: no candidate, another one, or unreadable."""
    counts = Counter(o.change for o in changed)
    words: dict[Change, str] = {
        "none": "took none of them", "another": "took another candidate", "unread": "cannot be read",
    }  # fmt: skip
    phrases = [f"{counts[change]} {words[change]}" for change in words if counts[change]]
    return f"Of {plural(len(changed), 'changed selection')}, {listing(phrases)}."


def _rewritten(
    looks: Mapping[str, MethodStyle], orders: Mapping[str, Mapping[str, JudgeOutcome]], dense: str
) -> Markup:
    """The sentence for judges that write their own answer and select none."""
    changed = [
        (o, by[dense])
        for by in orders.values()
        for o in by.values()
        if o.method != dense and not o.same_answer
    ]
    if not changed:
        return _head(
            f"Nothing changed: every method writes the full read’s answer in {_orders(len(orders))}.",
            "The judge selects none.",
        )
    names = _names(looks, list(dict.fromkeys(o.method for o, _ in changed)))
    outcome, was = changed[0]
    return _head(
        f"{names} changed the answer: {_answer(outcome)} where the full read writes {_answer(was)} "
        f"({order_words(outcome.order)}). The judge selects none."
    )


def baseline(row: JudgedProblem) -> Markup:
    """How dense itself depends on the order, in a sentence."""
    dense, orders = _dense(row), orders_of(row)
    selections = [by[dense].selected for by in orders.values()]
    if all(c is None for c in selections) and len({by[dense].answer for by in orders.values()}) == 1:
        return html("The full read itself writes the same answer in {}.", _orders(len(orders)))
    if len(orders) < 2:
        return Markup(
            "Only one order was judged. Add shuffled ones to see whether the full read keeps its own mind."
        )
    readable = [c for c in selections if c is not None]
    distinct = len(set(readable))
    if not readable:
        return Markup("The full read’s selection could not be read in any order.")
    if distinct == 1:
        return html(
            "The full read itself keeps its selection in all of {} that can be read.",
            plural(len(readable), "order"),
        )
    return html(
        "The full read itself is sensitive to the order: {} different selections in {}. Consistency is with "
        "the full read <em>in the same order</em>.",
        distinct,
        plural(len(readable), "order"),
    )


def remedy(row: JudgedProblem, request: JudgeRequest) -> Markup:
    """The cheapest method that keeps dense's selection, in a sentence."""
    looks, dense = looks_of(row, request), _dense(row)
    oracles = [choice.label for choice in request.methods if choice.name in ORACLES]
    candidates = []
    for label in looks:
        if label in oracles:
            continue
        outcomes = [o for o in row.outcomes if o.method == label and o.consistent is not None]
        reused_tokens = sum(o.reused_tokens for o in outcomes)
        if label != dense and outcomes and reused_tokens:
            same = sum(bool(o.consistent) for o in outcomes)
            share = sum(o.forwarded_tokens for o in outcomes) / max(1, sum(o.prompt_tokens for o in outcomes))
            candidates.append((-same / len(outcomes), share, label, same, len(outcomes)))
    if not candidates:
        return Markup(
            "Nothing was reused, so there is nothing to repair. KVCOMM’s pools may need more problems first."
        )
    _, share, label, same, count = min(candidates)
    name, orders, tokens = looks[label].name, plural(count, "order"), percent(share, 1)
    if same < count:
        nearest = html(" {} comes nearest: {} of {}, reading {} of the tokens.", name, same, orders, tokens)
        return html(
            "Nothing that reused keeps the full read’s selection in {}.{}{}",
            "every order" if same else f"any of {orders}", nearest if same else "", _readers(row, looks),
        )  # fmt: skip
    return html(
        "{} keeps the full read’s selection in {} of {} while reading {} of the tokens; it is the cheapest "
        "of those that keep most.", name, same, orders, tokens,
    )  # fmt: skip


def _readers(row: JudgedProblem, looks: Mapping[str, MethodStyle]) -> str:
    """The methods that reused nothing, in a sentence; they are no repair."""
    reused = {o.method for o in row.outcomes if o.reused_tokens}
    names = [look.name for label, look in looks.items() if label not in reused and label != _dense(row)]
    if not names:
        return ""
    verb = "it reads" if len(names) == 1 else "they read"
    return f" {listing(names)} reused nothing here: {verb} as much as the full read, which is no repair."


def grid_html(row: JudgedProblem, request: JudgeRequest) -> Markup:
    """Orders by methods."""
    looks = looks_of(row, request)
    return render(
        "judge/verdict_grid.html",
        looks=looks,
        orders=[(order_words(label), by) for label, by in orders_of(row).items()],
        dense=_dense(row),
        counts=_counts(row, looks),
        slots=SLOTS,
    )


def picks_html(row: JudgedProblem, request: JudgeRequest) -> Markup:
    """How often each slot was taken, over the orders."""
    looks = looks_of(row, request)
    picks_by_label = {label: _picks(row, label) for label in looks}
    orders = len(orders_of(row))
    return render(
        "judge/picks.html",
        rows=[(look, picks_by_label[label]) for label, look in looks.items()],
        most=max((n for picks in picks_by_label.values() for n in picks.values()), default=0),
        slots=len(row.problem.candidates),
        favourite=_favourite(picks_by_label, looks, orders),
        orders=orders,
    )


def _picks(row: JudgedProblem, label: str) -> Counter[int | None]:
    picks: Counter[int | None] = Counter()
    for outcome in row.outcomes:
        if outcome.method == label:
            picks.update([None] if outcome.slots is None else outcome.slots)
    return picks


def _favourite(
    picks_by_label: Mapping[str, Counter[int | None]], looks: Mapping[str, MethodStyle], orders: int
) -> str:
    label = next(iter(picks_by_label))
    picks = Counter({k: n for k, n in picks_by_label[label].items() if k})
    if not picks:
        return f"{looks[label].name} took no slot."
    (slot, times), *others = picks.most_common()
    if others and others[0][1] == times:
        return f"{looks[label].name} took no slot more often than any other."
    often = f"{plural(times, 'time')} in {plural(orders, 'order')}"
    return f"{looks[label].name} took slot {slot} most often: {often}."


def _counts(row: JudgedProblem, looks: Mapping[str, MethodStyle]) -> str:
    dense = _dense(row)
    phrases = []
    for label, look in looks.items():
        outcomes = [o for o in row.outcomes if o.method == label and o.consistent is not None]
        if label != dense and outcomes:
            none_count = sum(o.change == "none" for o in outcomes)
            took = f" (none taken in {none_count})" if none_count else ""
            note = "" if any(o.reused_tokens for o in outcomes) else " (reused nothing)"
            phrases.append(
                f"{look.name} {sum(bool(o.consistent) for o in outcomes)} of {len(outcomes)}{took}{note}"
            )
    if not phrases:
        return f"{plural(len(row.outcomes), 'verdict')}."
    return f"Selections equal to the full read’s in the same order: {listing(phrases)}."


def _answer(outcome: JudgeOutcome) -> str:
    return clip(outcome.answer, 32) if outcome.answer else "none"


def _dense(row: JudgedProblem) -> str:
    return row.outcomes[0].method


def _selections(row: JudgedProblem, label: str) -> str:
    """What a method selects over the orders, each selection once."""
    outcomes = [o for o in row.outcomes if o.method == label]
    return listing(dict.fromkeys(map(selection_words, outcomes)))


def _names(looks: Mapping[str, MethodStyle], labels: list[str]) -> str:
    if len(labels) == len(looks) - 1 and len(labels) > 2:
        return f"all {len(labels)} methods"
    return listing(looks[label].name for label in labels)


def _orders(count: int) -> str:
    return "this order" if count == 1 else f"all {count} orders"


def _head(sentence: str, *rest: str) -> Markup:
    tail = joined(html(' <span class="kv-verdict-rest">{}</span>', r) for r in rest)
    return html('<strong class="kv-verdict-head">{}</strong>{}', sentence[:1].upper() + sentence[1:], tail)
