"""Candidates that cannot see one another: the judge study's masking ablation.

Nothing is reused. Whatever differs from dense differs because the candidates' cross-attention is missing,
which every cache computed by a candidate's own agent is missing too (Section 6.2, Table 2).
"""

from dataclasses import dataclass

from backend.base.clock import Clock
from backend.base.errors import OptionError
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Method
from backend.methods.candidates import SCOPES, blocks, dense_steps, visible
from backend.methods.dense import dense_plan
from backend.methods.options import MOST_LAYERS, Options, layer_option, option
from backend.methods.plan import Plan
from backend.records.model_info import ModelInfo


@dataclass(frozen=True)
class MaskedOptions(Options):
    """Options of the masking ablation."""

    scope: str = option(
        "published",
        "What is kept apart",
        "published: the candidates' texts; the separators between them still see everything and pass it on. "
        "strict: each candidate with its separator sees the shared beginning and itself.",
        choices=SCOPES,
        paper="judge study, Section 6.2",
    )
    first_layer: int = layer_option(
        0, "From layer", "The first layer at which candidates are kept apart.",
    )  # fmt: skip
    last_layer: int = layer_option(
        MOST_LAYERS, "To layer",
        "The last layer at which they are; one behind the model's last means up to the last.",
    )  # fmt: skip
    shared_start: bool = option(
        False, "Candidates begin at the same position",
        "Give every candidate the positions right behind the shared beginning. With strict, a candidate's "
        "cache then is the same in any order.",
        advanced=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_layer > self.last_layer:
            raise OptionError(
                f"Candidates would be kept apart from layer {self.first_layer} to layer {self.last_layer}, "
                "which is none. Choose a last layer that is not below the first.",
                field="masked.last_layer",
            )


class MaskedMethod(Method):
    """Dense, but for what candidates may look at."""

    name = "masked"
    column = 220
    title = "Masked candidates"
    summary = "Computes everything, but no candidate can see another: what judging loses without comparison."
    paper = "judge study, Table 2"
    Options = MaskedOptions
    needs_masks = True

    @classmethod
    def supports(cls, model: ModelInfo) -> str | None:
        return cls.masks_refused(model)  # nothing is moved

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        prompt, options = context.prompt, self.options
        if len(blocks(prompt)) < 2:
            return dense_plan(context.prompt, "Fewer than two candidates: there is nothing to keep apart.")
        what = "texts" if options.scope == "published" else "texts and separators"
        first, last = options.first_layer, options.last_layer
        some = (first, last) != (0, MOST_LAYERS)
        end = "the last" if last == MOST_LAYERS else str(last)
        at = f"at layers {first} to {end}" if some else "at every layer"
        return Plan(
            dense_steps(prompt, f"{what} of candidates kept apart", shared_start=options.shared_start),
            "dense",
            f"Every token was computed; the candidates' {what} could not see one another {at}.",
            visible=visible(prompt, options.scope),
            visible_layers=(first, last) if some else None,
        )
