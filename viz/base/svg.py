"""Pieces of hand-drawn SVG pictures."""

import base64
import io
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from viz.base.html import html


def svg(inside: Markup) -> Markup:
    """A picture of 860 by 250 whose words are muted; screen readers have the sentence beside it instead."""
    return html(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 250" width="860" height="250" '
        'font-family="system-ui, sans-serif" font-size="13" style="fill:var(--kv-muted, #606a76)" '
        'aria-hidden="true">{}</svg>',
        inside,
    )


def svg_text(x: float, y: float, words: str, anchor: str = "start", muted: bool = False) -> Markup:
    """Words at a place, in the page's ink."""
    look = Markup() if anchor == "start" else html(' text-anchor="{}"', anchor)
    ink = Markup() if muted else Markup(' style="fill:var(--kv-ink, #1a1f26)"')
    return html('<text x="{}" y="{}"{}{}>{}</text>', round(x, 1), round(y, 1), look, ink, words)


def svg_box(x: float, y: float, width: float, height: float, fill: str, title: str = "") -> Markup:
    """A filled rectangle with its tooltip, if it has one."""
    tip = html("<title>{}</title>", title) if title else Markup()
    return html(
        '<rect x="{}" y="{}" width="{}" height="{}" rx="2" style="fill:{}">{}</rect>',
        *(round(v, 1) for v in (x, y, max(width, 0.5), height)), fill, tip,
    )  # fmt: skip


def svg_image(x: float, y: float, width: float, height: float, pixels: NDArray[np.uint8]) -> Markup:
    """(rows, columns, 3) bytes as sharp squares."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    content = base64.b64encode(buffer.getvalue()).decode()
    return html(
        '<image x="{}" y="{}" width="{}" height="{}" preserveAspectRatio="none" '
        'style="image-rendering:pixelated" href="data:image/png;base64,{}"/>',
        round(x, 1), round(y, 1), round(width, 1), round(height, 1), content,
    )  # fmt: skip


def blend(share: NDArray[np.float64], low: Sequence[int], high: Sequence[int]) -> NDArray[np.uint8]:
    """Colours between ``low`` (share 0) and ``high`` (share 1)."""
    start, end = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
    return np.asarray(np.rint(start + share[..., None] * (end - start)), dtype=np.uint8)
