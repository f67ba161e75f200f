"""How familiar a session's model is with a request: before it is run, from its prompts; after, with dense's
answers. Plain forward passes of their own, outside everything that is timed or counted."""

from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from backend.base.clock import Clock
from backend.base.serialization import Floats
from backend.engine.engine import Engine
from backend.engine.runner import ModelRunner
from backend.engine.speed import measured_speed
from backend.engine.surprisal import filled_in, surprisal
from backend.methods.dense import dense_plan
from backend.model.load import LoadedModel
from backend.prompts.presets import load_preset, preset_names, preset_requests
from backend.records.familiarity import (
    AgentSurprisal,
    Calibration,
    Familiarity,
    Outlook,
    Reading,
    outlook,
    usual_surprisal,
)
from backend.records.prompt import Prompt, Span, TokenizedPrompt
from backend.records.request import Decoding, RunRequest
from backend.session.workspace import Workspace

CALIBRATION = "familiarity.json"  # beside the weights
COMPARED = 2  # requests of the scenario that weights without a calibration are compared with
MOST_SECONDS = 2.0  # what it may take while somebody types
MOST_WORDS = 3

_CALIBRATIONS: WeakKeyDictionary[Any, Calibration | None] = WeakKeyDictionary()  # by the model's module
_USUAL: WeakKeyDictionary[Any, dict[Any, float | None]] = WeakKeyDictionary()  # then by scenario


def calibration_file(model: LoadedModel) -> Path | None:
    """The path of a model's calibration, whether it exists or not; None for a model made in memory."""
    folder = str(getattr(model.module, "name_or_path", ""))  # empty: made in memory
    return Path(folder) / CALIBRATION if folder and Path(folder).is_dir() else None


def calibration_of(model: LoadedModel) -> Calibration | None:
    """The calibration beside a model's weights, if it was made for exactly them."""
    if model.module not in _CALIBRATIONS:
        file = calibration_file(model)
        calibration = Calibration.load(file) if file else None
        fits = calibration is not None and calibration.weights_hash == model.info.weights_hash
        _CALIBRATIONS[model.module] = calibration if fits else None
    return _CALIBRATIONS[model.module]


# -- reading


def surprisals(model: LoadedModel, ids: Sequence[int], answer: Sequence[int] = ()) -> tuple[Floats, Floats]:
    """Surprisal of a prompt's tokens and of the answer's, (tokens,) each; NaN for the first, and for results
    that were filled in."""
    tokens = [*ids, *answer]
    nats = surprisal(ModelRunner(model), tokens).cpu().numpy().astype(np.float32)
    nats[[0, *filled_in(model.tokens, tokens)]] = np.nan
    return nats[: len(ids)], nats[len(ids) :]


def reading(spans: Iterable[Span], outside: Collection[str], tokens: Floats, answer: Floats) -> Reading:
    """The part of a prompt that is known before any agent answers, and dense's answer.

    Args:
        spans: of the prompt, whose beginning ``tokens`` may be.
        outside: names of the texts that come from outside.
    """
    typed, end = np.zeros(len(tokens), dtype=bool), len(tokens)
    for span in spans:
        if span.kind == "placeholder" and span.name not in outside:
            end = span.start
            break
        typed[span.start : span.end] = span.kind == "placeholder"
    return Reading(tokens[:end], typed[:end], answer)


def known_prompts(session: Workspace, request: RunRequest) -> list[TokenizedPrompt]:
    """Each agent's prompt up to the first text that an agent or its tool will write."""
    pipeline, tokens, out = request.pipeline, session.model.tokens, []
    values = pipeline.check_values(request.values)
    values_ids = {name: tokens.encode(text) for name, text in values.items()}
    for agent in pipeline.order:
        holes = {hole.name for hole in pipeline.template(agent).placeholders}
        prompt = tokens.prompt(pipeline, agent, {name: values_ids.get(name, ()) for name in holes})
        ends = [s.start for s in prompt.spans if s.kind == "placeholder" and s.name not in values_ids]
        out.append(TokenizedPrompt(agent, prompt.ids[: min(ends, default=None)], prompt.spans))
    return [prompt for prompt in out if prompt.ids]


def _readings(session: Workspace, request: RunRequest, prompts: Iterable[TokenizedPrompt]) -> list[Reading]:
    out = []
    for prompt in prompts:
        engine = session.engine_of(request, prompt.agent)
        engine.check_room(len(prompt.ids), 0, prompt.agent)
        tokens, answer = surprisals(engine.model, prompt.ids)
        out.append(reading(prompt.spans, request.pipeline.inputs, tokens, answer))
    return out


# -- judging


def typed_outlook(session: Workspace, request: RunRequest) -> Outlook | None:
    """The outlook of a request from its prompts, and from the first agent's answer where there is time for
    it; None where nothing can be compared, or it would take longer than ``MOST_SECONDS``.

    Raises:
        LabError: the request cannot be run.
    """
    prompts = known_prompts(session, request)
    tokens = sum(len(prompt.ids) for prompt in prompts)
    calibration = _calibration(session, request)
    is_calibrated = calibration is not None or _scenario(request) in _USUAL.get(session.model.module, {})
    by_token, by_step = measured_speed(session.engine, session.scheduler)
    seconds = tokens * (1 if is_calibrated else 1 + COMPARED) * by_token
    if seconds > MOST_SECONDS:
        return None
    first = prompts[:1] if calibration is not None and _is_whole(prompts) else []
    for prompt in first:
        seconds += len(prompt.ids) * by_token + request.decoding_of(prompt.agent).max_new_tokens * by_step
    if seconds > MOST_SECONDS:
        first = []

    outlooks: list[Outlook] = []

    def work() -> Generator[object, None, None]:
        usual = _usual(session, request)
        readings = _readings(session, request, prompts)
        yield None
        if usual is None or not readings:
            return
        for prompt in first:
            readings[0] = replace(readings[0], answer=(yield from _answer_nats(session, request, prompt)))
        texts = [session.model.tokens.texts(prompt.ids) for prompt in prompts]
        words = surprising_words(list(zip(texts, readings, strict=True)), usual, _wrapped_by(session))
        predictor = None
        if calibration is not None:
            predictor = calibration.first if first else calibration.prompt
        outlooks.append(outlook(readings, words, usual, predictor))

    for _ in session.scheduler.by_turns(work()):
        pass
    return next(iter(outlooks), None)


def _is_whole(prompts: Sequence[TokenizedPrompt]) -> bool:
    """Whether the first agent's prompt is known to its end, so that it can answer."""
    return bool(prompts) and len(prompts[0].ids) == prompts[0].spans[-1].end


def _answer_nats(
    session: Workspace, request: RunRequest, prompt: TokenizedPrompt
) -> Generator[object, None, Floats]:
    """(answer tokens,) nats of dense's answer to a prompt; other work may run between two of its tokens."""
    engine = Engine(session.engine_of(request, prompt.agent).model)
    prefill = engine.execute(prompt, dense_plan(prompt, "familiarity"), Clock())
    decoding = Decoding(request.decoding_of(prompt.agent).max_new_tokens)
    (decoded,) = yield from engine.decode_steps([prefill], decoding, scheduler=session.scheduler)
    return surprisals(engine.model, prompt.ids, decoded.ids)[1]


def agent_surprisal(
    model: LoadedModel, prompt: TokenizedPrompt, index: int, answer: Sequence[int]
) -> AgentSurprisal:
    """The model's surprisal at one agent's prompt and at dense's answer."""
    return AgentSurprisal(prompt.agent, index, *surprisals(model, prompt.ids, answer))


def run_familiarity(
    session: Workspace, request: RunRequest, prompts: Sequence[Prompt], agents: Sequence[AgentSurprisal]
) -> Familiarity | None:
    """A run's surprisal and its outlook; None where nothing can be compared."""
    usual = _usual(session, request)
    if usual is None or not agents:
        return None
    outside = request.pipeline.inputs
    readings = [reading(prompts[a.prompt].spans, outside, a.tokens, a.answer) for a in agents]
    texts = [prompts[a.prompt].texts for a in agents]
    words = surprising_words(list(zip(texts, readings, strict=True)), usual, _wrapped_by(session))
    calibration = _calibration(session, request)
    outlook_of_run = outlook(readings, words, usual, calibration.run if calibration else None)
    return Familiarity(tuple(agents), usual, outlook_of_run)


def _calibration(session: Workspace, request: RunRequest) -> Calibration | None:
    """The calibration for a request; None where some agent runs on other weights than the lab's own."""
    own_weights = not any(agent.model for agent in request.pipeline.agents)
    return calibration_of(session.model) if own_weights else None


def _scenario(request: RunRequest) -> tuple[str, ...]:
    return (request.pipeline.name, *(agent.model for agent in request.pipeline.agents))


def _usual(session: Workspace, request: RunRequest) -> float | None:
    """The nats beyond which a token surprises: by the calibration, or measured once on the first requests of
    the scenario as it ships; None where it has none."""
    calibration = _calibration(session, request)
    if calibration is not None:
        return calibration.usual
    measured, key = _USUAL.setdefault(session.model.module, {}), _scenario(request)
    if key not in measured:
        measured[key] = _measured_surprise(session, request)
    return measured[key]


def _measured_surprise(session: Workspace, request: RunRequest) -> float | None:
    if request.pipeline.name not in preset_names():
        return None
    preset = load_preset(request.pipeline.name)
    if preset.request_source == "file":
        return None
    readings: list[Reading] = []
    for example in preset_requests(preset, COMPARED):
        shipped = RunRequest(preset.pipeline, example.values, ())
        readings += _readings(session, shipped, known_prompts(session, shipped))
    return usual_surprisal(readings)


# -- words


def _wrapped_by(session: Workspace) -> tuple[int, int]:
    """How many tokens the chat template puts before a prompt and behind it."""
    tokens = session.model.tokens
    return len(tokens.opening), len(tokens.closing)


def surprising_words(
    parts: Sequence[tuple[Sequence[str], Reading]], usual: float, wrapped: tuple[int, int] = (0, 0)
) -> tuple[str, ...]:
    """The most surprising words, at most ``MOST_WORDS``; of the texts from outside if any surprises there.

    Args:
        parts: of each agent, what each token adds to the text, and the reading of the first of them.
        wrapped: tokens of the chat template at both ends, which are nobody's words.
    """
    opening, closing = wrapped
    for typed in (True, False):
        words: dict[str, float] = {}
        for texts, reading in parts:
            inside = slice(opening, len(reading.surprisal) - closing)
            texts, nats, is_typed = texts[inside], reading.surprisal[inside], reading.typed[inside]
            for start, end in _words(texts):
                word_nats = nats[start:end][is_typed[start:end] == typed]
                word_nats = word_nats[~np.isnan(word_nats)]
                word = "".join(texts[start:end]).strip(" \n\t.,;:!?()\"'")
                if len(word_nats) and word and (most := float(word_nats.max())) > usual:
                    words[word] = max(words.get(word, 0.0), most)
        if words:
            return tuple(sorted(words, key=lambda word: -words[word])[:MOST_WORDS])
    return ()


def _words(texts: Sequence[str]) -> Iterable[tuple[int, int]]:
    """Token indices ``[start, end)`` of the words: a word begins at a token that starts with white space, and
    behind one that ends with it."""
    begins = [
        i for i, text in enumerate(texts) if i == 0 or text[:1].isspace() or texts[i - 1][-1:].isspace()
    ]
    return pairwise([*begins, len(texts)])
