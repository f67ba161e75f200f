"""Small pieces of HTML of the page's own: top bar, status line, messages. Everything is escaped here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backend.prompts.pipeline import Agent, Pipeline
from backend.prompts.presets import Example, Preset
from backend.records.anchor_cost import AnchorCost
from backend.records.offsets import OffsetStudy
from backend.records.proximity import ProximityRecord
from backend.records.replay import Replay
from backend.records.run import Certificate, ModelInfo, PoolState
from backend.studies.gallery import GalleryEntry
from lab_app.pages.pipeline.form import Standing
from lab_app.ui import text
from viz.base.format import clip, escape, listing, milliseconds, number, plural, size
from viz.base.glossary import term
from viz.run.agent_graph import graph_svg
from viz.run.placeholder_pills import pill, template_html, weights_label

#: The name's mark, a small strip: x, y, width, colour.
CELLS = (
    (0, 0, 7, 0),
    (8.5, 0, 17.5, 0),
    (0, 7, 7, 0),
    (8.5, 7, 9, 1),
    (19, 7, 7, 2),
    (0, 14, 13, 1),
    (14.5, 14, 11.5, 3),
)
MOST_NODES = 12  # of a graph: more agents in all turns are drawn once
MARK = (
    '<svg class="kv-mark" viewBox="0 0 26 20" aria-hidden="true">'
    + "".join(f'<rect class="m{c}" x="{x}" y="{y}" width="{w}" height="5"/>' for x, y, w, c in CELLS)
    + "</svg>"
)
BENCH_ICON = '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M1.5 2.5h13v11h-13zM6 2.5v11"/></svg>'
LESSON_ICON = (
    '<svg viewBox="0 0 16 16" aria-hidden="true">'
    '<path d="M1.5 3.5q4-1.5 6.5.5 2.5-2 6.5-.5v9q-4-1.5-6.5.5-2.5-2-6.5-.5zM8 4v9"/></svg>'
)
THEME_ICON = (
    '<svg viewBox="0 0 16 16" aria-hidden="true"><circle cx="8" cy="8" r="6"/>'
    '<path class="kv-fill" d="M8 2a6 6 0 0 1 0 12z"/></svg>'
)


def short_count(count: int) -> str:
    """4.4 M, 7.6 B."""
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= limit:
            return f"{number(count / limit, 2)} {unit}"
    return str(count)


def topbar(info: ModelInfo | None, limits: Sequence[str] = ()) -> str:
    """Name, model chip with its certificate and the lab's limits, theme switch."""
    chip = '<span class="kv-chip">loading the model</span>' if info is None else model_chip(info, limits)
    return (
        '<header class="kv-topbar">'
        '<button type="button" class="kv-icon-button" data-kv="bench" aria-label="Show or hide the bench" '
        f'aria-expanded="true" aria-controls="kv-bench">{BENCH_ICON}<span>Bench</span></button>'
        f'<h1 class="kv-brand">{MARK}<span>{text.NAME}</span></h1><p class="kv-tagline">{text.TAGLINE}</p>'
        f'<div class="kv-topbar-end">{chip}'
        '<button type="button" class="kv-icon-button kv-lesson-button" data-kv="lesson" aria-pressed="false" '
        f'title="{text.LESSON_HELP}">{LESSON_ICON}<span>{text.LESSON}</span></button>'
        '<button type="button" class="kv-icon-button" data-kv="theme" '
        f'aria-label="Switch between light and dark">{THEME_ICON}</button></div></header>'
    )


def model_chip(info: ModelInfo, limits: Sequence[str] = ()) -> str:
    """The model in one line; opens its certificate."""
    sound = info.certificate.relocatable
    badge = "keys can be moved" if sound else "keys cannot be moved"
    mark = "✓" if sound else "✗"
    shape = f"{short_count(info.parameters)} · {info.device} · {info.dtype}"
    name = "embedded model" if info.name == "embedded" else clip(info.name.rstrip("/").split("/")[-1], 32)
    return (
        f'<details class="kv-model"><summary title="Open the model\'s certificate">'
        f'<span class="kv-chip"><b>{escape(name)}</b>'
        f'<span class="kv-chip-facts">{escape(shape)}</span>'
        f'<span class="kv-cert {"kv-good" if sound else "kv-bad"}">{mark} {badge}</span></span></summary>'
        f'<div class="kv-popover">{facts(info)}{certificate(info.certificate)}'
        f"{stated(limits)}</div></details>"
    )


def stated(limits: Sequence[str]) -> str:
    """The lab's limits as a list."""
    items = "".join(f"<li>{escape(limit[0].upper() + limit[1:])}</li>" for limit in limits)
    return f"<h3>{text.LIMITS_TITLE}</h3><ul>{items}</ul>" if items else ""


def facts(info: ModelInfo) -> str:
    """The model's shape as a list."""
    rows = (
        ("Parameters", f"{info.parameters:,}"),
        (
            "Layers, heads",
            f"{info.layers} layers, {info.heads} heads, {info.kv_heads} KV heads of {info.head_dim}",
        ),
        ("Context", f"{info.context_tokens:,} tokens, vocabulary {info.vocabulary:,}"),
        ("Cache", f"{size(info.kv_bytes_per_token)} per token"),
        ("Weights", info.weights_hash[:16]),
    )
    return '<dl class="kv-facts">' + "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in rows) + "</dl>"


def certificate(found: Certificate) -> str:
    """The certificate: what shifting a text by some positions does to its keys and values, per layer."""
    rows = "".join(
        f"<tr><td>{index}</td><td>{layer.kind}</td><td>{number(layer.key_error, 2)}</td>"
        f"<td>{number(layer.value_error, 2)}</td></tr>"
        for index, layer in enumerate(found.layers)
    )
    return (
        f"<h3>{term('certificate', 'Certificate')}</h3><p>{escape(found.reason)}</p>"
        f"<p>Found by moving a text by {found.shift_tokens} positions. "
        f"{term('numerical floor', 'Numerical floor')}: {number(found.floor, 2)} relative, "
        f"{number(found.logit_floor, 2)} in logits.</p>"
        '<div class="kv-scroll"><table class="kv-table"><thead><tr><th>layer</th><th>kind</th>'
        "<th>key error</th>"
        f"<th>value error</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def scenario(preset: Preset) -> str:
    """One sentence on the scenario, and what it needs."""
    needs = (
        ""
        if preset.model == "embedded"
        else f" Needs a model with {preset.needs_context:,} tokens of context."
    )
    return f'<p class="kv-help">{escape(preset.pipeline.summary)}{needs}</p>'


def bench(pipeline: Pipeline, counts: Mapping[int, int]) -> dict[str, Any]:
    """Graph, cards and pills that follow from the pipeline."""
    turns = pipeline.unrolled
    shown = turns if len(turns.agents) <= MOST_NODES else pipeline
    update: dict[str, Any] = {"graph": graph_svg(shown), "agents": len(pipeline.agents)}
    for slot, agent in enumerate(pipeline.agents):
        update[f"head_{slot}"] = card_head(agent, counts.get(agent.id))
        update[f"pills_{slot}"] = (
            f'<p class="kv-help">{escape(agent.role)}</p>{template_html(pipeline, agent.id)}'
        )
        warned = f'<p class="kv-notice">{text.WEIGHTS_WARNING}</p>' if agent.model else ""
        update[f"weights_note_{slot}"] = warned
    return update


def card_head(agent: Agent, tokens: int | None) -> str:
    """An agent's card in one line. The box opens it; its state lives in the browser."""
    count = f'<span class="kv-agent-count">{plural(tokens, "token")}</span>' if tokens is not None else ""
    name = escape(agent.name)
    return (
        f'<label class="kv-agent-head"><input type="checkbox" class="kv-agent-open" '
        f'aria-label="Edit the prompt of {name}">'
        f'<span class="kv-step">{agent.id}</span><span class="kv-agent-name">{name}</span>'
        f"{weights_label(agent.model)}{count}"
        '<svg viewBox="0 0 10 10" aria-hidden="true"><path d="M2 3.5 5 6.5 8 3.5"/></svg></label>'
    )


def label(name: str) -> str:
    """What a value box is called."""
    words = {"user_question": "question"}.get(name, name.replace("_", " "))
    return words[:1].upper() + words[1:]


def known(example: Example | None, values: Mapping[str, str]) -> str:
    """The known answer, while the request is still the one of the set."""
    if example is None or example.answer is None:
        return ""
    if any(values.get(name) != value for name, value in example.values.items()):
        return '<p class="kv-help">Edited: no known answer, so nothing is scored.</p>'
    return f'<p class="kv-help">Known answer: <b class="kv-num">{escape(clip(example.answer, 24))}</b></p>'


def gallery_note(entry: GalleryEntry | None, unchanged: bool, same_weights: bool) -> str:
    """What was found for the checked example on the bench, and whether it still holds here."""
    said = "" if same_weights else f'<p class="kv-help">{text.OTHER_WEIGHTS}</p>'
    if entry is None:
        return said
    if not unchanged:
        return f'<p class="kv-help">{text.NO_LONGER_CHECKED}</p>{said}'
    dense, reused = (
        f'<b class="kv-num">{escape(clip(a or text.NO_ANSWER, 48))}</b>' for a in (entry.dense, entry.reused)
    )
    both = f"Checked: dense and reuse both answer {dense}."
    apart = f"Checked: dense answers {dense}, position-only reuse {reused}. Press Run to see it happen."
    return f'<p class="kv-help">{both if entry.effect == "harmless" else apart}</p>{said}'


def notices(hints: Sequence[str]) -> str:
    """Hints that do not stop a run."""
    return "".join(f'<p class="kv-notice">{escape(hint)}</p>' for hint in hints[:4])


def duration(seconds: float) -> str:
    """About how long."""
    if seconds < 1:
        return "under 1 s"
    return f"{number(seconds, 2)} s" if seconds < 90 else f"{number(seconds / 60, 2)} min"


def lasting(seconds: float) -> str:
    """A duration in a sentence."""
    said = duration(seconds)
    return said if said.startswith("under") else f"about {said}"


def cost(once: Any, warm: int, before: float) -> str:
    """What a run will cost; ``before``: the seconds that ``warm`` requests for the pools take, 0 if they are
    there already."""
    about = lasting(once.seconds + before)
    first = f" The pools come filled: their {plural(warm, 'request')} were computed before." if warm else ""
    if before:
        first = f" Of this, about {duration(before)} send {plural(warm, 'request')} to the pools first."
    amount = f"{size(once.bytes)}, {once.tokens:,} tokens to read."
    return f'<p class="kv-cost"><b>{about[0].upper()}{about[1:]}</b>, {amount}{first}</p>'


def pools(states: Sequence[PoolState], kept: bool) -> str:
    """How full the pools are, one line per placeholder."""
    if not kept:
        return ""
    rows: dict[str, PoolState] = {state.placeholder: state for state in states}
    if not any(state.anchors for state in rows.values()):
        return f'<p class="kv-help">{term("anchor pool", "Anchor pools")}: empty.</p>'
    items = "".join(
        f"<li><span>{escape(name)}</span>"
        f'<i style="--kv-fill:{100 * len(s.anchors) / max(1, s.capacity):.0f}%"></i>'
        f'<b class="kv-num">{len(s.anchors)}/{s.capacity}</b></li>'
        for name, s in rows.items()
    )
    title = f'<p class="kv-help">{term("anchor pool", "Anchor pools")} of this page</p>'
    return f'{title}<ul class="kv-pools">{items}</ul>'


def error(message: str) -> str:
    """A message beside its field."""
    return f'<p class="kv-problem" role="alert">{escape(message)}</p>'


def status(message: str, kind: str, done: int = 0, total: int = 0, again: bool = False) -> str:
    """The line above the results: ``running``, ``busy``, ``edited``, ``note`` or ``error``."""
    bar = f'<i class="kv-status-bar" style="--kv-fill:{100 * done / total:.1f}%"></i>' if total else ""
    button = (
        f'<button type="button" class="kv-small-button" data-kv="run">{text.AGAIN}</button>' if again else ""
    )
    role = "alert" if kind == "error" else "status"
    head = f'<div class="kv-status kv-status-{kind}" data-state="{kind}" role="{role}">'
    return f"{head}<p>{escape(message)}</p>{button}{bar}</div>"


TONES = {
    "same": "no change",
    "improved": "changed for the better",
    "changed": "changed",
    "unclear": "undecided",
}


def verdict_card(
    sentence_html: str, tone: str, points: Sequence[str], where: str, repair: str, footer: str
) -> str:
    """One look, three questions: the outcome, its source, its repair."""
    items = "".join(f"<li>{escape(point)}</li>" for point in points)
    listed = f"<ul>{items}</ul>" if items else ""
    return (
        f'<section class="kv-verdict kv-verdict-{tone}" aria-label="{text.QUESTION_1}">'
        f'<p class="kv-eyebrow">{text.QUESTION_1} <span class="kv-verdict-tone">{TONES[tone]}</span></p>'
        f'<p class="kv-verdict-sentence">{sentence_html}</p><div class="kv-answers">'
        f'<div><p class="kv-eyebrow">{text.QUESTION_2}</p><p>{where}</p></div>'
        f'<div><p class="kv-eyebrow">{text.QUESTION_3}</p><p>{repair}</p></div></div>'
        f'{listed}<p class="kv-factline">{footer}</p></section>'
    )


def empty_card(said: str = text.EMPTY_VERDICT, help_: str = text.EMPTY_HELP) -> str:
    """Before the first run."""
    return (
        f'<section class="kv-verdict kv-verdict-empty" aria-label="{text.QUESTION_1}">'
        f'<p class="kv-eyebrow">{text.QUESTION_1}</p><p class="kv-verdict-sentence">'
        f'<strong class="kv-verdict-head">{said}</strong>'
        f'<span class="kv-verdict-rest">{help_}</span></p></section>'
    )


def heading(question: str, extra: str = "") -> str:
    """A question that heads a part of the page."""
    return f'<div class="kv-heading"><h2>{question}</h2>{extra}</div>'


def measured(record: ProximityRecord, token: str) -> str:
    """What was measured, and the link that saves it."""
    asked = record.request
    facts = (
        f"The {plural(len(record.embedding), 'nearest pair')} of {plural(record.sampled, 'token')} "
        f"on {clip(record.model.name, 40)}, seed {asked.seed}, in {milliseconds(record.wall_ms)}."
    )
    return (
        f'<div class="kv-measured" data-state="measured"><p class="kv-help">{escape(facts)}</p>'
        f'<a class="kv-button" id="kv-proximity-save" href="lab/proximity/{escape(token)}" download>'
        f"{text.MEASURE_SAVE}</a></div>"
    )


def studied(record: OffsetStudy, token: str) -> str:
    """What was studied, and the link that saves it."""
    sent = f", and {plural(len(record.request.values), 'request')}" if record.request.values else ""
    prefixes = plural(len(record.prefix_tokens), "prefix", "prefixes")
    facts = (
        f"{plural(len(record.tokens), 'token')} behind {prefixes}{sent} on "
        f"{clip(record.model.name, 40)}, in {milliseconds(record.wall_ms)}."
    )
    return (
        f'<div class="kv-measured" data-state="measured"><p class="kv-help">{escape(facts)}</p>'
        f'<a class="kv-button" id="kv-study-save" href="lab/offsets/{escape(token)}" download>'
        f"{text.MEASURE_SAVE}</a></div>"
    )


def profile_note(standing: Standing) -> str:
    """What the chosen profile is, or how the boxes differ from the nearest one."""
    if standing.profile is not None:
        return f'<p class="kv-help">{escape(standing.summary)}</p>'
    some = [f"“{label}”" for label in standing.differ[:2]]
    rest = len(standing.differ) - len(some)
    said = listing([*some, f"{rest} more"] if rest else some)
    return (
        f'<p class="kv-help"><b>Your own:</b> {escape(standing.nearest.lower())}, but for {escape(said)}.</p>'
    )


def placeholders(pipeline: Pipeline) -> str:
    """The placeholders of a pipeline as pills."""
    return listing(pill(pipeline, hole.name) for hole in pipeline.placeholders)


def priced(record: AnchorCost, token: str) -> str:
    """What was measured of pools, and the link that saves it."""
    facts = (
        f"Pools of up to {plural(record.request.anchors[-1], 'anchor')} of up to "
        f"{plural(record.request.lengths[-1], 'token')} on {clip(record.model.name, 40)}, "
        f"{record.model.device}, in {milliseconds(record.wall_ms)}."
    )
    return (
        f'<div class="kv-measured" data-state="measured"><p class="kv-help">{escape(facts)}</p>'
        f'<a class="kv-button" id="kv-cost-save" href="lab/anchors/{escape(token)}" download>'
        f"{text.MEASURE_SAVE}</a></div>"
    )


def replayed(record: Replay, token: str) -> str:
    """What was replayed, what it took, what the memory holds, and the link that saves it."""
    left = f"; {record.forgotten:,} earlier ones had to leave it" if record.forgotten else ""
    encoded = f", {record.encoded_tokens:,} to encode texts otherwise" if record.encoded_tokens else ""
    facts = (
        f"The last {plural(len(record.requests), 'request')} of {record.held:,} in memory{left}, in "
        f"{milliseconds(record.wall_ms)}. The replay read {plural(record.prefill_tokens, 'prompt token')}"
        f"{encoded}, where sending the requests again would read {record.again_tokens:,}; it wrote "
        f"{record.decode_tokens:,}. Memory: {size(record.log_bytes)} of {size(record.budget_bytes)}, and up "
        f"to {size(record.cache_bytes)} for the methods’ caches meanwhile."
    )
    return (
        f'<div class="kv-measured" data-state="measured"><p class="kv-help">{escape(facts)}</p>'
        f'<a class="kv-button" id="kv-replay-save" href="lab/replay/{escape(token)}" download>'
        f"{text.MEASURE_SAVE}</a></div>"
    )
