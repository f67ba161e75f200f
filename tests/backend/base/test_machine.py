"""What machine this is, in words."""

from __future__ import annotations

import io
import platform

import pytest

from backend.base import machine


def test_the_processor_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.processor()

    def told(text: str) -> str:
        monkeypatch.setattr("builtins.open", lambda *_, **__: io.StringIO(text))
        return machine.processor()

    assert told("processor : 0\nmodel name\t: Abacus 9\nmodel name\t: other\n") == "Abacus 9"
    assert told("nothing of the kind\n") == (platform.processor() or platform.machine())

    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", missing)
    assert machine.processor() == (platform.processor() or platform.machine())
