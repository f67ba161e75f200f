"""The static lab in a browser without a network: search, a control, a link to it, the tour, own questions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import expect
from transformers import DynamicCache

from backend.cache.kv_cache import as_argument
from backend.model.load import LoadedModel, load_model
from backend.prompts.filled_results import result_after
from backend.prompts.presets import load_preset, preset_requests
from backend.studies.gallery import load_gallery
from browser.conftest import Watched
from lab_app.static_lab import build, settings
from lab_app.static_lab.site import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two values of gamma, one example."""
    out = tmp_path_factory.mktemp("static") / "lab"
    with pytest.MonkeyPatch.context() as patch:
        gamma = settings.axes()[0]
        few = settings.Axis(gamma.key, gamma.label, gamma.help, ("0", "0.3"), ({"gamma": 0.0}, {}))
        for place in (settings, build):
            patch.setattr(place, "axes", lambda: (few,))
        assert build.build(out, examples=1, say=lambda text: None) < 21_000_000
    return out


def test_the_folder_works_without_a_network(opened: Watched, folder: Path) -> None:
    page = opened(offline=True)
    start = (folder / "index.html").as_uri()
    page.goto(start)
    page.fill(".kv-static-search", "gamma")
    expect(page.locator(".kv-static-count")).to_contain_text(" of ")
    page.click("text=Turn KVCOMM’s controls")
    expect(page.locator('[data-part="comparison"]')).to_contain_text("gate passed 4 of 4")
    page.locator('[data-axis="0"] input').fill("0")
    expect(page.locator('[data-part="comparison"]')).not_to_contain_text("gate passed 4 of 4")
    expect(page.locator("[data-view='gate'] .kv-finding")).to_contain_text("0 of 4")
    assert page.url.endswith("#gamma=0")
    page.reload()
    expect(page.locator('[data-axis="0"] output')).to_have_text("0")

    page.goto(start)
    page.click("text=2. Why can it not be copied")
    page.wait_for_url("**/tour/2.html")
    expect(page.locator(".kv-tour-reveal:visible")).to_have_count(0)
    page.locator("[data-choice]").first.click()
    expect(page.locator(".kv-tour-reveal:visible")).to_have_count(1)
    page.get_by_role("link", name="Next step", exact=True).click()
    expect(page).to_have_url(re.compile("tour/3.html"))
    page.get_by_role("link", name="KV Reuse Lab", exact=True).click()
    expect(page.locator(".kv-static-search")).to_be_visible()


TURN = """async (asked) => {
  const model = await kvEmbedded.Model.load(kvModel), out = [];
  for (const text of asked.texts) {
    const ids = [...model.opening, ...model.tokenizer.encode(text), ...model.closing];
    out.push({ ids, logits: [...(await model.read(ids)).logits] });
  }
  for (const parts of asked.prompts) out.push({ ids: [], logits: [...(await model.copied(parts)).logits] });
  return out;
}"""


def copied(model: LoadedModel, parts: list[dict[str, list[int]]]) -> torch.Tensor:
    """The logits after a prompt put together from copies, with transformers' forward pass and cache."""
    speeds = 10_000.0 ** (-torch.arange(16, dtype=torch.float64) / 16)
    cache, template = DynamicCache(), DynamicCache()
    model.module(
        torch.tensor([[i for p in parts for i in p.get("standIn", p["ids"])]]),
        **as_argument(model.module, template),
    )
    there = 0
    for part in parts:
        source, start = template, there
        if "standIn" in part:
            source, start = DynamicCache(), 1
            model.module(
                torch.tensor([[*model.tokens.bos, *part["ids"]]]), **as_argument(model.module, source)
            )
        angle = ((cache.get_seq_length() - start) * speeds).repeat(2)
        for index, layer in enumerate(source.layers):
            rows = slice(start, start + len(part["ids"]))
            keys = layer.keys[:, :, rows].double()
            half = torch.cat([-keys[..., 16:], keys[..., :16]], -1)
            cache.update((keys * angle.cos() + half * angle.sin()).float(), layer.values[:, :, rows], index)
        there += len(part.get("standIn", part["ids"]))
    cache.crop(-1)
    last = torch.tensor([parts[-1]["ids"][-1:]])
    logits: torch.Tensor = model.module(last, **as_argument(model.module, cache)).logits[0, -1]
    return logits


@pytest.mark.slow
def test_the_model_in_the_page_is_torchs(opened: Watched, folder: Path) -> None:
    """100 questions as people typed them, and prompts with copied texts."""
    model = load_model("embedded", device="cpu")
    lines = (ROOT / "presets" / "typed_questions.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["question"] for line in lines[:96]]
    texts += ["  two  spaces\n\nand 1234567 ", "Ünïcödé 東京 🔬\u00a0x", "</s><a>", "don't we'll 3.5e-10?!"]
    encode = model.tokens.encode
    prompts: list[list[dict[str, list[int]]]] = []
    for example in preset_requests(load_preset(build.ASKED), 5, seed=3):
        other = list(encode("It is."))
        three = [{"ids": list(encode(text)), "standIn": other} for text in list(example.values.values())[:3]]
        begin, end = [*model.tokens.opening, *encode("Read.\n")], [*encode("\nWho?"), *model.tokens.closing]
        prompts.append([{"ids": begin}, three[0], {"ids": list(encode("\n"))}, *three[1:], {"ids": end}])
    page = opened(offline=True)
    page.goto((folder / "ask.html").as_uri())
    expect(page.locator(".kv-ask-run")).to_be_enabled(timeout=120_000)
    found = page.evaluate(TURN, {"texts": texts, "prompts": prompts})
    worst = 0.0
    with torch.inference_mode():
        for text, one in zip(texts, found, strict=False):
            ids = [*model.tokens.opening, *encode(text), *model.tokens.closing]
            assert one["ids"] == ids, text
            logits = model.module(torch.tensor([ids])).logits[0, -1]
            worst = max(worst, float((logits - torch.tensor(one["logits"])).abs().max()))
        for parts, one in zip(prompts, found[len(texts) :], strict=True):
            worst = max(worst, float((copied(model, parts) - torch.tensor(one["logits"])).abs().max()))
    assert worst < 1e-4
    sums = ["12 * 34 =", "7 / 3 =", "9 // 0 =", "123456789012 * 999999999999 =", "36 < 38 is", "so it is"]
    filled = page.evaluate("(all) => all.map(kvEmbedded.resultAfter)", sums)
    assert filled == [result_after(text) or "" for text in sums]


def test_an_own_question_is_answered_twice(opened: Watched, folder: Path) -> None:
    page = opened(offline=True)
    page.goto((folder / "index.html").as_uri())
    page.click("text=Ask your own question")
    page.get_by_role("button", name="Ask").click(timeout=120_000)
    expect(page.locator(".kv-ask-status")).to_contain_text("The answers part at token", timeout=120_000)
    _, rows = load_gallery()
    row = next(row for row in rows if row.preset == build.ASKED)
    assert row.dense != row.reused, "as the lab's own run found"
    expect(page.locator('[data-column="dense"]')).to_contain_text(str(row.dense))
    expect(page.locator('[data-column="copied"]')).to_contain_text(str(row.reused))
    for number in range(1, 6):
        page.fill(f'[data-name="document_{number}"]', "Cairo has snow. " * 130)
    page.get_by_role("button", name="Ask").click()
    expect(page.locator(".kv-ask-status")).to_contain_text("Shorten the documents")
