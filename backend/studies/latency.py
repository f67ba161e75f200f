"""Whole requests, one method by itself: from a request's arrival to the last agent's last token.

Sessions let compared methods decode as one batch, so that what one method alone would take is not in their
times. Here each method serves a pipeline alone, one request after the other, over a log and pools of its own
(free-running). Everything that it does is in the time: encoding outside texts, gate, matching, correction,
prefill, decoding, and what it records for later requests.
"""

import time
from dataclasses import dataclass

from backend.base.errors import NotRelocatableError, OptionError
from backend.bench.common import synchronise
from backend.cache.samples import SampleLog
from backend.engine.engine import Engine
from backend.methods.base import Arrived, Finished
from backend.methods.registry import make_options, method_class
from backend.model.load import LoadedModel
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example
from backend.prompts.scoring import extract_answer, right
from backend.records.request import Decoding, MethodChoice
from backend.session.prompt_run import own_context, read_prompt, take_answer
from backend.session.request_state import RequestState, record_offsets

LOG_BYTES = 4 << 30


@dataclass(frozen=True)
class Served:
    """One request.

    Attributes:
        wall_ms: from arrival to the last token.
        ttft_ms: of it, what stands between each agent's last upstream token and its first token, summed.
        decode_ms: all tokens behind the first ones.
        agents, agents_reused: prompts, and those of them copied whole.
        correct: None where no answer is known.
    """

    wall_ms: float
    ttft_ms: float
    decode_ms: float
    agents: int
    agents_reused: int
    answer: str
    correct: bool | None


class Server:
    """One method that serves a pipeline.

    Args:
        model: runs all agents.
        pipeline: without tools.
        choice: the method with its options.

    Raises:
        OptionError: the pipeline has tools, or an option is unknown.
        NotRelocatableError: the method cannot run on the model.
    """

    def __init__(self, model: LoadedModel, pipeline: Pipeline, choice: MethodChoice) -> None:
        if any(agent.tool for agent in pipeline.agents):
            raise OptionError(
                f"{pipeline.name} has agents with tools, which a whole request is not timed with. Choose a "
                "pipeline without.",
                field="latency.pipeline",
            )
        cls = method_class(choice.name)
        self.options = make_options(choice.name, choice.options)
        if reason := cls.supports(model.info):
            raise NotRelocatableError(
                f"{cls.title} cannot run on {model.info.name}. {reason}", field="methods"
            )
        self.model, self.engine, self.pipeline = model, Engine(model), pipeline
        self.method = cls(self.options)
        self.log = SampleLog("latency", LOG_BYTES)

    def serve(self, example: Example, longest: int | None = None) -> Served:
        """Serve one request.

        Args:
            example: its outside texts, and its known answer if there is one.
            longest: most tokens of an answer; else each agent's own limit.

        Raises:
            LabError: it cannot be run.
        """
        values = self.pipeline.check_values(dict(example.values))
        self._wait()
        began = time.perf_counter()
        state = RequestState(self.pipeline, self.engine, self.log)
        if self.options.wants_lead_in:
            state.encode_lead_ins()
        first = time.perf_counter()
        for sample in state.start(values):
            self.method.on_event(Arrived(sample), self.log)
        if not self.method.needs_bases:  # encoded whatever the method, so taken out of its time
            spared = sum(state.base_ms.values()) / 1e3
            began, first = began + spared, first + spared
        ttft = decode = 0.0
        reused = 0
        for agent in self.pipeline.order:
            context = state.context(agent)
            limit = self.pipeline.agent(agent).max_new_tokens
            limit = limit if longest is None else min(limit, longest)
            self.engine.check_room(len(context.prompt.ids), limit, agent)
            clock = self.engine.clock()
            context, prefill = read_prompt(self.engine, context, self.method, self.log, clock)
            self._wait()
            middle = time.perf_counter()
            ttft += middle - first
            if prefill.plan.plain:
                record_offsets(context, prefill.cache, self.engine, self.method.needed())
            [decoded] = self.engine.decode([prefill], Decoding(limit), context=own_context(agent))
            self._wait()
            first = time.perf_counter()
            decode += first - middle
            reused += prefill.plan.state == "reused"
            text, arrived, _ = take_answer(state, agent, decoded)
            for sample in arrived:
                self.method.on_event(Arrived(sample), self.log)
        self.method.on_event(Finished(), self.log)
        wall = time.perf_counter() - began
        self.method.forget(set(self.log.shrink(self.method.needed())))
        scoring = self.pipeline.scoring
        answer = extract_answer(text, scoring) or ""
        expected = example.answer
        return Served(
            wall * 1e3, ttft * 1e3, decode * 1e3, len(self.pipeline.order), reused, answer,
            None if expected is None else right(answer or None, expected, scoring),
        )  # fmt: skip

    def _wait(self) -> None:
        synchronise(self.model.device)
