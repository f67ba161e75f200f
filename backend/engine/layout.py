"""A plan's layout: the order of its pieces, their places and their RoPE positions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor

from backend.base.errors import ModelError
from backend.methods.plan import Compute, Link, Plan, Reuse


@dataclass(frozen=True)
class Piece:
    """Prompt tokens ``[start, end)`` with their action, or soft tokens before token ``start``."""

    start: int
    end: int
    action: Reuse | Compute | Link

    @property
    def tokens(self) -> int:
        return self.action.tokens if isinstance(self.action, Link) else self.end - self.start


@dataclass(frozen=True)
class Layout:
    """A plan's layout. ``places`` order prompt tokens and soft tokens together.

    Attributes:
        pieces: in order; soft tokens within a step split it.
        positions: (tokens,) RoPE position of each prompt token.
        places: (tokens,) place of each prompt token.
        soft: (soft tokens,) RoPE position of each soft token; ``soft_places`` its place.
    """

    pieces: tuple[Piece, ...]
    positions: Tensor
    places: Tensor
    soft: Tensor
    soft_places: Tensor

    @property
    def total(self) -> int:
        return int(self.positions.numel())

    @property
    def natural(self) -> bool:
        """Whether every prompt token's position is its index, with no soft tokens."""
        return not self.soft.numel() and bool((self.positions == torch.arange(self.total)).all())

    @cached_property
    def by_place(self) -> Tensor:
        """RoPE position by place, (places,)."""
        out = torch.empty(self.total + len(self.soft), dtype=torch.long)
        out[self.places], out[self.soft_places] = self.positions, self.soft
        return out

    @cached_property
    def token_at(self) -> Tensor:
        """Prompt token by place, (places,); -1 for a soft one."""
        out = torch.full((self.total + len(self.soft),), -1)
        out[self.places] = torch.arange(self.total)
        return out

    def runs(self) -> Iterator[list[Piece]]:
        """Single pieces to copy, and runs of neighbouring pieces to forward in one pass."""
        for is_copy, group in groupby(self.pieces, lambda p: isinstance(p.action, Reuse)):
            pieces = list(group)
            yield from ([p] for p in pieces) if is_copy else [pieces]


def lay_out(plan: Plan, total: int, agent: int) -> Layout:
    """The layout of a plan over ``total`` prompt tokens.

    Raises:
        ModelError: the steps do not partition the prompt, or soft tokens are outside of it.
    """
    at = 0
    for step in plan.steps:
        if step.start != at or step.end > total:
            raise ModelError(f"The plan leaves a gap at token {at} of agent {agent}'s prompt.")
        at = step.end
    if at != total:
        raise ModelError(f"The plan stops at token {at} of {total} of agent {agent}'s prompt.")
    links = sorted((link for link in plan.links if link.tokens), key=lambda link: link.at)
    soft_before = torch.zeros(total, dtype=torch.long)  # soft tokens before each prompt token
    for link in links:
        if not 0 <= link.at < total:
            where = f"token {link.at} of {total} of agent {agent}'s prompt"
            raise ModelError(f"Soft tokens stand before {where}.")
        soft_before[link.at :] += link.tokens
    places = torch.arange(total) + soft_before
    positions = places.clone()
    for step in plan.steps:
        if step.position is not None:
            step_places = places[step.start : step.end]
            positions[step.start : step.end] = step.position + step_places - step_places[0]
    pieces: list[Piece] = []
    pending = list(links)
    for step in plan.steps:
        start = step.start
        while pending and pending[0].at < step.end:
            link = pending.pop(0)
            if link.at > start:
                pieces.append(Piece(start, link.at, _from(step.action, start - step.start)))
                start = link.at
            pieces.append(Piece(link.at, link.at, link))
        pieces.append(Piece(start, step.end, _from(step.action, start - step.start)))
    soft, soft_places = _soft(links, positions, places)
    if soft.numel() and int(soft.min()) < 0:
        raise ModelError(
            f"Soft tokens of agent {agent}'s prompt have no room before the position of their text."
        )
    return Layout(tuple(pieces), positions, places, soft, soft_places)


def _soft(links: Sequence[Link], positions: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Positions and places of soft tokens: right before those of the prompt token that follows them."""
    parts: list[tuple[Tensor, Tensor]] = []
    for at, group in groupby(links, lambda link: link.at):
        steps_back = torch.arange(-sum(link.tokens for link in group), 0)
        parts.append((positions[at] + steps_back, places[at] + steps_back))
    empty = torch.empty(0, dtype=torch.long)
    return torch.cat([empty, *(p for p, _ in parts)]), torch.cat([empty, *(p for _, p in parts)])


def _from(action: Reuse | Compute, start: int) -> Reuse | Compute:
    """A step's action for its tokens from ``start`` on."""
    if isinstance(action, Compute) or start == 0:
        return action
    terms = tuple(
        replace(
            term,
            offset=term.offset.slice(start, term.offset.tokens),
            weight=_cut(term.weight, start),
            value_weight=None if term.value_weight is None else _cut(term.value_weight, start),
        )
        for term in action.terms
    )
    return replace(action, base=action.base.slice(start, action.base.tokens), terms=terms)


def _cut(weight: Tensor, start: int) -> Tensor:
    return weight[start:] if weight.ndim == 1 else weight
