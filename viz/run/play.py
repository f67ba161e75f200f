"""*Play it*: one text's keys and values on their way into another prompt, step by step, as SVG.

All is drawn from a run's record: :class:`backend.records.transfer.Transfer`, the mix, the fidelity. All steps
share the colour scales of keys and values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from backend.records.prompt import Prompt
from backend.records.run import Outcome, RunRecord
from backend.records.transfer import Transfer
from viz.base import format as words
from viz.base.figure import Panel
from viz.base.html import html, joined, render
from viz.base.svg import blend, svg, svg_box, svg_image, svg_text

KEY, TITLE = "play", "How did one text’s keys and values get into this prompt?"
LOW, MIDDLE, HIGH = (43, 108, 184), (246, 247, 248), (221, 116, 32)  # of a number below, at and above zero
WORST = (165, 38, 59)  # of an error of 1 or more
MOST_ANCHORS = 6


@dataclass(frozen=True)
class PlayStep:
    """One picture with its words. ``name``: of its button."""

    name: str
    sentence: Markup
    picture: Markup


@dataclass(frozen=True)
class _Scene:
    """The data of all steps."""

    record: RunRecord
    outcome: Outcome
    transfer: Transfer
    prompt: Prompt

    @property
    def text(self) -> str:
        return words.clip("".join(self.prompt.texts[self.transfer.start : self.transfer.end]).strip(), 60)

    @property
    def tokens(self) -> tuple[str, ...]:
        count = self.transfer.keys.shape[1]
        return tuple(
            words.clip(words.token_name(t), 12)
            for t in self.prompt.texts[self.transfer.start : self.transfer.start + count]
        )

    @property
    def peak(self) -> tuple[float, float]:
        """The largest key and value, of the full read."""
        arrays = (self.transfer.keys[2], self.transfer.values[1])
        return float(np.abs(arrays[0]).max()) or 1.0, float(np.abs(arrays[1]).max()) or 1.0

    @property
    def head(self) -> str:
        return f"layer {self.transfer.layer + 1}, head {self.transfer.head + 1}"


def play_panel(record: RunRecord, agent: int, method: str, span: str | None = None, at: int = 0) -> Panel:
    """The steps of one text, or why there are none.

    Args:
        record: the run.
        agent: whose prompt; another agent's if this one copied nothing.
        method: the label; another's if this one copied nothing.
        span: the text's segment; by default the one with the largest error.
        at: the step shown first, from 0.
    """
    scene = _scene(record, agent, method, span)
    if scene is None:
        reason = (
            "Keys and values can be compared only where every method reads the same texts. Run with the full "
            "read’s texts (pinned) to see it."
            if record.request.mode == "free"
            else "No text was copied in this run, or an earlier version recorded it: run it again."
        )
        return Panel(KEY, TITLE, html('<p class="kv-note">{}</p>', reason))
    content = render("run/play.html", about=_about(scene), steps=play_steps(scene), at=at)
    return Panel(KEY, TITLE, content)


def _scene(record: RunRecord, agent: int, method: str, span: str | None) -> _Scene | None:
    outcomes = [o for o in record.outcomes if o.transfers]
    if not outcomes:
        return None
    outcome = min(outcomes, key=lambda o: (o.agent != agent, o.method != method, -o.agent))
    prompt = words.prompt_of(record, outcome)
    segment = next((s for s in prompt.spans if s.name == span), None)
    inside = [t for t in outcome.transfers if segment and segment.start <= t.start < segment.end]
    transfer = (inside or sorted(outcome.transfers, key=lambda t: -float(t.missing_keys.mean())))[0]
    return _Scene(record, outcome, transfer, prompt)


def play_steps(scene: _Scene) -> tuple[PlayStep, ...]:
    """The pictures in order; the last one only where the answer changed."""
    facts = scene.outcome.fidelity
    steps = [_reading(scene), _copy(scene), _turn(scene), _offset(scene), _mix(scene), _error(scene)]
    return (*steps, *([_next_token(scene)] if facts and facts.likely else []))


def _about(scene: _Scene) -> Markup:
    pipeline = scene.record.request.pipeline
    place = words.span_at(scene.prompt, scene.transfer.start)
    return html(
        "<b>{}</b> in the prompt of {}, under {}: {}",
        words.segment_words(pipeline, place.name) if place else "A text",
        words.agent_name(pipeline, scene.outcome.agent),
        words.styles(scene.record)[scene.outcome.method].name,
        f"“{scene.text}”",
    )


# ---- the steps -----------------------------------------------------------------------------------


def _reading(scene: _Scene) -> PlayStep:
    t = scene.transfer
    source = next((s.source for s in scene.outcome.spans if s.start <= t.start < s.end), "")
    note = html(
        "The text was first read at position {} ({}). Every token left a key and a value in every layer. "
        "Here are those of {}: a row is a token, a column a number; blue is negative, orange positive.",
        t.first_position, source or "earlier", scene.head,
    )  # fmt: skip
    drawing = joined([_prompt_bar(scene, first=True), _pair(scene, t.keys[0], t.values[0])])
    return PlayStep("Read once", note, svg(drawing))


def _copy(scene: _Scene) -> PlayStep:
    t = scene.transfer
    note = html(
        "Now it stands at position {} of another prompt, behind other words. The copy takes the keys and "
        "values as they are; nothing is computed.",
        t.start,
    )
    drawing = joined([_prompt_bar(scene, first=False), _pair(scene, t.keys[0], t.values[0])])
    return PlayStep("Copied", note, svg(drawing))


def _turn(scene: _Scene) -> PlayStep:
    t = scene.transfer
    shift = t.start - t.first_position
    if not len(t.angles) or not shift:
        note = html("The text stands where it stood before, so its keys need not be turned.")
        if not len(t.angles):
            note = html("The keys of this layer hold no position, so there is nothing to turn.")
        return PlayStep("Keys moved", note, svg(_pair(scene, t.keys[1], t.values[0])))
    note = html(
        "A key holds its position as a rotation (RoPE). For {} positions {} each pair of numbers turns by "
        "its own angle, from {}° down to {}°. Values hold no position.{}",
        abs(shift), "more" if shift > 0 else "less", *_degrees(t.angles),
        "" if t.moved_by else " This method leaves the keys as they were: step 6 shows what that costs.",
    )  # fmt: skip
    return PlayStep("Keys moved", note, svg(joined([_dials(t.angles), _pair(scene, t.keys[1], t.values[0])])))


def _offset(scene: _Scene) -> PlayStep:
    t = scene.transfer
    note = html(
        "The full read has other keys and values here, because it saw the words in front. What the copy "
        "lacks (the offset) is {} of a key’s length and {} of a value’s in this head, over the whole text. "
        "The small maps show every layer (row) and head (column).",
        _share(t.missing_keys[t.layer, t.head]), _share(t.missing_values[t.layer, t.head]),
    )  # fmt: skip
    return PlayStep("What it lacks", note, svg(_differences(scene, 1, 0, t.missing_keys, t.missing_values)))


def _mix(scene: _Scene) -> PlayStep:
    t = scene.transfer
    mix = next((m for m in scene.outcome.mixes if m.start <= t.start < m.end), None)
    if mix is None:
        recomputed = int(np.isin(scene.outcome.actions[:, t.start : t.end], (0, 3)).all(axis=0).sum())
        note = (
            html("This method computes {} of the text again.", words.plural(recomputed, "token"))
            if recomputed
            else html("This method adds nothing: the agent reads the copy as it is.")
        )
        return PlayStep("Correction", note, svg(_pair(scene, t.keys[3], t.values[2])))
    keys, values = mix.keys_by_token.mean(axis=1), mix.values_by_token.mean(axis=1)
    previews = {
        number: text
        for gate in scene.outcome.gate
        for number, text in zip(gate.anchors, gate.previews, strict=False)
    }
    order = np.argsort(-keys)[:MOST_ANCHORS]
    bars = [
        (previews.get(mix.anchors[i], f"anchor {mix.anchors[i]}"), float(keys[i]), float(values[i]))
        for i in order
    ]
    note = html(
        "The lab read {} before, in the same place and in full, and kept what their copies lacked. Their "
        "offsets are mixed, the more similar text counting more, and added. The heaviest has {} of the mix.",
        words.plural(len(mix.anchors), "similar text"), _share(float(keys.max())),
    )  # fmt: skip
    return PlayStep("Correction", note, svg(_bars(bars, ("keys", "values"))))


def _error(scene: _Scene) -> PlayStep:
    t = scene.transfer
    note = html(
        "This is what the full read has and the agent did not: keys are off by {} now (the bare copy: {}), "
        "values by {} (the bare copy: {}). Over all heads: keys {}, values {}.",
        _share(t.left_keys[t.layer, t.head]), _share(t.missing_keys[t.layer, t.head]),
        _share(t.left_values[t.layer, t.head]), _share(t.missing_values[t.layer, t.head]),
        _share(float(t.left_keys.mean())), _share(float(t.left_values.mean())),
    )  # fmt: skip
    return PlayStep("What remains", note, svg(_differences(scene, 3, 2, t.left_keys, t.left_values)))


def _next_token(scene: _Scene) -> PlayStep:
    facts = scene.outcome.fidelity
    assert facts is not None
    assert facts.first_divergence is not None
    bars = [
        (words.token_name(token), full, own)
        for token, full, own in zip(facts.likely, facts.dense_chances, facts.method_chances, strict=True)
    ]
    name = words.styles(scene.record)[scene.outcome.method].name
    place = f"Both answers begin alike. At token {facts.first_divergence + 1}"
    note = html(
        "{} the full read writes {}, {} writes {}. These are the probabilities of the likeliest tokens.",
        place if facts.first_divergence else "At the first token",
        words.token_name(facts.dense_token), name, words.token_name(facts.method_token),
    )  # fmt: skip
    return PlayStep("The answer", note, svg(_bars(bars, ("full read", words.clip(name, 30)))))


# ---- parts of the pictures ----------------------------------------------------------------------


def _signed(values: NDArray[np.floating], peak: float) -> NDArray[np.uint8]:
    share = np.clip(np.asarray(values, dtype=np.float64) / peak, -1, 1)
    return np.where((share < 0)[..., None], blend(-share, MIDDLE, LOW), blend(share, MIDDLE, HIGH))


def _pair(
    scene: _Scene,
    keys: NDArray[np.floating],
    values: NDArray[np.floating],
    names: tuple[str, str] = ("keys", "values"),
) -> Markup:
    """A key and a value image side by side, with the tokens' names."""
    row = 144 / max(1, len(scene.tokens))
    labels = [svg_text(112, 84 + row * (i + 0.72), t, "end", muted=True) for i, t in enumerate(scene.tokens)]
    key_peak, value_peak = scene.peak
    total = scene.transfer.end - scene.transfer.start
    more = f"the first {len(scene.tokens)} of {total} tokens" if total > len(scene.tokens) else ""
    return joined(
        [
            *labels,
            svg_text(120, 76, f"{names[0]}, {scene.head}"),
            svg_image(120, 84, 256, 144, _signed(keys, key_peak)),
            svg_text(396, 76, names[1]),
            svg_image(396, 84, 256, 144, _signed(values, value_peak)),
            svg_text(120, 244, more, muted=True),
        ]
    )


def _differences(
    scene: _Scene, key: int, value: int, keys: NDArray[np.float32], values: NDArray[np.float32]
) -> Markup:
    """The difference of one stage from the full read, and the maps of all layers and heads."""
    t = scene.transfer
    arrays = (t.keys.astype(np.float32), t.values.astype(np.float32))
    return joined(
        [
            _pair(
                scene, arrays[0][2] - arrays[0][key], arrays[1][1] - arrays[1][value],
                ("full read less this: keys", "values"),
            ),
            svg_text(672, 52, "relative error, 0 to 100%", muted=True),
            _map(672, 84, "keys", keys, (t.layer, t.head)),
            _map(768, 84, "values", values, (t.layer, t.head)),
        ]
    )  # fmt: skip


def _map(x: float, y: float, name: str, errors: NDArray[np.float32], marked: tuple[int, int]) -> Markup:
    """(layers, heads) errors; the first layer on top. Full colour: off by its own length or more."""
    layers, heads = errors.shape
    cell = min(144 / layers, 88 / heads)
    share = np.clip(errors.astype(np.float64), 0, 1)
    ring = html(
        '<rect x="{}" y="{}" width="{}" height="{}" style="fill:none;stroke-width:1.5;stroke:#1a1f26"/>',
        *(round(v, 1) for v in (x + marked[1] * cell, y + marked[0] * cell, cell, cell)),
    )
    colours = blend(share, MIDDLE, WORST)
    return joined([svg_text(x, y - 8, name), svg_image(x, y, cell * heads, cell * layers, colours), ring])


def _prompt_bar(scene: _Scene, first: bool) -> Markup:
    """The prompt as a bar, with the text's place in it."""
    t = scene.transfer
    start = t.first_position if first else t.start
    length = t.end - t.start
    total = len(scene.prompt.texts)
    scale = 532 / max(total, t.first_position + length)
    end = start + length if first else total
    name = "its first prompt" if first else "this prompt"
    return joined(
        [
            svg_text(112, 34, name, "end", muted=True),
            svg_box(120, 20, end * scale, 20, "var(--kv-line-strong, #b9c0c9)"),
            svg_box(
                120 + start * scale,
                20,
                length * scale,
                20,
                "#2b6cb8",
                f"from {start} to {start + length}",
            ),
            svg_text(120 + start * scale, 56, str(start), "middle", muted=True),
        ]
    )


def _dials(angles: NDArray[np.float32]) -> Markup:
    """How far each pair of channels turns: a hand for before (up) and one for after."""
    pieces, gap = [svg_text(112, 34, "turned by", "end", muted=True)], 532 / max(1, len(angles))
    for index, angle in enumerate(angles):
        x, y = 120 + gap * (index + 0.5), 30
        tip = (x + 12 * math.sin(float(angle)), y - 12 * math.cos(float(angle)))
        pieces.append(
            html(
                '<circle cx="{0}" cy="{1}" r="13" style="fill:none;stroke:var(--kv-line-strong, #b9c0c9)"/>'
                '<path d="M{0} {1}V{2}" style="stroke:var(--kv-muted, #606a76)"/>'
                '<path d="M{0} {1}L{3} {4}" style="stroke:#dd7420;stroke-width:2.5"/>',
                round(x, 1), y, y - 12, round(tip[0], 1), round(tip[1], 1),
            )
        )  # fmt: skip
    return joined(pieces)


def _bars(rows: Sequence[tuple[str, float, float]], names: tuple[str, str]) -> Markup:
    """Pairs of bars from 0 to 1, one pair a row."""
    colours = ("#5b6773", "#dd7420")
    pieces = [
        joined([svg_box(330 + 110 * i, 6, 12, 12, colours[i]), svg_text(348 + 110 * i, 17, name)])
        for i, name in enumerate(names)
    ]
    for index, (name, *shares) in enumerate(rows):
        y = 30 + index * 36
        pieces.append(svg_text(322, y + 19, words.clip(name, 42), "end"))
        for line, share in enumerate(shares):
            pieces.append(svg_box(330, y + 14 * line, 440 * share, 12, colours[line]))
            pieces.append(svg_text(336 + 440 * share, y + 11 + 14 * line, words.number(share, 2), muted=True))
    return joined(pieces)


def _share(error: float) -> str:
    return f"{100 * float(error):.0f}%"


def _degrees(angles: NDArray[np.float32]) -> tuple[str, str]:
    turned = np.abs(np.degrees(angles.astype(np.float64)))
    return words.number(float(turned.max()), 3), words.number(float(turned.min()), 2)
