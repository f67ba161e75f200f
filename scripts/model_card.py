"""Write ``presets/model/README.md``, the embedded model's card, from what was measured.

Reads ``recipe.json`` (how it was trained) and ``evaluation.json`` (``kvlab evaluate-embedded > ...``), both
beside the weights. Run it after either changes; a test holds the card to them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from backend.model.load import EMBEDDED

TASKS = {
    "solver": "(a) arithmetic word problems, 1 to 4 steps",
    "worker": "(b) inspectors and analysts over 1 to 4 solutions",
    "judge": "(c) judges over 2 to 6 candidates: selection",
    "judge of 4": "(c) judges over 4 candidates: selection",
    "glance": "(c) judges who write the number alone: selection",
    "documents": "(d) one or two hops over 3 to 10 documents",
    "tools": "(e) a turn of a tool loop",
    "program": "(f) small Python functions",
    "prefix": "(g) messages that depend on the prefix",
}
INTRODUCTION = {
    "model": (
        "# The embedded model",
        "",
        "A very small Llama that ships with KV Reuse Lab, so that the lab works offline and every scenario's",
        "answer is known. It was trained on generated problems in open language: the presets' tasks, with",
        "any names, things and numbers. Results behind `46 - 6 =` are filled in exactly while it decodes.",
        "A smaller and older one lies beside it ([embedded-small](../model-small/README.md)).",
    ),
    "model-small": (
        "# The smaller embedded model",
        "",
        "`embedded-small` has an eighth of the parameters of [the embedded model](../model/README.md) and",
        "another tokenizer, and knows the presets' own wordings alone: for sweeps over several models.",
    ),
}
WORDINGS = ("stock", "any", "unseen")
COLUMNS = ("dense", "naive", "masked", "strictly masked")
ASKED = {
    "solver": 90,
    "worker": 90,
    "judge of 4": 85,
    "documents": 90,
    "tools": 80,
    "program": 80,
    "prefix": 80,
}


def percent(row: dict[str, Any]) -> str:
    """``94.5%``."""
    return f"{row['share']:.1%}"


def interval(row: dict[str, Any]) -> str:
    """``94.5% (90 to 97)``."""
    low, high = row["ci"]
    return f"{row['share']:.1%} ({100 * low:.0f} to {100 * high:.0f})"


def mark(task: str) -> str:
    """What counts as right."""
    return "selection" if task.startswith(("judge", "glance")) else "answer"


def held_out_table(evaluation: dict[str, Any]) -> list[str]:
    """A row per task, a column per wording."""
    lines = [
        "| task | asked | stock wording | any trained wording | patterns never trained on |",
        "|---|---|---|---|---|",
    ]
    for task, title in TASKS.items():
        cells = [interval(evaluation[f"{task}, {wording}"]["all"][mark(task)]) for wording in WORDINGS]
        goal = f"{ASKED[task]}%" if task in ASKED else ""
        lines.append(f"| {title} | {goal} | {' | '.join(cells)} |")
    return lines


def detail_table(evaluation: dict[str, Any]) -> list[str]:
    """By kind and size, stock wording."""
    lines = ["| task | kind | right | size: right |", "|---|---|---|---|"]
    for task in TASKS:
        if task == "judge of 4":
            continue
        groups = evaluation[f"{task}, stock"]
        sizes = sorted(
            (int(name.removeprefix("size ")), row) for name, row in groups.items() if name.startswith("size")
        )
        by_size = ", ".join(f"{size}: {percent(row[mark(task)])}" for size, row in sizes)
        kinds = [(name.removeprefix("kind "), row) for name, row in groups.items() if name.startswith("kind")]
        for number, (kind, row) in enumerate(kinds):
            lines.append(
                f"| {task if not number else ''} | {kind} | {percent(row[mark(task)])} | "
                f"{by_size if not number else ''} |"
            )
    return lines


def suitability_table(evaluation: dict[str, Any]) -> list[str]:
    """What position-only reuse costs."""
    lines = [
        "| task | dense | position-only reuse | candidates' texts hidden | texts and separators hidden |",
        "|---|---|---|---|---|",
    ]
    for task, rows in evaluation.items():
        columns = (interval(rows[name]) if name in rows else "" for name in COLUMNS)
        lines.append(f"| {task} | {' | '.join(columns)} |")
    return lines


def card(folder: Path = EMBEDDED) -> str:
    """The card's text."""
    recipe = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    evaluation = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    million = recipe["tokens_seen"] / 1e6
    steps = f"{recipe['step']:,} steps of {recipe['step_tokens']:,} tokens"
    part = f"the last part {steps}" if recipe.get("tokens_before") else steps
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    largest = next(n for n in range(len(vocabulary)) if str(n + 1) not in vocabulary)
    lines = [
        "---",
        "license: apache-2.0",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        "---",
        "",
        "<!-- Made by scripts/model_card.py from recipe.json and evaluation.json; do not edit by hand. -->",
        *INTRODUCTION[folder.name],
        "",
        "| | |",
        "|---|---|",
        f"| architecture | LlamaForCausalLM, bf16: hidden {config['hidden_size']}, "
        f"{config['num_hidden_layers']} layers, {config['num_attention_heads']} heads, "
        f"{config['num_key_value_heads']} KV heads, intermediate {config['intermediate_size']}, "
        "RoPE theta 10,000, tied embeddings |",
        f"| tokenizer | byte-level BPE of {config['vocab_size']:,} tokens, every number up to {largest} one "
        "of them, with and without the space before it; `<s>` opens a prompt, `<a>` the answer (chat "
        "template), `</s>` ends it |",
        f"| context | {config['max_position_embeddings']:,} positions |",
        f"| training | {million:.1f} M tokens, {part}, "
        f"seed {recipe['seed']}; {recipe.get('hardware', 'hardware not recorded')} |",
        f"| optimiser | Muon ({recipe['muon_rate']}) on matrices, AdamW ({recipe['adam_rate']}) on the rest; "
        f"warm-up, constant, linear decay over the last {recipe['decay_share']:.0%} |",
        "| data | generated by `backend/prompts/tasks/`; curriculum in `backend/training/recipe.py` |",
        "| files | `recipe.json`, `train.jsonl` (the loss curve), `evaluation.json` (every figure below) |",
        "",
        "Made by `kvlab train-embedded`; a run can be interrupted and continues from its checkpoint.",
        *([recipe["note"]] if "note" in recipe else []),
        "",
        "## Held out, greedy, exact match",
        "",
        f"Problems on the held-out side of a hash split (1 in 32), {evaluation['count']} documents a cell, "
        f"`kvlab evaluate-embedded --count {evaluation['count']}`, fp32 on CPU; 95% intervals (Wilson).",
        "*Asked* is what the project set out to reach.",
        "",
        *held_out_table(evaluation["held_out"]),
        "",
        "By kind and size (steps, solutions, candidates, documents or turn), stock wording:",
        "",
        *detail_table(evaluation["held_out"]),
        "",
        "## Suitability: what reuse does to it",
        "",
        "Every placeholder's text is read alone and put behind the prompt with its keys moved; the last two",
        "columns read a judge dense while its candidates cannot attend to each other: their texts, or their",
        "texts and the separators before them. The presets' wording.",
        "",
        *suitability_table(evaluation["suitability"]),
        "",
        f"Weights `{evaluation['weights']}` (the lab's hash).",
        "",
        "## Limits",
        "",
        "Not a language model for people: outside its tasks it writes noise. FINDINGS.md says which edits of",
        "a prompt it bears and which it does not. Prompts longer than the documents it was trained on are",
        "untested.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the card."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=EMBEDDED)
    folder = parser.parse_args().folder
    (folder / "README.md").write_text(card(folder), encoding="utf-8")
    print(f"wrote {folder.name}/README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
