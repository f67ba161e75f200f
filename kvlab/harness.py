"""The LM Evaluation Harness under a reuse method: anybody's tasks, read as a serving system with reuse would.

``python -m kvlab.harness --model kvlab --model_args model=embedded,method=epic --tasks arc_easy`` takes every
flag of ``lm_eval``. In a program, ``lm_eval.simple_evaluate(model="kvlab")`` is known once this module is
imported. Options of ``model_args``:

- ``model``: *embedded*, a folder in the hub's layout, or a hub id.
- ``method``: as in ``--methods`` of ``kvlab run``, one; *dense* for comparison.
- ``chat``: whether prompts go into the model's chat template; without, as most published figures have it.
- ``budget_mb``: what the session may keep.

A task gives one prompt as text. Its paragraphs, which are mostly the worked examples in front and the
question behind them, become texts that reuse may copy, each encoded by itself; so a prompt of one paragraph
has nothing to approximate. Pools (of kvcomm) fill as the task goes on, from prompts with as many paragraphs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from backend.base.errors import LabError, OptionError
from backend.prompts.conversation import pipeline_of_parts
from backend.records.events import RunDone
from backend.records.request import Decoding, RunRequest, with_reference

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError:
    missing = "kvlab.harness needs lm_eval. Install it with pip install 'kv-reuse-lab[harness]'."
    if __name__ == "__main__":
        sys.exit(missing)
    raise ImportError(missing) from None

from torch import Tensor

from backend.methods.registry import parse_methods
from backend.model.load import load_model
from backend.session.session import LabSession
from backend.session.streams import PromptRun

_PARAGRAPHS = re.compile(r"(\n\n+)")
ANSWER_TOKENS = 256  # where a task names no limit
Scored = tuple[float, bool]  # log probability in nats; whether greedy decoding would have written it


class ScoringSession(LabSession):
    """A session that leads the last method along a given continuation while its cache is there.

    Attributes:
        continuation: token ids; none to lead nowhere.
        scored: what the last run found.
    """

    continuation: Sequence[int] = ()
    scored: Scored = (0.0, True)

    def finish(self, rows: list[PromptRun]) -> None:
        """Score the continuation under the last method."""
        if self.continuation:
            logits = self.engine.teacher_force([rows[-1].prefill], self.continuation[:-1])[0]
            self.scored = scored(logits, self.engine.ids(self.continuation)[0])


def scored(logits: Tensor, ids: Tensor) -> Scored:
    """A continuation's log probability.

    Args:
        logits: (tokens, vocabulary), each row of what comes next.
        ids: (tokens,) what came.
    """
    chances = logits.float().log_softmax(-1).gather(-1, ids[:, None])
    return float(chances.sum()), bool((logits.argmax(-1) == ids).all())


@register_model("kvlab")
class ReuseLM(LM):  # type: ignore[misc]
    """A model of the harness; see the module. ``device`` and batch sizes are the harness's own flags; prompts
    are read one by one.

    Raises:
        LabError: an option cannot be used, or the model cannot be loaded.
    """

    def __init__(
        self,
        model: str = "embedded",
        method: str = "naive",
        chat: bool = False,
        budget_mb: int = 4096,
        device: str | None = None,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        chosen = with_reference(parse_methods(method))
        if len(chosen) > 2:
            raise OptionError(f"method is {method!r}; one is allowed. Name one.", field="method")
        self.methods, self.chat = chosen, bool(chat)
        self.session = ScoringSession(load_model(model, device=device), budget_bytes=int(budget_mb) << 20)
        self.tokens = self.session.model.tokens

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """What the method answers, each answer up to the first of its task's stop texts."""
        return [self._kept("generate_until", one.args, self._answer(*one.args)) for one in requests]

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[Scored]:
        """How likely each continuation is behind its context, read under the method."""
        return [self._kept("loglikelihood", one.args, self._likelihood(*one.args)) for one in requests]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """How likely whole texts are; nothing stands before them, so there is nothing to reuse."""
        return [self._alone(self.tokens.encode(one.args[0]))[0] for one in requests]

    def _kept(self, name: str, args: tuple[Any, ...], found: Any) -> Any:
        self.cache_hook.add_partial(name, args, found)
        return found

    def _answer(self, context: str, options: Mapping[str, Any]) -> str:
        warm = float(options.get("temperature", 0.0)) if options.get("do_sample") else 0.0
        longest = int(options.get("max_gen_toks", options.get("max_tokens", ANSWER_TOKENS)))
        text = self._run(context, Decoding(longest, warm))
        stops = options.get("until") or ()
        for stop in [stops] if isinstance(stops, str) else stops:
            text = text.partition(stop)[0] if stop else text
        return text

    def _likelihood(self, context: str, continuation: str) -> Scored:
        bare = context.rstrip()
        ids = self.tokens.encode(context[len(bare) :] + continuation)  # blanks go with the word behind them
        if not bare or not ids:
            return self._alone(ids)
        self.session.continuation = ids
        try:
            self._run(bare, Decoding(1))
        finally:
            self.session.continuation = ()
        return self.session.scored

    def _run(self, context: str, decoding: Decoding) -> str:
        """Read a prompt under the method, and answer."""
        pipeline, values = pipeline_of_parts(
            list(_parts(context)), name="task", title="Task", max_new_tokens=decoding.max_new_tokens
        )
        pipeline = replace(pipeline, chat=self.chat)
        request = RunRequest(pipeline, values, self.methods, decoding=decoding, probe_offsets=False)
        [record] = [event.record for event in self.session.run(request) if isinstance(event, RunDone)]
        return record.outcome(pipeline.final, self.methods[-1].label).text

    def _alone(self, ids: Sequence[int]) -> Scored:
        """A text behind the begin-of-sequence token."""
        if not ids:
            return 0.0, True
        engine = self.session.engine
        lead = self.tokens.bos or tuple(engine.stop_ids())[:1]
        engine.check_room(len(lead) + len(ids), 1, 1)
        cache = self.session.model.new_cache(len(lead) + len(ids))
        logits = engine.forward(engine.ids([*lead, *ids[:-1]]), cache, keep=0)[0, len(lead) - 1 :]
        return scored(logits, engine.ids(ids)[0])


def _parts(context: str) -> Iterator[tuple[str, bool]]:
    """Paragraphs, which may be copied, and the blank lines between them."""
    for number, part in enumerate(_PARAGRAPHS.split(context)):
        yield part, bool(number % 2)


def main() -> None:
    """``lm_eval``, with this model."""
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except LabError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
