"""What an engine's cache really hit, beside what was predicted for it."""

from dataclasses import dataclass

from backend.logs.xray import CallXRay, XRay


@dataclass(frozen=True)
class Hits:
    """Calls whose server counted its cached tokens, and tokens over all of them.

    Attributes:
        calls: how many; ``tokens`` and ``input``: of their prompts, as counted here and by the server.
        really, bounded, unlimited: cached tokens: by the server, and predicted with a bounded cache and with
            one that drops nothing.
        same: calls that hit exactly what was predicted with the bounded cache; ``near``: within a block.
        less, more: calls that hit at least a block less, or more, than predicted, the farthest first.
    """

    calls: int
    tokens: int
    input: int
    really: int
    bounded: int
    unlimited: int
    same: int
    near: int
    less: list[CallXRay]
    more: list[CallXRay]


def hits(xray: XRay) -> Hits | None:
    """None where no call says what was cached."""
    counted = [(call, call.cached - call.bounded) for call in xray.calls if call.cached is not None]
    if not counted:
        return None
    apart = sorted(((gap, n) for n, (_, gap) in enumerate(counted) if abs(gap) >= xray.block), reverse=True)
    calls = [call for call, _ in counted]
    return Hits(
        len(calls), sum(c.tokens for c in calls), sum(c.input or 0 for c in calls),
        sum(c.cached or 0 for c in calls), sum(c.bounded for c in calls), sum(c.blocks for c in calls),
        sum(gap == 0 for _, gap in counted), sum(abs(gap) < xray.block for _, gap in counted),
        [calls[n] for gap, n in reversed(apart) if gap < 0], [calls[n] for gap, n in apart if gap > 0],
    )  # fmt: skip
