"""How fast this machine runs a model, to estimate a run's time."""

import time
from typing import Any
from weakref import WeakKeyDictionary

from backend.engine.runner import ModelRunner
from backend.engine.turns import ModelScheduler

TOKENS, STEPS, TRIES = 128, 4, 3

# One measurement for all sessions of a model: many visitors arriving at once would disturb each other's
# measurements.
_MEASURED: WeakKeyDictionary[Any, tuple[float, float]] = WeakKeyDictionary()


def measured_speed(runner: ModelRunner, scheduler: ModelScheduler) -> tuple[float, float]:
    """Seconds per prompt token and per decoding step, measured at the first call for a model, while no run is
    active."""
    module = runner.model.module
    if module not in _MEASURED:
        scheduler.do(lambda: _measure(runner))
    return _MEASURED[module]


def _measure(runner: ModelRunner) -> None:
    if runner.model.module in _MEASURED:  # by a call just before
        return
    tokens = [5 + i % 50 for i in range(TOKENS)]
    runner.prefill(tokens)
    prefills, steps = [], []
    for _ in range(TRIES):  # the fastest counts, to exclude other load
        began = time.perf_counter()
        cache, _ = runner.prefill(tokens)
        middle = time.perf_counter()
        for _ in range(STEPS):
            runner.forward(runner.ids(tokens[:1]), cache)
        prefills.append((middle - began) / TOKENS)
        steps.append((time.perf_counter() - middle) / STEPS)
    _MEASURED[runner.model.module] = (min(prefills), min(steps))
