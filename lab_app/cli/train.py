"""Commands that train and evaluate the embedded model and its link tokens."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backend.base.errors import OptionError
from lab_app.cli.common import named_file, path_of, print_table, show_progress, write_json

if TYPE_CHECKING:
    from backend.records.documents import DocumentStudy


def add_training(add: Any) -> None:
    """Register the commands; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add("train-embedded", train_embedded, "Train the embedded model, or continue.")
    sub.add_argument(
        "--out", default="~/.cache/kvlab/train", help="folder of the checkpoint and the exported model"
    )
    sub.add_argument("--tokens", type=int, default=60_000_000, help="tokens of this run")
    sub.add_argument("--size", choices=("main", "small"), default="main")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--step-tokens", type=int, help="tokens of documents in a step (4096; more on a GPU)")
    sub.add_argument(
        "--init",
        help="a model's folder, or 'embedded': begin with its weights, at a third of the rates "
        "(two thirds if they get more layers)",
    )
    sub.add_argument("--tokens-before", type=int, default=0, help="tokens that the first weights have seen")
    sub.add_argument("--tokenizer", help="a model's folder, or 'embedded': take its tokenizer")
    sub.add_argument("--words", help="a list of words, one a line (the system's dictionary, if there is one)")
    sub.add_argument("--stop-after-steps", type=int)
    sub.add_argument(
        "--check-every", type=int, default=2000, help="steps between two checks of what the model can do"
    )

    sub = add("train-links", train_links, "Train link tokens for separately encoded documents (KVLink).")
    sub.add_argument("--model", default="embedded", help="whose weights they belong to")
    sub.add_argument("--out", required=True, metavar="FILE.safetensors")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    sub.add_argument("--links", type=int, help="link tokens behind each document (5)")
    sub.add_argument("--no-edges", dest="edges", action="store_false", default=None,
                     help="no KV-START and KV-END; with --links 0 this is Block-Attention")  # fmt: skip
    sub.add_argument("--rank", type=int, help="of the weights' deltas (32); 0 trains the link tokens alone")
    sub.add_argument("--steps", type=int, help="of training (3000)")
    sub.add_argument("--batch", type=int, help="examples in a step (32)")
    sub.add_argument("--rate", type=float, help="learning rate of the deltas (0.001)")
    sub.add_argument("--embedding-rate", type=float, help="learning rate of the link tokens (0.01)")
    sub.add_argument("--warmup-steps", type=int)
    sub.add_argument("--decay-share", type=float, help="last part of the steps, where the rates fall to 0")
    sub.add_argument("--mixture", help="lab, paper, no-summary, no-conversation, qa-only or no-dense")
    sub.add_argument(
        "--teacher", type=float, help="share of the loss that follows the base's own full reading (0)"
    )
    sub.add_argument("--compression", help="of documents: none, drop or anchors")
    sub.add_argument("--compressed", type=float, help="share of a document's tokens taken away (0.5)")
    sub.add_argument("--chunk-tokens", type=int, help="text tokens that share one set of anchors (100)")
    sub.add_argument("--unshuffled", dest="shuffle", action="store_false", default=None,
                     help="answers stand in the first documents, as a retriever has them")  # fmt: skip
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--stop-after-steps", type=int, help="end early; the same command goes on from there")

    sub = add("documents", documents, "Two-hop questions over documents that are encoded apart (KVLink).")
    sub.add_argument("--model", default="embedded", help="the base")
    sub.add_argument("--links", action="append", default=[], metavar="NAME",
                     help="weights trained for it: a shipped name, or a file; may be repeated")  # fmt: skip
    sub.add_argument("--questions", type=int, default=500)
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--lengths", type=int, nargs="*", default=[], help="time documents of so many tokens")
    sub.add_argument("--shape", help="time a model of random weights instead: smollm2-135m or llama-8b")
    sub.add_argument("--repeats", type=int, default=20, help="of each timing")
    sub.add_argument("--source", choices=("memory", "disk"), default="memory", help="where the KV is kept")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    sub.add_argument("--out", required=True, metavar="FILE", help="the study; rows go beside it")
    sub.add_argument("--json", metavar="OUT", help="the tables with what they were measured on")

    sub = add("evaluate-embedded", evaluate_embedded, "Held-out exact match of the embedded model, by task.")
    sub.add_argument("--model", default="embedded")
    sub.add_argument("--count", type=int, default=200, help="documents per task, or requests per edit")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument(
        "--edits", action="store_true", help="presets as visitors edit them, one change at a time"
    )
    sub.add_argument(
        "--typed", action="store_true", help="questions that people wrote, in no generator's words"
    )

    sub = add("calibrate-familiarity", calibrate_familiarity,
              "Learn how surprising a request is to a model that answers it wrongly.")  # fmt: skip
    sub.add_argument("--model", default="embedded", help="a model that answers the lab's own tasks")
    sub.add_argument("--count", type=int, default=20, help="requests of each of the 20 kinds")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--out", metavar="FILE", help="the calibration (familiarity.json beside the weights)")
    sub.add_argument("--json", metavar="OUT", help="what it was found to be worth, with its counts")


def train_embedded(args: argparse.Namespace) -> int:
    from backend.model.load import SHIPPED
    from backend.prompts.tasks.words import SYSTEM_WORDS, use_dictionary
    from backend.training.evaluate import progress
    from backend.training.recipe import SIZES, Recipe, continued, deepened
    from backend.training.train import train

    recipe = Recipe(seed=args.seed, tokens=args.tokens, tokens_before=args.tokens_before, **SIZES[args.size])
    if args.step_tokens:
        recipe = replace(recipe, step_tokens=args.step_tokens)
    folders = {
        name: SHIPPED.get(given) or path_of(given) if given else None
        for name, given in (("init", args.init), ("tokenizer_from", args.tokenizer))
    }
    for name, folder in folders.items():
        if folder and not (folder / "tokenizer.json").exists():
            raise OptionError(f"{folder} holds no tokenizer.json. Name a model's folder.", field=name)
    if folder := folders["init"]:
        layers = json.loads((folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]
        recipe = deepened(recipe) if layers < recipe.layers else continued(recipe)
    words = path_of(args.words) if args.words else SYSTEM_WORDS
    if args.words and not words.exists():
        raise OptionError(f"{words} is not there. Name a list of words, one a line.", field="words")
    if words.exists():
        print(f"{use_dictionary(words):,} words of {words}")
    export = train(
        path_of(args.out),
        recipe,
        init=folders["init"],
        tokenizer_from=folders["tokenizer_from"],
        stop_after_steps=args.stop_after_steps,
        report=lambda row: print(json.dumps(row), flush=True),
        check_every=args.check_every,
        check=progress,
    )
    print(f"The model is in {export}")
    return 0


def train_links(args: argparse.Namespace) -> int:
    from dataclasses import fields

    from backend.model.load import load_model
    from backend.training.link_tokens.train import LinkRecipe
    from backend.training.link_tokens.train import train_links as train

    given = {f.name: getattr(args, f.name) for f in fields(LinkRecipe)}
    recipe = LinkRecipe(**{name: value for name, value in given.items() if value is not None})
    model = load_model(args.model, device=args.device, dtype="fp32")
    file = train(
        model,
        path_of(args.out),
        recipe,
        stop_after_steps=args.stop_after_steps,
        report=lambda row: print(json.dumps(row), flush=True),
    )
    print(f"{recipe.label} is in {file}; run on it as --model {args.model}+{file}")
    return 0


def documents(args: argparse.Namespace) -> int:
    from backend.base.row_file import RowFile
    from backend.model.load import load_model
    from backend.records.documents import DocumentSpeed
    from backend.studies.document_speed import document_speed
    from backend.studies.documents import ask, gathered

    out = named_file("out", args.out, "study.kvdoc")
    models = [load_model(args.model, device=args.device)]
    models += [load_model(f"{args.model}+{name}", device=args.device) for name in args.links]
    speed = None
    rows_path = out.with_suffix(".rows.jsonl")
    for event in ask(models, args.questions, args.seed, rows_path):
        show_progress(event.text)
    if args.lengths:
        timed = models[0]
        if args.shape:
            from backend.bench.common import random_model

            timed = random_model(args.shape, args.device)
        for step in document_speed(timed, args.lengths, args.repeats, args.source):
            if isinstance(step, DocumentSpeed):
                speed = step
            else:
                show_progress(step.text)
    study = gathered(models, args.questions, args.seed, RowFile(rows_path).rows(), speed)
    out.write_bytes(study.to_bytes())
    print_documents(study)
    if args.json:
        from backend.bench.common import conditions

        on = conditions(models[0].device, next(models[0].module.parameters()).dtype)
        trained = {name: dict(model.links.facts) for name, model in zip(args.links, models[1:], strict=True)
                   if model.links is not None}  # fmt: skip
        report = {"bench": "documents", **on, "trained": trained, **plain_documents(study)}
        write_json(named_file("json", args.json, "study.json"), report)
    print(f"rows in {rows_path}, the study in {out}")
    return 0


def plain_documents(study: DocumentStudy) -> dict[str, Any]:
    """A study of documents as JSON: arms, and times by document length where they were measured."""
    floor, ceiling = "PromptCache", study.labels[0]
    arms = []
    for index, label in enumerate(study.labels):
        good, seen, low, high = study.share(label)
        own = study.own_dense(label)
        own_good, own_seen = study.share(own)[:2] if own else (0, 0)
        gap = None if label in (floor, ceiling) else study.recovered(label, floor, ceiling)
        asked = study.correct[index] >= 0
        arms.append(
            {
                "arm": label,
                "right": good,
                "of": seen,
                "share": round(good / max(1, seen), 4),
                "share_95": [round(low, 4), round(high, 4)],
                "own_dense": round(own_good / own_seen, 4) if own_seen else None,
                "gap_recovered": None if gap is None else [round(x, 4) for x in gap],
                "ttft_ms": round(_median(study.ttft_ms[index][asked]), 3),
                "forwarded_tokens": _median(study.forwarded_tokens[index][asked]),
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


def evaluate_embedded(args: argparse.Namespace) -> int:
    from backend.model.load import load_model
    from backend.training.edits import edits, typed
    from backend.training.evaluate import evaluate, suitability

    model = load_model(args.model)
    if args.edits:
        shares = edits(model, args.count, args.seed)
        report = {"weights": model.info.weights_hash, "count": args.count, "seed": args.seed, "edits": shares}
        print(json.dumps(report, indent=1))
        return 0
    if args.typed:
        print(json.dumps({"weights": model.info.weights_hash, "typed": typed(model)}, indent=1))
        return 0
    report = {
        "weights": model.info.weights_hash,
        "count": args.count,
        "seed": args.seed,
        "held_out": evaluate(model, args.count, args.seed),
        "suitability": suitability(model, args.count, args.seed),
    }
    print(json.dumps(report, indent=1))
    return 0


def calibrate_familiarity(args: argparse.Namespace) -> int:
    from backend.base.machine import versions
    from backend.model.load import load_model
    from backend.session.familiarity import CALIBRATION, calibration_file
    from backend.training.familiarity import answered, calibrate, held_out_requests

    if args.count < 1:
        raise OptionError(f"--count is {args.count}; at least 1 is needed. Change it.", field="count")
    model = load_model(args.model)
    usual = calibration_file(model)
    if args.out is None and usual is None:
        raise OptionError(f"{model.info.name} lies in no folder of its own. Give --out FILE.", field="out")
    out = named_file("out", args.out, CALIBRATION) if args.out else usual
    told = named_file("json", args.json, "familiarity-20.json") if args.json else None
    requests, seen = list(held_out_requests(args.count, args.seed)), []
    for one in answered(model, requests):
        seen.append(one)
        show_progress(f"{len(seen)} of {len(requests)} requests answered")
    calibration, worth = calibrate(model, seen)
    assert out is not None
    calibration.save(out)
    head = {
        "weights": model.info.weights_hash,
        "count": args.count,
        "seed": args.seed,
        "versions": versions(),
    }
    if told is not None:
        write_json(told, head | worth)
    for name, what in (("prompt", "from the prompt alone"), ("run", "with the full read's answers")):
        found = worth[name]["edits"]
        low, high = found["ci"]
        print(
            f"{what}: AUC {found['auc']} ({low} to {high}) over {found['n']} edited requests, "
            f"{found['wrong']} of them answered wrongly"
        )
    print(f"The calibration for the weights {model.info.weights_hash} is in {out}")
    return 0
