"""What a record keeps of a text's keys and values on their way is what the caches held."""

from __future__ import annotations

import numpy as np
import pytest
from tiny import request, run

from backend.model.load import LoadedModel
from backend.records.request import MethodChoice
from backend.records.run import RunRecord
from backend.records.transfer import Transfer
from backend.session.session import LabSession

METHODS = (
    "dense",
    "naive",
    MethodChoice("naive", {"rotate": False}, "unmoved"),
    "oracle",
)


@pytest.fixture(scope="module")
def record(tiny_model: LoadedModel) -> RunRecord:
    return run(LabSession(tiny_model), request(METHODS))


def of(record: RunRecord, method: str) -> list[Transfer]:
    found = [t for o in record.outcomes if o.method == method for t in o.transfers]
    assert found
    return found


@pytest.mark.slow
def test_a_bare_copy_is_read_as_it_was_turned(record: RunRecord) -> None:
    for t in of(record, "naive"):
        assert t.moved_by == t.start - t.first_position
        np.testing.assert_allclose(t.keys[3], t.keys[1], atol=2e-3)
        np.testing.assert_allclose(t.values[2], t.values[0], atol=2e-3)
        np.testing.assert_allclose(t.left_keys, t.missing_keys, atol=1e-5)
        np.testing.assert_allclose(t.left_values, t.missing_values, atol=1e-5)


def test_keys_that_stay_are_read_as_they_were_encoded(record: RunRecord) -> None:
    for t in of(record, "unmoved"):
        assert t.moved_by == 0
        np.testing.assert_allclose(t.keys[3], t.keys[0], atol=2e-3)


def test_true_offsets_leave_nothing(record: RunRecord) -> None:
    for t in of(record, "oracle"):
        assert t.missing_keys.max() > 0.01
        assert t.left_keys.max() < 1e-4
        assert t.left_values.max() < 1e-4
        np.testing.assert_allclose(t.keys[3], t.keys[2], atol=2e-3)


def test_pairs_turn_by_the_angles_that_are_told(record: RunRecord) -> None:
    """The pictures' first step turned by ``angles`` is their second: as complex numbers, one per pair."""
    for t in of(record, "naive"):
        before, after = (k.astype(np.float32) for k in t.keys[:2])
        turned = (before[:, ::2] + 1j * before[:, 1::2]) * np.exp(1j * t.angles)
        np.testing.assert_allclose(turned.real, after[:, ::2], atol=5e-3)
        np.testing.assert_allclose(turned.imag, after[:, 1::2], atol=5e-3)


def test_the_head_shown_is_where_most_is_missing(record: RunRecord) -> None:
    for t in of(record, "naive"):
        assert t.missing_keys[t.layer, t.head] == t.missing_keys.max()


def test_nothing_is_kept_where_texts_may_differ(tiny_model: LoadedModel) -> None:
    free = run(LabSession(tiny_model), request(("dense", "naive"), mode="free"))
    assert not any(o.transfers for o in free.outcomes)


def test_it_survives_a_file(record: RunRecord) -> None:
    again = RunRecord.from_bytes(record.to_bytes())
    for old, new in zip(of(record, "naive"), of(again, "naive"), strict=True):
        np.testing.assert_array_equal(old.keys, new.keys)
        assert new.keys.dtype == np.float16


def test_the_flipped_token_was_likeliest(record: RunRecord) -> None:
    flips = [o.fidelity for o in record.outcomes if o.fidelity and o.fidelity.first_divergence is not None]
    assert flips
    for near in flips:
        assert near.likely[int(np.argmax(near.dense_chances))] == near.dense_token
        assert near.likely[int(np.argmax(near.method_chances))] == near.method_token
        assert sum(near.dense_chances) <= 1 + 1e-6
