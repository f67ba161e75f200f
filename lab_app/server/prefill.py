"""What the first click would wait for, computed while nobody has clicked yet.

*Run* on a scenario as it stands first sends its requests to the pools, and what they leave is the same for
everybody (:mod:`backend.session.shared_warm_up`). A server that has just started has nobody to have done it,
so its first visitor would wait for it, seconds before the first word. It is done in line, so whoever clicks
meanwhile waits no longer than for doing it themselves.
"""

import logging
import threading

from backend.base.errors import LabError
from backend.prompts.presets import preset_requests
from backend.records.request import Decoding, MethodChoice, RunRequest
from lab_app.ui.scenarios import USUAL_WARM, find_preset
from lab_app.visits.queue import wait_for_turn
from lab_app.visits.visits import VisitStore

LOG = logging.getLogger("lab_app")
MOST_SECONDS = 30.0  # on slower machines and larger models nobody's turn shall wait for it


def fill_first_pools(lab: VisitStore, preset: str) -> None:
    """Fill the pools of a scenario as it ships, for all who will run it; quietly, whatever becomes of it."""
    try:
        scenario = find_preset(preset)
        pipeline, examples = scenario.pipeline, preset_requests(scenario, USUAL_WARM, seed=1)
        request = RunRequest(
            pipeline.unrolled, dict(examples[0].values), (MethodChoice("dense"),), "pinned",
            Decoding(pipeline.longest_answer),
        )  # fmt: skip
        engine = lab.engine()
        if engine.estimate(request, USUAL_WARM).seconds > MOST_SECONDS:
            return
        with lab.in_line() as place:
            for _ in wait_for_turn(place):
                pass
            for _ in engine.warm_up(request, examples, shared=True):
                pass
        engine.forget()
    except LabError as error:
        LOG.info("the first pools stay empty: %s", error)
    except Exception:
        LOG.exception("the first pools stay empty")


def prefill_pools(lab: VisitStore, preset: str) -> threading.Thread:
    """The same in a thread that does not keep the server alive."""
    thread = threading.Thread(target=fill_first_pools, args=(lab, preset), name="first-pools", daemon=True)
    thread.start()
    return thread
