"""What a run's record says of one agent under one method, as a row of plain numbers."""

from typing import Any

from backend.records.run import Outcome, RunRecord, reuse


def outcome_row(record: RunRecord, outcome: Outcome) -> dict[str, Any]:
    """The numbers of one agent under one method."""
    prompt = record.prompts[outcome.prompt]
    tokens, blocks, reused = reuse(prompt.spans, outcome.actions)
    row: dict[str, Any] = {
        "agent": outcome.agent,
        "method": outcome.method,
        "state": outcome.state,
        "answer": outcome.answer,
        "correct": outcome.correct,
        "prompt_tokens": len(prompt.token_ids),
        "boundary_tokens": prompt.boundary_tokens,
        "tokens_reused": tokens,
        "forwarded_tokens": outcome.timing.forwarded_tokens,
        "blocks": blocks,
        "blocks_reused": reused,
        "ttft_ms": round(outcome.timing.ttft_ms, 3),
        "parts_ms": {k: round(v, 3) for k, v in outcome.timing.parts_ms.items()},
        "text": outcome.text,
    }
    if outcome.gate:
        row["gate"] = {g.placeholder: g.rule if not g.shareable else "shared" for g in outcome.gate}
    near = outcome.fidelity
    if near is not None:
        row |= {
            "kl_first": near.kl_first,
            "kl_mean": float(near.kl_tokens.mean()) if near.kl_tokens.size else 0.0,
            "first_divergence": near.first_divergence,
            "margin": near.margin,
            "floor": near.floor,
        }
    if outcome.key_error is not None and outcome.value_error is not None:
        row |= {
            "key_error": float(outcome.key_error.mean()),
            "value_error": float(outcome.value_error.mean()),
        }
    return row


def familiarity_row(record: RunRecord) -> dict[str, Any] | None:
    """How familiar the model was with the request, and its outlook; None where it was not measured.

    ``wrong``, the chance that dense is wrong, and the held-out requests like it are None for weights without
    a calibration.
    """
    if record.familiarity is None:
        return None
    outlook = record.familiarity.outlook
    like = None if outlook.like is None else {"requests": outlook.like.requests, "wrong": outlook.like.wrong}
    return {
        "level": outlook.level, "surprising": round(outlook.surprising, 4), "words": list(outlook.words),
        "wrong": None if outlook.wrong is None else round(outlook.wrong, 4), "like": like,
    }  # fmt: skip
