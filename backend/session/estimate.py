"""What a request will cost on this machine, roughly, before it is run."""

from dataclasses import dataclass

from backend.engine.speed import measured_speed
from backend.records.request import RunRequest
from backend.session.warm_up import WARM_BATCH
from backend.session.workspace import Workspace


@dataclass(frozen=True)
class Estimate:
    """What a run will cost, roughly."""

    seconds: float
    bytes: int
    tokens: int


def estimate(session: Workspace, request: RunRequest, count: int = 1) -> Estimate:
    """Rough cost from this machine's measured speed: of one request, or of warming up with ``count`` > 1.

    Raises:
        LabError: the request cannot be run.
    """
    values = request.pipeline.check_values(request.values)
    per_token, per_step = measured_speed(session.engine, session.scheduler)
    prompt_tokens, longest = 0, 0
    answer = min(request.decoding.max_new_tokens, 48)
    for agent in request.pipeline.order:
        session.engine_of(request, agent)
        readers = len(request.pipeline.template(agent).placeholders)
        length = session.model.count_tokens(request.pipeline, agent, values) + answer * readers
        prompt_tokens += length
        longest = max(longest, length)
    session.limits.check(
        prompt_tokens * len(request.methods), len(request.pipeline.order), len(request.methods)
    )
    # A pinned warm-up runs dense only, and decodes its requests in batches.
    batched = count > 1 and request.mode == "pinned"
    methods = 1 if batched else len(request.methods)
    steps = answer * len(request.pipeline.order) * (-(-count // WARM_BATCH) if batched else count)
    seconds = count * prompt_tokens * methods * per_token * 1.5 + steps * per_step * (2 if batched else 1)
    cache_bytes = prompt_tokens * session.model.info.kv_bytes_per_token * (2 * count + methods)
    return Estimate(seconds, cache_bytes, prompt_tokens * methods * count)
