"""The unit of replication stands beside every interval: a warm-up, or a store of caches."""

from __future__ import annotations

from dataclasses import replace

import hostile

from backend.base.text import replication
from backend.records.agent_loop import LoopRequest
from backend.records.request import MethodChoice
from viz.judge.metrics import table_panel
from viz.pages.agent_loop import success
from viz.studies.sweep import table_html


def test_one_draw_is_told_as_one() -> None:
    assert "which is a single draw" in replication(1, "store", "episodes")
    assert (
        replication(20, "warm-up", "problems") == "Intervals are over 20 warm-ups, then the problems of each."
    )


def test_stores_are_counted_to_the_last_begun_one() -> None:
    request = LoopRequest((MethodChoice("dense"),), episodes=26, memory=25)
    assert request.stores == 2
    assert replace(request, episodes=25).stores == 1


def test_tables_and_figures_tell_it() -> None:
    _, table, _ = hostile.judged()
    assert "share one warm-up, which is a single draw" in table_panel(table).html
    swept = hostile.sweep()
    single = replace(swept, lines=tuple(replace(line, warmups=1) for line in swept.lines))
    many = replace(swept, lines=tuple(replace(line, warmups=20) for line in swept.lines))
    assert "share one warm-up, which is a single draw" in table_html(single)
    assert "Intervals are over 20 warm-ups, then the problems of each." in table_html(many)
    assert "share one store, which is a single draw" in success(hostile.loop()).how_to_read
