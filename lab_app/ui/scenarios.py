"""The scenarios that a page offers, and how many requests fill their pools."""

from collections.abc import Mapping
from dataclasses import dataclass

from backend.base.errors import OptionError, PromptError
from backend.prompts.presets import Example, Preset, load_preset, preset_names, preset_requests
from backend.prompts.variants import other_numbers
from lab_app.ui.text import NO_NUMBER, NO_SET

WARM_LIMIT = 200  # requests for the pools, at most
USUAL_WARM = 20  # requests for the pools, as the page offers it
OWN_WARM = 2  # with other numbers, as benchmarks/own_questions.py measures them


def find_preset(name: object) -> Preset:
    """A preset that ships with the lab; paths are not taken from the page."""
    if name not in preset_names():
        raise PromptError(f"There is no scenario {str(name)[:60]!r}. Choose one of the list.", field="preset")
    return load_preset(str(name))


@dataclass(frozen=True)
class WarmUpSource:
    """Where the requests come from that fill the pools.

    Attributes:
        open_words: the scenario's problems are in open wording, for a typed request.
        own: values of the visitor's request, to be sent with other numbers; None: the scenario's problems.
    """

    open_words: bool = False
    own: Mapping[str, str] | None = None

    def draw(self, preset: Preset | None, count: int) -> list[Example]:
        """So many requests, others than the page offers.

        Raises:
            OptionError: the scenario has no set of its own, or the request no number.
        """
        if self.own is not None:
            if not (requests := other_numbers(self.own, count)):
                raise OptionError(NO_NUMBER, field="warm")
            return [Example(values) for values in requests]
        if preset is None or preset.request_source == "file":
            raise OptionError(NO_SET, field="warm")
        return preset_requests(preset, count, seed=1, open_words=self.open_words)
