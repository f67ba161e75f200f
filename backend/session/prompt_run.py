"""Reading one prompt and taking one answer, as runs, warm-ups, the judge and studies do it."""

from backend.base.clock import Clock
from backend.cache.kv_cache import OWN_CONTEXT
from backend.cache.samples import PromptInContext, Sample, SampleLog
from backend.engine.decoding import Decoded
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.methods.base import Method, Prefilled
from backend.methods.candidates import slots_only
from backend.methods.dense import dense_plan
from backend.methods.patched import patched
from backend.methods.risk_guard import GuardedMethod
from backend.prompts.template import agent_label
from backend.prompts.tools.base import ToolResult
from backend.prompts.tools.registry import get_tool
from backend.records.risk_gate import RiskGate
from backend.session.request_state import RequestState


def own_context(agent: int) -> str:
    """In words, where the KV of an agent's answer was computed."""
    return f"agent {agent_label(agent)}'s {OWN_CONTEXT}"


def read_prompt(
    engine: Engine,
    context: PromptInContext,
    method: Method,
    log: SampleLog,
    clock: Clock,
    *,
    gate: RiskGate | None = None,
    copy_slots_only: bool = False,
    exact: str = "",
) -> tuple[PromptInContext, Prefill]:
    """Let a method lay out and plan a prompt, execute the plan, and send the method its result.

    Args:
        clock: gets ``base`` (the layout of a method that shares texts) and the parts of plan and engine.
        gate: may refuse reuse once the prompt is assembled.
        copy_slots_only: copy nothing but the texts that stand side by side.
        exact: parts of the cache that are a dense pass's (:class:`backend.records.request.MethodChoice`).

    Returns:
        The prompt as the method reads it, and its prefill.
    """
    if method.shares_texts:
        with clock.part("base"):
            context = method.layout(context)
    plan = method.plan(context, log, clock)
    if copy_slots_only:
        plan = slots_only(plan, context.prompt)
    hooks = patched(method, exact, context.prompt.agent)
    hooks = hooks if gate is None else GuardedMethod(hooks, gate)
    prefill = engine.execute(context.prompt, plan, clock, method=hooks, context=context)
    plan = prefill.plan
    event = Prefilled(context, prefill.cache, plan.plain, plan, prefill.hidden, prefill.projected)
    method.on_event(event, log)
    return context, prefill


def read_densely(engine: Engine, context: PromptInContext, reason: str) -> Prefill:
    """Forward a whole prompt, without a method."""
    return engine.execute(context.prompt, dense_plan(context.prompt, reason), Clock())


def take_answer(
    state: RequestState, agent: int, decoded: Decoded
) -> tuple[str, list[Sample], ToolResult | None]:
    """Add an agent's answer, and its tool's result, to the request state.

    Returns:
        The answer's text, the samples that arrived, and the tool's result where the agent has a tool.
    """
    text = state.engine.model.tokens.decode(decoded.ids)
    written = state.answer(agent, decoded.ids, text, decoded.kv)
    tool = state.pipeline.agent(agent).tool
    result = get_tool(tool).run(text) if tool else None
    tool_sample = state.tool_result(agent, result.text) if result else None
    return text, [sample for sample in (written, tool_sample) if sample], result
