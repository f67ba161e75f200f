"""The parameters of the lab's calls, checked. Free of the web framework.

Each call is a model whose fields make the endpoint's signature, the tool's schema and the documentation.
Types are checked here, strictly; the engine checks whether a value is allowed."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from backend.base.errors import LabError, OptionError, PromptError
from backend.base.text import check_label, check_text, show
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example, Preset, preset_requests
from backend.records.control import Control
from backend.records.judge import ANSWER_TOKENS, CANDIDATE_TOKENS, JudgeProblem, JudgeRequest, read_orders
from backend.records.request import CONTROLS, Decoding, MethodChoice, RunRequest
from lab_app.pages.pipeline.form import as_shipped, read_controls
from lab_app.ui import text
from lab_app.ui.scenarios import WARM_LIMIT, WarmUpSource, find_preset
from lab_app.ui.validation import NumberField, problems_of

OWN = "own"  # the name of a pipeline that a caller stated
MOST_METHOD_TEXT = 500  # characters; an option's name and value are short
MOST_METHODS = 64
METHODS_HELP = (
    "Methods beside the full read, each written as NAME, NAME:OPTION=VALUE+OPTION=VALUE or with a label of "
    "its own behind @, as in kvcomm:gamma=0.5+rotate=false@unrotated. `methods` lists names, options, "
    "profiles."
)


C = TypeVar("C", bound="Call")


class Call(BaseModel):
    """The parameters of an endpoint."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Nothing(Call):
    """An endpoint without parameters."""


class RunParameters(Call):
    """Parameters of ``run``, beside the controls that a request declares."""

    preset: str = Field("math-3", description="A scenario of the lab; `presets` lists them.")
    methods: list[str] = Field(["naive"], max_length=MOST_METHODS, description=METHODS_HELP)
    values: dict[str, str] | None = Field(
        None,
        description="Texts for the placeholders that come from outside, such as user_question. Left out: the "
        "request of the scenario's own set that `example` names.",
    )
    example: int = Field(1, ge=1, le=10_000, description="Which request of the scenario's own set to send.")
    templates: dict[str, str] | None = Field(
        None, description="Own templates in place of the scenario's, by the agents' numbers."
    )
    agents: list[dict[str, str | int]] | None = Field(
        None,
        description="A pipeline of your own in place of the scenario: for each agent `template` and, if "
        "wanted, `name`, `role`, `id`, `max_new_tokens` and `tool`. A template reads {user_question}, "
        "{agent_1_current} and what `declared` names; `values` must be given.",
    )
    declared: list[str] = Field([], max_length=32, description="Names of further placeholders that you fill.")
    scoring: str = Field(
        "number", description="How an answer of own `agents` is read; `presets` shows the kinds."
    )
    expected: str | None = Field(None, description="The known answer, to be compared with.")
    turns: int | None = Field(None, description="How often the agents run; else as the scenario says.")
    warm: int = Field(
        0,
        description="Requests of the scenario's kind, others than yours, that fill the anchor pools first; "
        "in open wording if you give `values`.",
    )
    warm_own: bool = Field(
        False, description="These requests are yours with other numbers, in place of the scenario's."
    )


def parameter(control: Control) -> tuple[Any, Any]:
    """A control as a parameter. The longest answer is by default the scenario's."""
    if control.key == "max_new_tokens":
        return int | None, Field(None, description=control.usage)
    return control.type, Field(control.default, description=control.usage)


#: The controls of a comparison that a program can set.
SETTABLE = {key: parameter(control) for key, control in CONTROLS.items() if not control.shown_only}
#: What programs send to ``run``.
RunCall = create_model("RunCall", __base__=RunParameters, **SETTABLE)  # type: ignore[call-overload]


class JudgeCall(Call):
    """Parameters of ``judge``."""

    question: str = Field(description="What the candidates answer.")
    candidates: list[str] = Field(description="Two to eight texts, in their original order.")
    methods: list[str] = Field(["naive"], max_length=MOST_METHODS, description=METHODS_HELP)
    orders: str = Field(
        "identity,shuffle:0", max_length=1000,
        description="Orders to put the candidates in: identity, shuffle:SEED with commas between, or all.",
    )  # fmt: skip
    criterion: str = Field("right", description="right, all, corrects, differs, closest or majority.")
    protocol: str = Field("joint", description="joint, pairwise, selection or rewriting.")
    expected: str | None = Field(None, description="The known answer.")
    warm: int = Field(0, description="Drawn problems that fill the anchor pools first.")
    warm_own: bool = Field(False, description="These problems are yours with other numbers.")
    slots_only: bool = Field(False, description="Copy the candidates alone and compute all other words.")


def read_call(kind: type[C], arguments: Mapping[str, Any]) -> C:
    """Parameters of the right types.

    Raises:
        OptionError: the first three wrong ones, each with its name, value and what is allowed.
    """
    try:
        return kind.model_validate(dict(arguments))
    except ValidationError as error:
        mistakes = error.errors(include_url=False)[:3]
        sentences = [describe_validation_error(kind, dict(mistake)) for mistake in mistakes]
        field = ".".join(str(part)[:40] for part in mistakes[0]["loc"][:2])
        raise OptionError(" ".join(sentences), field=field) from None


def describe_validation_error(kind: type[Call], mistake: Mapping[str, Any]) -> str:
    """One mistake in a sentence."""
    place = ".".join(str(part)[:40] for part in mistake["loc"])
    if mistake["type"] == "extra_forbidden":
        return (
            f"There is no parameter {place}; there are {', '.join(kind.model_fields) or 'none'}. Remove it."
        )
    if mistake["type"] == "missing":
        return f"The parameter {place} is missing. Give it."
    rule = str(mistake["msg"]).removeprefix("Input should ").removesuffix(".")
    return f"The parameter {place} is {show(mistake['input'])}; it should {rule}. Change it."


# -- run ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class RunJob:
    """``warm`` requests fill the pools, then ``request`` is run; ``shipped``: see
    :func:`lab_app.pages.pipeline.form.as_shipped`."""

    request: RunRequest
    warm: tuple[Example, ...] = ()
    shipped: bool = False


def read_run(arguments: Mapping[str, Any]) -> RunJob:
    """The run that the parameters state.

    Raises:
        LabError: a parameter is wrong.
    """
    call = read_call(RunCall, arguments)
    preset = None if call.agents is not None else find_preset(call.preset)
    pipeline = own_pipeline(call) if preset is None else edited(call, preset.pipeline)
    values: Mapping[str, str] | None = call.values
    expected = call.expected
    if values is None:
        values, answer = example_request(preset, call.example)
        expected = answer if expected is None else expected
    if expected is not None:
        check_text(expected, "The known answer", "expected", 2000)
    controls = {key: getattr(call, key) for key in SETTABLE}
    if controls["max_new_tokens"] is None:
        controls["max_new_tokens"] = pipeline.longest_answer
    request = RunRequest(
        pipeline, pipeline.check_values(values), read_methods(call.methods), expected=expected,
        **read_controls(controls),
    )  # fmt: skip
    warm = NumberField("The number of requests to warm up with", 0, WARM_LIMIT).read(call.warm, "warm")
    shipped = preset is not None and as_shipped(preset, request, warm)
    source = WarmUpSource(call.values is not None, dict(request.values) if call.warm_own else None)
    return RunJob(request, tuple(source.draw(preset, warm) if warm else ()), shipped and not call.warm_own)


def read_methods(items: list[str]) -> tuple[MethodChoice, ...]:
    """Methods from their texts, such as ``kvcomm:gamma=0.5``.

    Raises:
        OptionError: one cannot be read; see :func:`backend.methods.registry.parse_methods`.
    """
    from backend.methods.registry import parse_methods

    choices: list[MethodChoice] = []
    for item in items:
        check_text(item, "A method", "methods", MOST_METHOD_TEXT)
        if "," in item:
            raise OptionError(
                f"The method {show(item)} holds a comma. Give each method as an item of its own.",
                field="methods",
            )
        [choice] = parse_methods(item)
        check_label(choice.label, "A method's label", "methods")
        choices.append(choice)
    return tuple(choices)


def edited(call: RunParameters, base: Pipeline) -> Pipeline:
    """A scenario's pipeline with the caller's templates and turns."""
    ids = [str(agent.id) for agent in base.agents]
    templates = call.templates or {}
    for name in templates:
        if name not in ids:
            raise PromptError(
                f"There is a template for agent {show(name)}; the agents of {base.name} are "
                f"{', '.join(ids)}. Name one of them.",
                field="templates",
            )
    agents = tuple(
        dataclasses.replace(agent, template=templates.get(str(agent.id), agent.template))
        for agent in base.agents
    )
    turns = base.turns if call.turns is None else call.turns
    declared = base.declared + tuple(name for name in call.declared if name not in base.declared)
    return dataclasses.replace(base, agents=agents, turns=turns, declared=declared)


AGENT_KEYS: dict[str, type] = {
    "template": str, "name": str, "role": str, "id": int, "max_new_tokens": int, "tool": str,
}  # fmt: skip
AGENT_WORDS = ", ".join(
    f"{key} ({'a whole number' if kind is int else 'text'})" for key, kind in AGENT_KEYS.items()
)


def own_pipeline(call: RunParameters) -> Pipeline:
    """The caller's own agents.

    Raises:
        PromptError: they make no pipeline.
    """
    if call.templates:
        raise PromptError("Own agents bring their templates. Leave `templates` out.", field="templates")
    agents = []
    for number, fields in enumerate(call.agents or (), 1):
        for key, value in fields.items():
            kind = AGENT_KEYS.get(key)
            if kind is None or type(value) is not kind:
                raise PromptError(
                    f"Agent {number} has {show(key)}: {show(value)}; an agent may have {AGENT_WORDS}. "
                    f"Change it.",
                    field=f"agents.{number}",
                )
        if "template" not in fields:
            raise PromptError(f"Agent {number} has no template. Give it one.", field=f"agents.{number}")
        defaults: dict[str, Any] = {"id": number, "name": f"Agent {number}", "role": ""}
        agents.append(Agent(**(defaults | fields)))
    scoring: Any = call.scoring
    turns = 1 if call.turns is None else call.turns
    return Pipeline(OWN, "Own agents", "", tuple(agents), tuple(call.declared), scoring=scoring, turns=turns)


def example_request(preset: Preset | None, number: int) -> tuple[Mapping[str, str], str | None]:
    """A request of a scenario's set, with its known answer."""
    if preset is None or preset.request_source == "file":
        raise PromptError(
            "There is no set of requests to draw from. Give `values`, such as user_question.", field="values"
        )
    example = preset_requests(preset, number)[-1]
    return example.values, example.answer


# -- judge -------------------------------------------------------------------------------------------------


def read_judge(arguments: Mapping[str, Any]) -> JudgeRequest:
    """The judgement that the parameters state.

    Raises:
        LabError: a parameter is wrong.
    """
    from backend.records.judge import Candidate

    call = read_call(JudgeCall, arguments)
    for number, candidate in enumerate(call.candidates, 1):
        if not check_text(candidate, f"Candidate {number}", "candidates").strip():
            raise PromptError(text.CANDIDATE_EMPTY.format(number=number), field="candidates")
    if not check_text(call.question, "The question", "question").strip():
        raise PromptError("The question is empty. Write some text.", field="question")
    if call.expected is not None:
        check_text(call.expected, text.JUDGE_EXPECTED, "expected", 2000)
    candidates = tuple(Candidate(candidate, f"agent {i}") for i, candidate in enumerate(call.candidates, 1))
    protocol: Any = call.protocol  # checked below
    problem = JudgeProblem(1, call.question, candidates, "typed", call.expected)
    request = JudgeRequest(
        "typed", (problem,), 1, candidates=len(candidates), max_new_tokens=ANSWER_TOKENS,
        sampling=Decoding(CANDIDATE_TOKENS, 1.0, 1.0, 0), methods=read_methods(call.methods),
        criterion=call.criterion, protocol=protocol, slots_only=call.slots_only,
        own_numbers=call.warm_own,
        warmup=text.JUDGE_NUMBERS["warm"].read(call.warm, "warm"),
    )  # fmt: skip
    request.check()
    return dataclasses.replace(request, orders=read_orders(call.orders, len(candidates)))


def sentence(error: LabError) -> str:
    """An error for a program's reader: the message, and the parameter it is about."""
    return "\n".join(f"{x.message}{f' [{x.field}]' if x.field else ''}" for x in problems_of(error))
