"""Fills the first scenario's pools when the server starts, before anybody clicks.

*Run* on an unchanged scenario first fills its pools, with the same result for everybody
(:mod:`backend.session.shared_warm_up`). On a new server the first visitor would wait seconds for it. This
warm-up takes a turn at the model, so a visitor who clicks meanwhile waits no longer than for their own.
"""

import logging
import threading
from collections.abc import Sequence

from backend.base.errors import LabError
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example
from backend.records.request import Decoding, MethodChoice, RunRequest
from lab_app.ui.scenarios import USUAL_WARM, WarmUpSource, find_preset
from lab_app.visits.queue import wait_for_turn
from lab_app.visits.visits import VisitStore

LOG = logging.getLogger("lab_app")
MOST_SECONDS = 30.0  # a warm-up that would take longer is left out, so that nobody waits for it


def fill_first_pools(lab: VisitStore, preset: str) -> None:
    """Fill the pools of a shipped scenario for all visitors; a failure is only logged."""
    try:
        scenario = find_preset(preset)
        # for the scenario's own problems, and for those that people type
        for open_words in dict.fromkeys((False, scenario.has_open_words)):
            _fill(lab, scenario.pipeline, WarmUpSource(open_words).draw(scenario, USUAL_WARM))
    except LabError as error:
        LOG.info("the first pools stay empty: %s", error)
    except Exception:
        LOG.exception("the first pools stay empty")


def _fill(lab: VisitStore, pipeline: Pipeline, examples: Sequence[Example]) -> None:
    request = RunRequest(
        pipeline.unrolled, dict(examples[0].values), (MethodChoice("dense"),), "pinned",
        Decoding(pipeline.longest_answer),
    )  # fmt: skip
    engine = lab.engine()
    if engine.estimate(request, len(examples)).seconds > MOST_SECONDS:
        return
    with lab.in_line() as place:
        for _ in wait_for_turn(place):
            pass
        for _ in engine.warm_up(request, examples, shared=True):
            pass
    engine.forget()


def prefill_pools(lab: VisitStore, preset: str) -> threading.Thread:
    """Fill them in a thread that does not keep the server alive."""
    thread = threading.Thread(target=fill_first_pools, args=(lab, preset), name="first-pools", daemon=True)
    thread.start()
    return thread
