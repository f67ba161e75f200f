"""Would two models of one tokenizer keep the same tokens of a judge's candidates? (Judge study, Fig. 5)

Prints the table behind the figure as CSV. The judge's candidates are those of the preset's own requests.
"""

from __future__ import annotations

import argparse

from backend.model.load import load_model
from backend.prompts.presets import load_preset, preset_requests
from backend.records.token_overlap import OverlapRequest, TokenOverlap
from backend.studies.token_overlap import token_overlap
from viz.studies.token_overlap import views


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", help="the other model: a folder in hub layout, or a hub id")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--preset", default="judge-right")
    parser.add_argument("--count", type=int, default=24, help="requests")
    args = parser.parse_args()
    preset = load_preset(args.preset)
    values = tuple(example.values for example in preset_requests(preset, args.count, seed=0))
    request = OverlapRequest(preset.pipeline, values, max_new_tokens=preset.pipeline.longest_answer)
    *_, record = token_overlap(load_model(args.model), load_model(args.other), request)
    assert isinstance(record, TokenOverlap)
    for view in views(record):
        print(f"# {view.title} {view.finding}")
    print(views(record)[0].csv(), end="")


if __name__ == "__main__":
    main()
