"""HTML of the pipeline's page: top bar, graph and cards, notes. Every value is escaped here."""

from collections.abc import Mapping, Sequence
from typing import Any

from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Preset
from backend.records.familiarity import Outlook
from backend.records.model_info import Certificate, ModelInfo
from backend.records.pools import PoolState
from backend.studies.gallery import GalleryEntry
from lab_app.ui import text
from lab_app.ui.method_choice import Standing
from viz.base.format import clip, escape, listing, number, plural, size
from viz.base.glossary import term
from viz.base.placeholder_pills import template_html, weights_label
from viz.run.agent_graph import graph_svg
from viz.run.familiarity import outlook_words

#: The logo, a small token strip: x, y, width, colour.
CELLS = (
    (0, 0, 7, 0),
    (8.5, 0, 17.5, 0),
    (0, 7, 7, 0),
    (8.5, 7, 9, 1),
    (19, 7, 7, 2),
    (0, 14, 13, 1),
    (14.5, 14, 11.5, 3),
)
MOST_NODES = 12  # of a graph: with more, one turn stands for all
MARK = (
    '<svg class="kv-mark" viewBox="0 0 26 20" aria-hidden="true">'
    + "".join(
        f'<path class="m{color}" d="'
        + "".join(f"M{x} {y}h{width}v5H{x}" for x, y, width, c in CELLS if c == color)
        + '"/>'
        for color in range(4)
    )
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
        '<button type="button" class="kv-icon-button" data-kv="bench" aria-label="Show or hide the setup" '
        f'aria-expanded="true" aria-controls="kv-bench">{BENCH_ICON}<span>Setup</span></button>'
        f'<h1 class="kv-brand">{MARK}<span>{text.NAME}</span></h1><p class="kv-tagline">{text.TAGLINE}</p>'
        f'<div class="kv-topbar-end">{chip}'
        '<button type="button" class="kv-icon-button kv-lesson-button" data-kv="lesson" aria-pressed="false" '
        f'title="{text.LESSON_HELP}">{LESSON_ICON}<span>{text.LESSON}</span></button>'
        '<button type="button" class="kv-icon-button" data-kv="theme" '
        f'aria-label="Switch between light and dark">{THEME_ICON}</button></div></header>'
    )


def purpose() -> str:
    """What the page is for, a button that plays a run, and the link to the tour."""
    tour = f'<a href="#tour" data-kv="page" data-page="tour">{text.PURPOSE_TOUR}</a>'
    play = f'<button type="button" class="kv-small-button" data-kv="play">{text.PURPOSE_PLAY}</button>'
    return f'<p class="kv-purpose">{text.PURPOSE} {play} {tour}</p>'


def model_chip(info: ModelInfo, limits: Sequence[str] = ()) -> str:
    """The model in one line; opens its certificate."""
    good = info.certificate.relocatable
    badge = "✓ reuse supported" if good else "✗ reuse not supported"
    shape = f"{short_count(info.parameters)} · {info.device} · {info.dtype}"
    name = "embedded model" if info.name == "embedded" else clip(info.name.rstrip("/").split("/")[-1], 32)
    return (
        f'<details class="kv-model"><summary title="Open the model\'s certificate">'
        f'<span class="kv-chip"><b>{escape(name)}</b>'
        f'<span class="kv-chip-facts">{escape(shape)}</span>'
        f'<span class="kv-cert {"kv-good" if good else "kv-bad"}">{badge}</span></span></summary>'
        f'<div class="kv-popover">{facts(info)}{certificate(info.certificate)}'
        f"{limits_html(limits)}</div></details>"
    )


def limits_html(limits: Sequence[str]) -> str:
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


def certificate(cert: Certificate) -> str:
    """The certificate: what shifting a text by some positions does to its keys and values, per layer."""
    rows = "".join(
        f"<tr><td>{index}</td><td>{layer.kind}</td><td>{number(layer.key_error, 2)}</td>"
        f"<td>{number(layer.value_error, 2)}</td></tr>"
        for index, layer in enumerate(cert.layers)
    )
    return (
        f"<h3>{term('certificate', 'Certificate')}</h3><p>{escape(cert.reason)}</p>"
        f"<p>Found by moving a text by {cert.shift_tokens} positions. "
        f"{term('rounding noise', 'Rounding noise')}: {number(cert.floor, 2)} relative, "
        f"{number(cert.logit_floor, 2)} in logits.</p>"
        '<div class="kv-scroll"><table class="kv-table"><thead><tr><th>layer</th><th>kind</th>'
        "<th>key error</th>"
        f"<th>value error</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def scenario(preset: Preset) -> str:
    """The scenario in a sentence, and the context that it needs."""
    needs = f" Needs a model with {preset.needs_context:,} tokens of context."
    context = "" if preset.model == "embedded" else needs
    return f'<p class="kv-help">{escape(preset.pipeline.summary)}{context}</p>'


def bench(pipeline: Pipeline, counts: Mapping[int, int]) -> dict[str, Any]:
    """Graph, cards and pills of a pipeline; ``counts``: tokens of each agent's prompt."""
    turns = pipeline.unrolled
    shown = turns if len(turns.agents) <= MOST_NODES else pipeline
    update: dict[str, Any] = {"graph": graph_svg(shown), "agents": len(pipeline.agents)}
    for slot, agent in enumerate(pipeline.agents):
        update[f"agent_{slot}.label"] = card_head(agent, counts.get(agent.id))
        update[f"pills_{slot}"] = (
            f'<p class="kv-help">{escape(agent.role)}</p>{template_html(pipeline, agent.id)}'
        )
        warning = f'<p class="kv-notice">{text.WEIGHTS_WARNING}</p>' if agent.model else ""
        update[f"weights_note_{slot}"] = warning
    return update


def card_head(agent: Agent, tokens: int | None) -> str:
    """An agent's card in one line."""
    count = f'<span class="kv-agent-count">{plural(tokens, "token")}</span>' if tokens is not None else ""
    name = escape(agent.name)
    return (
        f'<span class="kv-step">{agent.id}</span><span class="kv-agent-name">{name}</span>'
        f"{weights_label(agent.model)}{count}"
        '<svg viewBox="0 0 10 10" aria-hidden="true"><path d="M2 3.5 5 6.5 8 3.5"/></svg>'
    )


def label(name: str) -> str:
    """What a value box is called."""
    words = {"user_question": "question"}.get(name, name.replace("_", " "))
    return words[:1].upper() + words[1:]


def gallery_note(entry: GalleryEntry | None, unchanged: bool, same_weights: bool) -> str:
    """The answers of the checked example on the form, and whether they still hold."""
    warning = "" if same_weights else f'<p class="kv-help">{text.OTHER_WEIGHTS}</p>'
    if entry is None:
        return warning
    if not unchanged:
        return f'<p class="kv-help">{text.NO_LONGER_CHECKED}</p>{warning}'
    dense, reused = (
        f'<b class="kv-num">{escape(clip(a or text.NO_ANSWER, 48))}</b>' for a in (entry.dense, entry.reused)
    )
    both = f"Checked: the full read and reuse both answer {dense}."
    apart = (
        f"Checked: the full read answers {dense}, copy and reposition {reused}. Press Run to see it happen."
    )
    return f'<p class="kv-help">{both if entry.effect == "harmless" else apart}</p>{warning}'


def familiar(outlook: Outlook | None) -> str:
    """How usual the typed request is for the model; empty where that is not known."""
    if outlook is None:
        return ""
    return f'<p class="kv-help kv-familiar-{outlook.level}">{outlook_words(outlook)}</p>'


def notices(hints: Sequence[str]) -> str:
    """Hints that do not stop a run."""
    return "".join(f'<p class="kv-notice">{escape(hint)}</p>' for hint in hints[:4])


def pools(states: Sequence[PoolState], has_pools: bool, ready: int = 0, open_words: bool = False) -> str:
    """How full the pools are, one line per placeholder; ``ready``: requests whose cached warm-up the next run
    takes over, in open wording or the scenario's own."""
    if not has_pools:
        return ""
    rows: dict[str, PoolState] = {state.placeholder: state for state in states}
    if not any(state.anchors for state in rows.values()):
        kind = " in open wording" if open_words else ""
        words = f"{plural(ready, 'request')}{kind} at the next run" if ready else "empty"
        return f'<p class="kv-help">{term("anchor pool", "Anchor pools")}: {words}.</p>'
    items = "".join(
        f"<li><span>{escape(name)}</span>"
        f'<i style="--kv-fill:{100 * len(s.anchors) / max(1, s.capacity):.0f}%"></i>'
        f'<b class="kv-num">{len(s.anchors)}/{s.capacity}</b></li>'
        for name, s in rows.items()
    )
    title = f'<p class="kv-help">{term("anchor pool", "Anchor pools")} of this page</p>'
    return f'{title}<ul class="kv-pools">{items}</ul>'


def profile_note(standing: Standing) -> str:
    """The chosen profile, or how the options differ from the nearest one."""
    if standing.profile is not None:
        return f'<p class="kv-help">{escape(standing.summary)}</p>'
    some = [f"“{label}”" for label in standing.differ[:2]]
    more = len(standing.differ) - len(some)
    names = escape(listing([*some, f"{more} more"] if more else some))
    return f'<p class="kv-help"><b>Your own:</b> {escape(standing.nearest.lower())}, but for {names}.</p>'
