"""Does the X-ray of a log predict what a real engine's cache hits? vLLM on a CPU is asked.

``python benchmarks/peers/hits.py --python PYTHON`` with the Python of vLLM's own environment
(``benchmarks/peers/install.sh FOLDER``). A log with the shape of a coding agent's is drawn from a seed. vLLM
reads its calls one after the other, in the tokens that the X-ray counts, on a model of one layer with drawn
weights (hits do not depend on them), once with room for all and once with little. Prints JSON: hits beside
the prediction at vLLM's block size, and what its KV events say.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

import made_logs  # noqa: E402

from backend.base.machine import versions  # noqa: E402
from backend.logs.engine_cache import engine_cache  # noqa: E402
from backend.logs.gather import Gathered, gather  # noqa: E402
from backend.logs.pieces import load_tokenizer  # noqa: E402
from backend.logs.prefixes import lru_hits  # noqa: E402

FAR = 1 << 40  # tokens of a cache that drops nothing


def drawn_model(folder: Path, vocabulary: int, longest: int) -> Path:
    """A Llama of one layer, in a folder in hub layout."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=longest + 64,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def ask(python: str, model: Path, prompts: list[list[int]], block: int, blocks: int) -> dict[str, Any]:
    """vLLM's hits of each prompt, and its events."""
    with tempfile.TemporaryDirectory() as folder:
        events, longest = Path(folder) / "events.msgpack", max(map(len, prompts))
        command = [python, str(HERE / "vllm_hits_side.py"), str(model), str(events)]
        command += [str(longest), str(block), str(blocks)]
        lines = "".join(json.dumps({"ids": ids}) + "\n" for ids in prompts)
        process = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
        if process.returncode:
            sys.exit(process.stderr[-4000:])
        about, *answers = map(json.loads, process.stdout.splitlines())
        return {"about": about, "kept": [a["kept"] for a in answers], "cache": engine_cache(events)}


def beside(log: Gathered, block: int, capacity: int, answers: dict[str, Any]) -> dict[str, Any]:
    """One cache's hits beside the prediction for it."""
    predicted = lru_hits(log.pieces, log.tokens, block, capacity).tolist()
    gaps = [real - expected for real, expected in zip(answers["kept"], predicted, strict=True)]
    return {
        "blocks": capacity if capacity < FAR else None,
        "really": sum(answers["kept"]), "predicted": sum(predicted),
        "calls": len(gaps), "same": sum(gap == 0 for gap in gaps),
        "less": sum(gap < 0 for gap in gaps), "more": sum(gap > 0 for gap in gaps),
        "largest_gap": max(map(abs, gaps)), "events": asdict(answers["cache"]),
    }  # fmt: skip


def main() -> None:
    """Draw, ask, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="of vLLM's environment")
    parser.add_argument("--tokenizer", default="embedded", help="see kvlab xray")
    parser.add_argument("--calls", type=int, default=175)
    parser.add_argument("--block", type=int, default=32, help="the least on a CPU is 32")
    parser.add_argument("--room", type=float, default=0.2, help="of the small cache: of all distinct blocks")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calls = made_logs.coding_agent(args.seed, args.calls)
        path = made_logs.write_log(Path(folder) / "log.jsonl", calls)
        log = gather(path, load_tokenizer(args.tokenizer))
        prompts = [log.tokens.of(pieces).tolist() for pieces in log.pieces]
        counts = [len(ids) for ids in prompts]
        model = drawn_model(Path(folder) / "model", int(log.tokens.flat.max()) + 1, max(counts))
        whole = ask(args.python, model, prompts, args.block, 0)
        few = max(int(args.room * whole["cache"].most), max(counts) // args.block + 2)
        small = ask(args.python, model, prompts, args.block, few)
    print(json.dumps({
        "bench": "vllm-hits", "calls": len(prompts), "tokens": sum(counts), "block": args.block,
        "unlimited": beside(log, args.block, FAR, whole), "small": beside(log, args.block, few - 1, small),
        "vllm": whole["about"], "versions": versions(),
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
