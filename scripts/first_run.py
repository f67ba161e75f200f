"""Renew ``presets/first_run.kvrun``, the run that a first visit shows.

Takes the first request of the scenario's set where dense is right, naive reuse is wrong at the end and
KVCOMM, really reusing, is right at every agent; so the page opens on a run that teaches. The pools are
warmed up with the page's own requests, so that pressing Run there repeats the run. Prints what it passed
over.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from backend.model.load import load_model
from backend.prompts.presets import load_preset, preset_requests
from backend.records.events import RunDone
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import RunRecord
from backend.session.session import LabSession

OUT = Path(__file__).resolve().parents[1] / "presets" / "first_run.kvrun"
WARM_UP, TRIES = 20, 60


def instructive(record: RunRecord) -> bool:
    """Dense right and naive wrong at the end; KVCOMM reuses and is right at every agent."""
    final = record.request.pipeline.final
    corrected = [record.outcome(agent, "kvcomm") for agent in record.agents]
    if not all(o.correct and o.state == "reused" for o in corrected):
        return False
    return bool(record.outcome(final, "dense").correct and not record.outcome(final, "naive").correct)


def main() -> int:
    """Search and write; 1 when no request qualifies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="math-3")
    args = parser.parse_args()
    preset = load_preset(args.preset)
    examples = preset_requests(preset, TRIES, seed=0)
    model = load_model("embedded")
    methods = (MethodChoice("dense"), MethodChoice("naive"), MethodChoice("kvcomm"))

    def request(index: int) -> RunRequest:
        example = examples[index]
        longest = preset.pipeline.longest_answer
        return RunRequest(
            preset.pipeline,
            dict(example.values),
            methods,
            decoding=Decoding(max_new_tokens=longest),
            expected=example.answer,
            probe_attention=True,
        )

    for index in range(len(examples)):
        session = LabSession(model)  # as a visitor's first run finds it
        for _ in session.warm_up(request(0), preset_requests(preset, WARM_UP, seed=1)):
            pass
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
