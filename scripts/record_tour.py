"""Renew ``presets/tour/*.kvrun``, the recorded runs of the guided tour.

For every step, takes the first request of its scenario's set on which dense is right and a prediction that
the step looks for comes true (``look_for`` in ``presets/tour/steps.yaml``; any, where it looks for none), and
else the first on which dense is right. The page repeats the request live. Prints what each run says.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from backend.model.load import LoadedModel, load_model
from backend.prompts.presets import Example, preset_requests
from backend.records.events import RunDone
from backend.records.run import RunRecord
from backend.session.session import LabSession
from lab_app.pages.tour.steps import FOLDER, Step, prepare, steps
from viz.pages.tour import describe_step

SEED = 3  # another draw than the bench's and the pools'


def run(model: LoadedModel, step: Step, example: Example) -> RunRecord:
    """The step's run as a visitor's: in a session that has seen nothing."""
    session, request = LabSession(model), step.request(example)
    for _ in prepare(session, step, request):
        pass
    for event in session.run(request):
        if isinstance(event, RunDone):
            return event.record
    raise AssertionError("a run that was not cancelled ends in a record")


def fits(step: Step, record: RunRecord) -> bool:
    """Does the run show what the step looks for? Where that is a change, the last agent's answer changes,
    since dense is known to be right there alone."""
    description, final = describe_step(step.key, record), record.request.pipeline.final
    if not step.run.look_for:
        return description.shows
    before, after = (record.outcome(final, label).answer for label in record.labels[:2])
    return description.shows and description.choice in step.run.look_for and before != after


def right(record: RunRecord) -> bool:
    """Is dense right in the end?"""
    return record.outcome(record.request.pipeline.final, "dense").correct is not False


def main() -> int:
    """Search and write; 1 when a step's effect was not found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=12, help="requests tried for each step")
    parser.add_argument("--only", nargs="*", default=[], metavar="STEP", help="these steps alone")
    args = parser.parse_args()
    model = load_model("embedded", device="cpu", dtype="fp32")
    missing = 0
    for step in steps():
        if args.only and step.key not in args.only:
            continue
        best: RunRecord | None = None
        shows = False
        for number, example in enumerate(preset_requests(step.preset, args.tries, seed=SEED)):
            record = run(model, step, example)
            if not right(record):
                continue
            if best is None or fits(step, record):
                best, shows, at = record, fits(step, record), number
            if shows:
                break
        if best is None:
            print(f"{step.key}: dense was never right")
            missing += 1
            continue
        facts = describe_step(step.key, best)
        size = best.save(FOLDER / f"{step.key}.kvrun").stat().st_size
        print(
            f"{step.key}: request {at}, {facts.choice}, {'shows' if shows else 'DOES NOT SHOW'} the effect, "
            f"{best.wall_ms / 1e3:.1f} s, {size:,} bytes"
        )
        for sentence in facts.sentences:
            print("   ", re.sub(r"<[^>]+>", "", sentence))
        missing += not shows
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
