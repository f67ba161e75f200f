"""Renew ``presets/first_run.kvrun``, the run that a first visit shows.

Takes the first request of the scenario's set where dense is right, naive reuse is wrong and KVCOMM, really
reusing, is right again; so the page opens on a run that teaches. Prints what it passed over.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from backend.events import RunDone
from backend.model import load_model
from backend.presets import load_preset, preset_requests
from backend.records import MethodChoice, RunRecord, RunRequest
from backend.session import LabSession

OUT = Path(__file__).resolve().parents[1] / "presets" / "first_run.kvrun"
WARM_UP, TRIES = 20, 60


def instructive(record: RunRecord) -> bool:
    """Dense right, naive wrong, KVCOMM right at the end by reuse of every upstream text."""
    final = record.request.pipeline.final
    dense, naive, kvcomm = (record.outcome(final, label) for label in ("dense", "naive", "kvcomm"))
    return bool(dense.correct and not naive.correct and kvcomm.correct and kvcomm.state == "reused")


def main() -> int:
    """Search and write; 1 when no request qualifies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="math-3")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    preset = load_preset(args.preset)
    examples = preset_requests(preset, WARM_UP + TRIES, args.seed)
    session = LabSession(load_model("embedded"))
    methods = (MethodChoice("dense"), MethodChoice("naive"), MethodChoice("kvcomm"))

    def request(index: int) -> RunRequest:
        example = examples[index]
        return RunRequest(preset.pipeline, dict(example.values), methods, expected=example.answer)

    for _ in session.warm_up(request(0), examples[:WARM_UP]):
        pass
    for index in range(WARM_UP, len(examples)):
        for event in session.run(request(index)):
            if isinstance(event, RunDone):
                if instructive(event.record):
                    event.record.save(OUT)
                    print(f"request {index}: {examples[index].values['user_question']}")
                    for outcome in event.record.outcomes:
                        print(
                            f"  agent {outcome.agent} {outcome.method:<7} {outcome.state:<8} {outcome.text}"
                        )
                    print(f"wrote {OUT.name}, {OUT.stat().st_size:,} bytes")
                    return 0
                print(f"request {index}: not instructive")
    return 1


if __name__ == "__main__":
    sys.exit(main())
