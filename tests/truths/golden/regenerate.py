"""The golden record: what the lab did to a tiny model when it was last looked at with care.

Integers and words are compared exactly, floats to three digits. Where it differs and should:
``python -m tests.golden.regenerate``, and say in the commit what changed and why.
"""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))

from tiny import QUESTIONS, model, pipeline, request, run

from backend.engine.engine import Engine
from backend.records.request import Decoding, MethodChoice
from backend.records.run import ACTIONS, Outcome, RunRecord
from backend.session.session import LabSession

GOLDEN = Path(__file__).with_name("tiny.json")
METHODS = ("dense", "prefix", "naive", MethodChoice("kvcomm", {"gamma": 0.9, "capacity": 3}))
SEED = 15
SAFE_MARGIN = (
    1e-3  # logits; a smaller gap between the two best tokens could fall either way on another machine
)


def observed() -> dict[str, Any]:
    """Run four requests in both modes and write down what happened."""
    loaded = model(SEED)
    found: dict[str, Any] = {}
    for mode in ("pinned", "free"):
        session = LabSession(loaded)
        records = [
            run(session, request(METHODS, QUESTIONS[n], mode=mode, flow=pipeline(5))) for n in (0, 1, 0, 2)
        ]
        if mode == "pinned":
            found["prompts"] = [_prompt(p) for p in records[0].prompts]
        found[mode] = [_outcome(o, number) for number, r in enumerate(records) for o in r.outcomes]
        found[f"{mode} pools"] = [_pool(p) for p in records[-1].pools]
    sampled = run(LabSession(loaded), request(["dense"], decoding=Decoding(8, 0.8, 0.9, 7)))
    found["sampled"] = [o.token_ids.tolist() for o in sampled.outcomes]
    return found


def smallest_margin() -> float:
    """The nearest that any choice of a token was."""
    margins: list[float] = []
    decode_steps = Engine.decode_steps

    def listening(self: Engine, *args: Any, **more: Any) -> Any:
        out = yield from decode_steps(self, *args, **more)
        margins.extend(m for row in out for m in row.margins)
        return out

    Engine.decode_steps = listening  # type: ignore[method-assign]
    try:
        observed()
    finally:
        Engine.decode_steps = decode_steps  # type: ignore[method-assign]
    return min(margins)


def _prompt(prompt: Any) -> dict[str, Any]:
    spans = [[s.kind, s.name, s.start, s.end] for s in prompt.spans]
    return {
        "agent": prompt.agent,
        "ids": prompt.token_ids.tolist(),
        "texts": list(prompt.texts),
        "spans": spans,
    }


def _outcome(outcome: Outcome, number: int) -> dict[str, Any]:
    runs = [f"{len(list(group))} {ACTIONS[code]}" for code, group in groupby(outcome.actions[0].tolist())]
    near = outcome.fidelity
    return {
        "request": number,
        "agent": outcome.agent,
        "method": outcome.method,
        "state": outcome.state,
        "actions": runs,
        "sources": [s.source for s in outcome.spans],
        "anchors": [list(s.anchors) for s in outcome.spans],
        "gate": [
            [g.placeholder, g.rule, g.shareable, g.entropy, g.threshold, list(g.anchors)]
            for g in outcome.gate
        ],
        "ids": outcome.token_ids.tolist(),
        "text": outcome.text,
        "stopped": outcome.stopped,
        "forwarded": outcome.timing.forwarded_tokens,
        "diverges at": near.first_divergence if near else None,
        "kl": round(near.kl_first, 3) if near else None,
    }


def _pool(pool: Any) -> dict[str, Any]:
    return {
        "placeholder": pool.placeholder,
        "anchors": list(pool.anchors),
        "lengths": list(pool.lengths),
        "uses": list(pool.uses),
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return value


def as_text(found: dict[str, Any]) -> str:
    """JSON with one outcome to a line, so that a difference is readable."""
    parts = []
    for name, rows in found.items():
        lines = ",\n  ".join(json.dumps(_rounded(row)) for row in rows)
        parts.append(f" {json.dumps(name)}: [\n  {lines}\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    margin = smallest_margin()
    if margin < SAFE_MARGIN:
        sys.exit(
            f"The two best tokens were once only {margin:.1e} apart. Choose other questions or another seed."
        )
    GOLDEN.write_text(as_text(observed()), encoding="utf-8")
    print(
        f"Wrote {GOLDEN.name}; the smallest margin is {margin:.1e}. Read the difference before committing it."
    )


__all__ = ["GOLDEN", "RunRecord", "as_text", "observed"]

if __name__ == "__main__":
    main()
