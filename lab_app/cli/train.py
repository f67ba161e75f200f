"""Commands that train and evaluate the embedded model and its link tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from typer import Context, Option

from backend.base.errors import OptionError
from backend.base.text import boundary_words
from lab_app.cli.common import (
    Device,
    named_file,
    path_of,
    print_lines,
    print_table,
    progress,
    result_of,
    write_json,
)

if TYPE_CHECKING:
    from backend.records.documents import DocumentStudy


def train_embedded(
    out: str = Option("~/.cache/kvlab/train", help="folder of the checkpoint and the exported model"),
    tokens: int = Option(60_000_000, help="tokens of this run"),
    size: Literal["main", "small"] = "main",
    seed: int = 0,
    step_tokens: int | None = Option(None, help="tokens of documents in a step (4096; more on a GPU)"),
    init: str | None = Option(
        None,
        help="a model's folder, or 'embedded': begin with its weights, at a third of the rates "
        "(two thirds if they get more layers)",
    ),
    tokens_before: int = Option(0, help="tokens that the first weights have seen"),
    tokenizer: str | None = Option(None, help="a model's folder, or 'embedded': take its tokenizer"),
    words: str | None = Option(
        None, help="a list of words, one a line (the system's dictionary, if there is one)"
    ),
    stop_after_steps: int | None = None,
    compiled: bool = Option(
        False, help="let torch compile the forward pass: faster after a minute or two; needs a C++ compiler"
    ),
    check_every: int = Option(2000, help="steps between two checks of what the model can do"),
) -> int:
    """Train the embedded model, or continue."""
    from backend.model.load import SHIPPED
    from backend.prompts.tasks.words import SYSTEM_WORDS, use_dictionary
    from backend.training.evaluate import progress
    from backend.training.recipe import SIZES, Recipe, continued, deepened
    from backend.training.train import train

    recipe = Recipe(seed=seed, tokens=tokens, tokens_before=tokens_before, **SIZES[size])
    if step_tokens:
        recipe = replace(recipe, step_tokens=step_tokens)
    folders = {
        name: SHIPPED.get(source) or path_of(source) if source else None
        for name, source in (("init", init), ("tokenizer_from", tokenizer))
    }
    for name, folder in folders.items():
        if folder and not (folder / "tokenizer.json").exists():
            raise OptionError(f"{folder} holds no tokenizer.json. Name a model's folder.", field=name)
    if folder := folders["init"]:
        layers = json.loads((folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]
        recipe = deepened(recipe) if layers < recipe.layers else continued(recipe)
    dictionary = path_of(words) if words else SYSTEM_WORDS
    if words and not dictionary.exists():
        raise OptionError(f"{dictionary} is not there. Name a list of words, one a line.", field="words")
    if dictionary.exists():
        print(f"{use_dictionary(dictionary):,} words of {dictionary}")
    export = train(
        path_of(out),
        recipe,
        init=folders["init"],
        tokenizer_from=folders["tokenizer_from"],
        stop_after_steps=stop_after_steps,
        compiled=compiled,
        report=lambda row: print(json.dumps(row), flush=True),
        check_every=check_every,
        check=progress,
    )
    print(f"The model is in {export}")
    return 0


def train_links(
    context: Context,
    model: str = Option("embedded", help="whose weights they belong to"),
    out: str = Option(..., metavar="FILE.safetensors"),
    device: Device = None,
    links: int | None = Option(None, help="link tokens behind each document (5)"),
    edges: bool | None = Option(
        None, " /--no-edges", help="no KV-START and KV-END; with --links 0 this is Block-Attention"
    ),
    rank: int | None = Option(None, help="of the weights' deltas (32); 0 trains the link tokens alone"),
    steps: int | None = Option(None, help="of training (3000)"),
    batch: int | None = Option(None, help="examples in a step (32)"),
    rate: float | None = Option(None, help="learning rate of the deltas (0.001)"),
    embedding_rate: float | None = Option(None, help="learning rate of the link tokens (0.01)"),
    warmup_steps: int | None = None,
    decay_share: float | None = Option(None, help="last part of the steps, where the rates fall to 0"),
    mixture: str | None = Option(
        None, help="lab, paper, no-summary, no-conversation, qa-only, no-dense, apart, brief or long"
    ),
    teacher: float | None = Option(
        None, help="share of the loss that follows the base's own full reading (0)"
    ),
    compression: str | None = Option(None, help="of documents: none, drop or anchors; or packet (KV Packet)"),
    wrappers: int | None = Option(None, help="trained tokens on each side of a packet (8)"),
    compressed: float | None = Option(None, help="share of a document's tokens taken away (0.5)"),
    chunk_tokens: int | None = Option(None, help="text tokens that share one set of anchors (100)"),
    shuffle: bool | None = Option(
        None, " /--unshuffled", help="answers stand in the first documents, as a retriever has them"
    ),
    seed: int = 0,
    init: str | None = Option(
        None,
        metavar="FILE.safetensors",
        help="begin with what an earlier training wrote, over earlier weights",
    ),
    stop_after_steps: int | None = Option(None, help="end early; the same command goes on from there"),
) -> int:
    """Train link tokens for separately encoded documents (KVLink), or a variant for one role."""
    from dataclasses import fields

    from backend.model.load import load_model
    from backend.training.link_tokens.train import LinkRecipe
    from backend.training.link_tokens.train import train_links as train

    params = {f.name: context.params[f.name] for f in fields(LinkRecipe)}
    recipe = LinkRecipe(**{name: value for name, value in params.items() if value is not None})
    file = train(
        load_model(model, device=device, dtype="fp32"),
        path_of(out),
        recipe,
        init=path_of(init) if init else None,
        stop_after_steps=stop_after_steps,
        report=lambda row: print(json.dumps(row), flush=True),
    )
    print(f"{recipe.label} is in {file}; run on it as --model {model}+{file}")
    return 0


def documents(
    model: str = Option("embedded", help="the base"),
    links: list[str] | None = Option(
        None, metavar="NAME", help="weights trained for it: a shipped name, or a file; may be repeated"
    ),
    questions: int = 500,
    seed: int = 0,
    lengths: list[int] | None = Option(None, help="time documents of so many tokens"),
    shape: str | None = Option(None, help="time a model of random weights instead: smollm2-135m or llama-8b"),
    repeats: int = Option(20, help="of each timing"),
    source: Literal["memory", "disk"] = Option("memory", help="where the KV is kept"),
    device: Device = None,
    out: str = Option(..., metavar="FILE", help="the study; rows go beside it"),
    json: str | None = Option(None, metavar="OUT", help="the tables with what they were measured on"),
) -> int:
    """Two-hop questions over documents that are encoded apart (KVLink)."""
    from backend.base.row_file import RowFile
    from backend.model.load import load_model
    from backend.records.documents import DocumentSpeed
    from backend.studies.document_speed import document_speed
    from backend.studies.documents import ask, record_of_rows

    file = named_file("out", out, "study.kvdoc")
    models = [load_model(model, device=device)]
    models += [load_model(f"{model}+{name}", device=device) for name in links or ()]
    rows_path = file.with_suffix(".rows.jsonl")
    with progress() as tell:
        for event in ask(models, questions, seed, rows_path):
            tell(event.text)
    speed = None
    if lengths:
        timed_model = models[0]
        if shape:
            from backend.bench.common import random_model

            timed_model = random_model(shape, device)
        speed = result_of(document_speed(timed_model, lengths, repeats, source), DocumentSpeed)
    study = record_of_rows(models, questions, seed, RowFile(rows_path).rows(), speed)
    file.write_bytes(study.to_bytes())
    print_documents(study)
    print_lines(boundary_words(study.boundary_tax))
    if json:
        from backend.bench.common import conditions

        on = conditions(models[0].device, next(models[0].module.parameters()).dtype)
        trained = {name: dict(other.links.facts) for name, other in zip(links or (), models[1:], strict=True)
                   if other.links is not None}  # fmt: skip
        report = {"bench": "documents", **on, "trained": trained, **plain_documents(study)}
        write_json(named_file("json", json, "study.json"), report)
    print(f"rows in {rows_path}, the study in {file}")
    return 0


def plain_documents(study: DocumentStudy) -> dict[str, Any]:
    """A study of documents as JSON: arms, and times by document length where they were measured."""
    floor, ceiling = "PromptCache", study.labels[0]
    arms = []
    for index, label in enumerate(study.labels):
        good, count, low, high = study.share(label)
        own_label = study.own_dense(label)
        own_good, own_count = study.share(own_label)[:2] if own_label else (0, 0)
        gap = None if label in (floor, ceiling) else study.recovered(label, floor, ceiling)
        answered = study.correct[index] >= 0
        arms.append(
            {
                "arm": label,
                "right": good,
                "of": count,
                "share": round(good / max(1, count), 4),
                "share_95": [round(low, 4), round(high, 4)],
                "own_dense": round(own_good / own_count, 4) if own_count else None,
                "gap_recovered": None if gap is None else [round(x, 4) for x in gap],
                "ttft_ms": round(_median(study.ttft_ms[index][answered]), 3),
                "forwarded_tokens": _median(study.forwarded_tokens[index][answered]),
            }
        )
    about = {"model": study.model.name, "weights": study.model.weights_hash, "seed": study.seed, "arms": arms}
    if study.speed is None:
        return about
    speed = study.speed
    by_length = [
        {
            "arm": name,
            "ttft_ms": speed.ttft_ms[i].round(3).tolist(),
            "quartiles_ms": [speed.low_ms[i].round(3).tolist(), speed.high_ms[i].round(3).tolist()],
            "loading_ms": speed.load_ms[i].round(3).tolist(),
            "times_faster": (speed.ttft_ms[0] / speed.ttft_ms[i]).round(2).tolist(),
        }
        for i, name in enumerate(speed.names)
    ]
    return about | {
        "speed": {
            "model": speed.model.name,
            "documents": speed.documents,
            "document_tokens": list(speed.lengths),
            "prompt_tokens": speed.prompt_tokens.tolist(),
            "kv_from": speed.source,
            "loaded_bytes": speed.loaded_bytes.tolist(),
            "repeats": speed.repeats,
            "arms": by_length,
        }
    }


def print_documents(study: DocumentStudy) -> None:
    """A study of documents as tables for people."""
    head = ("arm", "right", "of", "share", "95%", "own full read", "gap recovered", "TTFT ms", "forwarded")
    rows: list[tuple[str, ...]] = [head]
    for arm in plain_documents(study)["arms"]:
        gap, own, (low, high) = arm["gap_recovered"], arm["own_dense"], arm["share_95"]
        rows.append(
            (
                arm["arm"], str(arm["right"]), str(arm["of"]), f"{arm['share']:.1%}",
                f"{low:.1%} to {high:.1%}", "-" if own is None else f"{own:.1%}",
                "-" if gap is None else f"{gap[0]:.0%} ({gap[1]:.0%} to {gap[2]:.0%})",
                f"{arm['ttft_ms']:.1f}", f"{arm['forwarded_tokens']:.0f}",
            )
        )  # fmt: skip
    speed = study.speed
    print_table(rows, left=1)
    if speed is None:
        return
    times: list[tuple[str, ...]] = [("TTFT ms (of it loading)", *(f"{n:,} tokens" for n in speed.lengths))]
    for index, name in enumerate(speed.names):
        pairs = zip(speed.ttft_ms[index], speed.load_ms[index], strict=True)
        times.append((name, *(f"{whole:.1f} ({load:.1f})" for whole, load in pairs)))
    print(f"\n{speed.documents} documents, KV from {speed.source}, {speed.model.name}, {speed.model.device}")
    print_table(times, left=1)


def _median(values: Any) -> float:
    import statistics

    return statistics.median(values.tolist()) if len(values) else float("nan")


def evaluate_embedded(
    model: str = "embedded",
    count: int = Option(200, help="documents per task, or requests per edit"),
    seed: int = 0,
    edits: bool = Option(False, "--edits", help="presets as visitors edit them, one change at a time"),
    typed: bool = Option(False, "--typed", help="questions in no generator's words"),
) -> int:
    """Held-out exact match of the embedded model, by task."""
    from backend.model.load import load_model
    from backend.training.edits import QUESTIONS
    from backend.training.edits import edits as by_edit
    from backend.training.edits import typed_shares as by_people
    from backend.training.evaluate import evaluate, suitability

    loaded = load_model(model)
    report: dict[str, Any] = {"weights": loaded.info.weights_hash}
    if typed and not edits:
        report |= {name: by_people(loaded, name) for name in QUESTIONS}
    else:
        report |= {"count": count, "seed": seed}
        if edits:
            report["edits"] = by_edit(loaded, count, seed)
        else:
            report["held_out"] = evaluate(loaded, count, seed)
            report["suitability"] = suitability(loaded, count, seed)
    print(json.dumps(report, indent=1))
    return 0


def calibrate_familiarity(
    model: str = Option("embedded", help="a model that answers the lab's own tasks"),
    count: int = Option(20, help="requests of each of the 20 kinds"),
    seed: int = 0,
    out: str | None = Option(
        None, metavar="FILE", help="the calibration (familiarity.json beside the weights)"
    ),
    json: str | None = Option(None, metavar="OUT", help="what it was found to be worth, with its counts"),
) -> int:
    """Learn how surprising a request is to a model that answers it wrongly."""
    from backend.base.machine import versions
    from backend.model.load import load_model
    from backend.session.familiarity import CALIBRATION, calibration_file
    from backend.training.familiarity import answer_cases, calibrate, held_out_requests

    if count < 1:
        raise OptionError(f"--count is {count}; at least 1 is needed. Change it.", field="count")
    loaded = load_model(model)
    default = calibration_file(loaded)
    if out is None and default is None:
        raise OptionError(f"{loaded.info.name} lies in no folder of its own. Give --out FILE.", field="out")
    file = named_file("out", out, CALIBRATION) if out else default
    report_file = named_file("json", json, "familiarity-20.json") if json else None
    requests, cases = list(held_out_requests(count, seed)), []
    with progress() as tell:
        for case in answer_cases(loaded, requests):
            cases.append(case)
            tell(f"{len(cases)} of {len(requests)} requests answered")
    calibration, worth = calibrate(loaded, cases)
    assert file is not None
    calibration.save(file)
    head = {"weights": loaded.info.weights_hash, "count": count, "seed": seed, "versions": versions()}
    if report_file is not None:
        write_json(report_file, head | worth)
    for name, what in (
        ("prompt", "from the prompt alone"),
        ("first", "with the first agent's answer"),
        ("run", "with all the full read's answers"),
    ):
        edits = worth[name]["edits"]
        low, high = edits["ci"]
        print(
            f"{what}: AUC {edits['auc']} ({low} to {high}) over {edits['n']} edited requests, "
            f"{edits['wrong']} of them answered wrongly"
        )
    print(f"The calibration for the weights {loaded.info.weights_hash} is in {file}")
    return 0
