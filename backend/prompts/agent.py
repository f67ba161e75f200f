"""One agent of a pipeline. Free of torch."""

from collections.abc import Collection
from dataclasses import dataclass

from backend.base.errors import PromptError
from backend.base.text import check_label, check_text, show
from backend.prompts.template import PromptTemplate
from backend.prompts.tools.registry import tool_names

MAX_NEW_TOKENS = 4096


@dataclass(frozen=True)
class Agent:
    """One agent: its number in placeholder names, a name, what it does, and its template.

    ``tool`` names a tool of :mod:`backend.prompts.tools` that is called with the agent's answer; the result
    fills ``{condition_N_current}``. Empty: none. ``model`` names other weights of the lab's architecture to
    run on (see :mod:`backend.model.weight_variants`). Empty: the lab's model.
    """

    id: int
    name: str
    role: str
    template: str
    max_new_tokens: int = 96
    tool: str = ""
    model: str = ""

    def parsed(self, declared: Collection[str] = ()) -> PromptTemplate:
        """The template taken apart; see :meth:`PromptTemplate.parse`."""
        return PromptTemplate.parse(
            self.template, declared, f"agents.{self.id}.template", f"Agent {self.id}'s template"
        )

    def check(self) -> None:
        """Refuse an agent that could not run, whatever its id and its template.

        Raises:
            PromptError: with the place in ``field``, for example ``agents.2.name``.
        """
        who, place = f"Agent {self.id}", f"agents.{self.id}"
        check_label(self.name, f"{who}'s name", f"{place}.name")
        check_text(self.role, f"{who}'s role", f"{place}.role", 2000)
        check_text(self.model, f"{who}'s model", f"{place}.model", 200)
        if type(self.max_new_tokens) is not int or not 1 <= self.max_new_tokens <= MAX_NEW_TOKENS:
            raise PromptError(
                f"{who} may write {show(self.max_new_tokens)} tokens; 1 to {MAX_NEW_TOKENS} are allowed. "
                "Change the number.",
                field=f"{place}.max_new_tokens",
            )
        if self.tool and self.tool not in tool_names():
            raise PromptError(
                f"{who} has the tool {show(self.tool)}; there are {', '.join(tool_names())}. "
                "Choose one, or none.",
                field=f"{place}.tool",
            )
