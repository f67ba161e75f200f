"""The run's memory, and everything that identifies it."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from backend.records.run import RunRecord
from viz.base import format as words
from viz.base.figure import FigureView, figure, hatch
from viz.base.format import number, plot_text, size
from viz.base.html import render
from viz.base.theme import METHOD_COLOURS


def memory_view(record: RunRecord) -> FigureView:
    """Bytes of one run's KV caches and of the anchor pools."""
    pipeline, looks = record.request.pipeline, words.styles(record)
    dense = words.dense_label(record)
    rows: list[tuple[Any, ...]] = []
    for agent in record.agents:
        outcome = record.outcome(agent, dense)
        tokens = len(words.prompt_of(record, outcome).token_ids)
        rows.append(
            (
                "KV of one prompt",
                words.agent_name(pipeline, agent),
                tokens,
                tokens * record.model.kv_bytes_per_token,
            )
        )
    for pool in record.pools:
        name = looks[pool.method].name if pool.method in looks else pool.method
        label = f"{name}: {words.segment_words(pipeline, pool.placeholder)}"
        rows.append(("anchor pool", label, sum(pool.lengths), pool.bytes))
    drawing = figure(90 + 26 * len(rows), margin={"t": 34, "r": 90}, bargap=0.35)
    for kind, colour, pattern in (
        ("KV of one prompt", METHOD_COLOURS[0], ""),
        ("anchor pool", METHOD_COLOURS[2], "/"),
    ):
        rows_of_kind = [r for r in rows if r[0] == kind]
        drawing.add_bar(
            y=[plot_text(r[1]) for r in rows_of_kind],
            x=[r[3] / 2**20 for r in rows_of_kind],
            orientation="h",
            name=kind,
            marker={"color": colour, "pattern": hatch(pattern)},
            text=[size(r[3]) for r in rows_of_kind],
            textposition="outside",
            cliponaxis=False,
            showlegend=bool(rows_of_kind),
            hovertemplate="%{y}<br>%{text}<extra></extra>",
        )
    drawing.update_layout(
        xaxis={"title": "MiB", "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "showgrid": False, "ticks": ""},
    )
    pools = sum(r[3] for r in rows if r[0] == "anchor pool")
    prompts = sum(r[3] for r in rows if r[0] == "KV of one prompt")
    finding = f"The prompts of all agents take {size(prompts)} of KV; " + (
        f"anchor pools hold {size(pools)}, {words.ratio(pools, prompts)} that."
        if pools
        else "no anchors are held."
    )
    how = (
        f"One token’s KV takes {size(record.model.kv_bytes_per_token)} in this model; pools hold earlier "
        f"texts’ KV and offsets."
    )
    title, columns = "What does reuse keep in memory?", ("kind", "name", "tokens", "bytes")
    return FigureView("memory", title, how, finding, drawing, columns, tuple(rows))


def record_html(record: RunRecord) -> Markup:
    """Everything that identifies a run, as definition lists."""
    model, request, certificate = record.model, record.request, record.model.certificate
    looks = words.styles(record)
    layers = {
        k: sum(la.kind == k for la in certificate.layers)
        for k in dict.fromkeys(la.kind for la in certificate.layers)
    }
    parts: list[tuple[str, dict[str, Any]]] = [
        (
            "Run",
            {
                "id": record.id,
                "created": record.created,
                "wall time": words.milliseconds(record.wall_ms),
                "format": record.format,
            },
        ),
        (
            "Request",
            {
                "pipeline": request.pipeline.title,
                "mode": _mode(record),
                "expected answer": request.expected or words.NONE,
                **{f"value of {k}": words.clip(v, 400) for k, v in request.values.items()},
                "temperature": f"{number(request.decoding.temperature)}"
                f"{' (greedy)' if request.decoding.temperature == 0 else ''}",
                "top p": number(request.decoding.top_p),
                "seed": request.decoding.seed,
                "most new tokens": request.decoding.max_new_tokens,
            },
        ),
        ("Methods", {looks[m.label].name: _options(m.options) for m in request.methods}),
        (
            "Model",
            {
                "name": model.name,
                **({"source": model.source} if model.source else {}),
                "weights hash": model.weights_hash,
                "parameters": f"{model.parameters:,}",
                "shape": f"{model.layers} layers, {model.heads} heads, "
                f"{model.kv_heads} KV heads of {model.head_dim}, vocabulary {model.vocabulary:,}, "
                f"context {model.context_tokens:,} tokens",
                "runs on": f"{model.device}, {model.dtype}",
                "KV of a token": size(model.kv_bytes_per_token),
            },
        ),
        (
            "Certificate",
            {
                "reuse supported": f"{'yes' if certificate.relocatable else 'no'}. {certificate.reason}",
                "layers": words.listing(f"{n} {k}" for k, n in layers.items()) or words.NONE,
                "tested with a shift of": words.plural(certificate.shift_tokens, "token"),
                "worst key error when moved": number(
                    max((x.key_error for x in certificate.layers), default=0), 2
                ),
                "worst value change": number(max((x.value_error for x in certificate.layers), default=0), 2),
                "rounding noise of KV": number(certificate.floor, 2),
                "rounding noise of logits": number(certificate.logit_floor, 2),
            },
        ),
        ("Versions", dict(record.versions)),
    ]
    if record.notes:
        parts.append(("Notes", {str(i + 1): note for i, note in enumerate(record.notes)}))
    return render("run/record.html", parts=parts)


def _mode(record: RunRecord) -> str:
    return (
        "pinned: every method reads the full read’s texts"
        if record.request.mode == "pinned"
        else "free-running: every method reads its own texts"
    )


def _options(options: Mapping[str, Any]) -> str:
    if not options:
        return "default options"
    shown = {True: "yes", False: "no"}
    parts = (
        f"{key} {shown[value] if isinstance(value, bool) else value if value != '' else words.NONE}"
        for key, value in options.items()
    )
    return ", ".join(parts)
