"""A template with its placeholders as coloured pills, and the label of an agent's weights."""

from markupsafe import Markup

from backend.prompts.pipeline import Pipeline
from backend.prompts.template import Placeholder
from viz.base.format import clip, segment_words, slots

PILL = Markup(
    '<span class="kv-pill" style="--kv-slot:var(--kv-slot-{})" data-placeholder="{}" '
    'data-tip="Filled with: {}">{}</span>'
)
WEIGHTS = Markup(
    '<span class="kv-weights" data-tip="Runs on the weights {}, not on the lab’s own.">weights {}</span>'
)


def pill(pipeline: Pipeline, name: str, shown: str | None = None) -> Markup:
    """One placeholder in its colour; on hover, whose text it holds."""
    return PILL.format(slots(pipeline).get(name, 0), name, segment_words(pipeline, name), shown or name)


def weights_label(model: str) -> Markup:
    """A label of the weights that an agent runs on; empty for the lab's own."""
    return WEIGHTS.format(clip(model), clip(model, 24)) if model else Markup()


def template_html(pipeline: Pipeline, agent_id: int) -> Markup:
    """An agent's template; line ends are kept."""
    parts = [
        pill(pipeline, part.name) if isinstance(part, Placeholder) else part
        for part in pipeline.template(agent_id).parts
    ]
    return Markup('<p class="kv-template">{}</p>').format(Markup().join(parts).rstrip())
