"""A log's calls, sampled and read: what the gate and the X-ray with a model have in common.

Every sampled call finds the same pools: those that the first calls with its template left. Given these,
calls are independent, so a measured share holds for calls like those in the log. The exact prefix cache holds
what the call's own session had sent before.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from backend.base.cancel import Cancel
from backend.base.errors import LabError, OptionError
from backend.base.text import common_prefix
from backend.logs.call_pipeline import CallPipelines, Section, by_template
from backend.logs.calls import Call
from backend.methods.base import Method
from backend.methods.registry import method_class
from backend.model.load import LoadedModel
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example
from backend.records.events import RunDone
from backend.records.log_gate import Sampling
from backend.records.request import Decoding, MethodChoice, RunRequest, with_reference
from backend.records.run import RunRecord
from backend.session.session import LabSession
from backend.session.shared_warm_up import WarmUpCache
from backend.session.streams import stream_key

MOST_CALLS = 20_000


class LoggedCalls:
    """Calls of a log that a model can read.

    Args:
        model: what reads them.
        calls: in the log's order.
        methods: beside dense.
        sampling: how many first calls only fill pools, how long answers are, and what of them is compared.

    Attributes:
        agents: of each call.
        refused: why calls cannot be read.
        warmed: how many only fill pools; ``eligible`` are the others, which may be sampled.

    Raises:
        OptionError: there are more calls than are held at once.
    """

    def __init__(
        self, model: LoadedModel, calls: Sequence[Call], methods: Sequence[MethodChoice], sampling: Sampling
    ) -> None:
        if len(calls) > MOST_CALLS:
            raise OptionError(
                f"The log holds more than {MOST_CALLS:,} calls. Give a part of it.", field="log"
            )
        self.model, self.calls, self.sampling = model, calls, sampling
        self.methods = with_reference(methods)
        self.whole = whole = CallPipelines(calls)
        self.agents = whole.agents
        self.refused: dict[int, str] = {}
        self._pipelines: dict[int, Pipeline] = {}
        self._values: dict[int, dict[str, str]] = {}
        for index in range(len(calls)):
            try:
                pipeline, self._values[index] = whole.pipeline(index, sampling.max_new_tokens)
                self._pipelines[index] = replace(pipeline, scoring=sampling.same)
            except LabError as error:
                self.refused[index] = str(error)
        classes = [method_class(method.name) for method in self.methods]
        warm = sampling.warm if any(cls.on_event is not Method.on_event for cls in classes) else 0
        groups = by_template(self._pipelines)
        self._warming = {
            index: group[: min(warm, len(group) // 2)] for group in groups.values() for index in group
        }
        warmed = {index for first in self._warming.values() for index in first}
        self.warmed = len(warmed)
        self._warm_ups = WarmUpCache()  # not the model's: the texts of a log are its owner's alone
        self.eligible = [index for index in range(len(calls)) if index not in warmed]
        self._by_beginnings = not all(cls.shares_texts for cls in classes[1:])

    def request(self, index: int) -> RunRequest:
        """A call as a run, answered greedily."""
        return self._as_run(self._pipelines[index], self._values[index], self.methods)

    def laid_out(
        self, index: int, sections: Sequence[Section] | None, methods: Sequence[MethodChoice], *,
        paragraphs: bool = False,
    ) -> RunRequest:  # fmt: skip
        """The same with other texts, or otherwise cut; see :class:`backend.logs.call_pipeline.CallPipelines`.

        Raises:
            PromptError: a text cannot be used.
        """
        longest = self.sampling.max_new_tokens
        pipeline, values = self.whole.pipeline(index, longest, sections, paragraphs=paragraphs)
        return self._as_run(replace(pipeline, scoring=self.sampling.same), values, with_reference(methods))

    def _as_run(
        self, pipeline: Pipeline, values: dict[str, str], methods: Sequence[MethodChoice]
    ) -> RunRequest:
        decoding = Decoding(self.sampling.max_new_tokens, seed=self.sampling.seed)
        return RunRequest(pipeline, values, tuple(methods), decoding=decoding, probe_offsets=False)

    def read(self, index: int, session: LabSession, cancel: Cancel = None) -> RunRecord:
        """Read a call densely and under every method.

        Args:
            index: one that is not refused.
            session: a new one; afterwards it remembers the call.

        Raises:
            LabError: it cannot be read.
            RunCancelled: ``cancel`` was set.
        """
        run, first = self.request(index), self._warming[index]
        session.kept_warm_ups = self._warm_ups
        session.memory.join(self._warm_ups)
        if first:
            for _ in session.warm_up(
                run, [Example(self._values[i]) for i in first], cancel=cancel, shared=True
            ):
                pass
        if self._by_beginnings:
            self._keep_beginning(index, session, run)
        [record] = [event.record for event in session.run(run, cancel=cancel) if isinstance(event, RunDone)]
        return record

    def _keep_beginning(self, index: int, session: LabSession, run: RunRequest) -> None:
        """Put into the exact prefix cache what it would hold of this call's beginning, had it seen all
        earlier calls of the session. That is a beginning of one of them, and its keys and values depend on
        nothing behind it, so reading it alone is enough."""
        texts = list(_texts(self.calls[index]))
        earlier = [
            (_alike(texts, _texts(self.calls[i])), i)
            for i in range(index)
            if i in self._pipelines and self.calls[i].session == self.calls[index].session
        ]
        if not earlier:
            return
        own = self._ids(index)
        shared = own[: common_prefix(own, self._ids(max(earlier)[1]))]
        if not shared:
            return
        engine = session.engine
        engine.check_room(len(shared), 1, 1)
        cache, _ = engine.prefill(shared)
        segment = cache.segment(
            0, len(shared), self.model.rotation, exact=True, context="an earlier call of its session"
        )
        session.stream(stream_key(run, run.methods[0])).log.remember_prompt(shared, segment)

    def _ids(self, index: int) -> tuple[int, ...]:
        """A call's prompt in tokens."""
        tokens, pipeline = self.model.tokens, self._pipelines[index]
        texts = {name: tokens.encode(text) for name, text in self._values[index].items()}
        return tokens.prompt(pipeline, pipeline.final, texts).ids


def _texts(call: Call) -> Iterator[str]:
    yield from (tool.text for tool in call.tools)
    yield from (f"{message.role}\n{message.text}" for message in call.messages)


def _alike(texts: Sequence[str], others: Iterator[str]) -> tuple[int, int]:
    """How many texts two calls begin with alike, and how many characters of the next."""
    for number, (one, other) in enumerate(zip(texts, others, strict=False)):
        if one != other:
            return number, common_prefix(one, other)
    return len(texts), 0


def sampled(
    eligible: Sequence[int], agents: Sequence[str], count: int, seed: int, *, by_agent: bool = True
) -> list[int]:
    """Calls in the order in which they are read.

    Args:
        eligible: those that may be sampled.
        agents: of every call of the log.
        count: of the sampled calls, at most.
        by_agent: agents have the same shares as in the log; else calls are drawn regardless of agent, as a
            test needs that may stop after any call.
    """
    rng = random.Random(f"gate:{seed}")
    count = min(count, len(eligible))
    if not by_agent:
        return rng.sample(eligible, count)
    of_agent: dict[str, list[int]] = defaultdict(list)
    for index in eligible:
        of_agent[agents[index]].append(index)
    exact = {agent: count * len(own) / max(1, len(eligible)) for agent, own in of_agent.items()}
    share = {agent: int(part) for agent, part in exact.items()}
    for agent in sorted(exact, key=lambda a: (share[a] - exact[a], a))[: count - sum(share.values())]:
        share[agent] += 1
    chosen = [index for agent, own in of_agent.items() for index in rng.sample(own, share[agent])]
    rng.shuffle(chosen)
    return chosen
