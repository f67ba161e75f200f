"""The documented record format is the one that is written."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import jsonschema
import pytest

from backend.records.run import RunRecord
from backend.records.schema import json_schema

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs" / "record.schema.json").read_text(encoding="utf-8"))
RUNS = [ROOT / "presets" / "first_run.kvrun", *sorted((ROOT / "presets" / "tour").glob("*.kvrun"))]


def test_the_schema_in_the_documentation_is_current() -> None:
    assert json_schema(RunRecord) == SCHEMA, "kvlab schema > docs/record.schema.json"


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
@pytest.mark.slow
def test_saved_runs_follow_it(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        body = json.loads(archive.read("record.json"))
    jsonschema.validate(body, SCHEMA)
    body["outcomes"][0]["text"] = 7
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, SCHEMA)


def test_the_documented_lines_read_a_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [code] = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "records.md").read_text(encoding="utf-8"), re.DOTALL
    )
    monkeypatch.chdir(ROOT)
    exec(code, {})
    said = capsys.readouterr().out.splitlines()
    record = RunRecord.load(RUNS[0])
    assert len(said) == len(record.outcomes)
    assert said[-1].endswith(record.outcomes[-1].text)
