"""One column beside the others: what differs, in words."""

from __future__ import annotations

import re
from dataclasses import replace

from fake_record import make_record

from backend.records.request import MethodChoice
from backend.records.run import RunRecord
from viz.run.comparison import Columns, comparison_html
from viz.run.differences import changed_options, difference, differences_html

NAMES = {"kvcomm": {"gamma": "Entropy threshold (gamma)", "rotate": "Move keys"}}


def with_copy() -> RunRecord:
    """A record in which KVCOMM stands once more, with another gamma and another last token."""
    record = make_record()
    options = {"gamma": 0.1, "rotate": True}
    methods = [replace(m, options=options) if m.name == "kvcomm" else m for m in record.request.methods]
    methods.append(MethodChoice("kvcomm", {**options, "gamma": 0.5}, "kvcomm 2"))
    copies = [replace(o, method="kvcomm 2") for o in record.outcomes if o.method == "kvcomm"]
    last = copies[-1]
    copies[-1] = replace(
        last, token_ids=last.token_ids + ([0] * (len(last.token_ids) - 1) + [1]), answer="36",
        texts=(*last.texts[:-1], "6"),
    )  # fmt: skip
    request = replace(record.request, methods=tuple(methods))
    return replace(record, request=request, outcomes=(*record.outcomes, *copies))


def said(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_a_copy_differs_from_its_original_in_one_option_and_one_token() -> None:
    record = with_copy()
    found = difference(record, "kvcomm", "kvcomm 2", NAMES)
    last = record.outcome(record.agents[-1], "kvcomm")
    assert found.name == "KVCOMM 2"
    assert found.options == "Entropy threshold (gamma): 0.1 → 0.5"
    assert found.answer == "≠ 36"
    assert f"Judge, token {len(last.token_ids)}:" in found.token
    assert f'>6</q> for <q class="kv-token">{last.texts[-1]}' in found.token
    assert found.time == "44.7\xa0ms once cached (0.73× A), 61.5\xa0ms the first time"


def test_another_method_is_not_compared_option_by_option() -> None:
    a, b = MethodChoice("naive", {"rotate": True}), MethodChoice("kvcomm", {"rotate": False})
    assert changed_options(a, b, NAMES) == "another method"
    assert changed_options(b, replace(b, options={"rotate": True}), NAMES) == "Move keys: off → on"
    assert changed_options(b, b, NAMES) == "none"


def test_the_table_has_a_first_and_every_other_column() -> None:
    record = with_copy()
    rows = re.findall(r'<th scope="row">.*?</th>', differences_html(record, "kvcomm", NAMES))
    assert [said(row).strip() for row in rows] == [
        "A: KVCOMM",
        "Full read",
        "Copy and reposition",
        "KVCOMM 2",
    ]
    assert differences_html(record, "gone", NAMES) == ""
    assert differences_html(record, "", NAMES) == ""


def test_columns_have_their_buttons_where_they_can_be_changed() -> None:
    record = with_copy()
    columns = Columns(frozenset({"kvcomm", "kvcomm 2"}), frozenset({"kvcomm 2"}), "kvcomm", NAMES)
    drawn = comparison_html(record, columns=columns)
    acts = re.findall(r'data-act="(\w+)" data-label="([\w ]+)"', drawn)
    assert [label for act, label in acts if act == "duplicate"] == ["kvcomm", "kvcomm 2"]
    assert [label for act, label in acts if act == "remove"] == ["kvcomm 2"]
    assert len([1 for act, _ in acts if act == "pin"]) == 4
    assert drawn.count('aria-pressed="true"') == 1
    assert "kv-differences" in drawn
    assert "data-kv" not in comparison_html(record)
