"""How many of HumanEval's reference solutions pass their own tests in the sandbox that runs agents' code.

Takes the path of HumanEval's ``.jsonl`` or ``.jsonl.gz``. Prints one line per failure, with its reason, and
the count: a score on HumanEval under this sandbox cannot be higher.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

from backend.prompts.tools.sandbox import check


def main() -> None:
    """Check every problem of the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="HumanEval's problems, .jsonl or .jsonl.gz")
    path: Path = parser.parse_args().path
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        problems = [json.loads(line) for line in file if line.strip()]
    passed, times = 0, []
    for problem in problems:
        code = f"```python\n{problem['prompt']}{problem['canonical_solution']}\n```"
        result = check(code, f"{problem['test']}\ncheck({problem['entry_point']})\n")
        times.append(result.wall_ms)
        passed += result.ok
        if not result.ok:
            print(f"{problem['task_id']}: {result.reason}")
    print(
        f"{passed} of {len(problems)} reference solutions pass; {sum(times) / 1000:.1f} s in all, "
        f"the slowest {max(times):.0f} ms"
    )


if __name__ == "__main__":
    main()
