"""The command line: what works prints its result; what cannot is one line, and exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml
from tiny import QUESTIONS

from backend import __version__
from backend.base.errors import OptionError
from backend.methods.kvcomm.method import KVCommMethod
from backend.methods.registry import METHODS, option_fields
from backend.model.load import LoadedModel
from lab_app.cli.bench import DEFAULTS
from lab_app.cli.common import parse_methods
from lab_app.cli.main import COMMANDS, main, spread

Run = tuple[int, str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny.llama().save_pretrained(path)
    tiny.tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def kvlab(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*args: object) -> Run:
        code = main([str(a) for a in args])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def quick(tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model without loading it again."""
    monkeypatch.setattr("backend.model.load.load_model", lambda *_, **__: tiny_model)


def preset(path: Path, *templates: str, tokens: int = 6, **changes: Any) -> Path:
    """Write a preset of the tiny pipeline, or of these templates."""
    flow = tiny.pipeline()
    templates = templates or tuple(a.template for a in flow.agents)
    body = {
        "name": "tiny",
        "title": "Tiny",
        "summary": "For tests.",
        "model": "any",
        "needs_context": 512,
        "request_source": "examples",
        "agents": [
            {"id": n, "name": f"Agent {n}", "role": "", "template": t, "max_new_tokens": tokens}
            for n, t in enumerate(templates, 1)
        ],
        "examples": [{"values": {"user_question": q}, "answer": "1"} for q in QUESTIONS[:2]],
    }
    path.write_text(yaml.safe_dump(body | changes, allow_unicode=True), encoding="utf-8")
    return path


def assert_one_line(done: Run, *words: str) -> None:
    code, out, err = done
    assert code == 2, (out, err)
    assert out == ""
    assert err.startswith("kvlab: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert "Traceback" not in err
    assert len(err) < 1000
    for word in words:
        assert word in err


# -- methods on the command line


def test_methods_are_read() -> None:
    found = parse_methods(
        "dense, naive ,kvcomm:gamma=0.5+rotate=false+capacity=3+distance=sequence@my label,,"
    )
    assert [c.name for c in found] == ["dense", "naive", "kvcomm"]
    assert [c.label for c in found] == ["dense", "naive", "my label"]
    assert found[2].options == {"gamma": 0.5, "rotate": False, "capacity": 3, "distance": "sequence"}
    assert parse_methods("kvcomm:gamma=1")[0].label == "kvcomm:gamma=1"


def test_a_profile_sets_a_bundle_and_others_win() -> None:
    shipped = dict(KVCommMethod.profiles["shipped"].options)
    assert parse_methods("kvcomm:profile=shipped")[0].options == shipped
    for text in ("kvcomm:profile=shipped+gamma=0.5", "kvcomm:gamma=0.5+profile=shipped"):
        assert parse_methods(text)[0].options == shipped | {"gamma": 0.5}
    assert parse_methods("kvcomm:gate=length+profile=shipped")[0].options["gate"] == "length"
    assert parse_methods("kvcomm:profile=published")[0].options == {}
    assert parse_methods("kvcomm:profile=shipped")[0].label == "kvcomm:profile=shipped"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("on", True),
        ("OFF", False),
        ("yes", True),
        ("no", False),
        ("1", True),
        ("0", False),
    ],
)
def test_switches_have_many_spellings(text: str, value: bool) -> None:
    assert parse_methods(f"kvcomm:rotate={text}")[0].options == {"rotate": value}


@pytest.mark.parametrize(
    ("text", "words", "field"),
    [
        ("", "No method was named", "methods"),
        (" , ", "No method was named", "methods"),
        ("nonsense", "no method 'nonsense'", "methods"),
        ("dense,nonsense:x=1", "no method 'nonsense'", "methods"),
        ("kvcomm:gamma", "is no option; write option=value", "methods"),
        ("kvcomm:gamma=", "must be a number", "methods.gamma"),
        ("kvcomm:gamma=lots", "must be a number", "methods.gamma"),
        ("kvcomm:gamma=1.5", "allowed: 0 to 1", "kvcomm.gamma"),
        ("kvcomm:gamma=-0.1", "allowed: 0 to 1", "kvcomm.gamma"),
        ("kvcomm:gamma=nan", "allowed: 0 to 1", "kvcomm.gamma"),
        ("kvcomm:capacity=257", "allowed: 0 to 256", "kvcomm.capacity"),
        ("kvcomm:capacity=-1", "allowed: 0 to 256", "kvcomm.capacity"),
        ("kvcomm:capacity=2.5", "must be a whole number", "methods.capacity"),
        ("kvcomm:rotate=maybe", "must be true or false", "methods.rotate"),
        ("kvcomm:distance=far", "allowed: token, sequence", "kvcomm.distance"),
        ("kvcomm:nonsense=1", "no option 'nonsense'", "kvcomm.nonsense"),
        ("kvcomm:profile=best", "it has: published, shipped, corrected", "kvcomm.profile"),
        ("naive:profile=shipped", "it has: none", "naive.profile"),
        ("dense:gamma=1", "no option 'gamma'; it has: none", "dense.gamma"),
    ],
)
def test_bad_methods_are_refused(text: str, words: str, field: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_methods(text)
    assert words in str(refused.value)
    assert refused.value.field == field


def test_methods_are_listed_with_their_options(kvlab: Any) -> None:
    code, out, err = kvlab("methods")
    assert (code, err) == (0, "")
    for cls in METHODS:
        assert cls.summary in out
        for field in option_fields(cls):
            assert field.name in out
            assert field.help in out


@pytest.mark.slow
def test_version_and_help(kvlab: Any) -> None:
    assert kvlab("--version")[1].strip() == f"kvlab {__version__}"
    for command in ("serve", "methods", "certify", "run", "bench", "train-embedded", "evaluate-embedded"):
        code, out, _ = kvlab(command, "--help")
        assert code == 0
        assert f"kvlab {command}" in out
    for command in COMMANDS:
        assert f" {command} " in kvlab("--help")[1]
    assert kvlab()[0] == 2
    assert kvlab("nonsense")[0] == 2


def test_what_is_typed_wrongly_is_one_line(kvlab: Any) -> None:
    assert_one_line(kvlab("run", "math-2"), "'--json'", "`kvlab run --help`")
    assert_one_line(
        kvlab("run", "math-2", "--json", "o", "--mode", "odd"), "'--mode'", "'pinned', 'free', 'both'"
    )
    assert_one_line(kvlab("run", "math-2", "--json", "o", "--seed", "x"), "'--seed'")
    assert_one_line(kvlab("serve", "--nonsense"), "--nonsense")


def test_flags_with_several_values_or_none() -> None:
    assert spread(["documents", "--lengths", "5", "6", "--out", "7"]) == [
        "documents", "--lengths", "5", "--lengths", "6", "--out", "7",
    ]  # fmt: skip
    assert spread(["--ray"]) == ["--ray", ""]
    assert spread(["--ray", "--seed", "1"]) == ["--ray", "", "--seed", "1"]
    assert spread(["--ray", "head:10001"]) == ["--ray", "head:10001"]
    assert spread([]) == []


def test_listing_and_help_load_no_torch() -> None:
    code = "import sys\nfrom lab_app.cli.main import main\nmain(['--help'])\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


# -- runs


@pytest.mark.slow
def test_a_run_from_end_to_end(kvlab: Any, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new folder" / "out.json"
    what = [
        "run",
        preset(tmp_path / "tiny.yaml"),
        "--model",
        folder,
        "--device",
        "cpu",
        "--requests",
        3,
        "--json",
        out,
    ]
    code, printed, err = kvlab(*what, "--methods", "dense,naive,kvcomm:gamma=0.9@near")
    assert (code, err) == (0, "")
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["requests"] == 3
    assert report["model"]["certificate"]["relocatable"] is True
    assert str(folder) not in out.read_text(encoding="utf-8")
    assert {s["method"] for s in report["summary"]} == {"dense", "naive", "near"}
    assert {s["mode"] for s in report["summary"]} == {"pinned", "free"}
    assert {s["agent"] for s in report["summary"]} == {0, 1, 2, 3}
    for line in report["summary"]:
        assert line["requests"] == 3
        assert line["method"] in printed
    rows = (out.parent / "out.rows.jsonl").read_text(encoding="utf-8")
    assert rows.count("\n") == 6
    # the same command again has nothing left to do
    assert kvlab(*what, "--methods", "dense,naive,kvcomm:gamma=0.9@near")[0] == 0
    assert (out.parent / "out.rows.jsonl").read_text(encoding="utf-8") == rows
    assert json.loads(out.read_text(encoding="utf-8"))["summary"] == report["summary"]


@pytest.mark.usefixtures("quick")
def test_shipped_presets_run(kvlab: Any, tmp_path: Path) -> None:
    done = kvlab(
        "run",
        "math-2",
        "--requests",
        1,
        "--mode",
        "pinned",
        "--max-new-tokens",
        4,
        "--json",
        tmp_path / "o.json",
    )
    assert done[0] == 0, done[2]


@pytest.mark.usefixtures("quick")
def test_emoji_and_right_to_left_text_work(kvlab: Any, tmp_path: Path) -> None:
    odd = [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 and \U0001f600\ufffd",
        "\u05db\u05de\u05d4 \u05d6\u05d4 2+2? \u202e\u0645\u0631\u062d\u0628\u0627",
        "</s><s><a> <|eot_id|> {agent_1_current} {x}",
        "line\r\n\tbreaks\u2028",
    ]
    data = tmp_path / "odd.jsonl"
    data.write_text("".join(json.dumps({"question": q}) + "\n" for q in odd), encoding="utf-8")
    out = tmp_path / "o.json"
    flow = preset(
        tmp_path / "p.yaml",
        "\u05e4\u05ea\u05d5\u05e8 \U0001f9ee {user_question}\n",
        "\u202bCheck {user_question}: {agent_1_current}",
    )
    code, _, err = kvlab("run", flow, "--data", data, "--requests", 4, "--json", out)
    assert (code, err) == (0, "")
    assert json.loads(out.read_text(encoding="utf-8"))["summary"][0]["requests"] == 4


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("templates", "words"),
    [
        (("",), ("template is empty", "agents.1.template")),
        ((" \n ",), ("template is empty",)),
        (("{user_question}", "{agent_9_current}"), ("there is no agent 9", "agents.2.template")),
        (("{user_question}", "{agent_2_current}"), ("its own output",)),
        (("{agent_2_current}", "{agent_1_current}"), ("in a circle: 1 -> 2 -> 1",)),
        (("{user_question} and {user_question}",), ("uses {user_question} twice",)),
        (("{user_question}" + "x" * 300_000,), ("up to 200,000 are allowed",)),
        (("{user_question}" + "x" * 1_100_000,), ("larger than 1 MiB",)),
        (("{user_question}" + " word" * 3000,), ("tokens", "that tiny can read")),
    ],
    ids=["empty", "blank", "no such agent", "itself", "cycle", "twice", "long", "1 MB", "beyond the context"],
)
@pytest.mark.slow
def test_bad_templates(
    kvlab: Any, tmp_path: Path, templates: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = kvlab("run", preset(tmp_path / "bad.yaml", *templates), "--json", tmp_path / "o.json")
    assert_one_line(done, *words)


@pytest.mark.usefixtures("quick")
def test_an_undeclared_placeholder_is_pointed_out(kvlab: Any, tmp_path: Path) -> None:
    """It stays in the prompt as text, and the person is told."""
    flow = preset(tmp_path / "p.yaml", "{user_question} {user_name} {user_questoin}")
    code, _, err = kvlab("run", flow, "--requests", 1, "--mode", "pinned", "--json", tmp_path / "o.json")
    assert code == 0
    assert err.count("kvlab: note: ") == err.count("\n") == 2
    assert "Did you mean {user_question}?" in err
    assert "{user_name} will stay in the prompt as plain text" in err
    undeclared = [{"values": {"user_question": "x", "color": "red"}}]
    done = kvlab("run", preset(tmp_path / "q.yaml", examples=undeclared), "--json", tmp_path / "o.json")
    assert_one_line(done, "'color'", "no template asks for it")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("", ("question is empty", "data.jsonl, line 1")),
        ("  \n", ("question is empty",)),
        ("x" * (1 << 20), ("1,048,576 characters", "up to 200,000")),
        ("many words " * 2000, ("tokens", "that tiny can read")),
        ("a\x00b", ("NUL",)),
    ],
    ids=["empty", "blank", "1 MB", "beyond the context", "NUL"],
)
def test_bad_questions(kvlab: Any, tmp_path: Path, question: str, words: tuple[str, ...]) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"question": question}) + "\n", encoding="utf-8")
    done = kvlab(
        "run", preset(tmp_path / "p.yaml"), "--data", data, "--requests", 1, "--json", tmp_path / "o.json"
    )
    assert_one_line(done, *words)
    assert not (tmp_path / "o.json").exists()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--methods", "kvcomm:gamma=7"], ("allowed: 0 to 1", "kvcomm.gamma")),
        (["--methods", "kvcomm:capacity=999"], ("allowed: 0 to 256", "kvcomm.capacity")),
        (["--methods", "nonsense"], ("there are: dense, ",)),
        (["--methods", "naive,naive"], ("Two methods are labelled 'naive'",)),
        (["--methods", ",".join(f"naive@{i}" for i in range(20))], ("at most 20",)),
        (["--requests", "0"], ("requests is 0",)),
        (["--requests", "-1", "--warmup", "2"], ("requests is -1",)),
        (["--requests", "2", "--warmup", "-1"], ("warmup -1",)),
        (["--requests", "999999"], ("10,000",)),
        (["--max-new-tokens", "0"], ("max_new_tokens is 0", "1 to 4096")),
        (["--temperature", "-1"], ("temperature is -1",)),
        (["--temperature", "nan"], ("temperature is nan",)),
        (["--seed", "-1"], ("seed is -1",)),
        (["--budget-mb", "0"], ("this lab allows 0 MiB",)),
        (["--data", "no-such-file.jsonl"], ("no-such-file.jsonl cannot be read",)),
        (["--json", "."], ("names no file",)),
        (["--json", "/dev/null/x/y.json"], ("Choose another one",)),
    ],
    ids=lambda v: " ".join(v)[:40] if isinstance(v, list) else "",
)
def test_bad_settings(kvlab: Any, tmp_path: Path, flags: list[str], words: tuple[str, ...]) -> None:
    settings = ["--json", tmp_path / "o.json", *flags]
    assert_one_line(kvlab("run", preset(tmp_path / "p.yaml"), *settings), *words)


def test_too_few_requests_in_a_file(kvlab: Any, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"question": "1+1?"}\n', encoding="utf-8")
    done = kvlab(
        "run", preset(tmp_path / "p.yaml"), "--data", data, "--requests", 2, "--json", tmp_path / "o.json"
    )
    assert_one_line(done, "2 requests are wanted, but the file holds 1")


@pytest.mark.parametrize("name", ["no-such-preset", "no-such-file.yaml", "", "../math-2", "x" * 5000])
def test_presets_that_are_not_there(kvlab: Any, tmp_path: Path, name: str) -> None:
    assert_one_line(kvlab("run", name, "--json", tmp_path / "o.json"))


@pytest.mark.parametrize("model", ["/no/such/folder", "./nothing", "", "nobody/has-this-model"])
def test_models_that_are_not_there(kvlab: Any, tmp_path: Path, model: str) -> None:
    assert_one_line(kvlab("certify", model), "[model.name]")
    if model:
        done = kvlab("run", preset(tmp_path / "p.yaml"), "--model", model, "--json", tmp_path / "o.json")
        assert_one_line(done, "[model.name]")


def test_certify(kvlab: Any, folder: Path) -> None:
    code, out, err = kvlab("certify", folder, "--device", "cpu")
    assert (code, err) == (0, "")
    assert "Keys move by rotation" in out
    assert out.count("rotation  ") == 3
    assert "Rounding noise" in out


def test_certify_refuses_a_model_without_rotation(kvlab: Any, tmp_path: Path) -> None:
    import transformers

    config = transformers.GPT2Config(
        vocab_size=len(tiny.tokenizer()), n_embd=32, n_layer=1, n_head=2, n_positions=128, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    code, out, _ = kvlab("certify", tmp_path, "--device", "cpu")
    assert code == 1
    assert "Not relocatable" in out


@pytest.fixture
def fast_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rates are not this machine's, which a neighbour can slow while they are measured."""
    monkeypatch.setattr("backend.bench.roofline.product_gflop_s", lambda *_: 1e6)


@pytest.mark.usefixtures("fast_hardware")
def test_bench(kvlab: Any, folder: Path) -> None:
    code, out, _ = kvlab(
        "bench", "ttft", "--shape", folder, "--tokens", 64, "--anchors", 2, "--repeats", 1, "--device", "cpu"
    )
    assert code == 0
    report = json.loads(out)
    assert (report["tokens"], report["anchors"]) == (64, 2)
    assert report["ratio"] > 0
    assert {"gate", "match", "correct", "rotate", "first_token"} <= set(report["reuse_parts_ms"])
    assert report["two_heaviest_ratio"] > 0
    assert report["bf16_ratio"] == pytest.approx(report["dense_bf16_ms"] / report["reuse_ms"], abs=0.006)
    for flags in (["--tokens", 8], ["--anchors", 0], ["--repeats", 0]):
        assert_one_line(kvlab("bench", "ttft", "--shape", folder, *flags), "allowed are")


@pytest.mark.parametrize(("what", "tokens"), [("ttft", 4000), ("memory", 2049), ("decode", 2040)])
def test_bench_refuses_prompts_that_the_model_cannot_read(what: str, tokens: int, kvlab: Any) -> None:
    """A row of ``decode`` also writes sixteen tokens."""
    done = kvlab("bench", what, "--tokens", tokens, "--device", "cpu")
    assert_one_line(done, "embedded can read 2,048 tokens; ", "Lower --tokens", "[bench.tokens]")


def test_bench_drops_nothing_that_was_typed(kvlab: Any) -> None:
    for what, flag in (("decode", "--anchors"), ("attention", "--tokens")):
        said = f"{flag} is 64, but kvlab bench {what} reads no {flag}. Leave it out."
        assert_one_line(kvlab("bench", what, flag, 64), said)


def test_benchs_help_has_every_default(kvlab: Any) -> None:
    said = " ".join(kvlab("bench", "--help")[1].replace("│", " ").split())
    for name, usual in DEFAULTS.items():
        assert usual is None or f"({usual}" in said.partition(f" --{name} ")[2].partition(" --")[0], name
    assert "'embedded', 'smollm2-135m', 'llama-8b' (random weights), or a model" in said


@pytest.mark.usefixtures("fast_hardware")
@pytest.mark.parametrize("what", ["ttft", "assemble", "decode", "memory"])
@pytest.mark.slow
def test_bench_in_another_precision(
    what: str, kvlab: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every side computes in what was asked for, and the report says so."""
    monkeypatch.setattr("backend.bench.roofline.COPY_BYTES", {"cpu": 1 << 20})
    flags = ["--tokens", 64, "--repeats", 1, "--device", "cpu", "--dtype", "bf16"]
    flags += [] if what == "decode" else ["--anchors", 4]
    code, out, _ = kvlab("bench", what, "--shape", folder, *flags)
    assert code == 0
    report = json.loads(out)
    assert report["dtype"] == "bf16"
    assert not {"half_ms", "dense_bf16_ms"} & set(report), "all of it is in half precision already"


def test_a_bench_beyond_the_roofline_fails(kvlab: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is printed all the same, and says itself that it must not be kept."""
    monkeypatch.setattr("backend.bench.match.copy_gb_s", lambda *_: 1e-6)
    code, out, err = kvlab("bench", "match", "--shape", folder, "--tokens", 32, "--anchors", 2,
                           "--repeats", 1, "--device", "cpu")  # fmt: skip
    assert code == 1
    assert "more than the hardware allows" in err
    assert json.loads(out)["wrong"] == err.strip()


def test_bench_of_matching_and_assembly(kvlab: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides, what the bytes alone would take, how the cost grows, and under which conditions."""
    monkeypatch.setattr("backend.bench.roofline.COPY_BYTES", {"cpu": 1 << 20})
    flags = ("--shape", folder, "--tokens", 32, "--anchors", 4, "--repeats", 2, "--device", "cpu")
    over = {"match": ["anchors in the pool", "bytes of KV that an anchor holds"]}
    over["assemble"] = ["tokens", "anchors mixed", "anchors in the pool"]
    for what, mine, other in (("match", "match", "one_by_one"), ("assemble", "one_pass", "layer_by_layer")):
        code, out, _ = kvlab("bench", what, *flags)
        assert code == 0
        report = json.loads(out)
        assert report["kernel"] == "torch"
        assert report["ratio"] == pytest.approx(
            report[f"{other}_ms"] / report[f"{mine}_ms"], rel=0.01, abs=0.01
        )
        for side in (mine, other):
            share = 100 * report["copy_ms"] / report[f"{side}_ms"]
            assert report["roofline_percent"][side] == pytest.approx(share, rel=0.05, abs=0.1)
        assert [line["over"] for line in report["slopes"]] == over[what]
        assert all(len(line["sizes"]) == len(line["ms"]) > 1 for line in report["slopes"])
        assert {"torch", "transformers"} <= report["versions"].keys()
        assert {"hardware", "threads", "dtype"} <= report.keys()


def test_a_fitted_line_is_the_line() -> None:
    from backend.bench.common import slope, steps_to

    line = slope("things", [1, 2, 4], [5.0, 7.0, 11.0])
    assert (line["ms_each"], line["ms_at_0"], line["r2"]) == (2, 3, 1)
    assert slope("things", [1, 2, 3], [4.0, 4.0, 4.0])["ms_each"] == 0
    assert steps_to(20, 1) == [5, 10, 15, 20]
    assert steps_to(2, 1) == [1, 2]


@pytest.mark.usefixtures("quick")
def test_stopping_by_hand_says_what_is_kept(
    kvlab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("backend.studies.batch.run_batch", interrupted)
    code, out, err = kvlab("run", preset(tmp_path / "p.yaml"), "--json", tmp_path / "o.json")
    assert (code, out) == (130, "")
    assert "goes on from there" in err


@pytest.mark.slow
def test_bench_of_decoding_and_memory(kvlab: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen rows as one batch; and what is held is what the shapes say."""
    monkeypatch.setattr("backend.bench.roofline.COPY_BYTES", {"cpu": 1 << 20})
    flags = ("--shape", folder, "--tokens", 48, "--repeats", 1, "--device", "cpu")
    code, out, _ = kvlab("bench", "decode", *flags)
    assert code == 0
    report = json.loads(out)
    assert report["rows"] == 16
    assert report["ratio"] == pytest.approx(16 * report["one_row_ms"] / report["batch_ms"], rel=0.05)
    assert report["slopes"][0]["sizes"] == [1, 2, 4, 8, 16]
    assert {"hardware", "versions", "copy_gb_s", "processor_ratio"} <= report.keys()
    code, out, _ = kvlab("bench", "memory", *flags, "--anchors", 3)
    assert code == 0
    report = json.loads(out)
    each = report["bytes_per_token"]
    assert report["predicted_bytes"]["cache"] == 48 * each
    assert report["predicted_bytes"]["batch"] == 4 * 2 * 48 * each
    for name in ("batch", "pool"):
        assert report["measured_bytes"][name] == report["predicted_bytes"][name], name
    # What a first prefill leaves beside its cache is the logits of its last token.
    assert 0 <= report["measured_bytes"]["cache"] - report["predicted_bytes"]["cache"] < 1 << 14


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    """As ``kvlab reproduce | head -1`` closes the pipe; ``true`` has done so before the first word."""
    told = f"{sys.executable} -m lab_app.cli.main reproduce --markdown | true; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", told], capture_output=True, text=True, check=True)
    assert ran.stdout == "141\n"
    assert ran.stderr == ""
    closed = f"{sys.executable} -m lab_app.cli.main methods >&-"
    ran = subprocess.run(["bash", "-c", closed], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.slow
def test_bench_of_recording(kvlab: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is recorded when it is off, and what is asked for when it is on."""
    monkeypatch.setattr("backend.bench.attention.MAX_NEW_TOKENS", 2)
    flags = ("--shape", folder, "--anchors", 2, "--repeats", 1, "--device", "cpu")
    code, out, _ = kvlab("bench", "attention", *flags)
    assert code == 0
    report = json.loads(out)
    seen = report["recorded"]
    for side, share in report["roofline_percent"].items():
        assert share == pytest.approx(100 * report["least_ms"] / report[f"{side}_ms"], abs=0.06)
    assert seen["off"] == {"offsets": 0, "attention": 0}
    assert seen["offsets"]["offsets"] > 0 == seen["offsets"]["attention"]
    assert seen["attention"]["attention"] > 0 == seen["attention"]["offsets"]
    assert seen["both"] == {
        "offsets": seen["offsets"]["offsets"], "attention": seen["attention"]["attention"]
    }  # fmt: skip
    assert_one_line(kvlab("bench", "attention", "--shape", "llama-8b"), "needs both")
