"""Time to the first token beside other engines, on the same machine, in the same run, on the same weights.

``python benchmarks/peers --python vllm=PYTHON llama.cpp=PYTHON`` with the Python of each peer's own
environment (``benchmarks/peers/install.sh FOLDER``). Prints JSON, the summary last.

One prompt a turn, drawn anew: template text, a text, template text, a text, template text, as an agent reads
them. Four things are asked of every engine that can do them:

* ``whole``: nothing is kept. What a first agent pays.
* ``front``: the template text before the first text is kept, and nothing else. What an exact prefix cache
  saves an agent that reads others' texts behind a prefix of its own.
* ``moved``: the texts were read by themselves and are moved to their places, uncorrected; the template text
  between them is read.
* ``again``: the very same prompt was read before. What no reuse can beat.

This lab's KVCOMM stands beside them, with full pools whose KV is drawn at random (its time does not depend on
it). All sides keep to one thread of one core and take turns; every engine has a process of its own, except
this lab, which is measured in here. In all but KVCOMM the first token is compared with that of the dense pass
(``moved``: with this lab's own) in single precision: engines that agree ran the same model.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import torch  # noqa: E402
from side import Request, Watch  # noqa: E402

from backend.base.clock import Clock  # noqa: E402
from backend.bench.common import conditions, medians, random_model, spreads  # noqa: E402
from backend.bench.reading import HEAVIEST, Reading  # noqa: E402
from backend.bench.roofline import (  # noqa: E402
    beyond,
    copy_gb_s,
    least_ms,
    percent,
    prefill_operations,
    product_gflop_s,
    weight_bytes,
)
from backend.bench.ttft import reading_of  # noqa: E402
from backend.methods.plan import Compute, Plan, Reuse, Step  # noqa: E402
from backend.records.hardware import SHAPES  # noqa: E402
from backend.records.prompt import Span, TokenizedPrompt  # noqa: E402

PROGRAMS = {"vllm": "vllm_side.py", "llama.cpp": "llama_side.py"}
CASES = {"vllm": ("whole", "front", "again"), "llama.cpp": ("whole", "front", "moved", "again")}
OURS = "this lab"
DTYPES = ("fp32", "bf16")
WARM_UP = 1


class Ours:
    """This lab's engine, asked what the peers are asked."""

    cases = ("whole", "front", "moved", "again", "kvcomm", "kvcomm, two heaviest")

    def __init__(self, reading: Reading) -> None:
        self.reading, self.engine = reading, reading.engine

    def __call__(self, request: Request) -> Request:
        ids, case = tuple(request["ids"]), request["case"]
        if case.startswith("kvcomm"):
            side = "reuse" if case == "kvcomm" else "two_heaviest"
            with Watch() as watch:
                token = int(self.reading.reuse(side, Clock()).argmax())
            return watch.answer(token, len(self.reading.context.prompt.ids) - 1)
        prompt = TokenizedPrompt(1, ids, (Span("prefix", "all", 0, len(ids)),))
        plan, cached = self.plan(ids, request)
        with Watch() as watch:
            token = int(self.engine.execute(prompt, plan, Clock()).logits.argmax())
        return watch.answer(token, cached)

    def plan(self, ids: tuple[int, ...], request: Request) -> tuple[Plan, int]:
        """What to copy, and how many tokens that are."""
        case, front, end = request["case"], request["front"], len(ids)
        texts = request["texts"] if case == "moved" else []
        at = {"whole": 0, "front": front, "moved": front, "again": end - 1}[case]
        count = at + sum(last - first for first, last in texts)
        steps = []
        if at:
            cache, _ = self.engine.prefill(ids[:at])
            beginning = cache.segment(0, at, self.engine.model.rotation, exact=True, context="kept")
            steps.append(Step(0, at, Reuse(beginning, exact=True)))
        for first, last in texts:
            if at < first:
                steps.append(Step(at, first, Compute("template text")))
            alone = self.engine.encode(ids[first:last], (1,), "alone")
            steps.append(Step(first, last, Reuse(alone)))
            at = last
        if at < end:
            steps.append(Step(at, end, Compute("the rest")))
        return Plan(tuple(steps), "partial", case), count


class Peer:
    """Another engine's process."""

    def __init__(self, name: str, python: str, folder: Path, dtype: str, tokens: int, core: int) -> None:
        self.cases = CASES[name]
        self.log = folder / f"{name}-{dtype}.log"
        command = [python, str(HERE / PROGRAMS[name]), str(folder), dtype, str(tokens), str(core)]
        with self.log.open("w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder
            )
        self.about = self.hear()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"A peer ended early. The end of what it said:\n{self.log.read_text()[-3000:]}")
        message: dict[str, Any] = json.loads(line)
        return message

    def __call__(self, request: Request) -> Request:
        assert self.process.stdin is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self.hear()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def rates_of(labs: dict[str, Ours], repeats: int) -> dict[str, Any]:
    """The rates of a large copy and of a large product in each precision."""
    cpu = torch.device("cpu")
    products = {dtype: product_gflop_s(cpu, side.engine.model.dtype, repeats) for dtype, side in labs.items()}
    return {"copy_gb_s": copy_gb_s(cpu, repeats), "product_gflop_s": products}


def roofs(labs: dict[str, Ours], anchors: int, rates: dict[str, Any]) -> Callable[[str, str, int], float]:
    """The least milliseconds of a case in a precision with so many tokens kept: its bytes at the bandwidth of
    a large copy or its operations at the rate of a large product, whichever takes longer."""
    gb_s, products = rates["copy_gb_s"], rates["product_gflop_s"]

    def least(case: str, dtype: str, cached: int) -> float:
        side = labs[dtype]
        model, tokens = side.engine.model, len(side.reading.context.prompt.ids)
        if case.startswith("kvcomm"):
            mixed = anchors if case == "kvcomm" else HEAVIEST
            return least_ms(side.reading.least_bytes(mixed), gb_s)
        computed = least_ms(prefill_operations(model, tokens, tokens - cached), products[dtype])
        return max(computed, least_ms(weight_bytes(model), gb_s))

    return least


def measure(
    sides: dict[tuple[str, str], Callable[[Request], Request]],
    reading: Reading,
    repeats: int,
    least: Callable[[str, str, int], float],
) -> list[dict[str, Any]]:
    """All sides in turn, ``repeats`` times; a row for each side and case."""
    spans = reading.context.prompt.spans
    tokens = len(reading.context.prompt.ids)
    high = reading.engine.model.info.vocabulary - 1
    texts = [[s.start, s.end] for s in spans if s.kind == "placeholder"]
    drawn = random.Random(1)
    times: dict[str, list[float]] = defaultdict(list)
    busy: dict[str, list[float]] = defaultdict(list)
    agree: dict[str, list[bool]] = defaultdict(list)
    keys: dict[str, tuple[str, str, str]] = {}
    cached: dict[str, int] = {}
    for turn in range(repeats + WARM_UP):
        ids = [drawn.randrange(5, high) for _ in range(tokens)]
        right: dict[str, int] = {}
        for case in Ours.cases:
            for (name, dtype), side in sides.items():
                if case not in side.cases:  # type: ignore[attr-defined]
                    continue
                answer = side({"case": case, "ids": ids, "texts": texts, "front": spans[0].end})
                # This lab in single precision comes first, and says what is right.
                right.setdefault("moved" if case == "moved" else "dense", answer["token"])
                if turn < WARM_UP:
                    continue
                key = f"{name} {dtype} {case}"
                keys[key], cached[key] = (name, dtype, case), answer["kept"]
                times[key].append(answer["ms"])
                busy[key].append(answer["processor_ms"])
                if not case.startswith("kvcomm"):
                    agree[key].append(answer["token"] == right["moved" if case == "moved" else "dense"])
                print(f"{turn} {key}: {answer['ms']:.0f} ms", file=sys.stderr, flush=True)
    ms, processor, spread = medians(times), medians(busy), spreads(times)
    strongest = {
        dtype: min(value for key, value in ms.items() if keys[key][1:] == (dtype, "whole"))
        for dtype in {key[1] for key in keys.values()}
    }
    return [
        {
            "engine": name,
            "dtype": dtype,
            "case": case,
            "kept": cached[key],
            "ms": ms[key],
            "processor_ms": processor[key],
            "spread": spread[key],
            "ratio": round(strongest[dtype] / ms[key], 2),
            "roofline_percent": percent(least(case, dtype, cached[key]), ms[key]),
            "agrees": f"{sum(agree[key])} of {len(agree[key])}" if key in agree else None,
        }
        for key, (name, dtype, case) in keys.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", nargs="+", required=True, metavar="PEER=PYTHON", help=", ".join(PROGRAMS))
    parser.add_argument("--shape", default="smollm2-135m", choices=list(SHAPES))
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--anchors", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    peers = dict(pair.split("=", 1) for pair in args.python)
    unknown = set(peers) - set(PROGRAMS)
    if unknown:
        parser.error(f"--python names {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}.")
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    os.environ["OMP_NUM_THREADS"] = "1"  # for the peers
    torch.set_num_threads(1)
    sides: dict[tuple[str, str], Callable[[Request], Request]] = {}
    about: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for dtype in DTYPES:
            model = random_model(args.shape, "cpu", dtype)
            sides[OURS, dtype] = Ours(reading_of(model, args.tokens, args.anchors))
            if dtype == "fp32":
                model.module.save_pretrained(folder)
        labs = {dtype: side for (_, dtype), side in sides.items() if isinstance(side, Ours)}
        # Before the peers are there: their idle processes take turns on the core.
        rates = rates_of(labs, 3 * args.repeats)
        least = roofs(labs, args.anchors, rates)
        for name, python in peers.items():
            for dtype in DTYPES:
                peer = Peer(name, python, folder, dtype, args.tokens, core)
                sides[name, dtype], about[name] = peer, peer.about
        try:
            rows = measure(sides, labs["fp32"].reading, args.repeats, least)
        finally:
            for side in sides.values():
                if isinstance(side, Peer):
                    side.close()
    report = {
        "bench": "peers",
        "shape": args.shape,
        "tokens": args.tokens,
        "anchors": args.anchors,
        "repeats": args.repeats,
        **rates,
        "rows": rows,
        "peers": about,
        **conditions(torch.device("cpu"), torch.float32),
    }
    print(json.dumps(report, indent=1))
    shares = {f"{row['engine']}, {row['dtype']}, {row['case']}": row["roofline_percent"] for row in rows}
    if wrong := beyond(shares):
        sys.exit(wrong)


if __name__ == "__main__":
    main()
