"""Admission: what a session checks of a request before the model works on it, and the room it makes."""

from collections.abc import Mapping

from backend.base.errors import BudgetError, NotRelocatableError, OptionError
from backend.methods.options import Options
from backend.methods.registry import make_options, method_class
from backend.methods.risk_guard import check_gate
from backend.records.blame import exact_parts
from backend.records.control import controls_of
from backend.records.request import Decoding, MethodChoice, RunRequest, with_reference
from backend.session.request_state import RequestState
from backend.session.streams import MethodRun, stream_key
from backend.session.workspace import Workspace


def prepare(session: Workspace, request: RunRequest, rows: int = 1) -> tuple[list[MethodRun], dict[str, str]]:
    """Check everything that can be checked before the model works, and set up the method runs, dense
    first."""
    values = request.pipeline.check_values(request.values)
    check_decoding(request.decoding)
    choices = choices_of(session, request)
    if request.gate is not None:
        check_gate(request.gate, session.engine_of(request, request.pipeline.final).model.info)
    for agent in request.pipeline.order:
        length = session.model.count_tokens(request.pipeline, agent, values)
        session.engine_of(request, agent).check_room(length, request.decoding_of(agent).max_new_tokens, agent)
    _check_budget(session, request, values, len(choices), rows)
    runs: list[MethodRun] = []
    states: dict[int, RequestState] = {}
    for choice, options in choices:
        stream = session.stream(stream_key(request, choice))
        state = states.setdefault(id(stream), session.request_state(request, stream))
        if options.wants_lead_in:
            state.encode_lead_ins()  # before the instance, which replays the log
        instance = stream.instance(choice, options)
        runs.append(MethodRun(choice, options, stream, state, instance, instance.method.fork()))
    return runs, values


def choices_of(session: Workspace, request: RunRequest) -> list[tuple[MethodChoice, Options]]:
    """The request's methods with their options, checked; dense first."""
    choices = with_reference(request.methods)
    session.limits.check(0, 0, len(choices))
    labels = [c.label for c in choices]
    for label in labels:
        if labels.count(label) > 1:
            raise OptionError(
                f"Two methods are labelled {label!r}. Give each its own label.", field="methods"
            )
    pairs = []
    for choice in choices:
        cls = method_class(choice.name)
        options = make_options(choice.name, choice.options)
        exact_parts(choice.exact)  # a malformed line is refused before anything runs
        if reason := cls.supports(session.model.info):
            raise NotRelocatableError(
                f"{cls.title} cannot run on {session.model.info.name}. {reason}", field="methods"
            )
        pairs.append((choice, options))
    return pairs


def _check_budget(
    session: Workspace, request: RunRequest, values: Mapping[str, str], methods: int, rows: int
) -> None:
    """Refuse a request that is over the limits, or whose own KV is over the budget: bases and offsets of
    every prompt, kept once (pinned) or per method (free), beside one cache per method. Then make room for
    ``rows`` such requests at once."""
    tokens = sum(_tokens(session, request, agent, values) for agent in request.pipeline.order)
    session.limits.check(tokens * methods, len(request.pipeline.order), methods)
    bytes_per_token = session.model.info.kv_bytes_per_token
    remembered_bytes = 3 * tokens * (methods if request.mode == "free" else 1) * bytes_per_token
    needed_bytes = remembered_bytes + tokens * methods * bytes_per_token
    if needed_bytes > session.budget_bytes:
        raise BudgetError(
            f"This request may need {needed_bytes / 2**20:,.0f} MiB of KV cache ({tokens:,} prompt "
            f"tokens, {methods} methods, {bytes_per_token / 1024:.0f} KiB a token); this lab "
            f"allows {session.budget_bytes / 2**20:,.0f} MiB. Shorten the texts, choose fewer methods or "
            "fewer new tokens, or serve with a larger --budget-mb.",
            field="methods",
        )
    session.memory.make_room(
        session,
        min(session.bytes + remembered_bytes * rows, session.budget_bytes),
        tokens * methods * bytes_per_token * rows,
    )


def _tokens(session: Workspace, request: RunRequest, agent: int, values: Mapping[str, str]) -> int:
    """The most tokens that an agent's prompt can have: its own now, and the answers that it reads."""
    answers = [
        request.decoding_of(writer).max_new_tokens
        for writer, reader in request.pipeline.edges
        if reader == agent
    ]
    return session.model.count_tokens(request.pipeline, agent, values) + sum(answers)


def check_decoding(decoding: Decoding) -> None:
    """Refuse settings of decoding that are out of their declared ranges."""
    for name, declared in controls_of(Decoding).items():
        value, (low, high) = getattr(decoding, name), declared.limits
        allowed = type(value) in (declared.type, int) and low <= value <= high
        if declared.kind == "number" and not allowed:
            message = f"{name} is {value!r}; allowed: {low:g} to {high:g}. Choose a value in that range."
            raise OptionError(message, field=f"decoding.{name}")
