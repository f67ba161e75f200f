"""``kvlab serve --model FOLDER``: the page and every scenario on a model of one's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client
from own_models import KINDS, save

from backend.prompts.presets import load_preset, preset_names
from lab_app.cli.main import main
from lab_app.server.offline import GUARD
from lab_app.server.serve import serve

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))
from visitor import Page, Visitor  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(scope="module", params=KINDS[2:3], ids=lambda kind: "-".join(map(str, kind)))
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = save(tmp_path_factory.mktemp("model"), *request.param)
    try:
        # Filling its pools first is tests/lab_app/server/test_prefill.py's.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lab_app.server.serve.prefill_pools", lambda *_: None)
            blocks, found = serve(port=0, model_name=str(folder), device="cpu", block=False)
        yield found.rstrip("/")
        blocks.close(verbose=False)
    finally:
        GUARD.stop()


def test_every_scenario_ends_with_a_record(address: str) -> None:
    lab = Client(address, verbose=False, analytics_enabled=False)
    try:
        for name in (name for name in preset_names() if load_preset(name).model == "any"):
            found: Any = lab.predict(
                preset=name, methods=["naive", "kvcomm"], max_new_tokens=2, api_name="/run"
            )
            assert len(found["methods"]) == 3, name
            assert httpx.get(f"{address}/{found['record']}", timeout=60).status_code == 200, name
    finally:
        lab.close()


def test_the_page_offers_what_suits_the_model_and_runs_it(address: str) -> None:
    with httpx.Client(base_url=address, timeout=120) as client:
        page = Page(client)
        choices = page.components[page.component("kv-preset")]["props"]
        assert choices["value"] == "gsm8k-paper"
        assert [name for _, name in choices["choices"]][:2] == ["gsm8k-paper", "gsm8k-paper-5"]
        visitor = Visitor(page, client)
        arrived = visitor.arrive()
        assert "saved run" not in arrived.text, "it is another model's"
        visitor.put("kv-value-0", "How many coins are there?")
        visitor.put("kv-warm-first", False)
        answer = visitor.do("kv-run")
        assert answer.success
        assert "Traceback" not in answer.text
        assert "Boundary tax" in json.dumps(answer.text)
        visitor.leave()


def test_a_mistake_is_told_by_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    try:
        assert main(["serve", "--port", "0", "--model", str(tmp_path / "nowhere")]) != 0
        assert main(["serve", "--port", "0", "--offline", "--model", "nobody/has-this-model"]) != 0
    finally:
        GUARD.stop()
    said = capsys.readouterr().err
    assert "has no config.json. Give a folder in hub layout" in said
    assert "'nobody/has-this-model' cannot be loaded from the hub" in said
    assert "Traceback" not in said
