"""What reuse would save of a log, without a model: shared tokens, cache hits, and why prefixes missed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from backend.base.ranges import check_whole
from backend.logs.advice import Advice, Template, advise, templates
from backend.logs.anywhere import RUN, Overlap, find_overlap
from backend.logs.causes import Cause, cause
from backend.logs.gather import Gathered, gather
from backend.logs.pieces import EMBEDDED, load_tokenizer
from backend.logs.prefixes import Counts, block_hits, lru_hits, shared_prefixes
from backend.records.break_even import Machine
from backend.records.hardware import given_machine

MOST_AGENTS = 24  # in the matrix; the rest are one line
ASSUMED = ("llama-8b", 600.0, 2500.0)  # a shape, TFLOP/s and GB/s, where no machine is named
OTHERS = "others"
BLOCK, CACHE_TOKENS = 16, 400_000


@dataclass(frozen=True)
class CallXRay:
    """One call's tokens.

    Attributes:
        prefix: its longest beginning that ``donor``, an earlier call, had; ``blocks`` of it in whole blocks.
        bounded: in blocks of the bounded cache.
        anywhere: that an earlier call had in any place; ``repeated``: new, but twice in this call; ``new``.
        cause: why what stood in ``against`` was missed; None where nothing was, or the prompt
            only grew.
        input, cached: tokens as the server counted them; None where the log does not say.
    """

    where: str
    agent: str
    session: str
    tokens: int
    prefix: int
    donor: str
    blocks: int
    bounded: int
    anywhere: int
    repeated: int
    new: int
    cause: Cause | None = None
    against: str = ""
    input: int | None = None
    cached: int | None = None


@dataclass(frozen=True)
class Missed:
    """One cause over the log: how many ``calls`` missed ``tokens`` for it, and an example."""

    kind: str
    calls: int
    tokens: int
    example: CallXRay


@dataclass(frozen=True)
class XRay:
    """All of a log.

    Attributes:
        totals: tokens, and of them: prefix, blocks, bounded, anywhere, repeated, new.
        matrix: row: reader, column: who had sent it before; tokens of whole paragraphs, ``prefixes`` of
            beginnings. Text that several had sent counts for each of them.
        seconds, dollars: to read all prompts: in full, and with each kind of cache.
        cut_tax: tokens that cutting at paragraphs adds, and of how many that was measured.
        logged: input and cached tokens as servers counted them; None where a call does not say.
    """

    file: str
    formats: tuple[str, ...]
    tokenizer: str
    block: int
    capacity: int
    machine: str
    calls: list[CallXRay]
    totals: dict[str, int]
    agents: list[str]
    by_prompt: bool
    matrix: list[list[int]]
    prefixes: list[list[int]]
    missed: list[Missed]
    seconds: dict[str, float]
    dollars: dict[str, float]
    cut_tax: tuple[int, int]
    logged: tuple[int | None, int | None]
    skipped: int
    bad: list[str]
    templates: list[Template] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def xray(
    path: Path,
    *,
    tokenizer: str = EMBEDDED,
    block: int = BLOCK,
    cache_tokens: int = CACHE_TOKENS,
    skip_bad: bool = False,
    machine: Machine | None = None,
    hour_price: float = 3.0,
    progress: Callable[[str], None] = lambda _: None,
    log: Gathered | None = None,
) -> XRay:
    """X-ray a log.

    Args:
        tokenizer: see :func:`backend.logs.pieces.load_tokenizer`.
        block: tokens of an engine's block; ``cache_tokens``: what its bounded cache holds.
        skip_bad: leave out lines that hold no call.
        machine: whose times are counted; ``hour_price``: what it costs in dollars.
        progress: called with the name of each step as it begins.
        log: the file, where it was gathered before.

    Raises:
        RecordError: the log cannot be read, or has a bad line.
        OptionError: an option is out of range, or the tokenizer cannot be loaded.
    """
    check_whole(block, 1, 4096, "block")
    check_whole(cache_tokens, block, 1 << 40, "cache_tokens")
    log = log or gather(path, load_tokenizer(tokenizer), skip_bad=skip_bad, progress=progress)
    totals = np.array([log.tokens.count(p) for p in log.pieces], np.int64)
    progress("shared beginnings")
    prefix, donor = shared_prefixes(log.pieces, log.tokens)
    blocks = block_hits(prefix, totals, block)
    progress("a bounded cache")
    bounded = lru_hits(log.pieces, log.tokens, block, cache_tokens // block)
    progress("text anywhere")
    overlap = find_overlap(log.tokens, first_calls(log))
    lines, matrix, prefixes = _calls(log, overlap, totals, prefix, donor, blocks, bounded)
    progress("layouts")
    machine = machine or given_machine(*ASSUMED)
    anywhere = np.array([c.anywhere for c in lines], np.int64)
    seconds = {
        "full": _seconds(machine, totals, 0 * totals), "bounded cache": _seconds(machine, totals, bounded),
        "unlimited cache": _seconds(machine, totals, blocks),
        "anywhere": _seconds(machine, totals, anywhere, moved=anywhere - prefix),
    }  # fmt: skip
    fields = ("tokens", "prefix", "blocks", "bounded", "anywhere", "repeated", "new")
    return XRay(
        path.name, log.formats, tokenizer, block, cache_tokens, machine.name, lines,
        {name: sum(getattr(c, name) for c in lines) for name in fields},
        log.names[:MOST_AGENTS] + [OTHERS] * (len(log.names) > MOST_AGENTS), log.by_prompt,
        matrix.tolist(), prefixes.tolist(), _missed(lines), seconds,
        {name: value / 3600 * hour_price for name, value in seconds.items()},
        log.cut_tax, _logged(log.usage),
        log.skipped, list(log.bad), templates(log), advise(log, totals, anywhere, block),
    )  # fmt: skip


def first_calls(log: Gathered) -> Counts:
    """Of each piece, the call that sent it first."""
    first = np.full(len(log.tokens.lengths), len(log.pieces), np.int64)
    for number in reversed(range(len(log.pieces))):
        first[log.pieces[number]] = number
    return first


def _calls(
    log: Gathered, overlap: Overlap, totals: Counts, prefix: Counts, donor: Counts, blocks: Counts,
    bounded: Counts,
) -> tuple[list[CallXRay], Counts, Counts]:  # fmt: skip
    """Every call's tokens, and both matrices."""
    count = min(len(log.names), MOST_AGENTS + 1)
    had = np.zeros((count, len(log.tokens.lengths)), bool)
    matrix, prefixes = np.zeros((count, count), np.int64), np.zeros((count, count), np.int64)
    last = _Last()
    lines = []
    for n, pieces in enumerate(log.pieces):
        agent, session = min(log.agents[n], MOST_AGENTS), log.sessions[n]
        lengths = log.tokens.lengths[pieces]
        anywhere, repeated = _anywhere(log, overlap, n, int(prefix[n]))
        matrix[agent] += had[:, pieces] @ lengths
        had[agent, pieces] = True
        if donor[n] >= 0:
            prefixes[agent, min(log.agents[int(donor[n])], MOST_AGENTS)] += prefix[n]
        reason, against, before = None, -1, last.of(log.agents[n], session)
        # A prompt that only grew since the agent's last call broke no prefix, whatever it repeats at its end.
        grew = before and (log.agents[before[0]], log.sessions[before[0]]) == (log.agents[n], session)
        grew = grew and prefix[n] >= totals[before[0]]
        if anywhere - prefix[n] >= RUN and not grew:
            against = _against(log, overlap, n, [*before, int(donor[n])], int(prefix[n]))
            reason = cause(
                log.pieces[against].tolist(), pieces.tolist(), log.texts, log.headers,
                log.agents[against] == log.agents[n],
            )  # fmt: skip
        last.keep(log.agents[n], session, n)
        lines.append(
            CallXRay(
                log.where[n], log.names[log.agents[n]], session, int(totals[n]), int(prefix[n]),
                log.where[int(donor[n])] if donor[n] >= 0 else "", int(blocks[n]), int(bounded[n]),
                anywhere, repeated, int(totals[n]) - anywhere - repeated,
                reason, log.where[against] if reason else "", *log.usage[n],
            )
        )  # fmt: skip
    return lines, matrix, prefixes


def _anywhere(log: Gathered, overlap: Overlap, n: int, prefix: int) -> tuple[int, int]:
    """Tokens of a call that an earlier one had, and of the others those that stand in it twice."""
    pieces, lengths = log.pieces[n], log.tokens.lengths[log.pieces[n]]
    new = overlap.first[pieces] == n
    fresh = np.unique(pieces[new])
    repeated = int(lengths[new].sum() - log.tokens.lengths[fresh].sum())
    shared = int(lengths[~new].sum() + overlap.tokens[fresh].sum())
    ends = lengths.cumsum()
    cut = int(np.searchsorted(ends, prefix, "right"))
    if cut < len(pieces) and new[cut]:  # its beginning is shared, however short that is
        inside = prefix - int(ends[cut] - lengths[cut])
        start = log.tokens.starts[pieces[cut]]
        shared += inside - int(overlap.mask[start : start + inside].sum())
    return max(shared, prefix), min(repeated, int(lengths.sum()) - max(shared, prefix))


class _Last:
    """The last call of each agent in each session, of each agent, and of each session."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int | None, str | None], int] = {}

    def of(self, agent: int, session: str) -> list[int]:
        keys: tuple[tuple[int | None, str | None], ...] = ((agent, session), (agent, None), (None, session))
        return [self._calls[key] for key in keys if key in self._calls]

    def keep(self, agent: int, session: str, call: int) -> None:
        for key in ((agent, session), (agent, None), (None, session)):
            self._calls[key] = call


def _against(log: Gathered, overlap: Overlap, n: int, candidates: list[int], prefix: int) -> int:
    """The earlier call that a call is compared with: of the candidates, and of the call that sent the longest
    missed paragraph first, the one that had most of the text. If none had more than the prefix, the latter.
    """
    pieces, lengths = log.pieces[n], log.tokens.lengths[log.pieces[n]]
    partly, source = overlap.tokens[pieces], overlap.source[pieces]
    best, most = -1, prefix + RUN - 1
    missed = np.where(overlap.first[pieces] < n, lengths, partly) * (lengths.cumsum() > prefix)
    longest = int(missed.argmax())
    owner = int(pieces[longest] if overlap.first[pieces[longest]] < n else source[longest])
    owner_call = int(overlap.first[owner]) if owner >= 0 else -1
    for other in dict.fromkeys([*candidates, owner_call]):
        if other < 0 or other >= n:
            continue
        other_pieces = log.pieces[other]
        whole = np.isin(pieces, other_pieces)
        score = int(lengths[whole].sum() + partly[~whole & np.isin(source, other_pieces)].sum())
        if score > most:
            best, most = other, score
    return best if best >= 0 else owner_call if 0 <= owner_call < n else candidates[0]


def _logged(usage: list[tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    """Sums of what servers counted; None where a call has none."""
    sums = [None if None in column else sum(filter(None, column)) for column in zip(*usage, strict=True)]
    return sums[0], sums[1]


def _missed(lines: list[CallXRay]) -> list[Missed]:
    calls: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    example: dict[str, CallXRay] = {}
    for line in lines:
        if line.cause is not None:
            kind = line.cause.kind
            calls[kind] += 1
            tokens[kind] += line.anywhere - line.prefix
            example.setdefault(kind, line)
    return [Missed(kind, calls[kind], count, example[kind]) for kind, count in tokens.most_common()]


def _seconds(machine: Machine, totals: Counts, cached: Counts, moved: Counts | None = None) -> float:
    """What reading all prompts takes: dense's polynomial less that of the cached tokens, and the time to
    write what was moved from another place (:mod:`backend.records.break_even`)."""
    _, b, c = machine.dense_ms
    computed, whole, had = totals - cached, totals.astype(float), cached.astype(float)
    ms = machine.dense_ms[0] * len(totals) + b * computed.sum() + c * (whole * whole - had * had).sum()
    return float(ms + (machine.write_ms * moved.sum() if moved is not None else 0.0)) / 1e3
