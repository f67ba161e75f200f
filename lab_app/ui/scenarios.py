"""The scenarios that a page offers, and how many requests fill their pools."""

from backend.base.errors import OptionError, PromptError
from backend.prompts.presets import Example, Preset, load_preset, preset_names, preset_requests
from lab_app.ui.text import NO_SET

WARM_LIMIT = 200  # requests for the pools, at most
USUAL_WARM = 20  # requests for the pools, as the page offers it


def find_preset(name: object) -> Preset:
    """A preset that ships with the lab; paths are not taken from the page."""
    if name not in preset_names():
        raise PromptError(f"There is no scenario {str(name)[:60]!r}. Choose one of the list.", field="preset")
    return load_preset(str(name))


def warm_set(preset: Preset, count: int, open_words: bool) -> list[Example]:
    """Requests for a scenario's pools, other ones than the page offers; in open wording for a typed request.

    Raises:
        OptionError: the scenario has no set of its own.
    """
    if preset.request_source == "file":
        raise OptionError(NO_SET, field="warm")
    return preset_requests(preset, count, seed=1, open_words=open_words)
