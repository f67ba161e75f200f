"""JSON is looked through before anything is made of it."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.base import bounded_json
from backend.base.bounded_json import excess
from backend.base.errors import RecordError
from backend.records.run import RunRecord
from backend.records.sharing.bundle import is_bundle
from backend.records.sharing.links import read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def depth(value: Any) -> int:
    """How deep a value is nested."""
    if not isinstance(value, list | dict):
        return 0
    return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)


def zipped(body: bytes, parts: int = 0) -> bytes:
    """A file that is called a record."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("record.json", body)
        for number in range(parts):
            archive.writestr(f"a{number}.npy", b"")
    return out.getvalue()


@given(VALUES, st.booleans())
def test_depth_is_that_of_what_the_bytes_become(value: Any, plain: bool) -> None:
    body = json.dumps(value, ensure_ascii=plain).encode("utf-8", "surrogatepass")
    deep = depth(value)
    assert excess(body, depth=deep) == ""
    if deep:
        assert excess(body, depth=deep - 1) == f"is nested {deep} deep; up to {deep - 1} are read"


def test_values_are_counted_and_texts_are_not() -> None:
    assert excess(b"[[],[],[]]", most_values=6) == ""
    assert excess(b"[[],[],[]]", most_values=5) == "holds 6 values; up to 5 are read"
    said = json.dumps(["[],{}," * 1000 + '"\\']).encode()
    assert excess(said, most_values=2000, depth=1) == "", "what stands in a text is no value"
    assert excess(b'["' + b"[" * 100, depth=5) == "", "a text that never ends is a text"
    assert excess(b'""' * 21, most_values=10) == "holds about 21 texts; up to 20 are read"
    assert excess(b"[1]", most_bytes=2) == "has 3 bytes of JSON; up to 2 are read"


def test_a_small_file_that_unfolds_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda *_: pytest.fail("it was parsed"))
    file = zipped(b"[" + b"[]," * bounded_json.MOST_VALUES + b"0]")
    assert len(file) < 10_000
    with pytest.raises(RecordError, match=r"holds 2,000,001 values; up to 1,000,000 are read\. It was not"):
        RunRecord.from_bytes(file)
    with pytest.raises(RecordError, match="is nested 100,000 deep"):
        RunRecord.from_bytes(zipped(b"[" * 100_000))
    with pytest.raises(RecordError, match="bytes of JSON"):
        RunRecord.from_bytes(zipped(b" " * (bounded_json.JSON_BYTES + 1)))
    with pytest.raises(ValueError, match="values"):
        read_json(b"[" + b"[]," * bounded_json.MOST_VALUES + b"0]")


def test_parts_are_counted_before_they_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    file = zipped(b"{}", 10_001)
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("they were listed"))
    for read in (RunRecord.from_bytes, is_bundle):
        with pytest.raises(RecordError, match=r"holds 10,002 parts; up to 10,000 are read"):
            read(file)
