"""What judging will take on this machine, from its measured speed: writing the candidates, reading them in
every order under every method, and answering."""

import math

from backend.judge.judge_lab import JudgeLab
from backend.judge.prompts import execution_pipeline, judge_pipeline
from backend.model.load import LoadedModel
from backend.prompts.template import QUESTION
from backend.records.judge import JudgeProblem, JudgeRequest
from backend.records.request import with_reference

CANDIDATE, VERDICT = 48, 96  # tokens usually written; a verdict goes through all slots
READING = 1.5  # times a prefill: correction, and a second full read for the floor
BATCH = 2.0  # times a decoding step of one row, for a step of several


def judging_seconds(
    model: LoadedModel,
    request: JudgeRequest,
    problem: JudgeProblem,
    measured_speed: tuple[float, float],
    count: int = 1,
    taken_in: int = 0,
) -> float:
    """Seconds that problems like ``problem`` take.

    Args:
        measured_speed: seconds for a prompt token and for a decoding step (:mod:`backend.engine.speed`).
        count: problems that are judged; ``taken_in`` further ones that only fill the pools.
    """
    per_token, per_step = measured_speed
    texts = [candidate.text for candidate in problem.candidates]
    many = len(texts) or request.candidates
    answer = min(request.sampling.max_new_tokens, CANDIDATE)
    writing = 0.0
    if not texts:
        agents = execution_pipeline(problem.regime, many, request.wording, request.sampling.max_new_tokens)
        for agent in agents.order:
            before = len(agents.template(agent).placeholders) - 1  # beside the question
            prompt = model.count_tokens(agents, agent, {QUESTION: problem.question}) + answer * before
            writing += prompt * per_token + answer * per_step
    slots = 2 if request.protocol == "pairwise" else many
    prompts = math.comb(many, 2) if request.protocol == "pairwise" else 1
    judge = judge_pipeline(
        request.protocol, request.criterion, slots, request.wording, request.max_new_tokens
    )
    values = {f"candidate_{slot}": text for slot, text in enumerate(texts[:slots], 1)}
    prompt = model.count_tokens(judge, judge.final, {QUESTION: problem.question, **values})
    prompt += 0 if texts else answer * slots
    reading = prompts * len(request.orders) * prompt * per_token * READING
    methods = len(with_reference(request.methods))
    rows = methods * len(request.orders)
    steps = prompts * min(request.max_new_tokens, VERDICT) * math.ceil(rows / JudgeLab.most_at_once)
    answering = steps * per_step * (BATCH if rows > 1 else 1.0)
    return count * (writing + methods * reading + answering) + taken_in * (writing + reading)
