"""What several readers' caches of the same texts take, and what each way of keeping them loses (TokenDance,
int8, half).

Sends a preset's requests through the pipeline densely and looks at every text that another context encoded:
the *master* is that encoding, a *sibling* is what a reader's cache holds of the text, as dense computed it or
as a method of reuse left it, each method with its defaults. Prints JSON: bytes of the siblings under each
view over their bytes as computed, of siblings and masters together, and the relative error (L2 over all keys,
and over all values) of the caches read back. The share of blocks that a view keeps is what TokenDance's
compression rests on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from backend.base.clock import Clock
from backend.base.machine import versions
from backend.cache.int8 import pack
from backend.cache.mirrors import mirror
from backend.cache.samples import SampleLog
from backend.engine.engine import Engine
from backend.methods.dense import DenseMethod
from backend.methods.registry import make_options, method_class
from backend.model.load import load_model
from backend.prompts.presets import load_preset, preset_requests
from backend.records.request import Decoding
from backend.session.prompt_run import own_context, read_densely, read_prompt, take_answer
from backend.session.request_state import RequestState

ROUNDING = 1e-4  # keys of a copy were turned to its place and are turned back to be compared
READERS = ("dense", "naive", "epic", "prophetkv", "cacheblend")


def half(own: Tensor, master: Tensor) -> tuple[int, Tensor]:
    stored = own.to(torch.float16)
    return stored.numel() * stored.element_size(), stored.float()


def eight_bits(own: Tensor, master: Tensor) -> tuple[int, Tensor]:
    stored = pack(own)
    return stored.bytes, stored.unpack()


def eight_bit_offsets(own: Tensor, master: Tensor) -> tuple[int, Tensor]:
    stored = pack(own - master)
    return stored.bytes, master + stored.unpack()


def differences(tolerance: float) -> Callable[[Tensor, Tensor], tuple[int, Tensor]]:
    def view(own: Tensor, master: Tensor) -> tuple[int, Tensor]:
        stored = mirror(own, master, tolerance)
        return stored.bytes, stored.restore(master)

    return view


VIEWS: dict[str, Callable[[Tensor, Tensor], tuple[int, Tensor]]] = {
    "half": half,
    "int8": eight_bits,
    "int8 of what differs": eight_bit_offsets,
    "differences": differences(ROUNDING),
    "differences over 10%": differences(0.1),
    "differences over 30%": differences(0.3),
}


class Sums:
    """Bytes, and squares of errors and values, over all siblings."""

    def __init__(self) -> None:
        self.bytes = 0
        self.error, self.size = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)

    def add(self, size: int, own: Tensor, back: Tensor) -> None:
        self.bytes += size
        self.error += (own.double() - back.double()).square().flatten(1).sum(dim=1)
        self.size += own.double().square().flatten(1).sum(dim=1)

    @property
    def errors(self) -> list[float]:
        return [float(f"{x:.4g}") for x in (self.error / self.size).sqrt()]


@torch.inference_mode()
def measure(preset_name: str, model_name: str, requests: int, seed: int) -> dict[str, Any]:
    model, preset = load_model(model_name), load_preset(preset_name)
    engine, pipeline = Engine(model), preset.pipeline.unrolled
    sums = {reader: {view: Sums() for view in VIEWS} for reader in READERS}
    raw, masters, siblings = 0, 0, 0
    for example in preset_requests(preset, requests, seed):
        log = SampleLog("views", 1 << 34)
        state = RequestState(pipeline, engine, log)
        state.start(pipeline.check_values(example.values))
        numbers: set[int] = set()
        for agent in pipeline.order:
            context = state.context(agent)
            for reader in READERS:
                method = method_class(reader)(make_options(reader, {}))
                if isinstance(method, DenseMethod):
                    dense = prefill = read_densely(engine, context, "read densely")
                else:
                    _, prefill = read_prompt(engine, context, method, log, Clock())
                for span in context.prompt.spans:
                    sample = context.samples.get(span.name)
                    end = min(span.end, len(context.prompt.ids) - 1)
                    if sample is None or end <= span.start:
                        continue
                    read = prefill.cache.segment(span.start, end, model.rotation, exact=False, context="")
                    base = sample.base.slice(0, end - span.start)
                    own, master = (torch.stack([x.keys, x.values]).float() for x in (read, base))
                    for name, view in VIEWS.items():
                        size, back = view(own, master)
                        sums[reader][name].add(size, own, back)
                    if reader == READERS[0]:
                        raw, siblings = raw + own.numel() * own.element_size(), siblings + 1
                        if sample.number not in numbers:
                            numbers.add(sample.number)
                            masters += master.numel() * master.element_size()
            if agent != pipeline.order[-1]:
                limit = Decoding(max_new_tokens=pipeline.agent(agent).max_new_tokens)
                [decoded] = engine.decode([dense], limit, context=own_context(agent))
                take_answer(state, agent, decoded)
    rows = {
        reader: {
            name: {
                "of_raw": round(total.bytes / raw, 4),
                "with_masters_of_raw": round((total.bytes + masters) / raw, 4),
                "keys_error": total.errors[0],
                "values_error": total.errors[1],
            }
            for name, total in views.items()
        }
        for reader, views in sums.items()
    }
    about = {"preset": preset_name, "requests": requests, "seed": seed, "siblings": siblings}
    sizes = {"raw_bytes": raw, "master_bytes": masters}
    facts = {"model": model.info.name, "weights": model.info.weights_hash, "versions": versions()}
    return about | sizes | facts | {"readers": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", default=["math-3", "documents-5"])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--requests", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    json.dump([measure(p, args.model, args.requests, args.seed) for p in args.presets], sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
