"""Plans that look into the cache layer by layer: nearness (KVCOMM, Fig. 4), and offsets with their estimates
(Fig. 1, A.4 to A.12)."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from backend.prompts.presets import Preset, load_preset, preset_requests
from backend.prompts.template import QUESTION
from backend.records.offsets import KINDS, PARTS, OffsetRequest, OffsetStudy
from backend.records.proximity import ProximityRecord, ProximityRequest
from backend.reproduce.context import Context, Step
from backend.reproduce.spec import Measurement, OffsetsPlan, ProximityPlan, Value
from backend.studies.offsets import offset_study
from backend.studies.proximity import proximity as measure

#: Places in a model of any depth, as shares of it.
DEPTHS = {"first layer": 0.0, "a quarter": 0.25, "half": 0.5, "three quarters": 0.75, "last layer": 1.0}
ESTIMATED = ("half", "last layer")  # depths at which estimates are compared


def layer_at(depth: str, layers: int) -> int:
    """The layer at a depth."""
    return round(DEPTHS[depth] * (layers - 1))


def openings(preset: Preset) -> tuple[str, ...]:
    """The first template text of each agent's prompt, up to its first placeholder."""
    parts = (preset.pipeline.template(agent.id).parts[0] for agent in preset.pipeline.agents)
    return tuple(dict.fromkeys(part for part in parts if isinstance(part, str)))


def proximity(plan: ProximityPlan, context: Context) -> Iterator[Step]:
    """Spearman's rank correlation with the distance of embeddings, at some depths.

    Raises:
        LabError: see :func:`backend.studies.proximity.proximity`.
    """
    first, second, *_ = openings(load_preset(plan.preset))
    count = context.count(plan.problems)
    request = ProximityRequest(first, second, plan.vocabulary, count, context.settings.seed)
    for event in measure(context.model, request):
        if isinstance(event, ProximityRecord):
            yield from correlations(event)
        else:
            yield event


def correlations(record: ProximityRecord) -> Iterator[Measurement]:
    for depth in DEPTHS:
        layer = layer_at(depth, len(record.keys))
        values = {}
        for name, x in record.correlations.items():
            numbers = float(x.rho[layer]), float(x.low[layer]), float(x.high[layer])
            values[name.replace("_", " ")] = Value(*numbers, len(record.embedding))
        yield Measurement({"depth": depth}, values)


def offsets(plan: OffsetsPlan, context: Context) -> Iterator[Step]:
    """A preset's first question behind what its agents' prompts begin with, and the offsets of its requests.

    Raises:
        LabError: see :func:`backend.studies.offsets.offset_study`.
    """
    preset = load_preset(plan.preset)
    examples = preset_requests(preset, context.count(plan.problems), context.settings.seed)
    pipeline = preset.pipeline.unrolled
    values: tuple[Mapping[str, Any], ...] = tuple(pipeline.check_values(dict(e.values)) for e in examples)
    request = OffsetRequest(examples[0].values[QUESTION], openings(preset), pipeline, values)
    for event in offset_study(context.model, request):
        if isinstance(event, OffsetStudy):
            yield from lengths(event)
            yield from estimates(event)
        else:
            yield event


def lengths(study: OffsetStudy) -> Iterator[Measurement]:
    """Offsets' mean length as a share of the isolated KV's (one text behind several prefixes), and of a
    request's placeholders and the template text behind them."""
    requests = study.approximated
    assert requests is not None, "requests were asked for"
    for depth in DEPTHS:
        layer = layer_at(depth, study.keys.shape[1])
        shares = {
            "keys": study.keys[:, layer].mean() / study.key_norm[layer].mean(),
            "values": study.values[:, layer].mean() / study.value_norm[layer].mean(),
            "keys unmoved": study.unmoved[:, layer].mean() / study.key_norm[layer].mean(),
        }
        yield Measurement({"text": depth}, {name: Value(float(share)) for name, share in shares.items()})
        sizes = {
            f"{part} {kind}": _mean(requests.offset[:, p, k, layer])
            for p, part in enumerate(PARTS)
            for k, kind in enumerate(KINDS)
        }
        yield Measurement({"requests": depth}, sizes)


def estimates(study: OffsetStudy) -> Iterator[Measurement]:
    """How near each estimate comes, by cosine and error; placeholders and template text together."""
    requests = study.approximated
    assert requests is not None, "requests were asked for"
    for row, name in enumerate(requests.names):
        values = {}
        for depth in ESTIMATED:
            layer = layer_at(depth, requests.offset.shape[-1])
            for k, kind in enumerate(KINDS):
                values[f"cache {kind} {depth}"] = _mean(requests.cache_cosine[row, :, :, k, layer])
                values[f"cosine {kind} {depth}"] = _mean(requests.cosine[row, :, :, k, layer])
                values[f"error {kind} {depth}"] = _mean(
                    requests.error[row, :, :, k, layer] / requests.offset[:, :, k, layer]
                )
        yield Measurement({"estimate": name}, values)


def _mean(values: Any) -> Value:
    """Over agents (and parts) that have one."""
    numbers = values[~np.isnan(values)]
    return Value(float(numbers.mean()) if numbers.size else math.nan, of=int(numbers.size))
