"""The gate's verdict as a badge says what the record says, safely and in readable colours."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import tiny

from backend.records.log_gate import GateRecord, GateRequest, GateRow
from backend.records.request import MethodChoice
from viz.logs.badge import COLOURS, badge, badge_svg


def record(flips: int, seen: int, label: str = "naive") -> GateRecord:
    rows = tuple(GateRow("", "", flipped=n < flips, prompt_tokens=9, reused_tokens=5) for n in range(seen))
    return GateRecord(GateRequest(MethodChoice("naive", {}, label), 0.02), tiny.model().info, 300, 0, rows)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (record(0, 149), "at most 2.0% of answers change"),
        (record(3, 149), "3 of 149 answers changed"),
        (record(0, 20), "could not tell"),
    ],
)
def test_a_badge_says_the_verdict(found: GateRecord, message: str) -> None:
    told = badge(found)
    assert (told["schemaVersion"], told["label"], told["message"]) == (1, "KV reuse, naive", message)
    assert told["color"] == COLOURS[found.verdict][1:]
    picture = ElementTree.fromstring(badge_svg(found))
    texts = [node.text for node in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["KV reuse, naive", message]
    rects = [node.attrib for node in picture.iter("{http://www.w3.org/2000/svg}rect")]
    assert rects[1]["fill"] == COLOURS[found.verdict]
    assert int(rects[1]["x"]) + int(rects[1]["width"]) == int(picture.attrib["width"])


def test_a_methods_label_cannot_become_markup() -> None:
    hostile = '<script>alert("x")</script>'
    text = badge_svg(record(0, 149, hostile))
    assert "<script" not in text
    assert len(ElementTree.fromstring(text)) == 4
    assert len({COLOURS[kind] for kind in COLOURS}) == 3
