"""The turns of one episode, as cards: what each method wrote, and its prompt in fragments by provenance."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from backend.records.agent_loop import is_final
from backend.records.prompt import Prompt
from backend.records.run import PROVENANCE, Outcome, RunRecord, ToolUse
from viz.base import format as words
from viz.base.format import milliseconds, number, percent
from viz.base.html import html, render
from viz.base.theme import MethodStyle, method_styles


def turns_html(
    outcomes: Sequence[Outcome],
    labels: Sequence[str],
    names: Mapping[str, str],
    writing: Mapping[str, str] | None = None,
    tools: Sequence[ToolUse] = (),
) -> Markup:
    """A card per turn, one column per method.

    Args:
        outcomes: of the turns that are finished, in order.
        labels: the methods', dense first; ``names`` their registry names.
        writing: each method's text of the current turn so far.
        tools: the tools' results.
    """
    looks = method_styles(labels, names)
    numbers = dict.fromkeys(o.agent for o in outcomes)
    turns = [
        (t, _cells([o for o in outcomes if o.agent == t], labels, looks, [u for u in tools if u.agent == t]))
        for t in numbers
    ]
    if writing:
        cells = [
            {"look": looks[m], "text": text, "changed": False} for m, text in writing.items() if m in looks
        ]
        turns.append((max(numbers, default=0) + 1, cells))
    return render("pages/agent_loop_turns.html", turns=turns, provenance=PROVENANCE) if turns else Markup()


def ends_html(record: RunRecord) -> Markup:
    """How the episode ended under each method, and after how many turns."""
    looks, ends = words.styles(record), []
    for label in record.labels:
        last = [o for o in record.outcomes if o.method == label][-1]
        right = {None: "", True: " (right)", False: " (wrong)"}[last.correct]
        end = (
            f"answers {words.clip(last.answer, 48)}{right}"
            if is_final(last) and last.answer
            else "gives no answer"
        )
        ends.append(f"{looks[label].name} {end} after {words.plural(last.agent, 'turn')}")
    return html('<strong class="kv-verdict-head">{}.</strong>', "; ".join(ends))


def fragments_html(record: RunRecord, turn: int) -> Markup:
    """The prompt of a turn under every method, each fragment marked by where its cache came from."""
    looks = words.styles(record)
    lanes = [
        (looks[o.method], _fragments(o, words.prompt_of(record, o)))
        for o in record.outcomes
        if o.agent == turn
    ]
    return render("pages/agent_loop_fragments.html", lanes=lanes, provenance=PROVENANCE)


def fragments_finding(record: RunRecord, turn: int) -> str:
    """How much of a turn's prompt came from a cache, in a sentence."""
    looks = words.styles(record)
    of_turn = [o for o in record.outcomes if o.agent == turn and o.method != words.dense_label(record)]
    shares = [f"{looks[o.method].name} {percent(o.copied_tokens, o.actions.shape[1])}" for o in of_turn]
    return f"Tokens from a cache: {words.listing(shares)}." if shares else "The full read alone was run."


def _cells(
    outcomes: Sequence[Outcome],
    labels: Sequence[str],
    looks: Mapping[str, MethodStyle],
    tools: Sequence[ToolUse],
) -> list[dict[str, Any]]:
    """Each method's text in a turn, its tool's result, and its cost."""
    dense = next((o for o in outcomes if o.method == labels[0]), None)
    texts = {use.method: use.text for use in tools}
    # pinned: all read the result of dense's call, also if their own call would have another
    shared = tools[0].text if len(tools) == 1 else ""
    return [
        {
            "look": looks[o.method],
            "fragments": _fragments(o),
            "text": o.text,
            "changed": not (dense is None or o is dense or o.text == dense.text),
            "observed": "" if is_final(o) else words.clip(texts.get(o.method, shared), 200),
            "borrowed": bool(shared) and dense is not None and o.text != dense.text,
            "badges": _badges(o, dense),
        }
        for o in outcomes
    ]


def _badges(outcome: Outcome, dense: Outcome | None) -> list[str]:
    total = outcome.actions.shape[1]
    out = [f"{percent(outcome.copied_tokens, total)} of {total:,} tokens reused"]
    first = outcome.timing.ttft_ms
    cached, full = (milliseconds(t) for t in (first - outcome.timing.parts_ms.get("base", 0.0), first))
    out += [f"TTFT {full}"] if cached == full else [f"TTFT {cached} once cached", f"{full} first time"]
    if outcome.fidelity is not None and outcome is not dense:
        out.append(f"KL {number(outcome.fidelity.kl_first, 2)} nats")
    return out


def _fragments(outcome: Outcome, prompt: Prompt | None = None) -> list[tuple[str, int, str, str]]:
    """The prompt's fragments in order: provenance, tokens, reason, and the text if a prompt is given."""
    return [
        (
            s.provenance or "computed",
            s.end - s.start,
            s.reason,
            "".join(prompt.texts[s.start : s.end]) if prompt else "",
        )
        for s in outcome.spans
    ]
