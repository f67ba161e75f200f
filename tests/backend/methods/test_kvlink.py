"""Separately encoded documents: PromptCache, Block-Attention, KVLink, and the training of link tokens.

Exact truths in fp32 at 1e-5. What a method assembles from caches must equal one pass over the same tokens
under the mask that the link tokens are trained with.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import TOLERANCE, assert_same, error

from backend.base.clock import Clock
from backend.base.errors import ModelError, OptionError
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.engine import Engine
from backend.engine.isolated_encoder import IsolatedEncoder
from backend.engine.prefill import Prefill
from backend.methods.base import Method
from backend.methods.block_attention import BlockAttentionMethod
from backend.methods.dense import dense_plan
from backend.methods.kvlink import KVLinkMethod, KVLinkOptions
from backend.methods.kvpacket import KVPacketMethod
from backend.methods.plan import Compute, Plan, Reuse
from backend.methods.promptcache import PromptCacheMethod, PromptCacheOptions, documents
from backend.model.link_tokens import Links, apply_links, base_hash, load_links, projections, select_tokens
from backend.model.load import LoadedModel, load_model, wrap_model
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.prompts.tasks import make_document
from backend.prompts.tasks.base import is_held_out
from backend.records.request import MethodChoice
from backend.records.run import COMPUTED, REUSED
from backend.session.request_state import RequestState
from backend.session.session import LabSession
from backend.training.link_tokens import train as train_module
from backend.training.link_tokens.examples import MIXTURES, Example, draw, make_archive, make_summary
from backend.training.link_tokens.layout import Layout, batch, lay_out
from backend.training.link_tokens.train import MOST_PADDING, Feed, LinkRecipe, Trainee, alike, train_links

TEXTS = {
    "document_1": "Tess works for Omar.",
    "document_2": "Omar lives in Rome. Lena eats rice.",
    "document_3": "Rome lies in the south.",
    "user_question": "Where does the boss of Tess live?",
}
TEMPLATE = (
    "Read.\nDocument 1:\n{document_1}\nDocument 2:\n{document_2}\nDocument 3:\n{document_3}\n"
    "The question is: {user_question}\n"
)
READER = Pipeline(
    "reader",
    "Reader",
    "For tests.",
    (Agent(1, "Reader", "", TEMPLATE, 8),),
    tuple(n for n in TEXTS if n[0] == "d"),
)


def context_of(
    model: LoadedModel, texts: dict[str, str] = TEXTS
) -> tuple[Engine, SampleLog, PromptInContext]:
    """A reader's prompt over three documents, as a session lays it out."""
    engine, log = Engine(model), SampleLog("test", 1 << 40)
    flow = RequestState(READER, engine, log)
    flow.start(texts)
    return engine, log, flow.context(1)


def carry_out(method: Method, model: LoadedModel) -> tuple[Plan, Prefill, Engine, PromptInContext]:
    engine, log, context = context_of(model)
    context = method.layout(context)
    plan = method.plan(context, log, Clock())
    return plan, engine.execute(context.prompt, plan, Clock()), engine, context


@pytest.fixture(scope="module")
def base() -> LoadedModel:
    """A model of this module's own: training freezes its parameters."""
    return tiny.model(seed=3)


RECIPES = {
    "kvlink2": LinkRecipe(links=2, rank=4),
    "kvlink0": LinkRecipe(links=0, rank=4),
    "links only": LinkRecipe(links=3, rank=0),
    "block": LinkRecipe(links=0, edges=False, rank=4),
    "anchors": LinkRecipe(links=1, rank=4, compression="anchors", compressed=0.5, chunk_tokens=5),
    "packet": LinkRecipe(links=0, edges=False, rank=0, compression="packet", wrappers=3, mixture="apart"),
    "drop": LinkRecipe(links=1, rank=4, compression="drop", compressed=0.5),
}


def trained(base: LoadedModel, recipe: LinkRecipe) -> tuple[Trainee, LoadedModel]:
    """A trainee whose deltas do something, and the model that its file would make of the base."""
    trainee = Trainee(base, recipe)
    generator = torch.Generator().manual_seed(1)
    for delta in trainee.deltas.values():
        delta.up.data.normal_(0, 0.05, generator=generator)
    module = tiny.llama(seed=3)
    with torch.no_grad():
        weights = dict(module.named_parameters())
        for name, weight in trainee.weights().items():
            weights[name].copy_(weight)
    links = trainee.as_links().to(torch.device("cpu"), torch.float32)
    detached = Links(
        links.links.detach(), links.edges.detach(), links.anchor_tokens.detach(),
        links.compression, links.rate, links.chunk_tokens,
    )  # fmt: skip
    return trainee, wrap_model(module, tiny.tokenizer(), name="adapted", links=detached)


def one_pass(trainee: Trainee, model: LoadedModel, apart: bool = True, texts: dict[str, str] = TEXTS) -> Any:
    """Logits after the reader's prompt, in one pass under the training's mask."""
    _, _, context = context_of(model, texts)
    named = {span.name for span in documents(context)}
    pieces = [(list(context.prompt.span_ids(s)), apart and s.name in named) for s in context.prompt.spans]
    if trainee.recipe.compression == "drop" and apart:
        said = trainee.surprisal([ids for ids, separate in pieces if separate])
        rows = iter([select_tokens(x, trainee.recipe.compressed).tolist() for x in said])
        pieces = [([ids[i] for i in next(rows)] if separate else ids, separate) for ids, separate in pieces]
    given = batch([lay_out(pieces, (), trainee.as_links() if apart else None)])
    with torch.no_grad():
        hidden = trainee.hidden(given.ids, given.soft, given.position, given.mask)
        return trainee.module.lm_head(hidden[0, -1])


# -- what equals what


@pytest.mark.parametrize("name", [n for n in RECIPES if n not in ("block", "packet")])
@pytest.mark.slow
def test_kvlink_assembles_what_it_was_trained_on(base: LoadedModel, name: str) -> None:
    """Copied documents, moved, with link tokens forwarded, give the logits of one pass under the mask."""
    recipe = RECIPES[name]
    trainee, model = trained(base, recipe)
    method = KVLinkMethod(KVLinkOptions(compression=recipe.compression))
    plan, found, _, context = carry_out(method, model)
    assert plan.state == "partial"
    assert error(found.logits, one_pass(trainee, model)) <= TOLERANCE
    soft = sum(link.tokens for link in plan.links)
    assert soft == (2 if recipe.edges else 0) + 3 * recipe.links
    assert found.forwarded_tokens == soft + int((found.actions[0] == COMPUTED).sum())
    for span in documents(context):
        assert (found.actions[:, span.start : span.end] == REUSED).all()


@pytest.mark.slow
def test_block_attention_assembles_what_it_was_trained_on(base: LoadedModel) -> None:
    trainee, model = trained(base, RECIPES["block"])
    plan, found, _, _ = carry_out(BlockAttentionMethod(BlockAttentionMethod.Options()), model)
    assert error(found.logits, one_pass(trainee, model)) <= TOLERANCE
    assert not plan.links
    assert "weights trained" in plan.reason


def test_a_packet_is_read_as_it_was_trained(base: LoadedModel) -> None:
    """Wrappers see the document, and it sees those before it; none of them is forwarded with the prompt."""
    trainee, model = trained(base, RECIPES["packet"])
    plan, found, _, context = carry_out(KVPacketMethod(KVPacketMethod.Options()), model)
    assert len(context.prompt.ids) == len(context_of(model)[2].prompt.ids) + 3 * 2 * 3
    assert error(found.logits, one_pass(trainee, model)) <= TOLERANCE
    assert not plan.links
    assert found.forwarded_tokens == int((found.actions[0] == COMPUTED).sum())
    for span in documents(context):
        assert (found.actions[:, span.start : span.end] == REUSED).all()


def test_without_wrappers_a_packet_is_refused(base: LoadedModel) -> None:
    method = KVPacketMethod(KVPacketMethod.Options())
    _, log, context = context_of(base)
    assert method.layout(context) is context
    plan = method.plan(context, log, Clock())
    assert plan.state == "fallback"
    assert "kvlab train-links --compression packet" in plan.reason


@pytest.mark.slow
def test_the_wrappers_that_ship_are_read() -> None:
    plan, found, _, context = carry_out(
        KVPacketMethod(KVPacketMethod.Options()), load_model("embedded+packet", device="cpu")
    )
    assert plan.state == "partial"
    for span in documents(context):
        assert (found.actions[:, span.start : span.end] == REUSED).all()


def test_dense_examples_are_read_as_usual(base: LoadedModel) -> None:
    trainee, model = trained(base, RECIPES["kvlink2"])
    engine, _, context = context_of(model)
    dense = engine.execute(context.prompt, dense_plan(context.prompt, "test"), Clock())
    assert error(dense.logits, one_pass(trainee, model, apart=False)) <= TOLERANCE
    assert error(dense.logits, one_pass(trainee, model)) > 100 * TOLERANCE


def test_promptcache_with_the_whole_prompt_as_one_module_is_dense(base: LoadedModel) -> None:
    engine, log, context = context_of(base)
    dense = engine.execute(context.prompt, dense_plan(context.prompt, "test"), Clock())
    plan = PromptCacheMethod(PromptCacheOptions(modules="whole prompt")).plan(context, log, Clock())
    before = engine.forwarded_tokens
    found = engine.execute(context.prompt, plan, Clock())
    assert engine.forwarded_tokens == before + 1
    assert found.exact
    assert_same(found, dense, len(context.prompt.ids))


@pytest.mark.slow
def test_kvlink_without_links_is_independently_encoded_and_aligned(base: LoadedModel) -> None:
    """And so are Block-Attention and PromptCache with its keys moved, where the weights are the base's."""
    engine, _, context = context_of(base)
    total = len(context.prompt.ids)
    by_hand = base.new_cache(total)
    named = {span.name for span in documents(context)}
    logits = torch.empty(0)
    for span in context.prompt.spans:
        ids = context.prompt.span_ids(span)
        if span.name not in named:
            logits = engine.forward(engine.ids(ids), by_hand)[0, -1]
            continue
        alone, _ = engine.prefill(ids)
        turned = torch.full((len(ids),), span.start)
        by_hand.keys[:, 0, :, span.start : span.end] = base.rotation.rotate(
            alone.keys[:, 0, :, : len(ids)], turned
        )
        by_hand.values[:, 0, :, span.start : span.end] = alone.values[:, 0, :, : len(ids)]
        by_hand.length = span.end
    for method in (
        KVLinkMethod(KVLinkOptions()),
        KVLinkMethod(KVLinkOptions(links="0")),
        BlockAttentionMethod(BlockAttentionMethod.Options()),
        PromptCacheMethod(PromptCacheOptions(positions="prompt")),
    ):
        _, found, _, _ = carry_out(method, base)
        assert error(found.logits, logits) <= TOLERANCE
        assert tiny.caches(found.cache, by_hand, total) <= TOLERANCE
        assert not found.exact


@pytest.mark.parametrize("modules", ["texts", "texts and template"])
def test_promptcache_keeps_the_positions_of_its_schema(base: LoadedModel, modules: str) -> None:
    """Against transformers' own pass with those positions and a mask of modules."""
    method = PromptCacheMethod(PromptCacheOptions(modules=modules, room=40))
    plan, found, _, context = carry_out(method, base)
    named = {span.name for span in documents(context)}
    positions: list[int] = []
    owner: list[int] = []
    at = 0
    for number, span in enumerate(context.prompt.spans):
        length = span.end - span.start
        positions += range(at, at + length)
        module = span.name in named or (modules != "texts" and span.name != "prefix 0")
        owner += [number if module else -1] * length
        at += max(length, 40) if span.name in named else length
    of = torch.tensor(owner)
    sees = (of[:, None] < 0) | (of[:, None] == of[None])
    sees[-1] = True  # the last token is always forwarded over everything
    bias = torch.zeros(sees.shape).masked_fill(~(sees & torch.ones_like(sees).tril()), torch.finfo().min)
    with torch.inference_mode():
        wanted = base.module(
            input_ids=torch.tensor([list(context.prompt.ids)]),
            position_ids=torch.tensor([positions]),
            attention_mask=bias[None, None],
        ).logits[0, -1]
    assert positions[-1] > len(positions)
    assert error(found.logits, wanted) <= TOLERANCE
    assert plan.state == ("partial" if modules == "texts" else "reused")


def test_answers_go_on_behind_gaps_and_links(base: LoadedModel) -> None:
    """Decoding after a plan with soft tokens reads the positions that follow them."""
    from backend.records.request import Decoding

    trainee, model = trained(base, RECIPES["kvlink2"])
    _, found, engine, _ = carry_out(KVLinkMethod(KVLinkOptions()), model)
    [decoded] = engine.decode([found], Decoding(max_new_tokens=4), keep_logits=True)
    assert decoded.logits is not None
    _, _, context = context_of(model)
    named = {span.name for span in documents(context)}
    pieces = [(list(context.prompt.span_ids(s)), s.name in named) for s in context.prompt.spans]
    for step in range(1, len(decoded.logits)):
        given = batch([lay_out([*pieces, (list(decoded.ids[:step]), False)], (), trainee.as_links())])
        with torch.no_grad():
            wanted = trainee.module.lm_head(
                trainee.hidden(given.ids, given.soft, given.position, given.mask)[0, -1]
            )
        assert error(decoded.logits[step], wanted) <= TOLERANCE


def test_a_document_is_encoded_once_wherever_it_stands(base: LoadedModel) -> None:
    engine, log, context = context_of(base)
    method = KVLinkMethod(KVLinkOptions())
    method.plan(context, log, Clock())
    held, before = log.bytes, engine.forwarded_tokens
    swapped = TEXTS | {"document_1": TEXTS["document_3"], "document_3": TEXTS["document_1"]}
    flow = RequestState(READER, engine, log)
    flow.start(swapped)
    again = flow.context(1)
    spent = engine.forwarded_tokens
    assert spent >= before
    method.plan(again, log, Clock())
    assert engine.forwarded_tokens == spent
    assert len(log.isolated) == 3
    assert held > 0
    log.budget_bytes = 0
    log.shrink(())
    assert not log.isolated


# -- what is missing is said


def test_link_tokens_that_the_weights_lack_are_named(base: LoadedModel) -> None:
    for options in (KVLinkOptions(links="5"), KVLinkOptions(compression="anchors")):
        plan, found, _, _ = carry_out(KVLinkMethod(options), base)
        assert plan.state == "fallback"
        assert "kvlab train-links" in plan.reason
        assert (found.actions == COMPUTED).all()
    assert KVLinkMethod.supports(base.info) is None
    assert "kvlab train-links --links 5" in str(KVLinkMethod.supports(base.info, KVLinkOptions(links="5")))
    _, model = trained(base, RECIPES["kvlink2"])
    assert KVLinkMethod.supports(replace(model.info, links=5), KVLinkOptions(links="5")) is None
    assert "2 link tokens" in str(KVLinkMethod.supports(model.info, KVLinkOptions(links="1")))


def test_more_documents_than_were_trained_share_the_last_links() -> None:
    links = Links(torch.arange(6.0).reshape(3, 2, 1), torch.zeros(2, 1), torch.zeros(0, 1))
    assert links.behind(2).tolist() == links.behind(7).tolist() == [[4.0], [5.0]]
    for index, token in ((0, 0), (2, 1), (9, 1)):
        row = links.row("link", index, token)
        assert links.table[row].tolist() == links.behind(index)[token].tolist()


# -- who sees whom


def test_the_mask_is_the_papers() -> None:
    """KVLink, Fig. 2, with one link a document, and no edges."""
    links = Links(torch.zeros(10, 1, 4), torch.zeros(0, 4), torch.zeros(0, 4))
    laid = lay_out([([1], False), ([2, 3], True), ([4, 5], True), ([6], False)], [7], links)
    seen = batch([laid]).mask[0].int().tolist()
    #        bos d1 d1 l1 d2 d2 l2  q  a
    assert seen == [
        [1, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
    ]
    assert laid.weight == [0, 0, 0, 0, 0, 0, 0, 0, 1]


def test_anchors_stand_for_their_chunks() -> None:
    """Fig. 7: a chunk's tokens see each other, its anchors see it and earlier anchors, the rest sees
    anchors."""
    links = Links(torch.zeros(10, 0, 4), torch.zeros(0, 4), torch.zeros(1, 4), "anchors", 0.5, 2)
    laid = lay_out([([1], False), ([2, 3, 4, 5], True)], [7], links)
    seen = batch([laid]).mask[0].int().tolist()
    #        bos d  d  A  d  d  B  a
    assert seen == [
        [1, 0, 0, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0, 0, 0],
        [0, 1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 1, 1, 1, 1, 0],
        [1, 0, 0, 1, 0, 0, 1, 1],
    ]


def test_padding_is_seen_by_nobody() -> None:
    rows = [Layout(), Layout()]
    rows[0].add([1, 2, 3])
    rows[1].add([1])
    assert batch(rows).mask[1].int().tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]] or (
        not batch(rows).mask[1, 0, 1:].any()
    )
    assert not batch(rows).mask[1, 0, 1:].any()


# -- examples


@pytest.mark.slow
def test_mixtures_are_drawn_as_they_say() -> None:
    rng = random.Random(0)
    for mixture in MIXTURES.values():
        kinds = [draw(rng, mixture).kind for _ in range(60)]
        assert set(kinds) <= set(mixture)
    assert set(MIXTURES["no-summary"]) == set(MIXTURES["lab"]) - {"summary apart"}
    assert sum(MIXTURES["paper"].values()) == 100


def test_a_summary_gathers_what_is_said_of_one_person() -> None:
    rng = random.Random(1)
    for _ in range(20):
        document = make_summary(rng)
        texts = [p.text for p in document.pieces if p.name and p.name.startswith("document_")]
        question = next(p.text for p in document.pieces if p.name == "user_question")
        who = question.split()[-1].rstrip("?")
        said = [
            f"{line.rstrip('.')} [{number}]."
            for number, text in enumerate(texts, 1)
            for line in text.replace(". ", ".|").split("|")
            if line.startswith(f"{who} ")
        ]
        assert document.target == " ".join(said)
        assert len(said) >= 2
        assert not is_held_out(question + " ".join(texts))


def test_an_archive_holds_the_hops_that_answer_its_question() -> None:
    rng = random.Random(2)
    kinds = set[str]()
    for held in (False, True) * 8:
        document = make_archive(rng, 120, held)
        texts = [p.text for p in document.pieces if p.name and p.name.startswith("document_")]
        said = " ".join(texts)
        question = next(p.text for p in document.pieces if p.name == "user_question")
        told, _, answer = document.target.partition(" The answer is ")
        hops = told.removesuffix(".").split(". ")
        assert len(texts) == 8
        assert said.count(".") == 120
        assert all(f"{hop}." in said for hop in hops)
        assert hops[0].split()[0] in question
        assert hops[-1].endswith(f" {answer}")
        assert len(hops) == 1 or hops[0].split()[-1] == hops[1].split()[0]
        assert is_held_out(question + " ".join(texts)) == held
        kinds.add(document.kind)
    assert kinds == {"one-hop", "two-hop"}


def test_nothing_held_out_is_trained_on(base: LoadedModel) -> None:
    """The question and its documents never come from the share that the study asks."""
    rng = random.Random(2)
    for _ in range(40):
        document = draw(rng, {"documents apart": 1}).document
        # Blank lines belong to the layout: what is kept back is told by the texts themselves.
        named = {p.name: p.text.strip() for p in document.pieces if p.name}
        texts = " ".join(v for k, v in named.items() if k.startswith("document_"))
        assert not is_held_out(named["user_question"] + texts)


def test_the_answer_alone_is_learnt(base: LoadedModel) -> None:
    trainee, _ = trained(base, RECIPES["kvlink2"])
    document = make_document(random.Random(0), "documents", kind="two-hop")
    for apart in (True, False):
        [laid] = Feed(base, trainee).lay_out([Example("documents", document, apart)])
        learnt = [i for i, w in zip(laid.ids, laid.weight, strict=True) if w]
        assert learnt == [*base.tokens.encode(document.target), base.tokens.tokenizer.eos_token_id]
        assert laid.weight == sorted(laid.weight)
        assert any(o >= 0 for o in laid.owner) == apart


# -- training


def steps_of(base: LoadedModel, folder: Path, recipe: LinkRecipe, *stops: int | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for stop in stops:
        train_links(
            base, folder / "a.safetensors", recipe, stop_after_steps=stop, report=rows.append, report_every=1
        )
    return rows


QUICK = LinkRecipe(steps=6, batch=2, rank=2, links=1, warmup_steps=1)


@pytest.mark.parametrize("compression", ["none", "anchors", "drop", "packet"])
@pytest.mark.slow
def test_an_interrupted_training_is_the_whole_one(
    base: LoadedModel, tmp_path: Path, compression: str
) -> None:
    recipe = replace(QUICK, compression=compression, steps=4)
    whole = steps_of(base, tmp_path / "whole", recipe, None)
    parts = steps_of(base, tmp_path / "parts", recipe, 1, 2, None)
    assert [r["loss"] for r in whole] == [r["loss"] for r in parts]
    a, b = (load_links(tmp_path / n / "a.safetensors") for n in ("whole", "parts"))
    assert torch.equal(a[0].table, b[0].table)
    for name in a[1]:  # sums may be rounded in another order
        torch.testing.assert_close(a[1][name].up, b[1][name].up, atol=1e-6, rtol=0)
    assert (a[0].compression, a[0].facts["step"]) == (compression, 4)


@pytest.mark.slow
def test_a_finished_training_goes_on_with_more_steps(base: LoadedModel, tmp_path: Path) -> None:
    """The checkpoint is the same recipe's, but for how long it trains."""
    assert [row["step"] for row in steps_of(base, tmp_path, replace(QUICK, steps=2), None)] == [1, 2]
    rows = steps_of(base, tmp_path, replace(QUICK, steps=4), None)
    assert [row["step"] for row in rows] == [3, 4]
    assert load_links(tmp_path / "a.safetensors")[0].facts["step"] == 4


@pytest.mark.slow
def test_training_begins_with_what_another_wrote(base: LoadedModel, tmp_path: Path) -> None:
    first = train_links(base, tmp_path / "first.safetensors", replace(QUICK, steps=3))
    still = replace(QUICK, steps=1, rate=0.0, embedding_rate=0.0, seed=1)
    second = train_links(base, tmp_path / "second.safetensors", still, init=first)
    (links, deltas, _), (others, other_deltas, _) = load_links(first), load_links(second)
    assert torch.equal(links.links, others.links)
    assert torch.equal(links.edges, others.edges)
    assert deltas
    for name, delta in deltas.items():
        assert torch.equal(delta.up, other_deltas[name].up)
        assert torch.equal(delta.down, other_deltas[name].down)
    with pytest.raises(OptionError, match="other sizes"):
        train_links(base, tmp_path / "third.safetensors", replace(QUICK, rank=3), init=first)
    with pytest.raises(ModelError, match="There are no link tokens"):
        train_links(base, tmp_path / "third.safetensors", QUICK, init=tmp_path / "none.safetensors")


def test_training_learns_and_leaves_the_base_alone(base: LoadedModel, tmp_path: Path) -> None:
    before = base_hash(base.module)
    recipe = replace(QUICK, steps=14, batch=3, rank=8, mixture="qa-only", rate=1e-2)
    rows = steps_of(base, tmp_path, recipe, None)
    assert base_hash(base.module) == before
    first, last = (rows[i]["loss"] for i in (0, -1))
    assert min(last.values()) < min(first.values()) - 0.5
    log = (tmp_path / "a.train.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log] == list(range(1, 15))


def test_the_teacher_is_the_bases_own_dense_reading(base: LoadedModel) -> None:
    """What is read densely has nothing to learn from it before training; what is read apart has."""
    for mixture, apart in (({"documents": 1}, False), ({"documents apart": 1}, True)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(train_module.MIXTURES, "lab", mixture)
            trainee = Trainee(base, replace(QUICK, teacher=1.0))
            part = Feed(base, trainee).at(0)[0]
        assert part.whole is not None
        assert len(part.kinds) == len(part.inputs.ids) == len(part.whole.ids)
        logits, tokens, _ = trainee.logits(part.inputs)
        assert torch.equal(trainee.logits(part.whole, adapted=False)[1], tokens), "token by token"
        distance = float(train_module.teacher_loss(trainee, part.whole, logits).detach().mean())
        assert (distance > 1e-3) if apart else (abs(distance) < 1e-6)
        with torch.no_grad():
            for delta in trainee.deltas.values():
                delta.up.add_(0.1)
        changed = train_module.teacher_loss(trainee, part.whole, trainee.logits(part.inputs)[0])
        assert float(changed.detach().mean()) > 1e-3, "the teacher stays the base"


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=40))
def test_rows_of_a_part_are_alike_in_length(lengths: list[int]) -> None:
    groups = alike(lengths)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        own = [lengths[i] for i in group]
        assert len(own) * max(own) <= MOST_PADDING * sum(own)


def test_a_step_in_parts_is_the_step_in_one(
    base: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of documents that are taught and summaries that are not, in lengths that differ."""
    recipe = replace(QUICK, steps=2, batch=8, teacher=0.5)
    assert len(Feed(base, Trainee(base, recipe)).at(0)) > 1
    in_parts = train_links(base, tmp_path / "parts.safetensors", recipe)
    monkeypatch.setattr(train_module, "MOST_PADDING", 1000.0)
    assert len(Feed(base, Trainee(base, recipe)).at(0)) == 1
    in_one = train_links(base, tmp_path / "one.safetensors", recipe)
    deltas, others = load_links(in_parts)[1], load_links(in_one)[1]
    for name, delta in deltas.items():  # they began at 0
        assert float((delta.up - others[name].up).abs().mean()) < 0.02 * float(delta.up.abs().mean())


@pytest.mark.slow
def test_a_teacher_is_followed(base: LoadedModel, tmp_path: Path) -> None:
    recipe = replace(QUICK, steps=40, batch=4, rank=8, rate=3e-3, teacher=1.0, mixture="qa-only")
    trainee = Trainee(base, recipe)
    unseen = [part for step in range(1000, 1008) for part in Feed(base, trainee).at(step)]

    def distance() -> float:
        each = (
            train_module.teacher_loss(trainee, part.whole, trainee.logits(part.inputs)[0])
            for part in unseen
            if part.whole
        )
        return float(torch.stack([one.detach().mean() for one in each]).mean())

    before = distance()
    train_links(base, tmp_path / "a.safetensors", recipe)
    state = torch.load(tmp_path / "a.checkpoint.pt", weights_only=True)
    for tensor, kept in zip((*trainee.soft, *trainee.matrices), state["tensors"], strict=True):
        tensor.data.copy_(kept)
    assert distance() < 0.95 * before  # a base of random weights has little to say


@pytest.mark.slow
def test_what_the_base_never_learnt_it_does_not_teach(base: LoadedModel, tmp_path: Path) -> None:
    """A step on summaries is the same with a teacher and without; one on documents is not."""

    def trained(mixture: str, teacher: float) -> torch.Tensor:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(train_module.MIXTURES, "lab", {mixture: 1})
            out = tmp_path / f"{mixture}-{teacher}.safetensors"
            train_links(base, out, replace(QUICK, steps=2, teacher=teacher))
        return load_links(out)[0].links

    assert torch.equal(trained("summary apart", 1.0), trained("summary apart", 0.0))
    assert not torch.equal(trained("documents apart", 1.0), trained("documents apart", 0.0))


def test_link_tokens_alone_can_be_trained(base: LoadedModel, tmp_path: Path) -> None:
    train_links(base, tmp_path / "a.safetensors", replace(QUICK, rank=0, steps=2))
    links, deltas, _ = load_links(tmp_path / "a.safetensors")
    assert not deltas
    fresh = Trainee(base, replace(QUICK, rank=0)).as_links()
    assert not torch.equal(links.links[0], fresh.links[0].half().float())


@pytest.mark.slow
def test_a_file_makes_a_model_of_its_base(base: LoadedModel, tmp_path: Path) -> None:
    """Saved, loaded by name, and refused by other weights."""
    base.module.save_pretrained(tmp_path / "base")
    tiny.tokenizer().save_pretrained(tmp_path / "base")
    file = train_links(base, tmp_path / "own.safetensors", replace(QUICK, steps=3))
    assert file.stat().st_size < 1 << 20
    loaded = load_model(f"{tmp_path / 'base'}+{file}")
    assert loaded.links is not None
    assert (loaded.links.tokens, loaded.info.links, loaded.info.name) == (1, 1, "base+own")
    assert loaded.info.weights_hash != base.info.weights_hash
    _, deltas, _ = load_links(file)
    parts, own = ({k: v.weight.detach() for k, v in projections(m.module).items()} for m in (loaded, base))
    for name, delta in deltas.items():
        wanted = own[name] + delta.up @ delta.down
        assert error(parts[name], wanted) <= 1e-6
        assert error(parts[name], own[name]) > 0
    with pytest.raises(ModelError, match="belong to the weights"):
        apply_links(tiny.llama(seed=4), file, "other")
    with pytest.raises(ModelError, match="no link tokens called 'nonsense'"):
        load_model(f"{tmp_path / 'base'}+nonsense")
    with pytest.raises(ModelError, match="kvlab train-links"):
        load_model(f"{tmp_path / 'base'}+{tmp_path}/none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"no such thing")
    with pytest.raises(ModelError, match="holds no link tokens"):
        load_model(f"{tmp_path / 'base'}+{tmp_path}/bad.safetensors")


def test_what_cannot_be_trained_is_refused(base: LoadedModel, tmp_path: Path) -> None:
    for changes in (
        {"mixture": "x"}, {"compression": "x"}, {"steps": 0}, {"links": 65}, {"rank": -1},
        {"compressed": 1.0}, {"rank": 0, "links": 0, "edges": False},
    ):  # fmt: skip
        with pytest.raises(OptionError, match=r"allowed|nothing to train"):
            LinkRecipe(**changes)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="safetensors"):
        train_links(base, tmp_path / "a.bin", QUICK)
    train_links(base, tmp_path / "a.safetensors", replace(QUICK, steps=1))
    with pytest.raises(OptionError, match="another recipe"):
        train_links(base, tmp_path / "a.safetensors", replace(QUICK, rank=3))


def test_dropped_tokens_are_those_that_could_be_guessed(base: LoadedModel) -> None:
    alone = IsolatedEncoder(Engine(base), SampleLog("t", 1 << 30))
    ids = base.tokens.encode(TEXTS["document_2"])
    said = alone.surprisal(ids)
    with torch.inference_mode():
        logits = base.module(input_ids=torch.tensor([list(ids)])).logits[0].log_softmax(-1)
    wanted = [-float(logits[i, t]) for i, t in enumerate(ids[1:])]
    assert error(said[1:], torch.tensor(wanted)) <= TOLERANCE
    assert torch.isinf(said[0])
    kept = select_tokens(said, 0.75).tolist()
    assert kept[0] == 0
    assert len(kept) == round(len(ids) / 4)
    assert min(float(said[i]) for i in kept) >= max(float(x) for i, x in enumerate(said) if i not in kept)


@pytest.mark.slow
def test_kvlink_runs_in_a_session(base: LoadedModel) -> None:
    """On adapted weights, beside dense under the same ones."""
    _, model = trained(base, RECIPES["kvlink2"])
    methods = [
        "dense",
        "kvlink",
        "block_attention",
        "promptcache",
        MethodChoice("kvlink", {"links": "0"}, "none"),
    ]
    asked = tiny.request(methods, flow=READER)
    record = tiny.run(LabSession(model), replace(asked, values=TEXTS))
    assert record.model.links == 2
    linked, bare = record.outcome(1, "kvlink"), record.outcome(1, "none")
    assert sum(link.tokens for link in linked.links) == 8
    assert linked.timing.forwarded_tokens == bare.timing.forwarded_tokens + 8
    assert record.outcome(1, "dense").fidelity is not None
    for outcome in record.outcomes[1:]:
        assert isinstance(outcome.fidelity, object)
        assert outcome.state == "partial"


def test_types_of_steps(base: LoadedModel) -> None:
    """Template text and the question are read afresh, everything else is copied."""
    for method in (KVLinkMethod(KVLinkOptions()), BlockAttentionMethod(BlockAttentionMethod.Options())):
        plan, _, _, context = carry_out(method, base)
        kinds = {s.start: type(s.action) for s in plan.steps}
        named = {span.name for span in documents(context)}
        for span in context.prompt.spans:
            assert kinds[span.start] is (Reuse if span.name in named else Compute)


@pytest.mark.parametrize("compression", ["drop", "anchors"])
@pytest.mark.slow
def test_compressed_documents_in_a_session(base: LoadedModel, compression: str) -> None:
    """The method's own, shorter prompt is in the record beside dense's; no error by token can be told."""
    _, model = trained(base, RECIPES["anchors"])
    label = MethodChoice("kvlink", {"compression": compression}, "short")
    asked = replace(tiny.request(["dense", label, "naive"], flow=READER), values=TEXTS)
    record = tiny.run(LabSession(model), asked)
    dense, short, naive = record.outcomes
    assert dense.prompt == naive.prompt != short.prompt
    whole, less = (record.prompts[o.prompt] for o in (dense, short))
    for a, b in zip(whole.spans, less.spans, strict=True):
        assert a.name == b.name
        shorter = a.name in TEXTS and a.name != "user_question"
        assert (b.end - b.start < a.end - a.start) == shorter
    assert short.actions.shape == (model.info.layers, len(less.token_ids))
    assert short.key_error is None
    assert naive.key_error is not None
    assert short.fidelity is not None
    assert short.timing.forwarded_tokens == (short.actions[0] == COMPUTED).sum() + sum(
        k.tokens for k in short.links
    )
    from viz.run.comparison import comparison_html
    from viz.run.token_strip import strip_html

    assert "short" in comparison_html(record) + strip_html(record, 1)
