"""Any method behind a risk gate: reuse is kept where the judge is expected to select as dense would.

Source: judge study, Section 7. It decides once the last prompt token was read over the method's cache, so
that the first token's top-2 gap is known; a refusal costs the work so far and a dense pass. Prompts that put
fewer than two texts side by side have nothing to select from, and pass.
"""

from backend.base.clock import Clock
from backend.base.errors import OptionError
from backend.methods.base import Method, PromptView
from backend.methods.plan import Selection
from backend.records.model_info import ModelInfo
from backend.records.prompt import slots
from backend.records.risk_gate import RiskGate, own_features, text_features


class GuardedMethod(Method):
    """The hooks of another method, with a gate before its own ``accept``. Lives for one prompt."""

    name = "guarded"
    column = None
    title = "Behind a risk gate"
    summary = "Keeps a method's reuse only where a trained gate expects the same selection."
    paper = "judge study, Section 7, Fig. 6"

    def __init__(self, method: Method, gate: RiskGate) -> None:
        super().__init__(method.options)
        self.method, self.gate = method, gate

    def select(self, view: PromptView, clock: Clock) -> Selection | None:
        return self.method.select(view, clock)

    def accept(self, view: PromptView, clock: Clock) -> str | None:
        return refusal(self.gate, view) or self.method.accept(view, clock)


def refusal(gate: RiskGate, view: PromptView) -> str | None:
    """Why the gate refuses an assembled prompt; None when it does not."""
    samples = view.context.samples
    candidates = [samples[s.name] for s in slots(view.context.prompt.spans) if s.name in samples]
    if len(candidates) < 2:
        return None
    names = {sample.placeholder for sample in candidates}
    entropies = [g.entropy for g in view.plan.gate if g.placeholder in names and g.entropy is not None]
    margin = None
    if view.logits is not None:
        first, second = view.logits.topk(2).values.tolist()
        margin = first - second
    features = text_features([sample.text for sample in candidates], gate.scoring)
    safe = gate.safe(features | own_features(entropies, margin))
    if safe >= gate.threshold:
        return None
    return (
        f"The risk gate ({gate.target}) expects the same selection with {safe:.0%} only; "
        f"{gate.threshold:.0%} are wanted."
    )


def check_gate(gate: RiskGate, model: ModelInfo) -> None:
    """Refuse a gate that learned from another model's judgements.

    Raises:
        OptionError: it did.
    """
    if gate.weights_hash != model.weights_hash:
        raise OptionError(
            f"The risk gate was trained on the weights {gate.weights_hash}, but {model.name} has "
            f"{model.weights_hash}; of another model's judgements it knows nothing. Train one on this model.",
            field="gate",
        )
