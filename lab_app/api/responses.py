"""What the lab answers to programs: records as plain JSON values, without NaN and without figures."""

import html as markup
import math
import re
from collections.abc import Mapping
from typing import Any

from backend.base.serialization import as_json
from backend.prompts.presets import Preset, load_preset, preset_names, preset_requests
from backend.records.judge import Judged, JudgeOutcome
from backend.records.judge_summary import table
from backend.records.model_info import ModelInfo
from backend.records.request import MethodChoice
from backend.records.rows import familiarity_row
from backend.records.run import Outcome, RunRecord, reuse
from backend.session.limits import Limits
from viz.base import format as words
from viz.judge.verdict_grid import sentence
from viz.run.verdict import compare, verdict

Body = dict[str, Any]


def plain(value: Any) -> Any:
    """JSON values: NaN and infinity become null, tuples lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return plain(value.item()) if hasattr(value, "item") else value


def html_text(html: str) -> str:
    """HTML as the text that it shows."""
    return markup.unescape(re.sub(r"<[^>]+>", "", html)).replace("\xa0", " ")


# -- what there is -----------------------------------------------------------------------------------------


def methods_body(info: ModelInfo) -> Body:
    """Every registered method with its options and profiles, and why it cannot run here if it cannot."""
    from backend.methods.registry import METHODS, option_fields

    methods = []
    for cls in METHODS:
        options = [
            {
                "name": f.name,
                "label": f.label,
                "type": f.kind,
                "default": f.default,
                "allowed": list(f.choices) if f.choices else None,
                "minimum": f.minimum,
                "maximum": f.maximum,
                "help": f.help,
                "source": f.paper,
            }
            for f in option_fields(cls)
        ]
        profiles = [
            {"name": key, "title": p.title, "summary": p.summary, "options": dict(p.options)}
            for key, p in cls.profiles.items()
        ]
        methods.append(
            {
                "name": cls.name, "title": cls.title, "summary": cls.summary, "source": cls.paper,
                "cannot_run": cls.supports(info) or None, "options": options, "profiles": profiles,
            }
        )  # fmt: skip
    answer: Body = plain({"methods": methods})
    return answer


def presets_body() -> Body:
    """Every scenario with its agents and what it asks for."""
    return {"presets": [preset_body(load_preset(name)) for name in preset_names()]}


def preset_body(preset: Preset) -> Body:
    """One scenario; ``example`` is the first request of its set."""
    pipeline = preset.pipeline
    first = None if preset.request_source == "file" else preset_requests(preset, 1)[0]
    return {
        "name": pipeline.name,
        "title": pipeline.title,
        "summary": pipeline.summary,
        "model": preset.model,
        "turns": pipeline.turns,
        "scoring": pipeline.scoring,
        "agents": [
            {"id": a.id, "name": a.name, "role": a.role, "template": a.template, "tool": a.tool or None,
             "max_new_tokens": a.max_new_tokens}
            for a in pipeline.agents
        ],
        "values": list(pipeline.inputs),
        "required": list(pipeline.required),
        "example": None if first is None else {"values": dict(first.values), "expected": first.answer},
    }  # fmt: skip


def model_body(info: ModelInfo, limits: Limits, versions: Mapping[str, str]) -> Body:
    """The loaded model, the certificate of its cache, and the limits of this lab."""
    facts = {key: value for key, value in as_json(info).items() if key != "source"}
    answer: Body = plain({"model": facts, "limits": as_json(limits), "versions": dict(versions)})
    return answer


# -- a run -------------------------------------------------------------------------------------------------


def run_body(record: RunRecord, token: str) -> Body:
    """A comparison: texts, tokens, what flipped, times, the three reuse rates, fidelity to dense.

    Args:
        record: of the run.
        token: which downloads it.
    """
    request, dense = record.request, words.dense_label(record)
    others = words.others(record)
    summary = verdict(record)
    answer: Body = plain(
        {
            "run": record.id,
            "created": record.created,
            "versions": dict(record.versions),
            "model": {k: getattr(record.model, k) for k in ("name", "weights_hash", "device", "dtype")},
            "preset": request.pipeline.name,
            "mode": request.mode,
            "values": dict(request.values),
            "expected": request.expected,
            "verdict": html_text(summary.sentence_html),
            "state": summary.state,
            "tone": summary.tone,  # same, changed, unclear, or neutral: dense is wrong, or nobody knows
            "familiarity": familiarity_row(record),
            "flipped": [label for label in others if compare(record, label).kind == "answer"],
            "methods": [method_body(record, m.label, dense) for m in in_order(record)],
            "agents": [agent_body(record, agent, dense) for agent in record.agents],
            "wall_ms": record.wall_ms,
            "notes": list(record.notes),
            "record": f"lab/record/{token}",
        }
    )
    return answer


def in_order(record: RunRecord) -> list[Any]:
    """The methods in the order of columns, dense first, even if the request does not name it."""
    choices = {m.label: m for m in record.request.methods}
    return [choices.get(label, MethodChoice(label)) for label in record.labels]


def method_body(record: RunRecord, label: str, dense: str) -> Body:
    """One method over all agents."""
    choice = next(m for m in in_order(record) if m.label == label)
    outcomes = [o for o in record.outcomes if o.method == label]
    counts = [reuse(words.prompt_of(record, o).spans, o.actions) for o in outcomes]
    tokens, blocks, whole = (sum(column) for column in zip(*counts, strict=True))
    prompt = sum(o.actions.shape[1] for o in outcomes)
    ttft = sum(o.timing.ttft_ms for o in outcomes)
    reference = sum(o.timing.ttft_ms for o in record.outcomes if o.method == dense)
    body: Body = {
        "label": label,
        "name": choice.name,
        "options": dict(choice.options),
        "answer": outcomes[-1].answer,
        "correct": outcomes[-1].correct,
        "reuse": {
            "agents": sum(o.state == "reused" for o in outcomes) / len(outcomes),
            "blocks": whole / blocks if blocks else None,
            "tokens": tokens / prompt,
        },
        "prompt_tokens": prompt,
        "reused_tokens": tokens,
        "forwarded_tokens": sum(o.timing.forwarded_tokens for o in outcomes),
        "ttft_ms": ttft,
        "ttft_ratio": ttft / reference if reference else None,
    }
    if label != dense:
        comparison = compare(record, label)
        body |= {
            "changed": comparison.kind,  # nothing (was reused), same, text, choice or answer
            "near_tie": bool(comparison.evidence and comparison.near_tie),
            "agents_with_other_text": comparison.agents_differ,
        }
    return body


def agent_body(record: RunRecord, agent: int, dense: str) -> Body:
    """One agent under every method."""
    outcomes = [o for o in record.outcomes if o.agent == agent]
    return {
        "agent": agent,
        "name": words.agent_name(record.request.pipeline, agent),
        "outcomes": [outcome_body(record, o, dense) for o in outcomes],
    }


def outcome_body(record: RunRecord, outcome: Outcome, dense: str) -> Body:
    """One agent under one method."""
    prompt = words.prompt_of(record, outcome)
    tokens, blocks, whole = reuse(prompt.spans, outcome.actions)
    body: Body = {
        "method": outcome.method,
        "state": outcome.state,
        "reason": outcome.reason,
        "text": outcome.text,
        "tokens": list(outcome.texts),
        "answer": outcome.answer,
        "correct": outcome.correct,
        "prompt_tokens": len(prompt.token_ids),
        "reused_tokens": tokens,
        "blocks": blocks,
        "reused_blocks": whole,
        "forwarded_tokens": outcome.timing.forwarded_tokens,
        "ttft_ms": outcome.timing.ttft_ms,
        "parts_ms": dict(outcome.timing.parts_ms),
        "decode_ms": outcome.timing.decode_ms,
    }
    near = outcome.fidelity
    if near is not None and outcome.method != dense:
        body["fidelity"] = {
            "kl_first": near.kl_first,
            "kl_mean": float(near.kl_tokens.mean()) if near.kl_tokens.size else 0.0,
            "first_divergence": near.first_divergence,
            "dense_token": near.dense_token,
            "method_token": near.method_token,
            "margin": near.margin,
            "floor": near.floor,
        }
    if outcome.key_error is not None and outcome.value_error is not None and outcome.method != dense:
        body["cache_error"] = {
            "keys": float(outcome.key_error.mean()), "values": float(outcome.value_error.mean()),
        }  # fmt: skip
    return body


# -- a judgement -------------------------------------------------------------------------------------------


def judged_body(judged: Judged, token: str) -> Body:
    """Typed candidates judged: each verdict, and the table over the orders.

    Args:
        judged: of one problem.
        token: which downloads it.
    """
    [row] = judged.rows
    answer: Body = plain(
        {
            "model": {k: getattr(judged.model, k) for k in ("name", "weights_hash", "device", "dtype")},
            "question": row.problem.question,
            "candidates": [{"text": c.text, "right": c.right} for c in row.problem.candidates],
            "expected": row.problem.expected,
            "criterion": judged.request.criterion,
            "protocol": judged.request.protocol,
            "verdict": html_text(sentence(row, judged.request)),
            "flipped": list(dict.fromkeys(o.method for o in row.outcomes if o.consistent is False)),
            "verdicts": [verdict_body(o) for o in row.outcomes],
            "table": as_json(table(judged))["lines"],
            "wall_ms": row.wall_ms,
            "notes": list(row.notes),
            "record": f"lab/measured/judged/{token}",
        }
    )
    return answer


def verdict_body(outcome: JudgeOutcome) -> Body:
    """One order under one method; candidates and slots count from 1, 0 is none of them."""
    names = (
        "order", "layout", "method", "state", "slots", "selected", "answer", "failure", "correct",
        "selection_right", "consistent", "change", "near_tie", "twin", "blocks", "reused_blocks",
        "prompt_tokens", "reused_tokens", "forwarded_tokens", "margin", "dense_margin", "floor", "kl_first",
        "kl_mean", "ttft_ms", "text",
    )  # fmt: skip
    return {name: getattr(outcome, name) for name in names}
