"""How a result shows itself in a notebook."""

from __future__ import annotations

from markupsafe import Markup

HEIGHT = 720  # pixels


def framed(document: str, title: str) -> str:
    """A whole HTML document as one cell's output. Its frame keeps styles and scripts of the notebook and
    of the document apart, and lets the document reach nothing outside."""
    return Markup(
        '<iframe sandbox="allow-scripts" title="{}" srcdoc="{}" style="width:100%;height:{}px;border:0">'
        "</iframe>"
    ).format(title, document, HEIGHT)
