"""Running the experiment behind H1 to H4 (:mod:`backend.records.hypotheses`): an agent loop, free and on
dense's turns.

Free: every method lives through the episodes with its own turns, one after the other in each episode, so
that what else the machine does hits all alike. Its times hold looking up, copying, reading, probing and
decoding. Pinned: dense's turns are read again under every setting of the grid, from stores that hold what
*dense* computed, so an error is a setting's own and not inherited.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backend.base.clock import Clock
from backend.base.row_file import RowFile, key_of
from backend.base.serialization import as_json
from backend.base.text import Tax
from backend.cache.kv_cache import KVCache
from backend.cache.norms import kl
from backend.cache.rope import rotate_layer
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.assembled_prompt import AssembledPrompt
from backend.engine.engine import Engine
from backend.engine.layout import lay_out
from backend.engine.prefill import Prefill
from backend.methods.base import Method, Prefilled
from backend.methods.options import Options
from backend.methods.plan import Plan
from backend.methods.registry import make_options, method_class
from backend.methods.segments.grafts import cover, without_halo
from backend.methods.segments.method import SegmentsMethod
from backend.methods.segments.options import SegmentsOptions
from backend.methods.segments.store import Owner
from backend.model.certificate import TOLERANCE
from backend.model.load import LoadedModel
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example
from backend.records.agent_loop import RIGHT, loop_pipeline, loop_questions, right_end
from backend.records.events import Progress
from backend.records.hypotheses import (
    BASE,
    RERUNS,
    SMALLEST_TAU,
    HypothesesRecord,
    HypothesesRequest,
    LiveStep,
    LoneGraft,
    Moved,
    PinnedStep,
    Rerun,
    Setting,
    record_of_rows,
    settings_of,
)
from backend.records.request import Decoding, MethodChoice
from backend.records.run import REUSED
from backend.studies.episodes import Turn, copied, entropy, levenshtein, turns

SHIFTS = (1, 16, 64, 256, 1024)
MOVED_TOKENS = 24  # tokens whose keys are moved
LOG_BYTES = 1 << 30
SAMPLING = (0.2, 0.95)  # temperature and top-p of the plan's reruns


def hypotheses(
    model: LoadedModel, request: HypothesesRequest, path: Path
) -> Iterator[Progress | HypothesesRecord]:
    """Run the episodes that ``path`` lacks, appending a row for each; ends with the record of all.

    Stores live for ``request.memory`` episodes. What a restart finds unfinished of such a block is run again
    from its beginning, so that its stores are what they would have been; a row is written once.

    Raises:
        LabError: a method cannot run on the model, or the file is damaged.
    """
    engine = Engine(model)
    for choice in request.methods:
        _options(choice, request)
    file = RowFile(path)
    rows = file.resume()
    questions = loop_questions(request.episodes, request.seed)
    keys = [_key(request, model, number) for number in range(len(questions))]
    for _, block in groupby(range(len(questions)), key=lambda n: n // request.memory):
        numbers = list(block)
        while numbers and keys[numbers[-1]] in rows:
            numbers.pop()
        bench = Bench(engine, request)
        for number in numbers:
            yield Progress(f"Episode {number + 1} of {len(questions)}", len(rows), len(questions))
            row = {"key": keys[number], "episode": number}
            row |= as_json(bench.episode(number, questions[number], keys[number] in rows))
            if keys[number] not in rows:
                rows[keys[number]] = row
                file.append(row)
    tolerance = TOLERANCE[model.dtype]
    yield record_of_rows(request, model.info, tolerance, moved_keys(model), (rows[key] for key in keys))


def _key(request: HypothesesRequest, model: LoadedModel, number: int) -> str:
    return key_of(as_json(replace(request, episodes=number + 1)), model.info.weights_hash)


def _options(choice: MethodChoice, request: HypothesesRequest) -> Options:
    """A method's options, with what all segment reuse of the request has in common."""
    common = request.common if choice.name == SegmentsMethod.name else {}
    return make_options(choice.name, {**common, **choice.options})


@dataclass
class Runner:
    """A free-running method with its log."""

    label: str
    method: Method
    log: SampleLog


class Bench:
    """A block of episodes: the free-running methods, and the stores of the grid."""

    def __init__(self, engine: Engine, request: HypothesesRequest) -> None:
        self.engine, self.request = engine, request
        self.pipeline: Pipeline = loop_pipeline(request.turns)
        self.runners = [
            Runner(
                choice.label,
                method_class(choice.name)(_options(choice, request)),
                SampleLog(choice.label, LOG_BYTES),
            )
            for choice in request.methods
        ]
        self.pinned = Pinned(engine, request)

    def episode(self, number: int, example: Example, again: bool) -> dict[str, Any]:
        """Everything that is measured of one question; ``again``: only what fills the stores."""
        sampled = self.request.reruns > number and not again
        reruns = [self.rerun(runner, number, example) for runner in self.runners] if sampled else []
        live: list[LiveStep] = []
        shift = number % len(self.runners)  # no method always goes first
        for runner in self.runners[shift:] + self.runners[:shift]:
            live += self.live(runner, number, example)
        steps, candidates, tax = self.pinned.episode(self.pipeline, number, example, again)
        measured = {"live": live, "pinned": steps, "candidates": candidates, "reruns": reruns}
        return measured | {"boundary_tax": tax}

    def live(self, runner: Runner, number: int, example: Example) -> list[LiveStep]:
        """One method through one episode."""
        decoding = Decoding(max_new_tokens=self.request.max_new_tokens)
        out = []
        for turn in turns(self.engine, self.pipeline, runner.log, example, runner.method, decoding):
            ids, plan, info = turn.context.prompt.ids, turn.prefill.plan, self.engine.model.info
            exact, grafted = copied(plan, len(ids))
            skipped = int((turn.prefill.actions == REUSED).sum()) / (info.layers * len(ids))
            out.append(
                LiveStep(
                    number, runner.label, turn.number, len(ids), exact, grafted, skipped, plan.state,
                    turn.clock.parts.get("match", 0.0), sum(turn.clock.parts.values()), turn.decode_ms,
                    right_end(turn.text, example.answer) == RIGHT if turn.last else None,
                )
            )  # fmt: skip
        return out

    def rerun(self, runner: Runner, number: int, example: Example) -> Rerun:
        """The episode five times with sampling, from the same store."""
        texts: list[tuple[int, ...]] = []
        temperature, top_p = SAMPLING
        for seed in range(RERUNS):
            decoding = Decoding(self.request.max_new_tokens, temperature, top_p, seed)
            log = SampleLog(runner.log.domain, LOG_BYTES)
            each = turns(self.engine, self.pipeline, log, example, runner.method.fork(), decoding)
            texts.append(tuple(token for turn in each for token in (*turn.ids, -1)))
        apart = [levenshtein(a, b) / max(1, len(a), len(b)) for a, b in combinations(texts, 2)]
        mean = float(np.mean([len(t) for t in texts]))
        return Rerun(number, runner.label, mean, float(np.mean(apart)), entropy(texts))


class Pinned:
    """Dense's turns under every setting, from stores that hold what dense computed."""

    def __init__(self, engine: Engine, request: HypothesesRequest) -> None:
        self.engine, self.request = engine, request
        self.log = SampleLog("pinned", LOG_BYTES)
        self.dense = method_class("dense")(make_options("dense", {}))
        self.settings = settings_of(request.grid)
        self.common = SegmentsOptions(**request.common)
        self.keepers: dict[tuple[Any, ...], SegmentsMethod] = {}  # one store for settings that store alike
        self.methods = {setting: self._method(setting) for setting in self.settings}

    def _method(self, setting: Setting) -> SegmentsMethod:
        options = replace(
            self.common,
            tau=setting.tau, halo=setting.halo, form=setting.form, layer_share=setting.layer_share,
            int8=setting.int8, context_tokens=setting.context_tokens, probe="off", budget_mb=512,
        )  # fmt: skip
        key = (setting.form, setting.layer_share, setting.int8, setting.context_tokens)
        wide = replace(options, tau=SMALLEST_TAU, context_tau=0.0)
        keeper = self.keepers.setdefault(key, SegmentsMethod(wide))
        return SegmentsMethod(options, keeper.store.under(options.match_rules))

    def episode(
        self, pipeline: Pipeline, number: int, example: Example, again: bool
    ) -> tuple[list[PinnedStep], list[LoneGraft], Tax]:
        """Measure an episode (not ``again``), then store what dense computed of it."""
        prompts: list[Sequence[int]] = []
        steps: list[PinnedStep] = []
        candidates: list[LoneGraft] = []
        decoding = Decoding(max_new_tokens=self.request.max_new_tokens)
        for turn in turns(self.engine, pipeline, self.log, example, self.dense, decoding):
            prompts.append(turn.context.prompt.ids)
            if not again:
                logits = self._every_logit(turn.context)
                [along] = self.engine.teacher_force([turn.prefill], turn.ids)
                for setting, method in self.methods.items():
                    steps.append(self._read(turn, number, setting, method, logits, along))
                candidates += self._candidates(turn, number, logits, along)
            for keeper in self.keepers.values():
                keeper.on_event(self._prefilled(turn, keeper), self.log)
        return steps, candidates, self.engine.model.tokens.boundary_tax(*prompts)

    def _prefilled(self, turn: Turn, keeper: SegmentsMethod) -> Prefilled:
        """Dense's prefill for a keeper, with the hidden states at the keeper's cut layer if it has one."""
        cut = keeper.cut_layer(turn.context)
        if cut is None:
            return Prefilled(turn.context, turn.prefill.cache, True, turn.prefill.plan)
        plan = replace(turn.prefill.plan, cut=cut)
        passed = self.engine.execute(turn.context.prompt, plan, Clock())
        return Prefilled(turn.context, passed.cache, True, plan, passed.hidden)

    def _every_logit(self, context: PromptInContext) -> Tensor:
        """Dense's logits at every token (tokens, vocabulary)."""
        ids = self.engine.ids(context.prompt.ids)
        return self.engine.forward(ids, self.engine.model.new_cache(ids.shape[1]), keep=0)[0]

    def _along(self, turn: Turn, read: Prefill, dense: Tensor) -> tuple[float, bool]:
        """Mean KL(dense || grafted) along dense's turn, and whether its tokens are the likeliest still."""
        [logits] = self.engine.teacher_force([read], turn.ids)
        same = logits[: len(turn.ids)].argmax(dim=1).tolist() == list(turn.ids)
        return float(kl(dense, logits).mean()), same

    def _read(
        self, turn: Turn, number: int, setting: Setting, method: SegmentsMethod, dense: Tensor, along: Tensor
    ) -> PinnedStep:
        context, total = turn.context, len(turn.context.prompt.ids)
        plan = method.plan(context, self.log, Clock())
        out = self.engine.execute(context.prompt, plan, Clock())
        exact, grafted = copied(plan, total)
        ends = method.ends
        boundary = self._apart(context, plan, out.cache, ends, dense) if ends else ()
        last = float(kl(dense[-1:], out.logits[None]))
        skipped = int((out.actions == REUSED).sum()) / out.actions.size
        moved, _ = self._along(turn, out, along)
        return PinnedStep(number, turn.number, setting, total, exact, grafted, boundary, last, skipped, moved)

    def _apart(
        self, context: PromptInContext, plan: Plan, cache: KVCache, ends: Sequence[int], dense: Tensor
    ) -> tuple[float, ...]:
        """KL(dense || grafted) at these tokens."""
        total = len(context.prompt.ids)
        layout = lay_out(plan, total, context.prompt.agent)
        nothing = torch.zeros(total, dtype=torch.bool)
        view = AssembledPrompt(self.engine, context, plan, layout, cache, nothing)
        return tuple(kl(dense[list(ends)], view.logits_at(ends)).tolist())

    def _candidates(self, turn: Turn, number: int, dense: Tensor, along: Tensor) -> list[LoneGraft]:
        """Graft similar spans one by one (H3): a seeded draw of those found with the smallest tau."""
        method = next(m for s, m in self.methods.items() if replace(s, tau=BASE.tau, halo=BASE.halo) == BASE)
        context, out = turn.context, []
        ids, rules = context.prompt.ids, method.options.match_rules
        wide = method.store.under(replace(rules, tau=SMALLEST_TAU, context_tau=0.0))
        owner = Owner(self.log.domain, context.weights)
        candidates = []
        for _, best, _ in wide.find(owner, ids, method.cut(context)):
            if best is not None and not all(
                g.exact for run in cover([best], len(ids) - 1) for g in run.grafts
            ):
                candidates.append(best)
        rng = np.random.default_rng([self.request.seed, number, turn.number])
        draw = rng.permutation(len(candidates))[: self.request.candidates]
        for best in (candidates[i] for i in sorted(draw)):
            inside = without_halo(cover([best], len(ids) - 1), BASE.halo, True)
            if all(graft.exact for run in inside for graft in run.grafts):  # or nothing is left
                continue
            plan = method.graft(context, inside)
            read = self.engine.execute(context.prompt, plan, Clock())
            [*_, end] = self._apart(context, plan, read.cache, [inside[-1].end - 1], dense)
            last = float(kl(dense[-1:], read.logits[None]))
            similar = best.similarity, best.context, best.cut.tokens
            out.append(LoneGraft(number, turn.number, *similar, end, last, *self._along(turn, read, along)))
        return out


@torch.inference_mode()
def moved_keys(model: LoadedModel) -> tuple[Moved, ...]:
    """Keys computed from position 0 on and moved, against keys computed where they are moved to."""
    engine = Engine(model)
    ids = 5 + torch.randperm(model.info.vocabulary - 6, generator=torch.Generator().manual_seed(0))
    batch = ids[None, :MOVED_TOKENS].to(model.device)

    def keys(start: int) -> Tensor:
        cache = model.new_cache(MOVED_TOKENS)
        engine.forward(batch, cache, positions=torch.arange(start, start + MOVED_TOKENS))
        return cache.keys[:, 0]

    at_start, out = keys(0), []
    for shift in (s for s in SHIFTS if s + MOVED_TOKENS <= model.info.context_tokens):
        at_shift, turns_by = keys(shift), torch.full((MOVED_TOKENS,), shift, device=model.device)
        apart = [
            float((rotate_layer(a, turns_by, rule).float() - b.float()).norm() / b.float().norm())
            for a, b, rule in zip(at_start, at_shift, model.rotation.layers, strict=True)
        ]
        out.append(Moved(shift, max(apart)))
    return tuple(out)
