"""The count over several requests says what the records say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from fake_record import make_record

from backend.records.run import COMPUTED
from viz.run.tally import count, tally_html


def test_a_count_is_the_record_in_numbers() -> None:
    record = make_record()
    rows = count(record)
    assert [row.label for row in rows] == list(record.labels)
    assert rows[0].as_dense
    assert rows[0].reused_agents == rows[0].cached_tokens == 0
    for row in rows:
        mine = [o for o in record.outcomes if o.method == row.label]
        assert row.agents == len(mine)
        assert row.tokens == sum(o.actions.shape[1] for o in mine)
        assert row.cached_tokens == sum(int(np.all(o.actions != COMPUTED, axis=0).sum()) for o in mine)
        assert row.ttft_ms == sum(o.timing.ttft_ms for o in mine)


def test_answers_that_are_both_unread_are_no_agreement() -> None:
    """Where nothing can be read off, the texts decide."""
    record = make_record()
    final, label = record.request.pipeline.final, record.labels[1]
    unread = tuple(
        replace(o, answer=None, text=o.method if o.agent == final else o.text) for o in record.outcomes
    )
    [mine] = [row for row in count(replace(record, outcomes=unread)) if row.label == label]
    assert not mine.as_dense
    alike = tuple(replace(o, text="the same") for o in unread)
    [mine] = [row for row in count(replace(record, outcomes=alike)) if row.label == label]
    assert mine.as_dense


def test_the_table_counts_requests_and_escapes_labels() -> None:
    evil = "<script>alert(1)</script>"
    rows = [count(make_record(methods=("dense", "naive", evil), seed=seed)) for seed in range(3)]
    page = tally_html(rows, 5)
    assert "&lt;script&gt;" in page
    assert "3 of 5 requests" in page
    assert page.count("<tr>") == 1 + len(rows[0])
    assert "<script" not in page
    assert tally_html([], 5) == ""
