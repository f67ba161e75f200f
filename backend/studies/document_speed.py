"""Time to first token by document length, loading of the KV included (KVLink, Section 3.3 and Figure 3).

Both sides in one run, interleaved: *dense* is one plain prefill of the whole prompt; the others load the
documents' KV from where it is kept (main memory, or a file each), move it into place, forward link tokens,
template and question. Tokens and link tokens are drawn at random: times do not depend on what they say.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from backend.base.clock import Clock
from backend.base.errors import BudgetError, OptionError
from backend.base.ranges import check_choice, check_whole
from backend.cache.kv_cache import KVSegment
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.engine import Engine
from backend.engine.isolated_encoder import IsolatedEncoder
from backend.methods.kvlink import KVLinkMethod, KVLinkOptions
from backend.model.link_tokens import Links
from backend.model.load import LoadedModel
from backend.records.documents import DOCUMENT_LIMITS, DocumentSpeed
from backend.records.events import Progress
from backend.records.prompt import Span, TokenizedPrompt

DOCUMENTS = 10
SYSTEM, HEADER, QUESTION = 16, 4, 24  # tokens of template and question
LINKS = (0, 1, 5)
WARM = 2
Fetch = Callable[[], KVSegment]


def document_speed(
    model: LoadedModel, lengths: Sequence[int], repeats: int = 20, source: str = "memory"
) -> Iterator[Progress | DocumentSpeed]:
    """Measure; yields progress and, last, the times.

    Args:
        model: any whose keys can be moved; random weights do.
        lengths: tokens of each of ten documents, ascending.
        repeats: timed repetitions of each side, behind two that do not count.
        source: "memory" or "disk".

    Raises:
        OptionError: a number or the source is not allowed.
        BudgetError: the model cannot read so much.
    """
    _check(model, lengths, repeats, source)
    names = ("Dense", *("PromptCache, moved" if not k else f"KVLink{k}" for k in LINKS))
    shape = (len(names), len(lengths))
    ttft, load, low, high = (np.zeros(shape) for _ in range(4))
    sizes, kv_bytes = np.zeros(len(lengths), dtype=np.int64), np.zeros(len(lengths), dtype=np.int64)
    for column, length in enumerate(lengths):
        yield Progress(f"{DOCUMENTS} documents of {length:,} tokens", column, len(lengths))
        with tempfile.TemporaryDirectory() as folder:
            prompt, fetches = _prompt(model, length, source, Path(folder))
            sizes[column] = len(prompt.ids)
            kv_bytes[column] = sum(fetch().bytes for fetch in fetches.values())
            spent = np.array([_round(model, prompt, fetches) for _ in range(repeats + WARM)])[WARM:]
        ttft[:, column], load[:, column] = np.median(spent, axis=0).T
        low[:, column], high[:, column] = np.percentile(spent[:, :, 0], [25, 75], axis=0)
    yield DocumentSpeed(
        model.info, names, DOCUMENTS, tuple(lengths), sizes, source, repeats, kv_bytes, ttft, load, low, high
    )


def _check(model: LoadedModel, lengths: Sequence[int], repeats: int, source: str) -> None:
    for name, value in (*(("lengths", n) for n in lengths), ("repeats", repeats)):
        check_whole(value, *DOCUMENT_LIMITS[name], f"documents.{name}")
    if not lengths or list(lengths) != sorted(set(lengths)):
        raise OptionError(
            f"lengths are {list(lengths)}; name at least one, each once, smallest first.",
            field="documents.lengths",
        )
    check_choice(source, ("memory", "disk"), "documents.source", "The source")
    most = SYSTEM + DOCUMENTS * (lengths[-1] + HEADER + max(LINKS)) + QUESTION + 2
    if most > model.info.context_tokens:
        fits = (model.info.context_tokens - most) // DOCUMENTS + lengths[-1]
        raise BudgetError(
            f"{DOCUMENTS} documents of {lengths[-1]:,} tokens make a prompt of {most:,}; {model.info.name} "
            f"can read {model.info.context_tokens:,}. Ask for documents of at most {fits:,} tokens.",
            field="documents.lengths",
        )


def _prompt(
    model: LoadedModel, length: int, source: str, folder: Path
) -> tuple[TokenizedPrompt, dict[str, Fetch]]:
    """A prompt of random tokens, and how each document's KV is loaded."""
    generator = torch.Generator().manual_seed(length)
    engine = Engine(model)
    ids: list[int] = []
    spans: list[Span] = []
    fetches: dict[str, Fetch] = {}

    def add(kind: str, name: str, count: int) -> tuple[int, ...]:
        new = torch.randint(5, model.info.vocabulary - 1, (count,), generator=generator).tolist()
        spans.append(Span("placeholder" if kind == "text" else "prefix", name, len(ids), len(ids) + count))
        ids.extend(new)
        return tuple(new)

    add("template", "prefix 0", SYSTEM)
    for number in range(1, DOCUMENTS + 1):
        name = f"document_{number}"
        segment = engine.encode(add("text", name, length), (), "encoded by itself")
        fetches[name] = _store(model, segment, source, folder / f"{name}.safetensors")
        add("template", f"prefix {number}", HEADER)
    add("template", "question", QUESTION)
    return TokenizedPrompt(1, tuple(ids), tuple(spans)), fetches


def _store(model: LoadedModel, segment: KVSegment, source: str, file: Path) -> Fetch:
    """Store a document's KV; returns what loads it to the model's device."""
    keys, values = (x.cpu().contiguous() for x in (segment.keys, segment.values))
    if model.device.type == "cuda":
        keys, values = keys.pin_memory(), values.pin_memory()
    if source == "disk":
        save_file({"keys": keys, "values": values}, file)

    def fetch() -> KVSegment:
        tensors = (
            load_file(file, device=str(model.device))
            if source == "disk"
            else {"keys": keys, "values": values}
        )
        moved = {name: x.to(model.device, non_blocking=True) for name, x in tensors.items()}
        return KVSegment(moved["keys"], moved["values"], 0, True, "encoded by itself")

    return fetch


def _round(
    model: LoadedModel, prompt: TokenizedPrompt, fetches: dict[str, Fetch]
) -> list[tuple[float, float]]:
    """One repetition: milliseconds to the first token, and of these for loading; dense, then the others."""
    engine, log = Engine(model), SampleLog("speed", 1 << 40)
    clock = engine.clock()
    with clock.part("dense"):
        engine.prefill(prompt.ids)
    out = [(clock.parts["dense"], 0.0)]
    for count in LINKS:
        linked = _linked(model, count)
        clock = Engine(linked).clock()
        began = time.perf_counter()
        with clock.part("load"):
            segments = {name: fetch() for name, fetch in fetches.items()}
        encoder = IsolatedEncoder(Engine(linked), log)
        context = PromptInContext(
            prompt, {}, {}, rotation=model.rotation, encoder=encoder, method_bases=segments
        )
        plan = KVLinkMethod(KVLinkOptions()).plan(context, log, Clock())
        with clock.part("rest"):
            Engine(linked).execute(prompt, plan, Clock())
        out.append(((time.perf_counter() - began) * 1e3, clock.parts["load"]))
    return out


def _linked(model: LoadedModel, count: int) -> LoadedModel:
    """The model with so many random link tokens behind each document, and KV-START and KV-END; none for 0."""
    hidden = model.module.get_input_embeddings().weight.shape[1]
    if not count:
        return replace(model, links=None)
    links, edges, anchors = (torch.randn(*shape, hidden) for shape in ((DOCUMENTS, count), (2,), (0,)))
    return replace(model, links=Links(links, edges, anchors).to(model.device, model.dtype))
