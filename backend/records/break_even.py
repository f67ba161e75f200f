"""When does reuse pay? A formula over lengths, pool and hardware; docs/break-even.md derives it. No torch.

Times are in milliseconds. Dense reads a prompt of T tokens in ``D(T) = a + bT + cT^2``. Reuse has to forward
the last token (f), weigh the pool's V anchors (m for each token and anchor), write the cache (p for each
token) and mix A of the anchors into it (q for each token and mixed anchor), where S tokens are shared texts:

    R = f + m V S + p T + q A S

Around it stand costs that dense does not have: base KV of outside texts (e for each of their E tokens, once
for n readers), the gate (g), and, where the gate refuses, recording what dense showed (w for each token).
With a share r of requests that pass the gate, reuse costs

    g + e E / n + r R + (1 - r) (D + w T)

a request, and pays as soon as that is below D: from the share on

    r* = (g + e E / n + w T) / (D - R + w T)
"""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from backend.base.errors import OptionError
from backend.base.ranges import check_whole

LONGEST = 1 << 22  # tokens; longer prompts are not computed
MOST_MS, MOST_BYTES = 1e12, 1 << 40  # of a machine's figures, so that no sum of them overflows
#: The most that may be asked of each number of a case.
MOST = {
    "prompt": LONGEST, "shared": LONGEST, "outside": LONGEST, "readers": 10_000, "anchors": 10_000,
    "mixed": 10_000,
}  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """Hardware and model as times; measured (:mod:`backend.bench.break_even`) or given
    (:mod:`backend.records.hardware`).

    Attributes:
        dense_ms: (a, b, c) of dense's polynomial.
        first_token_ms: forwarding the last prompt token over a full cache.
        match_ms: weighing, for each token and anchor.
        write_ms, mix_ms: for each token, and for each token and mixed anchor.
        encode_ms: base KV of an outside text, for each token.
        gate_ms: deciding, for each request: the gate, and what making the plan takes.
        record_ms: keeping offsets, for each token, where reuse is refused.
        anchor_bytes: what a token of an anchor takes for its base and one reader's offset.
    """

    name: str
    dense_ms: tuple[float, float, float]
    first_token_ms: float
    match_ms: float
    write_ms: float
    mix_ms: float
    encode_ms: float
    gate_ms: float = 0.0
    record_ms: float = 0.0
    anchor_bytes: int = 0

    def __post_init__(self) -> None:
        """
        Raises:
            OptionError: a time or the bytes are out of range, or no number.
        """
        times = {f.name: getattr(self, f.name) for f in fields(self) if f.name.endswith("_ms")}
        for name, value in times.items():
            parts = value if isinstance(value, tuple) else (value,)
            if not all(isinstance(x, int | float) and 0 <= x <= MOST_MS for x in parts):
                raise OptionError(
                    f"{name} is {value!r}; times are numbers of milliseconds, 0 to {MOST_MS:g}. Correct it.",
                    field=f"break_even.{name}",
                )
        if type(self.anchor_bytes) is not int or not 0 <= self.anchor_bytes <= MOST_BYTES:
            raise OptionError(
                f"anchor_bytes is {self.anchor_bytes!r}; 0 to {MOST_BYTES:,} are allowed, a whole number. "
                "Correct it.",
                field="break_even.anchor_bytes",
            )


@dataclass(frozen=True)
class Case:
    """The request whose cost is computed.

    Attributes:
        prompt: tokens of the reader's prompt; ``shared`` of them stand in texts that are reused.
        outside: of these, tokens of outside texts (a question, a document), whose base has to be encoded; an
            agent's answer has the base that its decoding left.
        readers: agents that read those texts and share that cost.
        anchors: in each pool (V); ``mixed`` of them into each text (all: V).
    """

    prompt: int
    shared: int
    outside: int = 0
    readers: int = 1
    anchors: int = 20
    mixed: int = 20

    def __post_init__(self) -> None:
        """
        Raises:
            OptionError: a number is out of its range, or texts are longer than what holds them.
        """
        for name, high in MOST.items():
            value, low = getattr(self, name), int(name in ("prompt", "readers"))
            check_whole(value, low, high, f"break_even.{name}")
        for part, whole in (("shared", "prompt"), ("outside", "shared"), ("mixed", "anchors")):
            if getattr(self, part) > getattr(self, whole):
                raise OptionError(
                    f"{part} is {getattr(self, part):,}, more than {whole} ({getattr(self, whole):,}), of "
                    "which it is a part. Lower it.",
                    field=f"break_even.{part}",
                )


@dataclass(frozen=True)
class Answer:
    """The formula's result for a case.

    Attributes:
        dense_ms, reuse_ms: to the first token; reuse of a request that passes the gate.
        ratio: the first over the second.
        least_share: of requests that have to pass the gate; None where none suffices.
        least_tokens: the shortest prompt, its parts in proportion, from which on reuse gains if every request
            passes; None if none does.
        most_anchors: anchors up to which mixing all of them gains; None if reuse loses without any.
        pool_bytes: of the anchors, for one reader.
        pays_after: requests until a pool of V anchors, filled by as many dense requests, is paid off; None if
            never.
    """

    dense_ms: float
    reuse_ms: float
    ratio: float
    parts_ms: dict[str, float]
    least_share: float | None
    least_tokens: int | None
    most_anchors: int | None
    pool_bytes: int
    pays_after: int | None


def dense_ms(machine: Machine, tokens: int) -> float:
    """D(T)."""
    a, b, c = machine.dense_ms
    return a + b * tokens + c * tokens * tokens


def parts_ms(machine: Machine, case: Case) -> dict[str, float]:
    """Cost of a request that passes the gate, by part."""
    return {
        "base": machine.encode_ms * case.outside / case.readers,
        "gate": machine.gate_ms,
        "match": machine.match_ms * case.anchors * case.shared,
        "mix": machine.mix_ms * case.mixed * case.shared,
        "write": machine.write_ms * case.prompt,
        "first token": machine.first_token_ms,
    }


def reuse_ms(machine: Machine, case: Case) -> float:
    """Cost of a request that passes the gate."""
    return sum(parts_ms(machine, case).values())


def least_share(machine: Machine, case: Case) -> float | None:
    """r*: see the module's docstring; None where reuse does not even gain if all pass."""
    dense, record = dense_ms(machine, case.prompt), machine.record_ms * case.prompt
    parts = parts_ms(machine, case)
    overhead = parts["base"] + parts["gate"]
    gain = dense - (reuse_ms(machine, case) - overhead)
    if gain <= overhead:
        return None
    return (overhead + record) / (gain + record)


def least_tokens(machine: Machine, case: Case) -> int | None:
    """The shortest prompt, its parts in proportion, from which on reuse gains at every length up to
    ``LONGEST``; None if there is none. Dense less reuse is a polynomial of the length, of which this is the
    largest root."""
    a, b, c = machine.dense_ms
    shared, outside = case.shared / case.prompt, case.outside / case.prompt
    ms_per_token = machine.write_ms + machine.encode_ms * outside / case.readers
    ms_per_token += (machine.match_ms * case.anchors + machine.mix_ms * case.mixed) * shared
    constant, slope = a - machine.first_token_ms - machine.gate_ms, b - ms_per_token
    if c == 0:
        if slope < 0 or (slope == 0 and constant <= 0):
            return 1 if constant + slope * LONGEST > 0 else None
        root = -constant / slope if slope else 0.0
    else:
        discriminant = slope * slope - 4 * c * constant
        root = 0.0
        if discriminant > 0:  # the larger root, in the form that cancels nothing
            root_term = math.sqrt(discriminant)
            root = -2 * constant / (slope + root_term) if slope > 0 else (root_term - slope) / (2 * c)
            # between the roots reuse loses; the smaller one may lie beyond LONGEST
            if slope < 0 < constant and 2 * constant / (root_term - slope) > LONGEST:
                return 1
    return math.floor(max(0.0, root)) + 1 if root < LONGEST else None


def most_anchors(machine: Machine, case: Case) -> int | None:
    """Anchors, all of them mixed, up to which reuse gains."""
    uncorrected = Case(case.prompt, case.shared, case.outside, case.readers, 0, 0)
    budget_ms = dense_ms(machine, case.prompt) - reuse_ms(machine, uncorrected)
    ms_per_anchor = (machine.match_ms + machine.mix_ms) * case.shared
    if budget_ms <= 0:
        return None
    most = budget_ms / ms_per_anchor if ms_per_anchor else math.inf
    return math.ceil(most) - 1 if most < LONGEST else LONGEST


def answer(machine: Machine, case: Case) -> Answer:
    """The formula's result for a case on a machine."""
    dense, reuse = dense_ms(machine, case.prompt), reuse_ms(machine, case)
    record = machine.record_ms * case.prompt + machine.encode_ms * case.outside / case.readers
    gain = dense - reuse
    pays_after = math.ceil(case.anchors * record / gain) + case.anchors if gain > 0 else None
    return Answer(
        dense, reuse, dense / reuse if reuse else math.inf, parts_ms(machine, case),
        least_share(machine, case), least_tokens(machine, case), most_anchors(machine, case),
        case.anchors * case.shared * machine.anchor_bytes, pays_after,
    )  # fmt: skip


def plain(machine: Machine, case: Case) -> dict[str, Any]:
    """As JSON: what was asked, by which figures, and the answer."""
    values = asdict(answer(machine, case))
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
    return {"machine": asdict(machine), "case": asdict(case), "answer": finite}
