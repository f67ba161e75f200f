"""The archive: long documents that every request shares, behind a line that changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from backend.model.load import load_model
from backend.prompts.presets import Example, load_preset, preset_requests
from backend.records.events import RunDone
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.rows import outcome_row
from backend.records.run import RunRecord
from backend.session.session import LabSession

PRESET = load_preset("archive")
METHODS = ("dense", "naive", "kvcomm", "prefix")


def test_requests_share_the_documents_and_nothing_before_them() -> None:
    requests = preset_requests(PRESET, 48)
    documents = [{k: v for k, v in r.values.items() if k.startswith("document_")} for r in requests]
    assert len(documents[0]) == 8
    assert all(values == documents[0] for values in documents)
    assert len({r.values["user_question"] for r in requests}) == 48
    template = PRESET.pipeline.agent(1).template
    assert template.index("{asked}") < template.index("{document_1}") < template.index("{user_question}")
    told = " ".join(documents[0].values())
    assert all(r.answer in told for r in requests)


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_what_warms_up_is_not_what_is_asked_first(seed: int) -> None:
    requests = preset_requests(PRESET, 16, seed)
    assert all(r not in requests for r in preset_requests(PRESET, 16, seed + 1))
    assert preset_requests(PRESET, 48 + 16, seed)[48:] == requests


def archive_run(warm: Sequence[Example]) -> RunRecord:
    """The ninth request, behind others."""
    session = LabSession(load_model("embedded", device="cpu", dtype="fp32"))
    example = preset_requests(PRESET, 9)[8]
    methods = tuple(MethodChoice(name) for name in METHODS)
    request = RunRequest(
        PRESET.pipeline, dict(example.values), methods, decoding=Decoding(PRESET.pipeline.longest_answer),
        expected=example.answer,
    )  # fmt: skip
    for _ in session.warm_up(request, warm):
        pass
    [record] = [event.record for event in session.run(request) if isinstance(event, RunDone)]
    return record


@pytest.mark.slow
def test_only_an_anchor_of_the_same_request_is_a_memory() -> None:
    ninth = preset_requests(PRESET, 9)[8]
    [note] = archive_run([ninth]).notes
    assert "kvcomm: an anchor holds this very request" in note
    other = replace(ninth, values={**ninth.values, "asked": "Nobody asks on Sunday."})
    assert archive_run([other]).notes == (), "the same documents behind another line have other offsets"


@pytest.mark.slow
def test_the_documents_caches_hold_where_a_prefix_cache_has_nothing() -> None:
    """Behind a warm-up whose anchors KVCOMM's gate lets pass; behind others it computes this request."""
    record = archive_run(preset_requests(PRESET, 4, seed=2))
    assert record.notes == (), "the agent's own weights encoded what it reads"
    dense, naive, kvcomm, prefix = (outcome_row(record, record.outcome(1, name)) for name in METHODS)
    tokens = dense["prompt_tokens"]
    assert 1500 < tokens < 2000
    assert dense["correct"]
    assert prefix["tokens_reused"] < 0.1 * tokens
    assert prefix["text"] == dense["text"]
    assert naive["tokens_reused"] == tokens - 1
    assert not naive["correct"]
    assert (kvcomm["state"], kvcomm["text"]) == ("reused", dense["text"])
