"""The numerical floor: what copies exactly stays under it, in half precision too."""

from __future__ import annotations

import pytest
import tiny
import torch
from tiny import QUESTIONS, request, run

from backend.model.floor import numerical_floor
from backend.model.load import wrap_model
from backend.session.session import LabSession


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.slow
def test_the_exact_prefix_cache_stays_under_it(dtype: torch.dtype) -> None:
    """Errors of keys and values at every layer, and of the first token's logits."""
    loaded = wrap_model(tiny.llama(4).to(dtype), tiny.tokenizer(), name="tiny")
    floor = loaded.info.certificate.floor
    assert (floor > 1e-4) == (dtype != torch.float32)
    session, copied = LabSession(loaded), 0
    for question in QUESTIONS[:4]:
        record = run(session, request(["dense", "prefix"], question))
        for agent in record.agents:
            outcome = record.outcome(agent, "prefix")
            copied += outcome.state == "partial"
            assert outcome.fidelity is not None
            assert outcome.fidelity.logit_difference <= outcome.fidelity.floor
            for error in (outcome.key_error, outcome.value_error):
                assert error is not None
                assert error.mean(axis=1).max() <= floor
    assert copied >= 9


def test_it_is_the_largest_over_the_ways() -> None:
    """Each way counts: of reading in pieces, of reading rows together, and of turning keys away and back."""
    size = (2, 1, 24, 4)  # layers, heads, tokens, channels
    ways = [((24,), 3), ((3, 21), 1), ((12, 12), 1), ((8, 8, 8), 1)]

    def floor(bad: tuple[tuple[int, ...], int] | None, turned: float = 1.0) -> tuple[float, float]:
        def read(pieces: tuple[int, ...], rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            keys, values, logits = torch.ones(size), torch.ones(size), torch.zeros(24, 7)
            if (pieces, rows) == bad:
                values[1] += 0.5
                logits[3, 5] = 2.0
            return keys, values, logits

        return numerical_floor(read, 24, lambda keys: keys * turned)

    assert floor(None) == (0.0, 0.0)
    for way in ways:
        assert floor(way) == pytest.approx((0.5, 2.0)), way
    assert floor(None, turned=1.25) == pytest.approx((0.25, 0.0))
