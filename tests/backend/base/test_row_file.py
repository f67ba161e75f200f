"""Files of rows: what a kill leaves of them, and what is said of a damaged one."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.base.errors import RecordError
from backend.base.row_file import RowFile


def test_rows_come_back_in_order_and_a_torn_line_is_cut(tmp_path: Path) -> None:
    rows = RowFile(tmp_path / "folder" / "rows.jsonl")
    assert rows.rows() == []
    assert not rows.path.parent.exists(), "reading makes nothing"
    assert rows.resume() == {}
    rows.append({"key": "a", "text": "é"}, {"key": "b"})
    rows.append({"other": 1})
    with rows.path.open("ab") as file:
        file.write(b'{"key": "c"')
    assert rows.rows() == [{"key": "a", "text": "é"}, {"key": "b"}, {"other": 1}]
    assert rows.resume() == {"a": {"key": "a", "text": "é"}, "b": {"key": "b"}}
    assert rows.path.read_text("utf-8").endswith('{"other": 1}\n')


def test_a_row_that_was_removed_in_the_middle_is_the_only_one_to_write_again(tmp_path: Path) -> None:
    rows = RowFile(tmp_path / "rows.jsonl")
    rows.append(*({"key": key} for key in "abcd"))
    lines = rows.path.read_text("utf-8").splitlines(keepends=True)
    rows.path.write_text("".join([lines[0], *lines[2:]]), encoding="utf-8")
    missing = [key for key in "abcd" if key not in rows.resume()]
    assert missing == ["b"]
    rows.append({"key": "b"})
    assert [row["key"] for row in rows.rows()] == ["a", "c", "d", "b"]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"key": "a"}\nnonsense\n', encoding="utf-8")
    with pytest.raises(RecordError, match=r"Line 2 of rows\.jsonl is damaged"):
        RowFile(path).resume()
