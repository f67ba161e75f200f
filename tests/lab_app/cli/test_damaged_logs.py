"""2,000 damaged logs at the command and the page: an answer or a sentence, no traceback, no hang."""

from __future__ import annotations

import gzip
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import made_logs
import pytest

from backend.base.errors import LabError
from lab_app.cli.main import main
from lab_app.pages.logs.page import findings_html, new_state, read_log
from viz.logs.session import session_html

LOGS, PARTS = 2000, 10
SECONDS = 60  # of one log


@contextmanager
def in_time(what: str) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"{what} took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_logs_end_in_an_answer_or_a_sentence(
    part: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends: Counter[str] = Counter()
    for number in range(part * LOGS // PARTS, (part + 1) * LOGS // PARTS):
        content = made_logs.damaged(100_000 + number)
        path = tmp_path / ("log.jsonl.gz" if number % 7 == 0 else "log.jsonl")
        sent = gzip.compress(content) if path.suffix == ".gz" else content
        path.write_bytes(sent[:-1] if number % 14 == 0 else sent)
        with in_time(f"log {number}"):
            status = main(["xray", str(path), *(["--skip-bad"] if number % 2 else [])])
            said = capsys.readouterr()
            assert status in (0, 2), number
            assert "Traceback" not in said.out + said.err, number
            assert ("tokens in" in said.out) == (status == 0), number
            assert status == 0 or (said.err.strip() and len(said.err) < 2000), number
            ends[f"command {status}"] += 1
            if number % 4 == 0:
                try:
                    mine = new_state(read_log(content))
                    findings_html(mine)
                    session_html(mine.log, mine.session, mine.pair)
                    ends["page"] += 1
                except LabError as error:
                    assert 10 < len(str(error)) < 2000  # noqa: PT017
    print(dict(ends))
    assert min(ends["command 0"], ends["command 2"], ends["page"]) > 5
