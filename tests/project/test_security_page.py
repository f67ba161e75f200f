"""docs/security.md: its tests exist, its limits are the code's; and models bring neither code nor pickles."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
import tiny
import torch

from backend.base.errors import ModelError
from backend.model.load import load_model
from backend.session.limits import Limits

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_threat_names_a_test_that_exists() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^def (test_\w+)", sources, re.MULTILINE))
    threats = [
        line for line in PAGE.partition("## Threats")[2].partition("## Limits")[0].splitlines() if "|" in line
    ]
    for line in threats[2:]:
        named = re.findall(r"`(test_\w+)`", line.split("|")[3])
        assert named, f"no test named: {line[:60]}"
        assert set(named) <= there, set(named) - there


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", PAGE, re.MULTILINE))
    assert rows == {limit.name: f"{limit.default:,}" for limit in fields(Limits)}


def model_folder(folder: Path, **config: object) -> Path:
    folder.mkdir()
    base = {
        "model_type": "llama",
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "vocab_size": 8,
    }
    (folder / "config.json").write_text(json.dumps(base | config))
    return folder


def test_models_bring_no_code_and_no_pickles(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w').close()\n"
    remote = {
        "AutoConfig": "evil.Config",
        "AutoModelForCausalLM": "evil.Model",
        "AutoTokenizer": ["evil.T", None],
    }
    evil = model_folder(tmp_path / "evil", model_type="evil", auto_map=remote)
    (evil / "evil.py").write_text(code)
    (evil / "tokenizer_config.json").write_text(json.dumps({"auto_map": remote, "tokenizer_class": "T"}))
    with pytest.raises(ModelError):
        load_model(str(evil))
    # Everything else of this folder is fine, as the same weights in the other format show.
    pickled = tmp_path / "pickled"
    whole = tiny.llama()
    tiny.tokenizer().save_pretrained(pickled)
    whole.save_pretrained(pickled)
    assert load_model(str(pickled), device="cpu")
    (pickled / "model.safetensors").unlink()
    torch.save(whole.state_dict(), pickled / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        load_model(str(pickled), device="cpu")
    assert not ran.exists(), "code of a model's folder was run"


@pytest.mark.slow
def test_every_load_says_so_in_the_code() -> None:
    """Weights by safetensors alone, no code of a repository, no pickle, no loose YAML."""
    for path in [
        *(ROOT / "backend").rglob("*.py"),
        *(ROOT / "lab_app").rglob("*.py"),
        *(ROOT / "viz").rglob("*.py"),
    ]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called, given = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
            where = f"{path.name}:{node.lineno}"
            assert given.get("trust_remote_code", "False") == "False", where
            if called == "AutoModelForCausalLM.from_pretrained":
                assert given["use_safetensors"] == "True", where
            if called in ("torch.load", "np.load"):
                assert given.get("weights_only") == "True" or given.get("allow_pickle") == "False", where
            assert called not in (
                "eval",
                "exec",
                "pickle.load",
                "pickle.loads",
                "yaml.unsafe_load",
                "os.system",
            ), where
