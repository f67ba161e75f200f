"""The gate's verdict as a badge: an SVG to show, or the JSON that shields.io draws one from."""

from typing import Any

from backend.records.log_gate import GateRecord, Verdict
from viz.base.format import clip
from viz.base.html import render
from viz.base.theme import CSS_COLOURS, FONT

LETTER = 6.3  # pixels, of 11 px text on the average
COLOURS: dict[Verdict, str] = {
    "at most": CSS_COLOURS["good"][0],
    "not certain": CSS_COLOURS["bad"][0],
    "could not tell": CSS_COLOURS["muted"][0],
}


def badge(record: GateRecord) -> dict[str, Any]:
    """What shields.io's endpoint takes (https://shields.io/badges/endpoint-badge)."""
    verdict, request = record.verdict, record.request
    message: str = verdict
    if verdict == "at most":
        message = f"at most {record.limits[1]:.1%} of answers change"
    elif verdict == "not certain":
        message = f"{record.flips} of {len(record.read)} answers changed"
    return {
        "schemaVersion": 1, "label": f"KV reuse, {clip(request.method.label, 30)}", "message": message,
        "color": COLOURS[verdict].lstrip("#"),
    }  # fmt: skip


def badge_svg(record: GateRecord) -> str:
    """The same as a picture."""
    content = badge(record)
    left, right = (round(LETTER * len(content[name])) + 12 for name in ("label", "message"))
    return render(
        "logs/badge.svg", label=content["label"], message=content["message"], left=left, width=left + right,
        colour=f"#{content['color']}", font=FONT,
    )  # fmt: skip
