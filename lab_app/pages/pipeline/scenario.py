"""Puts scenarios and requests on the form: from the list, the gallery or a scenario's set."""

from collections.abc import Mapping
from typing import Any

from backend.base.errors import PromptError
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example, Preset, preset_requests
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline import html as pipeline_html
from lab_app.pages.pipeline.examples import Gallery, checked_settings
from lab_app.pages.pipeline.form import AGENT_SLOTS, VALUE_SLOTS, Box, Form
from lab_app.pages.pipeline.state import state_of
from lab_app.ui import html
from lab_app.ui.scenarios import find_preset
from lab_app.ui.types import Update
from lab_app.visits.visits import Visit, VisitStore


class ScenarioChoice:
    """Puts scenarios and requests on the form.

    Args:
        lab: the visits and their model.
        gallery: the checked examples.
    """

    def __init__(self, lab: VisitStore, gallery: Gallery) -> None:
        self.lab, self._gallery = lab, gallery

    def choose(self, visit: Visit, name: str) -> Update:
        """Put a scenario and its first request on the form."""
        preset = find_preset(name)
        request = example_at(preset, 0)
        state_of(visit).next_example = 1
        return self.set_up(visit, preset, request)

    def choose_effect(self, visit: Visit, effect: Any) -> Update:
        """List the checked examples of one effect; the form stays."""
        effects = [name for _, name in self._gallery.effects]
        if effect not in effects:
            raise PromptError(f"There are no examples of the kind {str(effect)[:40]!r}. Choose another.")
        state_of(visit).gallery_entry = None
        return {
            "pick_example": (self._gallery.choices(effect), ""),
            "gallery_note": pipeline_html.gallery_note(None, True, self.same_weights()),
        }

    def choose_example(self, visit: Visit, form: Form, name: Any) -> Update:
        """Put a checked example on the form: its shipped scenario, its request, and the settings that it was
        checked with. Methods stay chosen."""
        if not name:
            state_of(visit).gallery_entry = None
            return {}
        entry = self._gallery.find(name)
        if entry is None:
            raise PromptError(f"There is no example {str(name)[:60]!r}. Choose one of the list.")
        preset = find_preset(entry.preset)
        state_of(visit).next_example = 0
        update = self.set_up(visit, preset, entry.example) | checked_settings()
        state_of(visit).gallery_entry = entry
        return update | {
            "pick_example.value": entry.name,
            "gallery_note": pipeline_html.gallery_note(entry, True, self.same_weights()),
            "methods": list(dict.fromkeys(("naive", *form.methods))),
        }

    def offer(self) -> Update:
        """Show the gallery, if there is one."""
        effects = self._gallery.effects
        if not effects:
            return {"gallery.visible": False}
        first = effects[0][1]
        return {
            "gallery.visible": True,
            "pick_effect": (effects, first),
            "pick_example": (self._gallery.choices(first), ""),
        }

    def same_weights(self) -> bool:
        """Whether the gallery was checked with the loaded weights."""
        return not self._gallery.entries or self.lab.model.info.weights_hash == self._gallery.weights

    def set_up(self, visit: Visit, preset: Preset, request: Example | None) -> Update:
        """Put a shipped scenario on the form, with one request."""
        pipeline = preset.pipeline
        update: Update = {
            "preset": pipeline.name,
            "scenario": pipeline_html.scenario(preset),
            "declared": ", ".join(pipeline.declared),
        }
        for slot in range(AGENT_SLOTS):
            filled = slot < len(pipeline.agents)
            update[f"template_{slot}"] = pipeline.agents[slot].template if filled else ""
        update["max_new_tokens"] = pipeline.longest_answer
        update["turns"] = pipeline.turns
        update["weights"] = tuple(agent.model for agent in pipeline.agents)
        update |= self._fill(visit, preset, request) | pipeline_html.bench(pipeline, {})
        update["values"] = boxes(pipeline, request.values if request else {}, filled=True)
        return update | {"next.interactive": example_at(preset, 0) is not None}

    def next_example(self, visit: Visit, name: str) -> Update:
        """Put the next request of the scenario's set on the form."""
        preset = find_preset(name)
        request = example_at(preset, state_of(visit).next_example)
        state_of(visit).next_example += 1
        return self._fill(visit, preset, request) | {"next.interactive": request is not None}

    def _fill(self, visit: Visit, preset: Preset, request: Example | None) -> Update:
        """Put one request of a scenario on the form."""
        state_of(visit).example, state_of(visit).gallery_entry = request, None
        state_of(visit).value_names = forms.value_boxes(preset.pipeline)
        values = request.values if request else {}
        update: Update = {
            "known": html.known_answer(request, values),
            "pick_example.value": "",
            "gallery_note": pipeline_html.gallery_note(None, True, self.same_weights()),
        }
        for slot in range(VALUE_SLOTS):
            filled = slot < len(state_of(visit).value_names)
            update[f"value_{slot}"] = values.get(state_of(visit).value_names[slot], "") if filled else ""
        return update


def boxes(pipeline: Pipeline, values: Mapping[str, str], filled: bool) -> tuple[Box, ...]:
    """The value boxes of a pipeline; ``filled``: with these values, else they keep their content."""
    texts = {name: values.get(name, "") for name in forms.value_boxes(pipeline)}
    return tuple(
        Box(
            pipeline_html.label(name),
            value if filled else None,
            "\n" in value.strip(),
            name in pipeline.required,
        )
        for name, value in texts.items()
    )


def example_at(preset: Preset, index: int) -> Example | None:
    """One request of a scenario's set; None where it has no set."""
    if preset.request_source == "file":
        return None
    return preset_requests(preset, index + 1)[index]
