"""What reuse would save of a log: against simple definitions, planted causes of misses, and every format."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import made_logs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.base.errors import OptionError
from backend.logs.anywhere import RUN, find_overlap
from backend.logs.calls import Call, Message
from backend.logs.causes import _excerpts
from backend.logs.pieces import Pieces, Tokens
from backend.logs.prefixes import lru_hits, shared_prefixes
from backend.logs.xray import CallXRay, XRay, xray
from lab_app.cli.main import main


def bare(found: XRay) -> list[CallXRay]:
    return [replace(c, where="", donor="", against="") for c in found.calls]


@pytest.fixture(scope="module")
def coding(tmp_path_factory: pytest.TempPathFactory) -> XRay:
    folder = tmp_path_factory.mktemp("logs")
    return xray(made_logs.write_log(folder / "coding.jsonl", made_logs.coding_agent()))


@pytest.mark.slow
def test_one_run_in_every_format_has_the_same_xray(tmp_path: Path) -> None:
    calls = [
        {**call, "time": made_logs.START + timedelta(seconds=n)}
        for n, call in enumerate(made_logs.coding_agent(seed=1, calls=40))
    ]
    first, *others = [
        xray(made_logs.write_log(tmp_path / "log.jsonl", calls, line)) for line in made_logs.FORMATS.values()
    ]
    others.append(xray(made_logs.write_log(tmp_path / "log.jsonl", calls[::-1])))  # the time orders them
    assert len({found.formats for found in (first, *others)}) == 3  # spans of both conventions are one
    for found in others:
        assert bare(found) == bare(first)
        assert (found.matrix, found.templates, found.advice) == (first.matrix, first.templates, first.advice)


@pytest.mark.slow
def test_a_coding_agents_run_of_175_calls(coding: XRay) -> None:
    assert len(coding.calls) == 175
    assert len(coding.agents) == 4
    for call in coding.calls:
        assert call.bounded <= call.blocks <= call.prefix <= call.anywhere
        assert call.anywhere + call.repeated + call.new == call.tokens
    # A conversation's call hits the whole of the one before; a sub-agent's first call only the tools.
    assert coding.totals["blocks"] > 0.9 * coding.totals["tokens"]
    assert [m.kind for m in coding.missed] == ["other agent's header"]
    sessions = {c.session for c in coding.calls}
    assert 3 <= coding.missed[0].calls < len(sessions)
    assert coding.advice[1].layout.startswith("one common system prompt")
    assert coding.advice[1].saved <= coding.totals["anywhere"] - coding.totals["blocks"]
    assert coding.seconds["full"] > coding.seconds["bounded cache"] >= coding.seconds["unlimited cache"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_a_small_cache_hits_less_and_a_block_of_one_hits_every_shared_token(
    seed: int, tmp_path: Path
) -> None:
    path = made_logs.write_log(tmp_path / "log.jsonl", made_logs.coding_agent(seed, calls=30))
    small = xray(path, cache_tokens=6_000)
    fine = xray(path, block=1)
    assert small.totals["bounded"] < small.totals["blocks"]
    assert [c.blocks for c in fine.calls] == [min(c.prefix, c.tokens - 1) for c in fine.calls]
    calls = made_logs.coding_agent(seed, calls=1)
    *_, again = xray(made_logs.write_log(tmp_path / "again.jsonl", calls * 2), block=1).calls
    assert again.blocks == again.bounded == again.prefix - 1 == again.tokens - 1, "the last token is computed"


# -- against the definitions ---------------------------------------------------------------------------------

TEXTS = st.lists(st.sampled_from(["a", "b", "ab", "aa", "ba\nb"]), min_size=1, max_size=3).map("\n\n".join)
MESSAGES = st.lists(st.tuples(st.sampled_from(["system", "user"]), TEXTS), min_size=1, max_size=4)


class ByCharacter:
    """A tokenizer with a token a character."""

    def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> list[SimpleNamespace]:
        return [SimpleNamespace(ids=list(map(ord, text))) for text in texts]


def test_cutting_costs_the_tokens_that_would_have_been_joined() -> None:
    class ByThree:
        def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> list[SimpleNamespace]:
            return [SimpleNamespace(ids=list(range(-(-len(text) // 3)))) for text in texts]

    cutter = Pieces(ByThree())
    cutter.of(Call("", (Message("user", "ab\n\ncd\n\nef"), Message("user", "of one paragraph"))))
    assert cutter.cut_tax(cutter.tokens()) == (5 - 4, 5)


@settings(max_examples=80, deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=9))
def test_prefixes_and_bounded_caches_are_what_their_definitions_say(
    drawn: list[list[tuple[str, str]]],
) -> None:
    """To the token but where a text ends in one call and goes on in another: headers may begin alike."""
    cutter = Pieces(ByCharacter())
    made = [cutter.of(Call("", tuple(Message(*m) for m in messages))) for messages in drawn]
    tokens = cutter.tokens()
    rows = [list(map(ord, "".join(f"\n[{role}]\n{text}" for role, text in messages))) for messages in drawn]
    prefix, donor = shared_prefixes(made, tokens)
    for n, row in enumerate(rows):
        best = max((alike(row, earlier) for earlier in rows[:n]), default=0)
        assert best - len("\n[user]\n") < prefix[n] <= best
        assert donor[n] < n
        assert prefix[n] == (alike(row, rows[donor[n]]) if donor[n] >= 0 else 0)
    assert lru_hits(made, tokens, 2, 3).tolist() == slow_lru(rows, 2, 3)
    assert lru_hits(made, tokens, 2, 1000).tolist() == slow_lru(rows, 2, 1000)


def alike(one: Sequence[int], other: Sequence[int]) -> int:
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def slow_lru(rows: list[list[int]], block: int, capacity: int) -> list[int]:
    held: list[tuple[int, ...]] = []  # the first goes first
    hits = []
    for row in rows:
        chain = [tuple(row[: end + block]) for end in range(0, len(row) - block + 1, block)]
        found = 0
        while found < (len(row) - 1) // block and chain[found] in held:
            found += 1
        hits.append(found * block)
        held = [name for name in held if name not in chain] + chain[::-1]
        room = capacity if len(row) % block == 0 else capacity - 1  # while it was read
        held = held[max(0, len(held) - room) :]
    return hits


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9))
def test_text_anywhere_is_every_run_that_an_earlier_call_had(seed: int) -> None:
    rng = random.Random(seed)
    source = [rng.randrange(50) for _ in range(80)]
    texts = []
    for _ in range(6):
        at = rng.randrange(60)
        texts.append(
            [rng.randrange(50) for _ in range(rng.randrange(20))] + source[at : at + rng.randrange(30)]
        )
    first = np.array(sorted(rng.randrange(4) for _ in texts))
    seen = find_overlap(Tokens([np.array(t, np.uint32) for t in texts]), first)
    for n, text in enumerate(texts):
        earlier = {
            tuple(t[i : i + RUN]) for m, t in enumerate(texts) if first[m] < first[n] for i in range(len(t))
        }
        starts = [i for i in range(len(text) - RUN + 1) if tuple(text[i : i + RUN]) in earlier]
        assert seen.tokens[n] == len({i + step for i in starts for step in range(RUN)})


def test_an_excerpt_begins_where_an_appended_text_does() -> None:
    before = "A system prompt of some length, long enough that an excerpt of it does not begin at its start."
    one, other = _excerpts(before, f"{before} And one sentence more.")
    assert one != other
    assert other.endswith("And one sentence more.")


# -- causes --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_planted_causes_are_found_and_named(tmp_path: Path) -> None:
    wrong = []
    for name, (_, right) in made_logs.PLANTED.items():
        found = xray(made_logs.write_log(tmp_path / "log.jsonl", made_logs.planted(name, seed=100)))
        if not found.missed or found.missed[0].kind not in right:
            wrong.append((name, found.missed[:1]))
    print(f"{len(made_logs.PLANTED) - len(wrong)} of {len(made_logs.PLANTED)} planted causes are named")
    assert len(made_logs.PLANTED) >= 40
    assert len(wrong) <= len(made_logs.PLANTED) // 10, wrong


@pytest.mark.parametrize("seed", range(4))
def test_where_nothing_is_planted_nothing_is_named(seed: int, tmp_path: Path) -> None:
    found = xray(made_logs.write_log(tmp_path / "log.jsonl", made_logs.plain_run(random.Random(seed))))
    assert found.missed == []
    assert sum(a.saved for a in found.advice) < 0.02 * found.totals["tokens"]  # ends of blocks, chance


def test_the_advised_layout_is_the_cure(tmp_path: Path) -> None:
    """A time stamp's cure is to move it, the order of tools' to sort them: that saves what was missed."""
    for name, cure in (
        ("ISO time stamp", "move what changes in the system prompt to the end"),
        ("order of tools", "sort the tools by name"),
        ("question in front", "put what stays before what changes in the first message"),
    ):
        found = xray(made_logs.write_log(tmp_path / "log.jsonl", made_logs.planted(name, seed=5)))
        best = {a.layout: a.saved for a in found.advice}
        missed = sum(m.tokens for m in found.missed)
        assert best.get(cure, 0) > 0.6 * missed, (name, best, missed)


# -- the command ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_shows_tables_and_saves_every_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = made_logs.write_log(tmp_path / "log.jsonl", made_logs.planted("uuid", seed=1))
    assert main(["xray", str(log), "--json", str(tmp_path / "out.json")]) == 0
    said = capsys.readouterr().out
    assert "uuid" in said
    assert "move what changes in the system prompt to the end" in said
    assert '"kind": "uuid"' in (tmp_path / "out.json").read_text()
    for wrong in ([str(tmp_path / "none")], [str(tmp_path)], [str(log), "--block", "0"],
                  [str(log), "--tokenizer", str(tmp_path / "out.json")]):  # fmt: skip
        assert main(["xray", *wrong]) == 2
        assert "Traceback" not in capsys.readouterr().err


def test_an_option_out_of_range_is_told(tmp_path: Path) -> None:
    log = made_logs.write_log(tmp_path / "log.jsonl", made_logs.plain_run(random.Random(0)))
    with pytest.raises(OptionError, match="cache_tokens"):
        xray(log, cache_tokens=3)
