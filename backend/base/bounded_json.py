"""The size and depth of a JSON text, counted in its bytes before it is parsed.

A list takes three bytes in a file and sixty in memory, and parsing blocks the process. So untrusted JSON is
scanned first: strings are left out, brackets and commas are counted.
"""

import re

import numpy as np

JSON_BYTES = 32 << 20
MOST_VALUES = 1_000_000  # a large run has some 10,000
MOST_DEPTH = 64
# An unclosed string reaches to the end. Possessive quantifiers never backtrack, so the time is linear.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_OTHER_BYTES = bytes(byte for byte in range(256) if byte not in b"[{]}")


def excess(
    body: bytes, most_bytes: int = JSON_BYTES, most_values: int = MOST_VALUES, depth: int = MOST_DEPTH
) -> str:
    """Which bound a JSON text exceeds, such as *holds 20 values; up to 10 are read*; empty if none. Whether
    the text is valid JSON is not checked."""
    if len(body) > most_bytes:
        return f"has {len(body):,} bytes of JSON; up to {most_bytes:,} are read"
    if (texts := body.count(b'"') // 2) > 2 * most_values:  # leaving each out takes time
        return f"holds about {texts:,} texts; up to {2 * most_values:,} are read"
    bare = _TEXT.sub(b"", body)
    if (values := sum(map(bare.count, (b",", b"[", b"{")))) > most_values:
        return f"holds {values:,} values; up to {most_values:,} are read"
    steps = np.frombuffer(bare.translate(_STEPS, _OTHER_BYTES), np.int8)
    if len(steps) and (deepest := int(steps.cumsum(dtype=np.int64).max())) > depth:
        return f"is nested {deepest:,} deep; up to {depth} are read"
    return ""
