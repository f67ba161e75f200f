"""Shared runs that a dataset repository keeps: a new disk finds them, what others could read is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.base.errors import OptionError, RecordError
from backend.records.sharing.dataset import DatasetCopy
from backend.records.sharing.store import SharedRuns


class FakeHub:
    """What is used of ``huggingface_hub.HfApi``; ``down``: it cannot be reached."""

    def __init__(self, private: bool | None = None) -> None:
        self.private, self.files, self.down = private, dict[str, bytes](), False

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and callable(object.__getattribute__(self, name)) and self.down:
            raise OSError("no network; token=hf_abcdefghijklmnopqrstuvwxyz123456")
        return object.__getattribute__(self, name)

    def create_repo(self, *, repo_id: str, repo_type: str, private: bool, exist_ok: bool) -> None:
        assert (repo_id, repo_type, exist_ok) == ("me/runs", "dataset", True)
        self.private = private if self.private is None else self.private

    def repo_info(self, **_: Any) -> Any:
        return SimpleNamespace(private=self.private)

    def list_repo_tree(self, *, recursive: bool, **_: Any) -> list[Any]:
        assert recursive
        return [SimpleNamespace(path=path, size=len(body)) for path, body in self.files.items()]

    def upload_file(self, *, path_or_fileobj: bytes, path_in_repo: str, **_: Any) -> None:
        self.files[path_in_repo] = path_or_fileobj

    def hf_hub_download(self, *, filename: str, local_dir: str, **_: Any) -> str:
        place = Path(local_dir) / "file"
        place.write_bytes(self.files[filename])
        return str(place)

    def delete_files(self, *, delete_patterns: list[str], **_: Any) -> None:
        for path in delete_patterns:
            del self.files[path]


def store(folder: Path, hub: FakeHub, **options: Any) -> SharedRuns:
    return SharedRuns(folder, copy=DatasetCopy("me/runs", hub), **options)


def test_a_restart_on_an_empty_disk_finds_every_run(tmp_path: Path) -> None:
    hub = FakeHub()
    hub.files["README.md"] = b"a card"
    first = store(tmp_path / "first", hub)
    names = [first.put(b"run %d" % i) for i in range(3)]
    again = store(tmp_path / "again", hub)
    assert again.held_bytes == 15
    assert [again.get(name) for name in names] == [b"run 0", b"run 1", b"run 2"]
    hub.down = True
    assert again.get(names[0]) == b"run 0", "fetched once"
    with pytest.raises(RecordError, match="Nothing is stored"):
        again.get("x" * 24)


def test_a_link_is_given_when_the_repository_has_the_run_and_not_before(tmp_path: Path) -> None:
    hub = FakeHub()
    made = store(tmp_path, hub)
    hub.down = True
    with pytest.raises(RecordError, match="no network") as refused:
        made.put(b"run")
    assert "hf_abc" not in str(refused.value), "no secret of the client is told"
    assert (made.held_bytes, list((tmp_path / "shared").iterdir())) == (0, [])


@pytest.mark.slow
def test_expired_runs_are_deleted_there_too_if_not_now_then_later(tmp_path: Path) -> None:
    hub, now = FakeHub(), [1_800_000_000.0]
    made = store(tmp_path, hub, lifetime_days=2, clock=lambda: now[0])
    name = made.put(b"run")
    now[0] += 4 * 86400
    hub.down = True
    made.sweep()
    assert hub.files
    hub.down = False
    with pytest.raises(RecordError, match="Nothing is stored"):
        store(tmp_path / "other", hub, lifetime_days=2, clock=lambda: now[0]).get(name)
    assert not hub.files


def test_a_repository_that_everybody_reads_and_a_name_that_is_none_are_refused() -> None:
    with pytest.raises(OptionError, match="Make it private"):
        DatasetCopy("me/runs", FakeHub(private=False))
    for name in ("runs", "a/b/c", "../x/y", "me/ru ns", ""):
        with pytest.raises(OptionError, match="OWNER/NAME"):
            DatasetCopy(name, FakeHub())
    hub = FakeHub()
    hub.down = True
    with pytest.raises(RecordError, match="cannot be used"):
        DatasetCopy("me/runs", hub)
