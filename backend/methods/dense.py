"""Dense: forward every token. Everyone's reference."""

from dataclasses import replace

from backend.base.clock import Clock
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Method
from backend.methods.plan import Compute, Plan, Step
from backend.records.model_info import ModelInfo
from backend.records.prompt import TokenizedPrompt
from backend.records.run import GateDecision


def dense_plan(prompt: TokenizedPrompt, reason: str) -> Plan:
    """Forward the whole prompt."""
    return Plan((Step(0, len(prompt.ids), Compute(reason)),), "dense", reason)


def fallback_plan(prompt: TokenizedPrompt, reason: str, gate: tuple[GateDecision, ...] = ()) -> Plan:
    """Forward the whole prompt, because reuse is not possible."""
    return replace(dense_plan(prompt, reason), state="fallback", gate=gate)


class DenseMethod(Method):
    """No reuse at all."""

    name = "dense"
    column = 10
    title = "Full read"
    summary = "Reads every token of the prompt afresh: the honest answer, and the slow one."
    needs_bases = False
    shares_texts = False

    @classmethod
    def supports(cls, model: ModelInfo) -> str | None:
        return None

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        return dense_plan(context.prompt, "Dense reads everything.")
