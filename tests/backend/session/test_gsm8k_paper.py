"""The GSM8K prompts of the paper, end to end on a random model with 8k context: the record is whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from backend.model.load import load_model
from backend.prompts.presets import load_preset, preset_requests
from backend.records.events import RunDone
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import RunRecord
from backend.session.session import LabSession
from backend.training.tokenizer import train_tokenizer


def hub_folder(folder: Path) -> Path:
    """A random model in hub layout with 8k context, saved as from_pretrained wants it."""
    tokenizer = train_tokenizer(documents=50)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_four_agents_of_the_paper_end_to_end(tmp_path: Path) -> None:
    model = load_model(str(hub_folder(tmp_path / "model")), device="cpu")
    preset = load_preset("gsm8k-paper")
    session = LabSession(model)
    methods = (
        MethodChoice("dense"),
        MethodChoice("prefix"),
        MethodChoice("naive"),
        MethodChoice("kvcomm", {"gamma": 1.0}),
    )
    records: list[RunRecord] = []
    for example in preset_requests(preset, 3):
        request = RunRequest(
            preset.pipeline,
            dict(example.values),
            methods,
            decoding=Decoding(max_new_tokens=8),
            expected=example.answer,
        )
        records += [event.record for event in session.run(request) if isinstance(event, RunDone)]
    assert len(records) == 3
    for record in records:
        assert record.agents == (1, 2, 3, 4)
        assert len(record.outcomes) == 4 * len(methods)
        for outcome in record.outcomes:
            prompt = record.prompts[outcome.prompt]
            tokens = len(prompt.token_ids)
            assert tokens > 450
            assert [s.start for s in prompt.spans] == [0, *[s.end for s in prompt.spans][:-1]]
            assert outcome.actions.shape == (2, tokens)
            assert [s.start for s in outcome.spans] == [0, *[s.end for s in outcome.spans][:-1]]
            assert outcome.spans[-1].end == tokens
            assert outcome.fidelity is not None
            assert np.isfinite(outcome.fidelity.kl_first)
            assert outcome.key_error is not None
            assert np.isfinite(outcome.key_error).all()
            assert outcome.timing.ttft_ms > 0
        assert RunRecord.from_bytes(record.to_bytes()).to_bytes() == record.to_bytes()
