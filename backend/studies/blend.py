"""Error against the share of tokens computed again, for both masks and every choice of tokens.

Each request goes through the pipeline densely; one agent's prompts are then assembled under each setting
and compared with dense: K and V error, KL of the next token, and the work done. All other options are the
methods' own defaults, so the suffix is computed in any case, and at share 0 nothing else is.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from backend.base.clock import Clock
from backend.base.errors import BudgetError, OptionError
from backend.cache.norms import kl
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.methods.base import Method, copy_everything
from backend.methods.registry import make_options, method_class
from backend.model.load import LoadedModel
from backend.prompts.template import agent_label
from backend.records.blend import CHOICES, MASKS, MOST_BLENDED, BlendRequest, BlendStudy
from backend.records.events import Progress
from backend.records.request import Decoding
from backend.records.run import RECOMPUTED
from backend.session.probes.cache_error import cache_error
from backend.session.prompt_run import own_context, read_densely, take_answer
from backend.session.request_state import RequestState
from backend.session.study import study

KINDS = ("keys", "values", "chosen", "kl", "work")


@study(BlendRequest)
def blend_study(
    model: LoadedModel, request: BlendRequest, budget_bytes: int
) -> Iterator[Progress | BlendStudy]:
    """Measure; yields progress and, last, the record.

    Raises:
        OptionError: there is no request, or a choice, mask, share or agent that is not allowed.
        BudgetError: a prompt's caches are over ``budget_bytes``.
    """
    began = time.perf_counter()
    agent = _check(model, request)
    methods = {
        (a, b, c): method_class(choice)(make_options(choice, {"ratio": ratio, "mask": mask}))
        for a, choice in enumerate(request.choices)
        for b, mask in enumerate(request.masks)
        for c, ratio in enumerate(request.ratios)
    }
    shape = (len(request.choices), len(request.masks), len(request.ratios), len(request.values))
    out: dict[str, Any] = {name: np.full(shape, np.nan, dtype=np.float32) for name in KINDS}
    lone = {name: np.zeros(shape[-1], dtype=np.float32) for name in ("keys", "values", "kl", "floor")}
    lengths = np.zeros(shape[-1], dtype=np.int64)
    prompts: list[Sequence[int]] = []
    for number in range(shape[-1]):
        yield Progress(f"Prompt {number + 1} of {shape[-1]}", number, shape[-1])
        prompt = _read_request(model, request, number, agent, budget_bytes)
        prompts.append(prompt.context.prompt.ids)
        lengths[number] = len(prompts[-1])
        for name, value in prompt.copied().items():
            lone[name][number] = value
        for place, method in methods.items():
            for name, value in prompt.compare(method).items():
                out[name][(*place, number)] = value
    yield BlendStudy(
        request, model.info, agent, lengths, **out, copied_keys=lone["keys"], copied_values=lone["values"],
        copied_kl=lone["kl"], floor=lone["floor"], wall_ms=(time.perf_counter() - began) * 1e3,
        boundary_tax=model.tokens.boundary_tax(*prompts),
    )  # fmt: skip


def _check(model: LoadedModel, request: BlendRequest) -> int:
    """The agent whose prompts are measured."""
    if not 1 <= len(request.values) <= MOST_BLENDED:
        raise OptionError(
            f"There are {len(request.values)} requests; 1 to {MOST_BLENDED:,} are allowed. Change that.",
            field="blend.values",
        )
    order = request.pipeline.unrolled.order
    agent = request.agent or order[-1]
    if agent not in order:
        raise OptionError(
            f"There is no agent {request.agent}; there are: {', '.join(map(str, order))}. Choose one.",
            field="blend.agent",
        )
    if any(member.model for member in request.pipeline.agents):
        raise OptionError(
            "Some agents run on other weights than the lab's, which this measurement does not load. Let them "
            "run on the lab's own.",
            field="blend.pipeline",
        )
    for name, allowed in (("choices", CHOICES), ("masks", MASKS)):
        chosen: tuple[Any, ...] = getattr(request, name)
        if not chosen or len(set(chosen)) != len(chosen) or not set(chosen) <= set(allowed):
            raise OptionError(
                f"{name} are {', '.join(map(str, chosen)) or 'none'}; allowed, each once: "
                f"{', '.join(allowed)}. Name one or more of them.",
                field=f"blend.{name}",
            )
    ratios = request.ratios
    if not ratios or list(ratios) != sorted(set(ratios)) or not 0 <= ratios[0] <= ratios[-1] <= 1:
        raise OptionError(
            f"The shares are {', '.join(f'{r:g}' for r in ratios) or 'none'}; ascending numbers from 0 to 1 "
            "are allowed. Change them.",
            field="blend.ratios",
        )
    for choice in request.choices:
        reason, title = method_class(choice).supports(model.info), method_class(choice).title
        if reason:
            raise OptionError(f"{title} cannot run on {model.info.name}. {reason}", field="blend.choices")
    return agent


@dataclass(frozen=True)
class _DensePrompt:
    """A prompt that was read densely, to be read again in other ways."""

    engine: Engine
    log: SampleLog
    context: PromptInContext
    dense: Prefill

    def copied(self) -> dict[str, float]:
        """Errors of position-only reuse, and the floor."""
        plan = copy_everything(self.context)
        prefill = self.engine.execute(self.context.prompt, plan, Clock())
        _, logits_again = self.engine.prefill(self.context.prompt.ids, pieces=2)
        keys, values = self._errors(prefill)
        return {
            "keys": float(keys.mean()),
            "values": float(values.mean()),
            "kl": self._kl(prefill),
            "floor": float(kl(self.dense.logits[None], logits_again[None])[0]),
        }

    def compare(self, method: Method) -> dict[str, float]:
        """What :class:`BlendStudy` holds of one setting at one prompt."""
        plan = method.plan(self.context, self.log, Clock())
        prefill = self.engine.execute(self.context.prompt, plan, Clock(), method=method, context=self.context)
        keys, values = self._errors(prefill)
        recomputed = (prefill.actions == RECOMPUTED).all(axis=0)
        return {
            "keys": float(keys.mean()),
            "values": float(values.mean()),
            "chosen": float(values[:, recomputed].mean()) if recomputed.any() else float("nan"),
            "kl": self._kl(prefill),
            "work": prefill.token_layers / self.dense.token_layers,
        }

    def _errors(self, prefill: Prefill) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        total = len(self.context.prompt.ids)
        return cache_error(prefill.cache, self.dense.cache, total, self.engine.model.rotation)

    def _kl(self, prefill: Prefill) -> float:
        return float(kl(self.dense.logits[None], prefill.logits[None])[0])


@torch.inference_mode()
def _read_request(
    model: LoadedModel, request: BlendRequest, number: int, agent: int, budget_bytes: int
) -> _DensePrompt:
    """Send one request through the pipeline, densely, up to an agent's prompt."""
    engine, log = Engine(model), SampleLog("blend", budget_bytes)
    pipeline = request.pipeline.unrolled
    state = RequestState(pipeline, engine, log)
    state.start(pipeline.check_values(request.values[number]))
    for reader in pipeline.order:
        context = state.context(reader)
        limit = min(request.max_new_tokens, pipeline.agent(reader).max_new_tokens)
        length = len(context.prompt.ids)
        engine.check_room(length, limit, reader)
        needed = 4 * (length + limit) * model.info.kv_bytes_per_token + log.bytes
        if needed > budget_bytes:
            raise BudgetError(
                f"The caches of agent {agent_label(reader)}'s prompt of request {number + 1} need "
                f"{needed / 2**20:,.0f} MiB; this lab allows {budget_bytes / 2**20:,.0f} MiB. Shorten the "
                "texts, or serve with a larger --budget-mb.",
                field="blend.values",
            )
        prefill = read_densely(engine, context, "read densely")
        if reader == agent:
            break
        [decoded] = engine.decode([prefill], Decoding(max_new_tokens=limit), context=own_context(reader))
        take_answer(state, reader, decoded)
    return _DensePrompt(engine, log, context, prefill)
