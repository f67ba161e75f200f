"""What agents read, write and do: templates, pipelines, presets, tools, generated tasks. Free of torch.

A pipeline is agents whose templates have holes for the request and for one another's texts. Presets are
pipelines that ship with the lab, tools are what an agent may call, and tasks draw requests whose answers
are known.

Others use the names below, here or from their modules.
"""

from backend.prompts.pipeline import Agent, Pipeline, notices
from backend.prompts.presets import Example, Preset, load_preset, preset_requests
from backend.prompts.scoring import Scoring, extract_answer, right
from backend.prompts.template import Placeholder, PromptTemplate, called
from backend.prompts.tools.registry import get_tool, tool_names

__all__ = [
    "Agent",
    "Example",
    "Pipeline",
    "Placeholder",
    "Preset",
    "PromptTemplate",
    "Scoring",
    "called",
    "extract_answer",
    "get_tool",
    "load_preset",
    "notices",
    "preset_requests",
    "right",
    "tool_names",
]
