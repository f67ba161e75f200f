"""How good is KVCOMM's judge after a short and a longer warm-up?

The table "Does the gate trust most when it knows least?" of FINDINGS.md: math-3, pinned, the first 24
requests of the set after 20 and 60 warm-up requests.
"""

from __future__ import annotations

from backend.model.load import load_model
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example, load_preset, preset_requests
from backend.records.events import RunDone
from backend.records.request import MethodChoice, RunRequest
from backend.session.session import LabSession

METHODS = (MethodChoice("dense"), MethodChoice("naive"), MethodChoice("kvcomm"))


def request(pipeline: Pipeline, example: Example) -> RunRequest:
    """One request, without probes."""
    return RunRequest(pipeline, dict(example.values), METHODS, expected=example.answer, probe_offsets=False)


def main() -> None:
    """Measure and print."""
    preset = load_preset("math-3")
    examples = preset_requests(preset, 24, seed=0)
    model = load_model("embedded")
    for warm in (20, 60):
        session = LabSession(model)
        for _ in session.warm_up(
            request(preset.pipeline, examples[0]), preset_requests(preset, warm, seed=1)
        ):
            pass
        pools = session.pools(request(preset.pipeline, examples[0]))
        print(f"warm-up {warm}: anchors", {p.placeholder: len(p.anchors) for p in pools})
        finals = []
        for example in examples:
            for event in session.run(request(preset.pipeline, example)):
                if isinstance(event, RunDone):
                    finals += [o for o in event.record.outcomes if o.agent == preset.pipeline.final]
        for choice in METHODS:
            outcomes = [o for o in finals if o.method == choice.label]
            reused = [o for o in outcomes if o.state == "reused"]
            right, of_reused = sum(bool(o.correct) for o in outcomes), sum(bool(o.correct) for o in reused)
            print(f"  {choice.label}: right {right} of {len(outcomes)}")
            print(f"    reused {len(reused)}, of these {of_reused} right")


if __name__ == "__main__":
    main()
