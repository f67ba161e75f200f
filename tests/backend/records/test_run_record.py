"""Records: nothing is lost in a file, and no file can do harm."""

from __future__ import annotations

import dataclasses
import io
import json
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from tiny import QUESTIONS, request, run

from backend.base.errors import RecordError
from backend.base.serialization import as_json, from_json
from backend.model.load import LoadedModel
from backend.records.prompt import Span
from backend.records.request import Decoding, MethodChoice
from backend.records.run import FORMAT, RunRecord, reuse
from backend.session.session import LabSession


@pytest.fixture(scope="module")
def real(tiny_model: LoadedModel) -> RunRecord:
    """A record with everything in it: gates, pools, offsets, fidelity, options, odd text, a known answer."""
    session = LabSession(tiny_model)
    methods = [
        "dense",
        "prefix",
        MethodChoice("naive", {"rotate": False}, "na\u00efve \U0001f600"),
        MethodChoice("kvcomm", {"gamma": 0.9}),
    ]
    for question in (*QUESTIONS[:2], QUESTIONS[0]):
        record = run(
            session,
            request(
                methods,
                question + " \u05e9\u05dc\u05d5\u05dd",
                expected="7",
                decoding=Decoding(6, 0.5, 0.9, 3),
            ),
        )
    assert record.offsets
    assert record.pools
    assert any(o.gate for o in record.outcomes)
    return record


def assert_equal(a: Any, b: Any, where: str = "record") -> None:
    """Equal in value, type and precision, all the way down."""
    if isinstance(a, np.ndarray):
        assert isinstance(b, np.ndarray), where
        assert (a.dtype, a.shape) == (b.dtype, b.shape), where
        assert a.tobytes() == b.tobytes(), where
    elif dataclasses.is_dataclass(a):
        assert type(a) is type(b), where
        for f in dataclasses.fields(a):
            assert_equal(getattr(a, f.name), getattr(b, f.name), f"{where}.{f.name}")
    elif isinstance(a, tuple):
        assert isinstance(b, tuple), where
        assert len(a) == len(b), where
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_equal(x, y, f"{where}[{index}]")
    elif isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            assert_equal(a[key], b[key], f"{where}[{key!r}]")
    else:
        assert type(a) is type(b), where
        assert a == b or (a != a and b != b), where


@pytest.mark.slow
def test_a_record_survives_its_file(real: RunRecord, tmp_path: Path) -> None:
    path = real.save(tmp_path / "record.kvlab")
    back = RunRecord.load(path)
    assert_equal(real, back)
    assert back.to_bytes() == path.read_bytes() == real.to_bytes()
    assert back.outcome(3, "kvcomm").text == real.outcome(3, "kvcomm").text
    assert back.labels == real.labels
    assert back.agents == (1, 2, 3)
    assert back.request.pipeline.order == (1, 2, 3)


def test_the_same_record_gives_the_same_bytes_at_any_time(
    real: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = real.to_bytes()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10_000)
    assert real.to_bytes() == first


def test_a_free_running_record_survives_too(tiny_model: LoadedModel) -> None:
    record = run(LabSession(tiny_model), request(mode="free", probe_offsets=False))
    assert_equal(record, RunRecord.from_bytes(record.to_bytes()))


@given(st.floats(), st.none() | st.floats(allow_nan=False), st.text(st.characters(exclude_categories=["Cs"])))
def test_floats_and_texts_are_kept_exactly(number: float, maybe: float | None, text: str) -> None:
    decoding = Decoding(5, number, 1.0, 0)
    body = json.loads(json.dumps(as_json({"a": decoding, "b": text, "c": maybe})))
    assert_equal(from_json(Decoding, body["a"]), decoding)
    assert body["b"] == text
    assert body["c"] == maybe


def test_a_record_is_read_without_torch(real: RunRecord, tmp_path: Path) -> None:
    import subprocess
    import sys

    path = real.save(tmp_path / "record.kvlab")
    code = (
        "import sys\nfrom pathlib import Path\nfrom backend.records.run import RunRecord\n"
        f"record = RunRecord.load(Path({str(path)!r}))\nprint(len(record.outcomes))\n"
        "sys.exit('torch was loaded' if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "12"), done.stderr


# -- damaged and foreign files


def archive(**parts: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name.replace("__", "."), content)
    return buffer.getvalue()


def changed(content: bytes, change: Any) -> bytes:
    """A record's bytes with its JSON body changed."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    body = json.loads(parts["record.json"])
    change(body)
    parts["record.json"] = json.dumps(body).encode()
    return archive(**{name.replace(".", "__"): part for name, part in parts.items()})


def test_foreign_files_are_refused(real: RunRecord) -> None:
    for content in (
        b"",
        b"hello",
        b"PK\x03\x04 not really",
        archive(),
        archive(other__txt=b"1"),
        archive(record__json=b"{"),
        archive(record__json=b"[]"),
        archive(record__json=b"null"),
        archive(record__json=b'{"format": 1}'),
        archive(record__json=b'{"format": 1, "id": "x"}'),
        archive(record__json=b"[" * 100_000),
    ):
        with pytest.raises(RecordError) as refused:
            RunRecord.from_bytes(content)
        assert "\n" not in str(refused.value)


def test_torn_records_are_refused(real: RunRecord) -> None:
    content = real.to_bytes()
    for keep in (0, 1, 10, len(content) // 2, len(content) - 30, len(content) - 1):
        with pytest.raises(RecordError, match=r"Choose|opened"):
            RunRecord.from_bytes(content[:keep])


def test_a_flipped_byte_is_noticed(real: RunRecord) -> None:
    content = bytearray(real.to_bytes())
    with zipfile.ZipFile(io.BytesIO(bytes(content))) as file:
        start = file.getinfo("record.json").header_offset + 60
    content[start] ^= 0xFF
    with pytest.raises(RecordError):
        RunRecord.from_bytes(bytes(content))


def test_records_of_another_format_say_so(real: RunRecord) -> None:
    content = changed(real.to_bytes(), lambda body: body.update(format=FORMAT + 1))
    with pytest.raises(RecordError, match=f"format {FORMAT + 1}; this version reads format {FORMAT}"):
        RunRecord.from_bytes(content)


def remove(*path: Any) -> Any:
    def change(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        del body[path[-1]]

    return change


@pytest.mark.parametrize(
    "change",
    [
        remove("outcomes"),
        remove("request", "pipeline", "agents", 0),
        lambda body: body.update(surprise=1),
        lambda body: body["outcomes"][0].update(actions={"$array": "a999"}),
        lambda body: body["request"]["pipeline"]["agents"][0].update(
            template="{user_question} {user_question}"
        ),
        lambda body: body.update(prompts=7),
    ],
    ids=["no outcomes", "no such agent", "unknown field", "missing array", "unusable pipeline", "wrong type"],
)
@pytest.mark.slow
def test_inconsistent_records_are_refused(real: RunRecord, change: Any) -> None:
    with pytest.raises(RecordError):
        RunRecord.from_bytes(changed(real.to_bytes(), change))


def test_a_bomb_is_not_unpacked(real: RunRecord) -> None:
    bomb = archive(record__json=b" " * 3_000_000 + b"{}")
    assert len(bomb) < 10_000
    tracemalloc.start()
    try:
        with pytest.raises(RecordError, match="more than 2 MiB"):
            RunRecord.from_bytes(bomb, limit_bytes=2 << 20)
        assert tracemalloc.get_traced_memory()[1] < 3_000_000, "not even once, to count its bytes"
    finally:
        tracemalloc.stop()
    assert RunRecord.from_bytes(real.to_bytes(), limit_bytes=64 << 20).id == real.id


def test_an_array_that_lies_about_its_size_is_refused(real: RunRecord) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 50,)}
    )
    with zipfile.ZipFile(io.BytesIO(real.to_bytes())) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    parts["a0.npy"] = header.getvalue()
    with pytest.raises(RecordError):
        RunRecord.from_bytes(archive(**{name.replace(".", "__"): part for name, part in parts.items()}))


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return self.path.touch, ()


def test_pickles_are_refused(real: RunRecord, tmp_path: Path) -> None:
    evil = io.BytesIO()
    np.save(evil, np.array([Touch(tmp_path / "ran")], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(io.BytesIO(real.to_bytes())) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    assert "a0.npy" in parts
    parts["a0.npy"] = evil.getvalue()
    with pytest.raises(RecordError):
        RunRecord.from_bytes(archive(**{name.replace(".", "__"): part for name, part in parts.items()}))
    assert not (tmp_path / "ran").exists()


def test_a_missing_file_is_named_without_its_folder(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"nothing\.kvlab cannot be read") as refused:
        RunRecord.load(tmp_path / "nothing.kvlab")
    assert str(tmp_path) not in str(refused.value)
    with pytest.raises(RecordError):
        RunRecord.load(tmp_path)


def test_tiny_pipelines_are_what_the_records_hold(real: RunRecord) -> None:
    assert real.request.pipeline == tiny.pipeline()


def test_what_was_computed_again_was_not_reused() -> None:
    """Rows are layers: computed 0, reused 1, corrected 2, recomputed 3."""
    spans = (Span("placeholder", "a", 0, 2), Span("placeholder", "b", 2, 4), Span("prefix", "c", 4, 6))
    actions = np.array([[1, 2, 3, 1, 1, 0], [1, 2, 3, 1, 3, 0]], dtype=np.uint8)
    assert reuse(spans, actions) == (4, 2, 1)
