"""Attention of single generated tokens: exact against transformers' own, and nothing left behind."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from backend.base.clock import Clock
from backend.base.errors import ModelError
from backend.engine.engine import Engine
from backend.methods.plan import Compute, Link, Plan, Reuse, Step
from backend.model.load import LoadedModel, wrap_model
from backend.prompts.scoring import selection_token
from backend.records.prompt import slots
from backend.records.run import RunRecord
from backend.session.probes import attention
from backend.session.probes.attention import AttentionRows, attention_probes, attention_rows
from backend.session.session import LabSession
from viz.attention.maps import head_map, token_difference, token_map
from viz.attention.views import mass_by_layer, mass_by_slot
from viz.base.figure import FigureView
from viz.run.tabs import TABS, Selection

TOKENS = [1, *(5 + (i * 37) % 300 for i in range(40))]


def small(kind: str) -> LoadedModel:
    """A tiny random model of a family, with grouped queries."""
    if kind == "llama":
        return tiny.model()
    shape: dict[str, Any] = {
        "vocab_size": len(tiny.tokenizer()), "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 512, "attn_implementation": "sdpa",
    }  # fmt: skip
    torch.manual_seed(1)
    if kind == "qwen3":
        module: Any = Qwen3ForCausalLM(Qwen3Config(**shape))
    else:
        module = MistralForCausalLM(MistralConfig(**shape, sliding_window=8))
    return wrap_model(module.eval(), tiny.tokenizer(), name=kind)


def eager(model: LoadedModel, ids: list[int]) -> torch.Tensor:
    """transformers' own (layers, heads, tokens, tokens)."""
    before = model.module.config._attn_implementation
    model.module.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            out = model.module(input_ids=torch.tensor([ids]), output_attentions=True)
    finally:
        model.module.set_attn_implementation(before)
    return torch.stack(out.attentions)[:, 0]


def rows_of(model: LoadedModel, rows: list[int], held: int = 30) -> AttentionRows:
    engine = Engine(model)
    cache, _ = engine.prefill(TOKENS[:held])
    member = torch.zeros(len(TOKENS), 3)
    member[:10, 0] = member[10:35, 1] = member[35:, 2] = 1
    return attention_rows(engine, cache, TOKENS[held:], rows, member)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral"])
@pytest.mark.slow
def test_rows_are_those_of_eager_attention(kind: str) -> None:
    model = small(kind)
    found, wanted = rows_of(model, [0, 5, 10]), eager(model, TOKENS)[:, :, [30, 35, 40]]
    assert np.abs(found.places - wanted.mean(1).transpose(0, 1).numpy()).max() < 1e-5
    parts = [wanted[..., :10], wanted[..., 10:35], wanted[..., 35:]]
    mass = torch.stack([part.sum(-1) for part in parts], dim=-1).permute(2, 0, 1, 3)
    assert np.abs(found.mass - mass.numpy()).max() < 1e-5


def test_masses_sum_to_one() -> None:
    assert np.abs(rows_of(small("llama"), [0, 3, 7]).mass.sum(-1) - 1).max() < 1e-5


def test_forwards_go_on_as_before_and_nothing_is_left() -> None:
    model = small("llama")
    engine = Engine(model)
    cache, before = engine.prefill(TOKENS)
    own, length = model.module.config._attn_implementation, cache.length
    rows_of(model, [0])
    attention_rows(engine, cache, [7, 8], [1], torch.ones(len(TOKENS) + 2, 1))
    assert cache.length == length
    assert torch.equal(engine.prefill(TOKENS)[1], before)
    assert model.module.config._attn_implementation == own
    assert attention.WATCHED not in AttentionInterface()
    assert attention.WATCHED not in AttentionMaskInterface()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.module.modules())


def test_nothing_is_left_after_a_failure() -> None:
    model = small("llama")
    own = model.module.config._attn_implementation

    def fail(layer: int, found: torch.Tensor) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"), attention.watching(model.module, None, fail):
        Engine(model).prefill(TOKENS)
    assert model.module.config._attn_implementation == own
    assert attention.WATCHED not in AttentionInterface()


def test_what_cannot_be_watched_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model(seed=3)

    def refuse(name: str) -> None:
        raise ValueError("no such attention")

    monkeypatch.setattr(model.module, "set_attn_implementation", refuse)
    with pytest.raises(ModelError, match=r"type 'llama' cannot be watched.*Run without attention"):
        rows_of(model, [0])


def test_a_sink_is_refused_rather_than_misread() -> None:
    model = small("llama")
    with attention.watching(model.module, None, lambda layer, found: None):
        attend = AttentionInterface()[attention.WATCHED]
        x = torch.zeros(1, 4, 1, 16)
        with pytest.raises(ModelError, match="s_aux"):
            attend(model.module.model.layers[0].self_attn, x, x, x, None, s_aux=torch.zeros(4))


# -- probes of a prompt under a plan


@pytest.fixture(scope="module")
def walked() -> tiny.Walk:
    return tiny.walk(tiny.model(), tiny.pipeline())


def test_the_first_token_is_read_by_the_last_prompt_token(walked: tiny.Walk) -> None:
    prompt, answer = walked.contexts[3].prompt, walked.answers[3].ids
    [probe] = attention_probes(walked.engine, prompt, walked.dense[3], answer, method="dense", prompt_index=2)
    wanted = eager(walked.engine.model, list(prompt.ids))[:, :, -1]
    assert np.abs(probe.tokens - wanted.mean(1).numpy()).max() < 1e-5
    assert np.abs(probe.mass.sum(-1) - 1).max() < 1e-5
    for index, span in enumerate(s for s in prompt.spans if s.end > s.start):
        assert probe.regions[index] == span.name
        assert (
            np.abs(probe.mass[..., index] - wanted[..., span.start : span.end].sum(-1).numpy()).max() < 1e-5
        )
    assert probe.mass[..., -1].max() == 0  # no answer yet


def test_the_selecting_token_is_read_behind_the_answer_so_far(
    walked: tiny.Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, answer = walked.contexts[3].prompt, list(walked.answers[3].ids)
    monkeypatch.setattr(attention, "selection_token", lambda texts: 5)
    first, selecting = attention_probes(
        walked.engine, prompt, walked.dense[3], answer, method="dense", prompt_index=2
    )
    assert (first.query, first.at, selecting.query, selecting.at) == ("first", 0, "selecting", 5)
    ids = [*prompt.ids, *answer[:5]]
    wanted = eager(walked.engine.model, ids)[:, :, -1]
    total = len(prompt.ids)
    assert np.abs(selecting.tokens - wanted[..., :total].mean(1).numpy()).max() < 1e-5
    assert np.abs(selecting.mass[..., -1] - wanted[..., total:].sum(-1).numpy()).max() < 1e-5


def test_a_copied_cache_is_read_as_it_is(walked: tiny.Walk) -> None:
    """Under reuse the rows are those over the method's own keys."""
    context = walked.contexts[3]
    steps = tuple(
        Step(s.start, s.end, Reuse(walked.contexts[3].samples[s.name].base))
        if s.name in context.samples
        else Step(s.start, s.end, Compute(""))
        for s in context.prompt.spans
        if s.end > s.start
    )
    prefill = walked.execute(3, Plan(steps, "partial", ""))
    [probe] = attention_probes(
        walked.engine, context.prompt, prefill, walked.answers[3].ids[:1], method="x", prompt_index=0
    )
    keys, model = prefill.cache.keys[0, 0, :, : len(context.prompt.ids)], walked.engine.model
    layer = model.module.model.layers[0]
    embedded = model.module.model.embed_tokens(torch.tensor([context.prompt.ids[-1:]]))
    query = layer.self_attn.q_proj(layer.input_layernorm(embedded)).view(4, 1, 16)
    query = model.rotation.rotate(query[None], torch.tensor([len(context.prompt.ids) - 1]))[0]
    scores = query @ keys.repeat_interleave(2, dim=0).transpose(-1, -2) / 4
    wanted = scores.softmax(-1)[:, 0].mean(0)
    assert np.abs(probe.tokens[0] - wanted.detach().numpy()).max() < 1e-5


def test_soft_tokens_are_a_region_of_their_own(walked: tiny.Walk) -> None:
    prompt = walked.contexts[3].prompt
    soft = Link(20, torch.randn(3, 64, generator=torch.Generator().manual_seed(0)))
    plan = Plan((Step(0, len(prompt.ids), Compute("")),), "dense", "", links=(soft,))
    prefill = walked.engine.execute(prompt, plan, Clock())
    [probe] = attention_probes(
        walked.engine, prompt, prefill, walked.answers[3].ids[:1], method="x", prompt_index=0
    )
    assert probe.regions[-2:] == ("links", "answer")
    assert probe.mass[..., -2].min() > 0
    assert np.abs(probe.mass.sum(-1) - 1).max() < 1e-5


def test_the_token_that_names_a_candidate() -> None:
    texts = ("Right", ".", " The", " best", " candidate", " is", " 2", ".", " The answer is 4")
    assert selection_token(texts) == 6
    assert selection_token((*texts, " The best candidate is 3")) == 9
    assert selection_token(("The best candidates", " are 1", " and 3.")) == 1
    assert selection_token(("no verdict",)) is None


# -- in a run, and in its record


@pytest.fixture(scope="module")
def record() -> RunRecord:
    asked = tiny.request(("dense", "naive", "masked"), probe_attention=True, probe_offsets=False)
    return tiny.run(LabSession(tiny.model()), asked)


def test_a_run_measures_every_method_at_every_reader(record: RunRecord) -> None:
    found = [(p.agent, p.method, p.query) for p in record.attention]
    assert found == [(a, m, "first") for a in (2, 3) for m in ("dense", "naive", "masked")]
    for probe in record.attention:
        prompt = record.prompts[probe.prompt]
        assert prompt.agent == probe.agent
        assert probe.tokens.shape == (3, len(prompt.token_ids))
        assert {s.name for s in slots(prompt.spans)} <= set(probe.regions)
    assert (
        RunRecord.from_bytes(record.to_bytes()).attention[3].tokens.sum() == record.attention[3].tokens.sum()
    )


def test_measuring_changes_nothing_else(record: RunRecord) -> None:
    asked = replace(record.request, probe_attention=False)
    bare = tiny.run(LabSession(tiny.model()), asked)
    assert bare.attention == ()
    for mine, theirs in zip(record.outcomes, bare.outcomes, strict=True):
        assert mine.token_ids.tolist() == theirs.token_ids.tolist()
        assert mine.timing.forwarded_tokens == theirs.timing.forwarded_tokens
        assert np.array_equal(mine.actions, theirs.actions)


def test_a_family_that_cannot_be_watched_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    session = LabSession(tiny.model(seed=4))

    def refuse(name: str) -> None:
        raise ValueError("no such attention")

    monkeypatch.setattr(session.model.module, "set_attn_implementation", refuse)
    found = tiny.run(session, tiny.request(("dense",), probe_attention=True))
    assert found.attention == ()
    assert any("Attention was not measured" in note for note in found.notes)


# -- figures


@pytest.fixture(scope="module")
def shown() -> RunRecord:
    """A run in which a token is taken for the selecting one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "selection_token", lambda texts: 3)
        asked = tiny.request(("dense", "naive", "masked"), probe_attention=True, probe_offsets=False)
        return tiny.run(LabSession(tiny.model()), asked)


def table(view: FigureView) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(view.csv())))


def test_masses_of_a_method_sum_to_one_in_the_figure(shown: RunRecord) -> None:
    for query in ("first", "selecting"):
        rows = table(mass_by_slot(shown, 3, query))
        for method in ("dense", "naive", "masked"):
            mine = [
                float(r["attention (share, mean over layers and heads)"])
                for r in rows
                if r["method"] == method
            ]
            assert sum(mine) == pytest.approx(1, abs=1e-5)
    names = [r["region"] for r in rows if r["method"] == "dense"]
    assert names[:2] == ["template before the slots", "question"]
    assert names[2].startswith("slot 1: ")
    assert names[3].startswith("slot 2: ")
    assert names[4:] == ["other template text", "the answer so far"]
    probe = next(p for p in shown.attention if (p.agent, p.method, p.query) == (3, "naive", "selecting"))
    asked = probe.mass[:, :, probe.regions.index("user_question")].mean()
    row = next(r for r in rows if (r["method"], r["region"]) == ("naive", "question"))
    assert float(row["attention (share, mean over layers and heads)"]) == pytest.approx(asked, abs=2e-6)


def test_the_figures_numbers_are_the_records(shown: RunRecord) -> None:
    probe = next(p for p in shown.attention if (p.agent, p.method, p.query) == (3, "naive", "first"))
    dense = next(p for p in shown.attention if (p.agent, p.method, p.query) == (3, "dense", "first"))
    slot = probe.regions.index("agent_2_current")
    heads = table(head_map(shown, 3, "naive", "first", "agent_2_current"))
    assert len(heads) == 3 * 4
    row = next(r for r in heads if (r["layer"], r["head"]) == ("1", "2"))
    assert float(row["method (share)"]) == pytest.approx(probe.mass[1, 2, slot], abs=2e-6)
    change = probe.mass[1, 2, slot] - dense.mass[1, 2, slot]
    assert float(row["method minus full read (share)"]) == pytest.approx(change, abs=2e-6)
    tokens = table(token_map(shown, 3, "naive", "first"))
    assert float(tokens[5]["largest attention (share)"]) == pytest.approx(probe.tokens[0, 5], abs=2e-6)
    layers = [r for r in table(mass_by_layer(shown, 3, "first")) if r["region"].startswith("slot 2")]
    assert float(layers[0]["attention (share)"]) == pytest.approx(dense.mass[0, :, slot].mean(), abs=2e-6)


def test_differences_share_one_symmetric_scale(shown: RunRecord) -> None:
    view = token_difference(shown, 3, "first")
    scale = view.figure.layout.coloraxis
    assert scale.cmin == -scale.cmax
    heatmaps = [t for t in view.figure.data if t.type == "heatmap"]
    assert len(heatmaps) == 2
    assert {t.coloraxis for t in heatmaps} == {"coloraxis"}
    assert {r["method"] for r in table(view)} == {"naive", "masked"}


@pytest.mark.slow
def test_the_tab_shows_both_tokens_and_says_when_there_is_nothing(
    shown: RunRecord, record: RunRecord
) -> None:
    tab = next(t for t in TABS if t.key == "attention")
    assert len(tab.views(shown, Selection(3, "naive"))) == 10
    assert len(tab.views(record, Selection(3, "dense"))) == 5
    [alone] = tab.views(shown, Selection(1, "naive"))
    assert isinstance(alone, FigureView)
    assert "reads no text of others" in alone.finding
    [bare] = tab.views(replace(shown, attention=(), request=replace(shown.request, probe_attention=False)),
                       Selection(3, "naive"))  # fmt: skip
    assert isinstance(bare, FigureView)
    assert "Record attention" in bare.finding
    keys = [view.key for view in tab.views(shown, Selection(3, "naive"))]
    assert len(set(keys)) == len(keys)


def test_a_long_prompt_is_pooled_and_keeps_the_sign(shown: RunRecord) -> None:
    times = 16
    prompts = tuple(
        replace(
            p, texts=p.texts * times, token_ids=np.tile(p.token_ids, times),
        ) for p in shown.prompts
    )  # fmt: skip
    long = replace(
        shown,
        prompts=prompts,
        attention=tuple(replace(p, tokens=np.tile(p.tokens, times)) for p in shown.attention),
    )
    view = token_difference(long, 3, "first")
    rows = table(view)
    assert "One column shows the largest value of" in view.how_to_read
    width = int(rows[0]["tokens in column"])
    naive, dense = (
        next(p for p in long.attention if (p.agent, p.method, p.query) == (3, m, "first"))
        for m in ("naive", "dense")
    )
    part = (naive.tokens - dense.tokens)[0, :width]
    assert float(rows[0]["method minus full read (share)"]) == pytest.approx(
        part[np.abs(part).argmax()], abs=2e-6
    )


def test_free_running_prompts_are_not_compared_token_by_token() -> None:
    asked = tiny.request(("dense", "naive"), mode="free", probe_attention=True, probe_offsets=False)
    free = tiny.run(LabSession(tiny.model()), asked)
    assert "Run pinned" in token_difference(free, 3, "first").finding
    assert not token_map(free, 3, "naive", "first").empty
