"""Parts of a time: what lies within another counts once, and nothing waits until they are read."""

from __future__ import annotations

import pytest
import tiny
import torch

from backend.base.clock import Clock
from backend.engine.engine import Engine
from backend.model.load import wrap_model


class Device:
    """Work is queued at once and done later: a mark knows only its place in the queue."""

    def __init__(self) -> None:
        self.queued = 0.0
        self.waits = 0

    def between(self, first: float, last: float) -> float:
        self.waits += 1
        return last - first

    def clock(self) -> Clock:
        return Clock(lambda: self.queued, self.between)


def test_a_part_within_another_counts_once() -> None:
    device = Device()
    clock = device.clock()
    with clock.part("outer"):
        device.queued += 1
        with clock.part("inner"):
            device.queued += 10
            with clock.part("innermost"):
                device.queued += 100
        with clock.part("inner"):
            device.queued += 1000
    with clock.part("outer"):
        device.queued += 10000
    assert device.waits == 0, "no part waited"
    assert clock.parts == {"innermost": 100, "inner": 1010, "outer": 10001}
    asked = device.waits
    clock.add("outer", 5)
    assert clock.parts["outer"] == 10006
    assert device.waits == asked, "what is known is not asked for again"


def test_a_part_that_raises_is_counted() -> None:
    device = Device()
    clock = device.clock()

    def broken() -> None:
        device.queued += 7
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), clock.part("outer"), clock.part("inner"):
        broken()
    with clock.part("after"):
        device.queued += 1
    assert clock.parts == {"inner": 7, "outer": 0, "after": 1}


@pytest.mark.gpu
def test_a_gpu_keeps_its_own_time() -> None:
    clock = Engine(wrap_model(tiny.llama(0).cuda(), tiny.tokenizer(), name="tiny")).clock()
    matrix = torch.ones(4096, 4096, device="cuda")
    with clock.part("outer"):
        with clock.part("long"):
            for _ in range(20):
                matrix = matrix @ matrix
        with clock.part("short"):
            matrix += 1
    assert 0 <= clock.parts["short"] < clock.parts["long"]
    assert 0 <= clock.parts["outer"] < clock.parts["long"]
