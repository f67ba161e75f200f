"""A template as a person reads it: its holes are coloured pills; and the label of an agent's weights."""

from __future__ import annotations

from backend.prompts.pipeline import Pipeline
from backend.prompts.template import Placeholder
from viz.base.format import clip, escape, slot_words, slots


def pill(pipeline: Pipeline, name: str, shown: str | None = None) -> str:
    """One placeholder, in its own colour and braces, with whose text it is on hover."""
    index = slots(pipeline).get(name, 0)
    words = slot_words(pipeline, name)
    return (
        f'<span class="kv-pill" style="--kv-slot:var(--kv-slot-{index})" data-placeholder="{escape(name)}" '
        f'data-tip="{escape(f"Filled with: {words}")}">{escape(shown or name)}</span>'
    )


def weights_label(model: str) -> str:
    """The other weights that an agent runs on, as a small label; nothing for the lab's own."""
    if not model:
        return ""
    tip = f"Runs on the weights {clip(model)}, not on the lab’s own."
    return f'<span class="kv-weights" data-tip="{escape(tip)}">weights {escape(clip(model, 24))}</span>'


def template_html(pipeline: Pipeline, agent_id: int) -> str:
    """An agent's template; line ends are kept."""
    parts = [
        pill(pipeline, part.name) if isinstance(part, Placeholder) else escape(part)
        for part in pipeline.template(agent_id).parts
    ]
    return f'<p class="kv-template">{"".join(parts).rstrip()}</p>'
