"""The same request with other numbers."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from backend.prompts.variants import other_numbers

pieces = st.one_of(st.integers(0, 10**20).map(str), st.sampled_from([" ", "a ", "007", ". ", "-", "٣"]))
texts = st.lists(pieces, max_size=8).map("".join)


@given(texts, texts, st.integers(0, 3))
def test_only_numbers_change_all_of_them_and_to_as_many_digits(first: str, second: str, seed: int) -> None:
    given_texts = {"first": first, "second": second}
    variants = other_numbers(given_texts, 2, seed)
    assert variants == other_numbers(given_texts, 2, seed)
    if not re.search("[0-9]", first + second):
        assert variants == []
        return
    for variant in variants:
        others: dict[str, str] = {}
        for name, text in given_texts.items():
            assert re.sub("[0-9]", "0", variant[name]) == re.sub("[0-9]", "0", text)
            for run in re.finditer("[0-9]{1,18}", text):
                other = variant[name][run.start() : run.end()]
                assert other != run[0]
                assert others.setdefault(run[0], other) == other
