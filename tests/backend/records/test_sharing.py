"""Links, stored runs, bundles and citations: what comes back is what went out, and no file can do harm."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import sqlite3
import stat
import threading
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from fake_record import make_record
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.base.errors import RecordError
from backend.methods.registry import method_names
from backend.records.run import RunRecord
from backend.records.sharing import links
from backend.records.sharing.bundle import BENCH, CONTENTS, RECORD, Bundle, is_bundle, read_bundle
from backend.records.sharing.citations import PAPERS, citations, entries
from backend.records.sharing.links import LINK_CHARACTERS, LinkTooLong, from_link, to_link
from backend.records.sharing.store import ID_BYTES, ORPHAN_SECONDS, SharedRuns

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
BODY = {"format": 1, "preset": "math-3", "values": {"user_question": "2 + 2?"}}


# -- links


@given(JSON)
@settings(max_examples=60)
def test_a_link_gives_back_what_it_was_made_of(value: Any) -> None:
    text = to_link(value)
    assert from_link(text) == value
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@given(st.text(max_size=300) | st.from_regex(r"1[A-Za-z0-9_-]{0,300}", fullmatch=True))
@settings(max_examples=150)
def test_any_other_text_is_refused_in_words(text: str) -> None:
    with contextlib.suppress(RecordError):  # whatever else it raises reaches the page
        from_link(text)


def packed(body: bytes) -> str:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return "1" + base64.urlsafe_b64encode(packer.compress(body) + packer.flush()).decode().rstrip("=")


def test_a_link_that_unpacks_to_much_is_not_opened() -> None:
    bomb = packed(b" " * (4 << 20) + b"1")
    assert len(bomb) < LINK_CHARACTERS
    with pytest.raises(RecordError, match="unpacks to more than 1024 KiB"):
        from_link(bomb)


@pytest.mark.parametrize("body", [b"NaN", b'{"a": 1, "a": 2}', b"[" * 5000, b"\xff", b""])
def test_a_link_holds_plain_json(body: bytes) -> None:
    with pytest.raises(RecordError, match="damaged or cut short"):
        from_link(packed(body))


def test_a_cut_link_and_another_version_are_told() -> None:
    text = to_link(BODY)
    for keep in range(1, len(text)):
        with pytest.raises(RecordError):
            from_link(text[:keep])
    with pytest.raises(RecordError, match="version 2"):
        from_link("2" + text[1:])


def test_a_bench_that_is_too_long_for_a_link_says_how_long_it_is() -> None:
    with pytest.raises(LinkTooLong, match=r"takes [\d,]+ characters; a link carries up to 6,000"):
        to_link({"values": os.urandom(6000).hex()})


# -- the store


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_stored_bytes_come_back_under_an_id_that_cannot_be_guessed(tmp_path: Path) -> None:
    store = SharedRuns(tmp_path)
    names = {store.put(b"run %d" % i) for i in range(20)}
    assert len(names) == 20
    assert all(len(base64.urlsafe_b64decode(name)) == ID_BYTES >= 16 for name in names)
    assert len({name[:4] for name in names}) == 20, "not counted up"
    assert len(set("".join(names))) > 40, "of all letters and digits"
    assert {store.get(name) for name in names} == {b"run %d" % i for i in range(20)}
    assert {SharedRuns(tmp_path).get(name) for name in names} == {b"run %d" % i for i in range(20)}, (
        "reopened"
    )


@pytest.mark.parametrize(
    "name", ["", "a", "../../etc/passwd", "x" * 24, "%2e%2e/" * 5, "' OR 1=1 --" + "x" * 20]
)
def test_an_unknown_id_finds_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="Nothing is stored under this link"):
        SharedRuns(tmp_path).get(name)


def test_stored_runs_expire_with_their_files(tmp_path: Path) -> None:
    clock = Clock()
    store = SharedRuns(tmp_path, lifetime_days=2, clock=clock)
    name = store.put(b"run")
    clock.now += 2 * 86400 - 1
    assert store.get(name) == b"run"
    clock.now += 2
    with pytest.raises(RecordError, match="kept for 2 days"):
        store.get(name)
    assert store.sweep() == 1
    assert list((tmp_path / "shared").iterdir()) == []


def test_the_store_is_bounded_and_says_so(tmp_path: Path) -> None:
    clock = Clock()
    store = SharedRuns(tmp_path, total_bytes=3 << 20, entry_bytes=2 << 20, lifetime_days=2, clock=clock)
    with pytest.raises(RecordError, match=r"takes 2\.5 MiB; up to 2 MiB"):
        store.put(bytes(5 << 19))
    name = store.put(bytes(2 << 20))
    with pytest.raises(RecordError, match=r"full \(2 of 3 MiB\)"):
        store.put(bytes(2 << 20))
    assert len(store.get(name)) == 2 << 20, "what is stored stays"
    clock.now += 3 * 86_400
    store.sweep()
    assert store.held_bytes == 0
    store.put(bytes(2 << 20))


def test_a_write_that_ends_in_the_middle_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    store = SharedRuns(tmp_path, clock=clock)
    kept = store.put(b"kept")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for broken in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(*((os, "fsync", full) if broken == "fsync" else (Path, "replace", full)))
            with pytest.raises(RecordError, match="No space left on device"):
                store.put(b"lost")
    assert [p.name for p in (tmp_path / "shared").iterdir()] == [f"{kept}.kvbundle"]
    # killed between the file and its row: the file is swept up, though not while it may be another's new one
    orphan = tmp_path / "shared" / ("o" * 24 + ".kvbundle")
    orphan.write_bytes(b"no row")
    clock.now = orphan.stat().st_mtime + ORPHAN_SECONDS - 10
    SharedRuns(tmp_path, clock=clock, lifetime_days=10**6)
    assert orphan.exists()
    clock.now += 20
    SharedRuns(tmp_path, clock=clock, lifetime_days=10**6)
    assert not orphan.exists()
    # a row without its file, or with a changed one
    (tmp_path / "shared" / f"{kept}.kvbundle").write_bytes(b"kepT")
    clock.now = 1_800_000_000.0
    with pytest.raises(RecordError, match="damaged"):
        store.get(kept)
    (tmp_path / "shared" / f"{kept}.kvbundle").unlink()
    with pytest.raises(RecordError, match="Nothing is stored"):
        store.get(kept)


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"", None])
def test_a_broken_table_is_made_again_from_the_files(content: bytes | None, tmp_path: Path) -> None:
    names = [SharedRuns(tmp_path).put(b"run %d" % i) for i in range(3)]
    if content is None:
        (tmp_path / "shared.sqlite").unlink()
    else:
        (tmp_path / "shared.sqlite").write_bytes(content)
    again = SharedRuns(tmp_path)
    assert [again.get(name) for name in names] == [b"run 0", b"run 1", b"run 2"]
    assert bool(content) == bool(list(tmp_path.glob("shared.broken-*")))


def test_several_visitors_store_at_once(tmp_path: Path) -> None:
    stores = [SharedRuns(tmp_path) for _ in range(3)]
    names: list[tuple[str, bytes]] = []
    workers = [
        threading.Thread(target=lambda s=s, i=i: names.append((s.put(b"%d" % i), b"%d" % i)))
        for i, s in enumerate(stores * 3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(content for _, content in names) == [b"%d" % i for i in range(9)]
    assert all(stores[0].get(name) == content for name, content in names)


def test_a_closed_store_has_what_was_being_stored_and_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, writing, go_on = SharedRuns(tmp_path), threading.Event(), threading.Event()
    write = SharedRuns._write

    def slowly(self: SharedRuns, name: str, content: bytes) -> None:
        writing.set()
        assert go_on.wait(30)
        write(self, name, content)

    monkeypatch.setattr(SharedRuns, "_write", slowly)
    names: list[str] = []
    visitor = threading.Thread(target=lambda: names.append(store.put(b"a run")))
    visitor.start()
    assert writing.wait(30)
    closing = threading.Thread(target=store.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive(), "it waits for what is being stored"
    go_on.set()
    visitor.join(30)
    closing.join(30)
    assert store.get(names[0]) == b"a run"
    with pytest.raises(RecordError, match="being restarted"):
        store.put(b"another")
    store.close()
    assert SharedRuns(tmp_path).get(names[0]) == b"a run"


def test_a_folder_that_cannot_be_used_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(RecordError, match="Name a folder that can be written to"):
        SharedRuns(tmp_path / "file")


def test_the_table_holds_no_text_of_a_run(tmp_path: Path) -> None:
    name = SharedRuns(tmp_path).put(b"canary")
    with sqlite3.connect(tmp_path / "shared.sqlite") as base:
        rows = base.execute("SELECT * FROM shared").fetchall()
    base.close()
    assert rows[0][0] == name
    assert "canary" not in repr(rows)


# -- bundles


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return make_record(layers=3)


@pytest.mark.slow
def test_a_bundle_gives_back_the_run_and_the_bench(record: RunRecord) -> None:
    made = Bundle(record, BODY, {"ttft": "a,b\n1,2\n"}, b"tensors")
    content = made.to_bytes()
    assert content == made.to_bytes(), "the same at any time"
    back = read_bundle(content)
    assert back.record is not None
    assert back.record.to_bytes() == record.to_bytes()
    assert back.bench == BODY
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = set(archive.namelist())
        versions = json.loads(archive.read("versions.json"))
        assert archive.read("figures/ttft.csv") == b"a,b\n1,2\n"
        assert b"ye2025kvcomm" in archive.read("CITATION.bib")
    assert names >= {RECORD, BENCH, CONTENTS, "README.txt", "tensors.safetensors"}
    assert versions["weights"] == record.model.weights_hash
    assert is_bundle(content)
    assert not is_bundle(record.to_bytes())


def rebuilt(content: bytes, **changes: Any) -> bytes:
    """A bundle with files changed, added or (None) left out; ``__`` stands for a dot."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files |= {name.replace("__", "."): part for name, part in changes.items()}
    return zipped({name: part for name, part in files.items() if part is not None})


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in files.items():
            archive.writestr(name, part)
    return out.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/cron.d/x",
        "/etc/passwd",
        "figures/../../x.csv",
        "figures\\x.csv",
        "C:x",
        "evil.py",
        "figures/A.csv",
    ],
)
def test_a_name_that_no_bundle_has_is_refused(name: str, record: RunRecord) -> None:
    with pytest.raises(RecordError, match="which no bundle of the lab does"):
        read_bundle(rebuilt(Bundle(record, BODY).to_bytes(), **{name: b"1"}))


def test_links_doubles_bombs_and_crowds_are_refused(record: RunRecord) -> None:
    content = Bundle(record, BODY).to_bytes()
    out = io.BytesIO(content)
    with zipfile.ZipFile(out, "a") as archive:
        entry = zipfile.ZipInfo("figures/link.csv")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(RecordError, match="as a link"):
        read_bundle(out.getvalue())
    out = io.BytesIO(content)
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(out, "a") as archive:
        archive.writestr(BENCH, b"{}")
    with pytest.raises(RecordError, match="twice"):
        read_bundle(out.getvalue())
    bomb = rebuilt(content, figures__csv=None, **{"figures/x.csv": bytes(6 << 20)})
    assert len(bomb) < 1 << 18
    with pytest.raises(RecordError, match="up to 4 MiB are opened"):
        read_bundle(bomb, 4 << 20)
    crowd = rebuilt(content, **{f"figures/x{i}.csv": b"" for i in range(130)})
    with pytest.raises(RecordError, match="up to 128 are allowed"):
        read_bundle(crowd)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bundle__json": None}, "not a complete bundle"),
        ({"bundle__json": b"[]"}, "not a complete bundle"),
        ({"bundle__json": b'{"format": 9}'}, "format '9'"),
        ({"bench__json": b'{"format": 1}'}, "changed or damaged"),
        ({"record__kvrun": b"PK nothing"}, "changed or damaged"),
        ({"record__kvrun": None, "bench__json": None}, "neither a run nor a bench"),
    ],
)
def test_a_changed_bundle_is_refused(changes: dict[str, Any], said: str, record: RunRecord) -> None:
    with pytest.raises(RecordError, match=said):
        read_bundle(rebuilt(Bundle(record, BODY).to_bytes(), **changes))


def test_a_torn_bundle_is_refused(record: RunRecord) -> None:
    content = Bundle(record, BODY).to_bytes()
    for keep in (0, 10, len(content) // 2, len(content) - 1):
        with pytest.raises(RecordError):
            read_bundle(content[:keep])


# -- types


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b["outcomes"][0].update(agent="<script>alert(1)</script>"),
        lambda b: b["outcomes"][0]["timing"].update(ttft_ms="<img src=x>"),
        lambda b: b["outcomes"][0].update(text=["a"]),
        lambda b: b["outcomes"][0].update(stopped=1),
        lambda b: b["outcomes"][0].update(state="<b>"),
        lambda b: b["model"].update(layers="3"),
        lambda b: b["prompts"][0].update(texts="abc"),
        lambda b: b["outcomes"][0].update(text={"$array": "a0"}),
        lambda b: b["outcomes"][0].update(actions=[[0]]),
        lambda b: b.update(notes={"a": "b"}),
    ],
)
@pytest.mark.slow
def test_a_record_with_a_value_of_another_type_is_refused(change: Any, record: RunRecord) -> None:
    with zipfile.ZipFile(io.BytesIO(record.to_bytes())) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    body = json.loads(files["record.json"])
    change(body)
    files["record.json"] = json.dumps(body).encode()
    with pytest.raises(RecordError, match="not a complete record"):
        RunRecord.from_bytes(zipped(files))


def test_an_array_of_texts_is_refused(record: RunRecord) -> None:
    import numpy as np

    with zipfile.ZipFile(io.BytesIO(record.to_bytes())) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    out = io.BytesIO()
    np.save(out, np.array(["<script>"]))
    with pytest.raises(RecordError, match="not a complete record"):
        RunRecord.from_bytes(zipped({**files, "a0.npy": out.getvalue()}))


# -- citations


def test_every_citation_is_known_and_balanced() -> None:
    assert set(PAPERS) <= set(method_names())
    every = citations(method_names())
    assert every.count("@") == len(entries()) + 1, "each once, and the lab"
    assert every.count("{") == every.count("}")
    assert citations(["dense"]).startswith("@software{kvreuselab")
    assert "CacheBlend" not in citations(["kvcomm", "naive"])


def test_a_link_is_limited_by_what_addresses_can_carry() -> None:
    assert links.LINK_CHARACTERS <= 8_000
