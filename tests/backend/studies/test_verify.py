"""A run that was recorded here comes out the same; what was changed in it, or made elsewhere, is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny

from backend.base.errors import RecordError
from backend.records.run import RunRecord
from backend.session.session import LabSession
from backend.studies.verify import verify_run
from lab_app.cli.verify import read_gallery


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return tiny.run(LabSession(tiny.model()), tiny.request(("dense", "naive", "kvcomm")))


def test_a_run_comes_out_the_same(record: RunRecord) -> None:
    found = verify_run(tiny.model(), record, "mine")
    assert (found.differs, found.skipped) == ((), ("kvcomm",))


def test_what_was_changed_is_told(record: RunRecord) -> None:
    first, *rest = record.outcomes
    ids = first.token_ids.copy()
    ids[0] += 1
    forged = replace(record, outcomes=(replace(first, token_ids=ids, text="forged"), *rest))
    [told] = verify_run(tiny.model(), forged, "mine").differs
    assert "forged" in told


def test_other_weights_are_refused(record: RunRecord) -> None:
    other = replace(record, model=replace(record.model, weights_hash="0" * 16))
    with pytest.raises(RecordError, match="--model"):
        verify_run(tiny.model(), other, "mine")


@pytest.mark.parametrize("text", ["", "[]", '{"weights": 1}', "\x00", '{"weights": "a", "name": 1}\nnull'])
def test_a_file_that_is_no_gallery_is_told(tmp_path, text: str) -> None:
    path = tmp_path / "gallery.jsonl"
    path.write_text(text)
    with pytest.raises(RecordError, match="no gallery"):
        read_gallery(path)
    with pytest.raises(RecordError, match="cannot be read"):
        read_gallery(tmp_path / "none.jsonl")
