"""Which part of a reused cache changed the answer? Activation patching, part by part.

A method's cache and dense's hold the same prompt, token by token. Dense's keys and values are put into the
method's cache for some segments and layers, the last prompt token is forwarded over it, and the answer is
taken. The search looks for the smallest set of parts that brings dense's verdict back: whole segments first,
one, then two, then more by the best log-odds; then a range of layers within each; then keys or values alone;
then without what is not needed. It is greedy: a smaller set may exist. What is repaired is the cache as it
was left, so tokens that the method forwarded itself over wrong neighbours stay wrong until they are repaired.

Beside it stand sets of the same size, placed at random where the caches differ.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from backend.base.cancel import Cancel, drain, stop_if, stoppable
from backend.base.clock import Clock
from backend.base.errors import OptionError
from backend.base.ranges import check_ranges
from backend.base.text import common_prefix, show
from backend.cache.samples import PromptInContext
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.methods.base import Method
from backend.methods.candidates import slots_only
from backend.methods.patched import patched
from backend.methods.registry import make_options, method_class
from backend.methods.risk_guard import GuardedMethod
from backend.prompts.scoring import Scoring, extract_answer
from backend.records.blame import BLAME_LIMITS, BlameRecord, BlameRequest, Half, Part, Trial, cells
from backend.records.events import Progress
from backend.records.prompt import TokenizedPrompt
from backend.records.request import Decoding
from backend.session.prompt_run import own_context, read_densely
from backend.session.session import LabSession
from backend.session.streams import AnsweredRequest, stream_key
from backend.session.study import study

Set = tuple[Part, ...]
Trials = Generator[Progress, None, list[Trial]]
HALVES: tuple[Half, ...] = ("keys", "values")
BATCH_ROWS = 32
PAIRED = 6  # segments that are tried in pairs: those that help most alone
STARTS = 3  # sets of segments that are narrowed down: the smallest
REDRAWS = 100  # for a random set whose parts overlap
END = "(end)"
KEPT = "Nothing of the search was kept."


@study(BlameRequest)
def blame(
    session: LabSession, request: BlameRequest, cancel: Cancel = None
) -> Iterator[Progress | BlameRecord]:
    """Search; yields progress and, last, the record.

    Raises:
        OptionError: a number is out of range, the run is not remembered, its method cannot be looked into, or
            it gave dense's verdict.
        RunCancelled: ``cancel`` was set.
    """
    began = time.perf_counter()
    check_ranges(request, BLAME_LIMITS, "blame")
    order = request.run.pipeline.order
    if request.agent not in order:
        raise OptionError(
            f"The agent is {show(request.agent)}; this run has {', '.join(map(str, order))}. Choose one of "
            "them.",
            field="blame.agent",
        )
    yield Progress("Putting the run's cache together again", 0, request.passes)
    engine = session.engine_of(request.run, request.agent)
    context, used, past = _replayed(session, request, engine)
    dense = read_densely(engine, context, "to be compared with")
    mixed = Mixed(
        engine, context.prompt, dense, used, past.answers[request.agent],
        request.run.decoding_of(request.agent), request.run.pipeline.scoring,
    )  # fmt: skip
    yield from Search(mixed, request, session.budget_bytes, cancel).events(began)


def _replayed(
    session: LabSession, request: BlameRequest, engine: Engine
) -> tuple[PromptInContext, Prefill, AnsweredRequest]:
    """The agent's prompt, the method's cache of it, and the past request, from the log."""
    run, agent = request.run, request.agent
    choice = next((m for m in run.methods if m.label == request.method), None)
    if choice is None or choice.reference:
        listed = ", ".join(m.label for m in run.methods if not m.reference) or "none"
        raise OptionError(
            f"The method is {show(request.method)}; of this run {listed} can be looked into. Choose one.",
            field="blame.method",
        )
    cls = method_class(choice.name)
    options = make_options(choice.name, choice.options)
    if run.mode != "pinned" or cls.not_replayed:
        why = cls.not_replayed or "each method read texts of its own, so there is no dense cache beside it"
        raise OptionError(
            f"{choice.label} cannot be looked into: {why}. Choose pinned and another method.",
            field="blame.method",
        )
    stream = session.streams.get(stream_key(run, choice))
    if stream is not None and options.wants_lead_in:
        session.request_state(run, stream).encode_lead_ins()
    values = run.pipeline.check_values(run.values)
    history = stream.history if stream else []
    places = [i for i, past in enumerate(history) if _has_values(past, values) and agent in past.answers]
    if stream is None or not places:
        raise OptionError(
            "This run is not remembered any more. Run it again and ask before its "
            "memory is needed for others.",
            field="blame.run",
        )
    method, past = cls(options), history[places[-1]]
    for earlier in history[: places[-1]]:
        earlier.replay(method, stream.log)
    for context, agent_plan in past.plans(method, stream.log):
        if context.prompt.agent != agent:
            continue
        last = agent == run.pipeline.final
        plan = slots_only(agent_plan, context.prompt) if run.slots_only and last else agent_plan
        patched_method = patched(method, choice.exact, agent)
        guarded: Method = GuardedMethod(patched_method, run.gate) if run.gate and last else patched_method
        used = engine.execute(context.prompt, plan, Clock(), method=guarded, context=context)
        if used.cache.positions is not None or plan.visible is not None:
            raise OptionError(
                f"{choice.label} hides tokens from one another or gives them positions of its own, so its "
                "cache does not lie beside dense’s token by token. Choose another method.",
                field="blame.method",
            )
        return context, used, past
    raise AssertionError("a past request holds the agents that answered it")


def _has_values(past: AnsweredRequest, values: dict[str, str]) -> bool:
    """Whether a past request had these outside values."""
    texts = {name: s.text for c in past.contexts for name, s in c.samples.items()}
    return all(texts.get(name, "") == value for name, value in values.items())


class Mixed:
    """A method's cache of one prompt and dense's, and the answers from mixtures of the two.

    Args:
        dense, used: the prompt under dense and under the method; left untouched.
        answer: dense's answer, token ids.

    Raises:
        OptionError: the method gave dense's verdict.
    """

    def __init__(
        self, engine: Engine, prompt: TokenizedPrompt, dense: Prefill, used: Prefill,
        answer: tuple[int, ...], decoding: Decoding, scoring: Scoring,
    ) -> None:  # fmt: skip
        self.engine, self.prompt, self.decoding, self.scoring = engine, prompt, decoding, scoring
        self.dense_cache, self.used = dense.cache, used
        self.layers = engine.model.info.layers
        [own] = engine.decode([self.read(())], decoding)
        self.own, self.answer = own.ids, answer
        self.at = common_prefix(answer, own.ids)
        logits = engine.teacher_force([dense], answer[: self.at])[0, -1]
        stop = max(engine.stop_ids(), key=lambda token: float(logits[token]))
        self.tokens = [(*ids, stop)[self.at] for ids in (answer, own.ids)]
        self.dense = self._trial((), answer, float(self._log_odds([dense])[0]))
        if answer == own.ids or self._trial((), own.ids, 0.0).restored:
            raise OptionError(
                "The method gave dense’s verdict, so there is nothing to repair. Choose an agent and a "
                "method whose answer differs from dense’s.",
                field="blame.method",
            )

    def whole(self) -> list[Part]:
        """The segments in which the caches differ, at all layers. The last token, which is forwarded always,
        is in none."""
        last = len(self.prompt.ids) - 1
        spans = [(s.name, s.start, min(s.end, last)) for s in self.prompt.spans]
        return [Part(*span, 0, self.layers - 1) for span in spans if self._differ(*span[1:])]

    def _differ(self, start: int, end: int) -> bool:
        pairs = (
            (c.keys[..., start:end, :], c.values[..., start:end, :])
            for c in (self.dense_cache, self.used.cache)
        )
        return any(not torch.equal(a, b) for a, b in zip(*pairs, strict=True))

    def read(self, parts: Set) -> Prefill:
        """The method's cache with dense's KV in some parts, and the last token forwarded over it."""
        dense, cache = self.dense_cache, self.used.cache.copy()
        for part in parts:
            at = (slice(part.first, part.last + 1), slice(None), slice(None), slice(part.start, part.end))
            if part.half != "values":
                cache.keys[at] = dense.keys[at]
            if part.half != "keys":
                cache.values[at] = dense.values[at]
        cache.length = len(self.prompt.ids) - 1
        logits = self.engine.forward(self.engine.ids(self.prompt.ids[-1:]), cache)[0, -1]
        return replace(self.used, cache=cache, logits=logits, exact=False)

    def trials(self, sets: Sequence[Set], cancel: Cancel) -> list[Trial]:
        """Answers from several mixtures, as one batch."""
        prefills = [self.read(parts) for parts in sets]
        odds = self._log_odds(prefills).tolist()
        steps = self.engine.decode_steps(prefills, self.decoding, context=own_context(self.prompt.agent))
        decoded = drain(stoppable(steps, cancel, KEPT))
        return [self._trial(*row) for row in zip(sets, (d.ids for d in decoded), odds, strict=True)]

    def _log_odds(self, prefills: Sequence[Prefill]) -> Tensor:
        """(rows,) of dense's token over the method's where their answers part."""
        logits = self.engine.teacher_force(prefills, self.answer[: self.at])[:, -1]
        return logits[:, self.tokens[0]] - logits[:, self.tokens[1]]

    def _trial(self, parts: Set, ids: tuple[int, ...], log_odds: float) -> Trial:
        texts = [self.engine.model.tokens.decode(row) for row in (ids, self.answer)]
        own, reference = (verdict(text, self.scoring) for text in texts)
        same = own == reference if any((*own, *reference)) else texts[0] == texts[1]
        return Trial(parts, texts[0], *own, same, log_odds)


class Search:
    """The search for a small set within a budget of passes.

    Args:
        mixed: answers from mixtures of the two caches. Its own first answer counts as a pass.
        budget_bytes: what the caches of one batch may take.
    """

    def __init__(self, mixed: Mixed, request: BlameRequest, budget_bytes: int, cancel: Cancel) -> None:
        self.mixed, self.request, self.cancel = mixed, request, cancel
        self.parts, self.layers = mixed.whole(), mixed.layers
        info, tokens = mixed.engine.model.info, len(mixed.prompt.ids) + mixed.decoding.max_new_tokens
        row = 3 * tokens * info.kv_bytes_per_token + 8 * mixed.decoding.max_new_tokens * info.vocabulary
        self.rows = max(1, min(BATCH_ROWS, budget_bytes // row))
        self.results: dict[Set, Trial] = {}
        self.passes, self.limit = 1, request.passes - request.draws
        self.spent = False

    def events(self, began: float) -> Iterator[Progress | BlameRecord]:
        """Search, draw the controls, fill the map, and end with the record."""
        mixed, request = self.mixed, self.request
        nothing, everything = yield from self.ask([(), tuple(self.parts)])
        smallest = (yield from self.smallest()) if everything.restored else None
        trials, spent = tuple(self.results.values()), self.spent
        self.limit = request.passes
        draws = self.draws(smallest.parts) if smallest else []
        random = yield from self.ask(draws)
        alone = [[replace(p, first=n, last=n) for n in range(self.layers)] for p in self.parts]
        yield from self.ask([(part,) for row in alone for part in row])
        odds = [[self.results[p,].log_odds if (p,) in self.results else np.nan for p in row] for row in alone]
        names = [(*mixed.engine.model.tokens.texts(ids), END)[mixed.at] for ids in (mixed.answer, mixed.own)]
        yield BlameRecord(
            request=request,
            model=mixed.engine.model.info,
            spans=mixed.prompt.spans,
            tokens=len(mixed.prompt.ids),
            boundary_tax=mixed.engine.model.tokens.boundary_tax(mixed.prompt.ids),
            dense=mixed.dense,
            nothing=nothing,
            everything=everything,
            at=mixed.at,
            dense_token=names[0],
            method_token=names[1],
            trials=trials,
            found=smallest,
            random=tuple(random),
            mapped=tuple(p.segment for p in self.parts),
            map=np.array(odds, dtype=np.float32),
            passes=self.passes,
            spent=spent,
            wall_ms=(time.perf_counter() - began) * 1e3,
        )

    def ask(self, sets: Sequence[Set]) -> Trials:
        """Answers with these sets repaired, each tried once, as far as the passes go."""
        new = [parts for parts in dict.fromkeys(sets) if parts not in self.results]
        affordable = new[: max(0, self.limit - self.passes)]
        self.spent = self.spent or len(affordable) < len(new)
        for start in range(0, len(affordable), self.rows):
            chunk = affordable[start : start + self.rows]
            yield Progress("Repairing parts of the cache", self.passes, self.request.passes)
            stop_if(self.cancel, KEPT)
            self.passes += len(chunk)
            self.results |= zip(chunk, self.mixed.trials(chunk, self.cancel), strict=True)
        return [self.results[parts] for parts in sets if parts in self.results]

    def smallest(self) -> Generator[Progress, None, Trial | None]:
        """The smallest set that was found, or None."""
        tried = yield from self.ask([(part,) for part in self.parts])
        most = min(self.request.most_parts, len(self.parts))
        if not _restored(tried) and most > 1:
            likely = sorted(tried, key=lambda t: -t.log_odds)[:PAIRED]
            tried = yield from self.ask([_joined(*a.parts, *b.parts) for a, b in combinations(likely, 2)])
        while tried and not _restored(tried) and len(tried[0].parts) < most:
            best = max(tried, key=lambda t: t.log_odds).parts
            tried = yield from self.ask([_joined(*best, part) for part in self.parts if part not in best])
        ends = []
        for start in _restored(tried)[:STARTS]:
            ends.append((yield from self.narrowed(start)))
        return next(iter(_restored(ends)), None)

    def narrowed(self, best: Trial) -> Generator[Progress, None, Trial]:
        """A set that restores the verdict, with fewer layers, with keys or values alone, with fewer parts."""

        def better(sets: Sequence[Set]) -> Generator[Progress, None, bool]:
            nonlocal best
            good = _restored((yield from self.ask(sets)))
            best = good[0] if good else best
            return bool(good)

        def swapped(index: int, parts: Sequence[Part]) -> list[Set]:
            return [(*best.parts[:index], part, *best.parts[index + 1 :]) for part in parts]

        for index, part in enumerate(best.parts):
            width = 1
            while width < self.layers:
                last = self.layers - width
                starts = sorted({*range(0, last, max(1, width // 2)), last})
                ranges = [replace(part, first=n, last=n + width - 1) for n in starts]
                if (yield from better(swapped(index, ranges))):
                    break
                width *= 2
            going = True
            while going:
                now = best.parts[index]
                ends = [replace(now, first=now.first + 1), replace(now, last=now.last - 1)]
                going = now.last > now.first and (yield from better(swapped(index, ends)))
            yield from better(swapped(index, [replace(best.parts[index], half=half) for half in HALVES]))
        while len(best.parts) > 1:
            fewer = [(*best.parts[:i], *best.parts[i + 1 :]) for i in range(len(best.parts))]
            if not (yield from better(fewer)):
                break
        return best

    def draws(self, parts: Set) -> list[Set]:
        """Sets whose parts have as many tokens and layers as these, anywhere from the first segment in which
        the caches differ on. Parts of one set do not overlap where that can be had."""
        rng = np.random.default_rng(self.request.seed)
        low, high = self.parts[0].start, self.parts[-1].end

        def placed(part: Part) -> Part:
            tokens, layers = part.end - part.start, part.last - part.first
            start = int(rng.integers(low, high - tokens + 1))
            first = int(rng.integers(0, self.layers - layers))
            half = part.half if part.half not in HALVES else HALVES[int(rng.integers(2))]
            return Part("", start, start + tokens, first, first + layers, half)

        out = []
        for _ in range(self.request.draws):
            for _ in range(REDRAWS):
                drawn = tuple(map(placed, parts))
                if not any(_overlap(a, b) for a, b in combinations(drawn, 2)):
                    break
            out.append(drawn)
        return out


def _restored(trials: Sequence[Trial]) -> list[Trial]:
    """Those that brought dense's verdict back, the smallest first, of equals that with the best log-odds."""
    return sorted((t for t in trials if t.restored), key=lambda t: (cells(t.parts), -t.log_odds))


def _joined(*parts: Part) -> Set:
    return tuple(sorted(parts, key=lambda part: part.start))


def _overlap(a: Part, b: Part) -> bool:
    return a.start < b.end and b.start < a.end and a.first <= b.last and b.first <= a.last


def verdict(text: str, scoring: Scoring) -> tuple[str | None, str | None]:
    """An answer and a judge's choice, as far as they can be read off."""
    return extract_answer(text, scoring), extract_answer(text, "selection")
