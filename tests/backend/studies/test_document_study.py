"""The study of documents: rows that survive a kill, a record that adds up, figures that say what it holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from intervals import scipy_wilson

from backend.base.errors import BudgetError, OptionError, RecordError
from backend.base.row_file import RowFile
from backend.engine.engine import Engine
from backend.model.link_tokens import Links, base_hash, save_links
from backend.model.load import LoadedModel, load_model, wrap_model
from backend.records.documents import DocumentArm, DocumentSpeed, DocumentStudy
from backend.studies.document_speed import document_speed
from backend.studies.documents import adapted_arms, arms_of, ask, lay_out, question, record_of_rows
from lab_app.cli.main import main
from viz.studies.document_study import views


def linked(seed: int = 5, tokens: int = 2, edges: int = 2, **facts: Any) -> LoadedModel:
    """A tiny model with random link tokens."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(*shape, 64, generator=generator) for shape in ((10, tokens), (edges,), (50,))]
    compression, rate = facts.pop("compression", "none"), facts.pop("rate", 0.0)
    links = Links(*drawn, compression, rate, 100, {"label": f"KVLink{tokens}", **facts})
    return wrap_model(tiny.llama(seed), tiny.tokenizer(), name=f"tiny+{seed}", links=links)


@pytest.fixture(scope="module")
def models(tiny_model: LoadedModel) -> list[LoadedModel]:
    return [tiny_model, linked()]


@pytest.fixture(scope="module")
def rows(models: list[LoadedModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "study.rows.jsonl"
    for _ in ask(models, 2, 0, path):
        pass
    return path


# -- questions


def test_questions_are_held_out_two_hops_and_say_where_their_facts_stand() -> None:
    seen = set()
    for index in range(12):
        asked = question(0, index)
        texts = {p.name: p.text for p in asked.document.pieces if p.name}
        hops = asked.document.target.split(". ")
        for hop, place in zip(hops, (asked.first_position, asked.position), strict=False):
            fact = hop.strip(" .")
            assert fact in texts[f"document_{place}"]
        assert asked.first_position != asked.position
        seen.add(asked.document.size)
    assert seen == {5, 6, 7, 8, 9, 10}
    assert question(0, 4) == question(0, 4)
    assert question(1, 4) != question(0, 4)


# -- rows


@pytest.mark.slow
def test_every_arm_answers_every_question(rows: Path, models: list[LoadedModel]) -> None:
    found = RowFile(rows).rows()
    assert len(found) == 4
    for row in found:
        labels = [o["arm"] for o in row["outcomes"]]
        assert labels == [a.label for a in arms_of(models[row["weights"] != "tiny"])]
        dense = row["outcomes"][0]
        assert dense["state"] == "dense"
        assert dense["forwarded_tokens"] == row["prompt_tokens"]
        document = question(row["seed"], row["index"]).document
        model = models[row["weights"] != "tiny"]
        ids = lay_out(Engine(model), document)[0].prompt.ids
        assert row["boundary_tokens"] == model.tokens.boundary_tokens(ids)
        for outcome in row["outcomes"][1:]:
            assert outcome["state"] in ("partial", "reused")
            assert outcome["ttft_ms"] > 0
            assert "base" not in outcome["parts_ms"]
    adapted = next(r for r in found if r["weights"] != "tiny")
    dense, with_links, without = adapted["outcomes"]
    soft = 2 * adapted["documents"] + 2
    assert with_links["forwarded_tokens"] == without["forwarded_tokens"] + soft
    assert dense["encode_ms"] == 0 < with_links["encode_ms"]


def test_a_study_goes_on_where_it_stopped(rows: Path, models: list[LoadedModel], tmp_path: Path) -> None:
    path = tmp_path / "study.rows.jsonl"
    whole = rows.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:25])  # killed within the third row
    for _ in ask(models, 2, 0, path):
        pass
    found, wanted = RowFile(path).rows(), RowFile(rows).rows()
    assert [r["key"] for r in found] == [r["key"] for r in wanted]
    for a, b in zip(found, wanted, strict=True):
        assert [(o["arm"], o["text"], o["correct"]) for o in a["outcomes"]] == [
            (o["arm"], o["text"], o["correct"]) for o in b["outcomes"]
        ]
    before = path.read_bytes()
    assert list(ask(models, 2, 0, path)) == []
    assert path.read_bytes() == before
    path.write_bytes(b"nonsense\n" + before)
    with pytest.raises(RecordError, match="Line 1"):
        list(ask(models, 2, 0, path))


def test_the_record_is_the_rows(rows: Path, models: list[LoadedModel]) -> None:
    study = record_of_rows(models, 3, 0, RowFile(rows).rows())
    assert DocumentStudy.from_bytes(study.to_bytes()).to_bytes() == study.to_bytes()
    assert study.labels[0] == "Dense"
    assert (study.correct[:, :2] >= 0).all()
    assert (study.correct[:, 2] == -1).all()  # not asked yet
    assert study.share("Dense")[1] == 2
    for row in RowFile(rows).rows():
        for outcome in row["outcomes"]:
            at = study.arm(outcome["arm"]), row["index"]
            assert study.correct[at] == outcome["correct"]
            assert study.ttft_ms[at] == outcome["ttft_ms"]
        assert study.position[row["index"]] == row["position"]
    assert study.own_dense("KVLink2") == "Dense on KVLink2’s weights"
    assert study.own_dense("PromptCache") == "Dense"
    assert (
        record_of_rows(models, 3, 1, RowFile(rows).rows()).share("Dense")[1] == 0
    )  # another seed's questions
    with pytest.raises(OptionError, match="Two sets of weights"):
        record_of_rows([*models, linked()], 3, 0, [])


# -- arms


def test_arms_follow_from_the_weights() -> None:
    def of(**facts: Any) -> list[tuple[str, str]]:
        links = linked(**facts).links
        assert links is not None
        return [(a.label, a.method) for a in adapted_arms("w", links)[1:]]

    assert of() == [("KVLink2", "kvlink"), ("KVLink2, left out", "kvlink")]
    assert of(tokens=0, edges=0, label="Block-Attention") == [("Block-Attention", "block_attention")]
    assert of(rank=0)[0] == ("KVLink2, links only", "kvlink")
    assert of(compression="anchors", rate=0.75) == [("KVLink2, anchors 75%", "kvlink")]
    assert of(compression="drop", rate=0.5) == [("KVLink2, drop 50%", "kvlink")]
    with pytest.raises(OptionError, match="60% of the tokens dropped"):
        of(compression="drop", rate=0.6)


@pytest.mark.parametrize(("compression", "rate"), [("anchors", 0.5), ("drop", 0.75)])
def test_compressed_documents_are_shorter(compression: str, rate: float, tmp_path: Path) -> None:
    model = linked(compression=compression, rate=rate)
    path = tmp_path / "rows.jsonl"
    list(ask([model], 1, 0, path))
    [row] = RowFile(path).rows()
    dense, compressed = row["outcomes"]
    texts = sum(
        len(model.tokens.encode(p.text)) for p in question(0, 0).document.pieces
        if p.name and p.name.startswith("document_")
    )  # fmt: skip
    gone = dense["read_tokens"] - compressed["read_tokens"]
    assert dense["read_tokens"] == row["prompt_tokens"]
    assert abs(gone - rate * texts) <= row["documents"]


# -- what is computed of the record


def study_of(correct: Any, **changes: Any) -> DocumentStudy:
    """A record with these answers: Dense, PromptCache, KVLink5 and dense on its weights."""
    rows = np.array(correct, dtype=np.int8)
    n = rows.shape[1]
    arms = (
        DocumentArm("Dense", "dense", {}, "base"),
        DocumentArm("PromptCache", "promptcache", {}, "base"),
        DocumentArm("Dense on KVLink5’s weights", "dense", {}, "base+5", adapted=True),
        DocumentArm("KVLink5", "kvlink", {}, "base+5", adapted=True),
    )
    model = tiny.model().info
    study = DocumentStudy(
        model, 0, arms, np.full(n, 5), np.arange(n) % 5 + 1, np.ones(n, dtype=np.int64), np.full(n, 200),
        rows, np.ones((4, n)), np.full((4, n), 9),
    )  # fmt: skip
    return replace(study, **changes)


def test_the_gap_recovered_is_a_share_of_the_gap() -> None:
    n = 200
    cells = [[i < k for i in range(n)] for k in (160, 40, 150, 130)]
    study = study_of(cells)
    found = study.recovered("KVLink5", "PromptCache", "Dense")
    assert found is not None
    one, low, high = found
    assert one == pytest.approx((130 - 40) / (160 - 40))
    assert low < one < high
    assert high - low < 0.2
    five = replace(study, arms=(*study.arms, *study.arms))  # the more arms, the wider each interval
    wider = five.recovered("KVLink5", "PromptCache", "Dense")
    assert wider is not None
    assert wider[2] - wider[1] > high - low
    assert study.recovered("KVLink5", "Dense", "Dense") is None
    assert study.recovered("Dense", "PromptCache", "Dense") == pytest.approx((1, 1, 1))
    assert study.share("KVLink5") == pytest.approx((130, 200, *scipy_wilson(130, 200)), abs=1e-5)
    half = replace(study, correct=np.where(np.arange(n) < 100, study.correct, -1).astype(np.int8))
    assert half.share("Dense")[:2] == (100, 100)


def test_positions_are_told_apart() -> None:
    n = 100
    first = [i % 5 == 0 for i in range(n)]  # right where the answer stands in the first document
    study = study_of([[True] * n, first, [True] * n, [True] * n])
    shown = next(v for v in views(study) if v.key == "documents_position")
    cells = {(r[0], r[1]): r[4] for r in shown.rows}
    assert [cells["PromptCache", place] for place in range(1, 6)] == [1, 0, 0, 0, 0]
    assert "PromptCache by −50.0 points" in shown.finding


def test_figures_say_what_the_record_holds(rows: Path, models: list[LoadedModel]) -> None:
    study = record_of_rows(models, 3, 0, RowFile(rows).rows())
    found = {v.key: v for v in views(study)}
    table = {r[0]: r for r in found["documents_accuracy"].rows}
    assert set(table) == set(study.labels)
    for label, row in table.items():
        assert row[2:4] == study.share(label)[:2]
    assert found["documents_compression"].empty
    assert found["documents_speed"].empty
    for view in found.values():
        assert view.title
        assert view.finding.endswith(".")
        if not view.empty:
            assert view.how_to_read
            assert view.csv().count("\n") == len(view.rows) + 1
            for axis in (view.figure.layout.xaxis, view.figure.layout.yaxis):
                assert axis.title.text or view.figure.data[0].type == "bar"
    nothing = views(record_of_rows(models, 3, 7, []))
    assert all(v.empty for v in nothing)


# -- times


@pytest.mark.parametrize("source", ["memory", "disk"])
def test_times_by_length(tiny_model: LoadedModel, source: str) -> None:
    *_, speed = document_speed(tiny_model, (4, 12), 1, source)
    assert isinstance(speed, DocumentSpeed)
    assert speed.names == ("Dense", "PromptCache, moved", "KVLink1", "KVLink5")
    assert (speed.ttft_ms > 0).all()
    assert (speed.load_ms <= speed.ttft_ms).all()
    assert (speed.load_ms[0] == 0).all()
    assert (speed.prompt_tokens == [16 + 10 * (n + 4) + 24 for n in (4, 12)]).all()
    assert (speed.loaded_bytes == [10 * n * tiny_model.info.kv_bytes_per_token for n in (4, 12)]).all()
    study = study_of([[1, 0], [0, 0], [1, 1], [1, 0]], speed=speed)
    shown = next(v for v in views(study) if v.key == "documents_speed")
    assert len(shown.rows) == 8
    assert source in shown.finding
    assert DocumentStudy.from_bytes(study.to_bytes()).speed is not None


def test_what_cannot_be_timed_is_refused(tiny_model: LoadedModel) -> None:
    for lengths, repeats, source, words in (
        ((), 2, "memory", "at least one"), ((8, 4), 2, "memory", "smallest first"),
        ((0,), 2, "memory", "1 to"), ((4,), 0, "memory", "1 to"), ((4,), 2, "tape", "memory, disk"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=words):
            list(document_speed(tiny_model, lengths, repeats, source))
    with pytest.raises(BudgetError, match="at most 89 tokens"):
        list(document_speed(tiny_model, (200,), 2))
    with pytest.raises(OptionError, match="questions"):
        list(ask([tiny_model], 0, 0, Path("unused")))


# -- the commands


@pytest.mark.slow
def test_train_and_study_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = tmp_path / "base"
    tiny.llama(6).save_pretrained(base)
    tiny.tokenizer().save_pretrained(base)
    links, out = tmp_path / "k.safetensors", tmp_path / "study.kvdoc"
    settings = ["--links", "1", "--rank", "2", "--steps", "2", "--batch", "2"]
    assert main(["train-links", "--model", str(base), "--out", str(links), *settings]) == 0
    asked = ["documents", "--model", str(base), "--links", str(links), "--questions", "1", "--out", str(out)]
    told = tmp_path / "study.json"
    assert main([*asked, "--lengths", "4", "--repeats", "1", "--json", str(told)]) == 0
    shown = capsys.readouterr().out
    assert "KVLink1" in shown
    assert "TTFT ms (of it loading)" in shown
    study = DocumentStudy.from_bytes(out.read_bytes())
    assert [a.weights for a in study.arms][-1] == "base+k"
    assert study.speed is not None
    report = json.loads(told.read_text())
    assert [arm["arm"] for arm in report["arms"]] == list(study.labels)
    assert all(arm["of"] == 1 and arm["right"] in (0, 1) for arm in report["arms"])
    assert report["speed"]["document_tokens"] == [4]
    assert report["speed"]["arms"][0]["times_faster"] == [1.0]
    assert report["trained"][str(links)]["rank"] == 2
    assert report["versions"]["torch"]
    assert len((tmp_path / "study.rows.jsonl").read_text().splitlines()) == 2
    assert json.loads((tmp_path / "k.train.jsonl").read_text())["step"] == 2
    for bad, words in (
        (
            ["documents", "--model", str(base), "--questions", "0", "--out", str(tmp_path / "wrong")],
            "questions is 0",
        ),
        (["documents", "--model", str(base), "--links", "none", "--out", str(out)], "no link tokens"),
        (["documents", "--model", str(base), "--out", str(tmp_path)], "names no file"),
        (["train-links", "--model", str(base), "--out", "k.bin"], "safetensors"),
        (["train-links", "--model", str(base), "--out", str(links), "--mixture", "x"], "mixture"),
    ):
        assert main(bad) == 2
        failed = capsys.readouterr().err
        assert words in failed
        assert "questions is" not in words or not (tmp_path / "wrong.rows.jsonl").exists(), "nothing is begun"
        assert failed.count("\n") == 1


def test_weights_of_another_base_are_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    tiny.llama(6).save_pretrained(base)
    tiny.tokenizer().save_pretrained(base)
    links = linked().links
    assert links is not None
    file = save_links(tmp_path / "x.safetensors", links, {}, base_hash(tiny.llama(7)))
    with pytest.raises(Exception, match="belong to the weights"):
        load_model(f"{base}+{file}")
