"""The scenarios that a page offers, and how many requests fill their pools."""

from backend.base.errors import PromptError
from backend.prompts.presets import Preset, load_preset, preset_names

WARM_LIMIT = 200  # requests for the pools, at most
USUAL_WARM = 20  # requests for the pools, as the page offers it


def find_preset(name: object) -> Preset:
    """A preset that ships with the lab; paths are not taken from the page."""
    if name not in preset_names():
        raise PromptError(f"There is no scenario {str(name)[:60]!r}. Choose one of the list.", field="preset")
    return load_preset(str(name))
