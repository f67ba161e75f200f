"""How much a piece of JSON unfolds to, told from its bytes before anything is made of them.

A list costs three bytes in a file and sixty in memory, and while they are made nothing else goes on in the
process. So what comes from elsewhere is looked through first: texts are left out, marks are counted.
"""

import re

import numpy as np

JSON_BYTES = 32 << 20
MOST_VALUES = 1_000_000  # a large run has some 10,000
MOST_DEPTH = 64
# Closed or not: a text that never ends goes to the end. Nothing is tried twice, so the time is linear.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_OTHER_BYTES = bytes(byte for byte in range(256) if byte not in b"[{]}")


def excess(
    body: bytes, most_bytes: int = JSON_BYTES, most_values: int = MOST_VALUES, depth: int = MOST_DEPTH
) -> str:
    """Which bound a JSON text is over, such as *holds 20 values; up to 10 are read*; empty where it is within
    all of them. Whether it is JSON is not asked."""
    if len(body) > most_bytes:
        return f"has {len(body):,} bytes of JSON; up to {most_bytes:,} are read"
    if (texts := body.count(b'"') // 2) > 2 * most_values:  # each takes a moment to leave out
        return f"holds about {texts:,} texts; up to {2 * most_values:,} are read"
    bare = _TEXT.sub(b"", body)
    if (values := sum(map(bare.count, (b",", b"[", b"{")))) > most_values:
        return f"holds {values:,} values; up to {most_values:,} are read"
    steps = np.frombuffer(bare.translate(_STEPS, _OTHER_BYTES), np.int8)
    if len(steps) and (deepest := int(steps.cumsum(dtype=np.int64).max())) > depth:
        return f"is nested {deepest:,} deep; up to {depth} are read"
    return ""
