"""Renew everything that depends on the embedded model's weights, in order: ``make renew``.

Each step is a command of its own. What is done is noted in ``build/renew.json`` with the hash of the weights,
so an interrupted run goes on where it stopped, and other weights begin anew. ``--list`` says what is left.
The tables of FINDINGS.md and docs/reproductions.md are not renewed here: their commands stand beside them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WEIGHTS = ROOT / "presets" / "model" / "model.safetensors"
LINKS = "presets/model/links"
DONE = ROOT / "build" / "renew.json"

LAB = (sys.executable, "-m", "lab_app.cli.main")
TRAIN_LINKS = (*LAB, "train-links", "--batch", "8", "--warmup-steps", "20")
KVLINK = (*TRAIN_LINKS, "--rank", "32", "--steps", "300", "--teacher", "0.5")
PACKET = (*TRAIN_LINKS, "--compression", "packet", "--links", "0", "--no-edges", "--rank", "0")
PACKET += ("--mixture", "apart", "--teacher", "1", "--steps", "300")
ROLE = (*TRAIN_LINKS, "--links", "0", "--no-edges", "--rate", "0.002")
BRIEF = (*ROLE, "--rank", "8", "--mixture", "brief", "--steps", "100")
LONG = (*ROLE, "--rank", "32", "--mixture", "long", "--steps", "320", "--batch", "4")


def adapter(command: tuple[str, ...], file: str, *more: str) -> tuple[tuple[str, ...], None]:
    """Trains a file that ships, beginning with what it holds: that of the weights before."""
    return (*command, "--init", file, "--out", file, *more), None


# name: the command, and the file that takes its standard output, if any
STEPS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "variant brief": adapter(BRIEF, "presets/model/variants/brief.safetensors"),
    "variant long": adapter(LONG, "presets/model/variants/long.safetensors"),
    "archive": ((sys.executable, "scripts/archive.py"), None),
    "familiarity": (
        (*LAB, "calibrate-familiarity", "--json", "benchmarks/results/familiarity-20.json"),
        None,
    ),
    "first run": ((sys.executable, "scripts/first_run.py"), None),
    "pages": ((sys.executable, "scripts/record_pages.py"), None),
    "gallery": ((sys.executable, "scripts/gallery.py"), None),
    "tour": ((sys.executable, "scripts/record_tour.py"), None),
    "evaluation": ((*LAB, "evaluate-embedded", "--count", "100"), "presets/model/evaluation.json"),
    "typed": ((*LAB, "evaluate-embedded", "--typed"), "benchmarks/results/typed.json"),
    "edits": ((*LAB, "evaluate-embedded", "--edits", "--count", "200"), "benchmarks/results/edits.json"),
    "card": ((sys.executable, "scripts/model_card.py"), None),
    "links kvlink5": adapter(KVLINK, f"{LINKS}/kvlink5.safetensors", "--links", "5"),
    "links kvlink1": adapter(KVLINK, f"{LINKS}/kvlink1.safetensors", "--links", "1"),
    "links kvlink0": adapter(KVLINK, f"{LINKS}/kvlink0.safetensors", "--links", "0"),
    "links block": adapter(KVLINK, f"{LINKS}/block.safetensors", "--links", "0", "--no-edges"),
    "links packet": adapter(PACKET, f"{LINKS}/packet.safetensors"),
    "picture": ((sys.executable, "scripts/screenshot.py", "docs/images/lab.png"), None),
}


def main() -> int:
    """Run what is left; the first failing step's exit code, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(STEPS), help="these steps, done or not")
    parser.add_argument("--list", action="store_true", help="say what is left, and stop")
    args = parser.parse_args()
    weights = hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()[:16]
    notes = json.loads(DONE.read_text(encoding="utf-8")) if DONE.exists() else {}
    finished = notes.get(weights, [])
    pending = args.only or [name for name in STEPS if name not in finished]
    if args.list:
        print("\n".join(pending) or "nothing is left")
        return 0
    for name in pending:
        command, out = STEPS[name]
        began = time.perf_counter()
        print(f"{name}: {' '.join(command[1:])}", flush=True)
        result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE if out else None, text=True)
        if result.returncode:
            print(f"{name} ended with {result.returncode}")
            return result.returncode
        if out:
            (ROOT / out).write_text(result.stdout, encoding="utf-8")
        if DONE.exists():  # another process may have renewed other steps meanwhile
            finished = json.loads(DONE.read_text(encoding="utf-8")).get(weights, [])
        finished = [*finished, name]
        DONE.parent.mkdir(exist_ok=True)
        DONE.write_text(json.dumps({weights: finished}), encoding="utf-8")
        print(f"{name}: done after {time.perf_counter() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
