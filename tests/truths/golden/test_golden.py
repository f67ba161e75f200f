"""The tiny model does what it did: ids, actions, states and gates, compared with a file."""

from __future__ import annotations

import json
from typing import Any

from regenerate import GOLDEN, as_text, observed


def assert_close(found: Any, wanted: Any, where: str) -> None:
    """Equal, floats to three digits."""
    if isinstance(wanted, float) and isinstance(found, float):
        assert abs(found - wanted) <= 2e-3, where
    elif isinstance(wanted, list) and isinstance(found, list):
        assert len(found) == len(wanted), where
        for index, (a, b) in enumerate(zip(found, wanted, strict=True)):
            assert_close(a, b, f"{where}[{index}]")
    elif isinstance(wanted, dict) and isinstance(found, dict):
        assert found.keys() == wanted.keys(), where
        for key in wanted:
            assert_close(found[key], wanted[key], f"{where}.{key}")
    else:
        assert found == wanted, f"{where}: see regenerate.py if this is meant"


def test_the_tiny_model_does_what_it_did() -> None:
    wanted = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert_close(json.loads(as_text(observed())), wanted, "golden")


def test_the_golden_record_shows_something() -> None:
    """Reuse, correction, fallback and divergence all happen in it."""
    rows = json.loads(GOLDEN.read_text(encoding="utf-8"))
    states = {(r["method"], r["state"]) for r in rows["pinned"]}
    assert {
        ("prefix", "partial"),
        ("naive", "reused"),
        ("kvcomm", "reused"),
        ("kvcomm", "fallback"),
    } <= states
    assert any(r["diverges at"] is not None for r in rows["pinned"])
    assert any("corrected" in run for r in rows["free"] for run in r["actions"])
    assert rows["pinned pools"]
