"""Many requests, one row each, in a file that survives a kill (:mod:`backend.base.row_file`).

A row's key is made of the configuration and the request's number. A restarted batch skips what is there,
rebuilds the pools by sending the finished requests through again (pinned: dense only), and goes on.
"""

import hashlib
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend.base.row_file import RowFile
from backend.base.serialization import as_json
from backend.base.statistics import exact_share, wilson
from backend.prompts.presets import Example
from backend.records.events import Event, Progress, RunDone
from backend.records.request import Mode, RunRequest
from backend.records.rows import familiarity_row, outcome_row
from backend.session.session import LabSession
from backend.session.shadow_check import check_share, is_sampled


@dataclass(frozen=True)
class Batch:
    """A request's configuration and the examples to send through it."""

    request: RunRequest  # values and expected are replaced by each example's
    examples: tuple[Example, ...]
    modes: tuple[Mode, ...] = ("pinned", "free")
    warmup: int = 0  # so many first examples fill the pools and leave no row
    shadow: float = 0.0  # share of requests whose last agent is checked against dense

    def keys(self, mode: Mode, weights_hash: str) -> list[str]:
        """Identity of every row, made of its example and those before it."""
        facts = as_json(replace(self.request, mode=mode, values={}, expected=None))
        running = hashlib.sha256(f"[{json.dumps(facts, sort_keys=True)}, [".encode())
        end = f"], {json.dumps([self.warmup, self.shadow, weights_hash])[1:]}".encode()
        keys = []
        for index, example in enumerate(self.examples):
            running.update((", " * (index > 0) + json.dumps(dict(example.values), sort_keys=True)).encode())
            whole = running.copy()
            whole.update(end)
            keys.append(whole.hexdigest()[:16])
        return keys


def run_batch(session: LabSession, batch: Batch, path: Path) -> Iterator[Event]:
    """Run what is missing in ``path``, appending a row per request and mode.

    Raises:
        LabError: the request cannot be run, or the file is damaged.
    """
    check_share(batch.shadow)
    file = RowFile(path)
    rows = file.resume()
    total = len(batch.modes) * (len(batch.examples) - batch.warmup)
    finished = 0
    for mode in batch.modes:
        keys = batch.keys(mode, session.weights_hash)
        first = next((i for i in range(batch.warmup, len(keys)) if keys[i] not in rows), len(keys))
        finished += first - batch.warmup
        if first == len(keys):
            continue
        base = replace(batch.request, mode=mode)
        if first:
            yield from session.warm_up(base, batch.examples[:first])
        for index in range(first, len(keys)):
            example = batch.examples[index]
            request = replace(
                base,
                values=dict(example.values),
                expected=example.answer,
                shadow=is_sampled(batch.shadow, base.decoding.seed, keys[index]),
            )
            for event in session.run(request):
                if not isinstance(event, RunDone):
                    continue
                row = {
                    "key": keys[index],
                    "mode": mode,
                    "index": index,
                    "expected": example.answer,
                    "wall_ms": round(event.record.wall_ms, 1),
                    "outcomes": [outcome_row(event.record, o) for o in event.record.outcomes],
                    "familiarity": familiarity_row(event.record),
                    "shadow": {c.method: c.flipped for c in event.record.shadow},
                }
                if keys[index] not in rows:
                    file.append(row)
            finished += 1
            yield Progress(f"{mode}: request {index + 1} of {len(keys)}", finished, total)


def unusual(rows: Sequence[dict[str, Any]]) -> str:
    """One sentence: how many requests are unusual for the model, and how many of them dense answered wrongly;
    empty where that was not measured."""
    measured = {row["index"]: row for row in rows if row.get("familiarity")}.values()
    unusual_rows = [row for row in measured if row["familiarity"]["level"] == "unusual"]
    dense = [
        [o for o in row["outcomes"] if o["method"] == row["outcomes"][0]["method"]] for row in unusual_rows
    ]
    wrong_count = sum(outcomes[-1]["correct"] is False for outcomes in dense)
    sentence = f"{len(unusual_rows)} of {len(measured)} requests are unusual for the model"
    if unusual_rows:
        sentence += (
            f"; dense answered {wrong_count} of them wrongly, so what reuse changes there means little"
        )
    return f"{sentence}." if measured else ""


def flip_rates(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the shadow checks say, one line per mode and method: how many requests were served, checked and
    found to differ from dense, and the share of all that this lets expect, with its exact 95% interval."""
    flips_by_line: dict[tuple[str, str], list[bool]] = {}
    for row in rows:
        for method, flipped in row.get("shadow", {}).items():
            flips_by_line.setdefault((row["mode"], method), []).append(flipped)
    out = []
    for (mode, method), flips in flips_by_line.items():
        share = exact_share(sum(flips), len(flips))
        served = sum(row["mode"] == mode for row in rows)
        out.append(
            {
                "mode": mode,
                "method": method,
                "served": served,
                "checked": len(flips),
                "flipped": sum(flips),
                "flip_rate": share.value,
                "flip_rate_ci": (share.low, share.high),
            }
        )
    return out


def summarise(rows: Sequence[dict[str, Any]], final: int) -> list[dict[str, Any]]:
    """One line per mode, method and agent (``agent`` 0 is the whole pipeline).

    Reuse rates: *agents* that copied all their segments, *blocks* (placeholder texts) copied, *tokens*
    copied. Accuracy of the whole is the final agent's. TTFT ratio: median over requests of dense's time
    divided by the method's, same request and agent.
    """
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        dense = {o["agent"]: o for o in row["outcomes"] if o["method"] == row["outcomes"][0]["method"]}
        for o in row["outcomes"]:
            item = o | {
                "ratio": dense[o["agent"]]["ttft_ms"] / max(1e-9, o["ttft_ms"]),
                "same": o["text"] == dense[o["agent"]]["text"],
            }
            item["verdict_same"] = o["answer"] == dense[o["agent"]]["answer"]
            for agent in (0, o["agent"]):
                groups.setdefault((row["mode"], o["method"], agent), []).append(item)
    out = []
    for (mode, method, agent), items in groups.items():
        answers = [i for i in items if i["agent"] == (final if agent == 0 else agent)]
        scored = [i for i in answers if i["correct"] is not None]
        right = sum(bool(i["correct"]) for i in scored)
        line: dict[str, Any] = {
            "mode": mode,
            "method": method,
            "agent": agent,
            "requests": len(answers),
            "accuracy": right / len(scored) if scored else None,
            "accuracy_ci": wilson(right, len(scored)) if scored else None,
            "same_answer": statistics.fmean(i["verdict_same"] for i in answers),
            "same_text": statistics.fmean(i["same"] for i in answers),
            "reuse_agents": statistics.fmean(i["state"] == "reused" for i in items),
            "reuse_events": sum(i["state"] == "reused" for i in items),
            "reuse_blocks": sum(i["blocks_reused"] for i in items) / max(1, sum(i["blocks"] for i in items)),
            "reuse_tokens": sum(i["tokens_reused"] for i in items)
            / max(1, sum(i["prompt_tokens"] for i in items)),
            "ttft_ms": statistics.median(i["ttft_ms"] for i in items),
            "ttft_ratio": statistics.median(i["ratio"] for i in items),
        }
        near = [i for i in items if "kl_first" in i]
        if near:
            acted = [i for i in near if i["state"] in ("reused", "partial", "dense")] or near
            line |= {
                "kl_first": statistics.fmean(i["kl_first"] for i in acted),
                "kl_mean": statistics.fmean(i["kl_mean"] for i in acted),
                "floor": max(i["floor"] for i in near),
                "reused_same_text": statistics.fmean(i["same"] for i in acted),
            }
            errors = [i for i in acted if "key_error" in i]
            if errors:
                line["key_error"] = statistics.fmean(i["key_error"] for i in errors)
                line["value_error"] = statistics.fmean(i["value_error"] for i in errors)
        out.append(line)
    return sorted(out, key=lambda line: (line["mode"] != "pinned", line["agent"]))
