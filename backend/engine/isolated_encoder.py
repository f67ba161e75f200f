"""Texts encoded alone: with nothing before them, not even the begin-of-sequence token.

Some methods encode documents separately and concatenate them later (PromptCache's modules, Block-Attention's
blocks, KVLink's documents). A placeholder's base is encoded by the session, behind the begin-of-sequence
token and on the lab's own weights. These texts are encoded when a method needs them, on the weights of the
agent that reads them, and stored in the log, so each text is encoded once.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from backend.base.clock import Clock
from backend.cache.kv_cache import KVSegment
from backend.cache.samples import SampleLog
from backend.engine.runner import ModelRunner
from backend.engine.surprisal import surprisal
from backend.model.link_tokens import Links, anchors_of
from backend.records.run import EARLIER

ALONE = "encoded by itself"
WRAPPED = "encoded by itself, between trained tokens"
ANCHORED = "anchor tokens in place of the text"


class IsolatedEncoder:
    """Encodes texts on one reader's weights and stores them in the log.

    ``earlier``: keys that the log held before the request. ``costs``: milliseconds of each text encoded
    since; every compared method is charged the same, whichever of them came first.
    """

    def __init__(
        self,
        runner: ModelRunner,
        log: SampleLog,
        weights: str = "",
        earlier: Collection[tuple[str, tuple[int, ...]]] = (),
        costs: dict[tuple[str, tuple[int, ...]], float] | None = None,
    ) -> None:
        self.runner, self.log, self.weights, self.earlier = runner, log, weights, earlier
        self.costs = {} if costs is None else costs
        self._charged: set[tuple[str, tuple[int, ...]]] = set()

    @property
    def links(self) -> Links | None:
        """The link tokens that the reader's weights were trained with; None: none."""
        return self.runner.model.links

    def encode(self, ids: Sequence[int], clock: Clock, lead_in: Sequence[int] = ()) -> KVSegment:
        """The KV of tokens that attend to each other and a lead-in alone; from the log if encoded before.
        Timed as ``base``."""
        key = (self.weights, (*ids, -1, *lead_in) if lead_in else tuple(ids))
        segment = self.log.isolated.get(key)
        if segment is None:
            start = clock.parts.get("base", 0.0)
            with clock.part("base"):
                segment = self.log.isolated[key] = self.runner.encode(ids, lead_in, ALONE)
            self.costs[key] = clock.parts["base"] - start
        elif key in self.costs and key not in self._charged:
            clock.add("base", self.costs[key])
        self._charged.add(key)
        return replace(segment, context=f"{ALONE}, {EARLIER}") if key in self.earlier else segment

    def surprisal(self, ids: Sequence[int]) -> Tensor:
        """(tokens,) minus log probability of each token of the text read alone; infinite for the first."""
        return surprisal(self.runner, ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens."""
        return self.runner.model.tokens.decode(ids)

    @torch.inference_mode()
    def packet(self, ids: Sequence[int]) -> KVSegment:
        """The KV of a text with its wrappers (KV Packet)."""
        assert self.links is not None, "wrappers belong to weights that they were trained for"
        text = self.runner.model.module.get_input_embeddings()(self.runner.ids(ids))[0]
        before, behind = self.links.anchor_tokens.chunk(2)
        embeddings = torch.cat([before, text, behind])
        cache, tokens = self.runner.model.new_cache(len(embeddings)), len(embeddings)
        visible = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        self.runner.forward_seeing(embeddings[None], cache, visible, torch.arange(tokens))
        return cache.segment(0, tokens, self.runner.model.rotation, exact=True, context=WRAPPED)

    @torch.inference_mode()
    def anchor_tokens(self, ids: Sequence[int]) -> KVSegment:
        """A text's anchor tokens (KVLink, Section 2.4): an anchor attends to its own chunk, whose positions
        end right before the chunk's anchors, and to all earlier anchors. The text's own KV is dropped."""
        links, model = self.links, self.runner.model
        assert links is not None, "anchors belong to weights that were trained with them"
        table = model.module.get_input_embeddings()
        parts, chunk, anchor, position = [], list[int](), list[bool](), list[int]()
        room = len(ids)  # keeps positions from being negative
        for number, (start, end, count) in enumerate(anchors_of(len(ids), links.rate, links.chunk_tokens)):
            parts += [table(self.runner.ids(ids[start:end]))[0], links.anchor_tokens[:count]]
            chunk += [number] * (end - start + count)
            anchor += [False] * (end - start) + [True] * count
            position += [*range(room - (end - start), room), *range(room, room + count)]
            room += count
        of, soft, positions = torch.tensor(chunk), torch.tensor(anchor), torch.tensor(position)
        causal = torch.ones(len(of), len(of), dtype=torch.bool).tril()
        visible = causal & ((of[:, None] == of[None]) | (soft[:, None] & soft[None]))
        cache = model.new_cache(len(of))
        self.runner.forward_seeing(torch.cat(parts)[None], cache, visible, positions)
        places = soft.nonzero()[:, 0].to(model.device)
        keys = model.rotation.rotate(cache.keys[:, 0][:, :, places], -positions.to(model.device)[places])
        return KVSegment(keys, cache.values[:, 0][:, :, places].clone(), 0, True, ANCHORED)
