"""The palette and the type scale, as CSS variables and as Plotly layout.

Action and method colours mean the same on every page. Figures use one set of mid tones for light and dark
pages; HTML has a value for each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Font of figures and pages.
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

#: name -> (light, dark). The CSS variable is ``--kv-<name>``.
CSS_COLOURS: dict[str, tuple[str, str]] = {
    # surfaces and ink
    "page": ("#f6f7f8", "#101317"),
    "surface": ("#ffffff", "#171b20"),
    "raised": ("#fbfbfc", "#1c2127"),
    "soft": ("#f1f3f5", "#20262d"),
    "line": ("#dde1e6", "#2d343c"),
    "line-strong": ("#b9c0c9", "#46505b"),
    "ink": ("#1a1f26", "#e6e9ed"),
    "ink-2": ("#454e59", "#b9c1ca"),
    "muted": ("#606a76", "#929daa"),
    "accent": ("#1f5fa8", "#7db4f2"),
    # what happened to a token
    "computed": ("#a3abb5", "#68727e"),
    "reused": ("#2b6cb8", "#5496e3"),
    "corrected": ("#2fa897", "#3fc4b0"),
    "recomputed": ("#dd7420", "#f0954a"),
    "outline": ("#14181d", "#f4f6f8"),
    # what happened to the outcome
    "good": ("#1b6e4f", "#6fd0a5"),
    "good-soft": ("#e4f3ec", "#173129"),
    "bad": ("#a5263b", "#ff97a5"),
    "bad-soft": ("#fbe9eb", "#3b1b21"),
    "unsure": ("#7d5700", "#e7bd62"),
    "unsure-soft": ("#faf1dc", "#342a14"),
    # methods, in fixed order
    "method-0": ("#3c4550", "#c3cad2"),
    "method-1": ("#b93a62", "#f088a6"),
    "method-2": ("#6546b8", "#a990f3"),
    "method-3": ("#8f6a00", "#dcb347"),
    "method-4": ("#37763d", "#7fc183"),
    "method-5": ("#84543f", "#d09c85"),
    "method-6": ("#1d6f87", "#6cbcd6"),
    # placeholders, in order of appearance
    "slot-0": ("#8a6a12", "#d9b75b"),
    "slot-1": ("#8d4585", "#d995d0"),
    "slot-2": ("#566f1f", "#a9c56a"),
    "slot-3": ("#9a4f35", "#e09a80"),
    "slot-4": ("#3e6590", "#93b9e0"),
    "slot-5": ("#1f7474", "#74c4c2"),
}

#: Mid tones for figures: at least 3:1 against both page colours.
ACTION_COLOURS = ("#8b95a1", "#3f80cf", "#2aa391", "#dd7a28")
METHOD_COLOURS = ("#7d8793", "#d4547d", "#8a6fdc", "#b08a1a", "#4f9c57", "#a8735b", "#3393b0")
SLOT_COLOURS = ("#b0892a", "#b665ac", "#7b9a38", "#c06f52", "#5d8bbd", "#329a99")
OUTLINE_COLOUR = "#7d8793"

METHOD_ORDER = ("dense", "naive", "kvcomm")
METHOD_NAMES = {
    "dense": "Full read",
    "naive": "Copy and reposition",
    "kvcomm": "KVCOMM",
    "palkv": "PAL-KV",
    "slotaligned": "Slot-aligned",
    "prefix": "Prefix cache",
    "prefix_cache": "Prefix cache",
    "oracle": "True offsets",
    "cacheblend": "CacheBlend",
    "epic": "EPIC",
    "segments": "Segment reuse",
    "prophetkv": "ProphetKV",
    "query_norm": "Query norm",
    "random_k": "Random tokens",
    "oracle_k": "Largest true error",
    "promptcache": "PromptCache",
    "block_attention": "Block-Attention",
    "kvlink": "KVLink",
    "kvpacket": "KV Packet",
    "ape": "APE",
    "relaycaching": "RelayCaching",
    "droidspeak": "DroidSpeak",
    "lragent": "LRAgent",
    "repair": "Repair",
    "composed": "Composition",
    "masked": "Masked candidates",
    "recompute_slots": "Recompute chosen candidates",
}
DASHES = ("solid", "solid", "dash", "dot", "dashdot", "longdash", "solid")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star")

#: Parts of the time to first token: key of ``Timing.parts_ms`` -> (words, figure colour, pattern).
TIME_PARTS: dict[str, tuple[str, str, str]] = {
    "base": ("encode missing segments", "#c2a24c", ""),
    "gate": ("gate", "#b97ab0", ""),
    "match": ("match anchors", "#8d76c4", ""),
    "correct": ("correct", ACTION_COLOURS[2], "/"),
    "rotate": ("move keys", ACTION_COLOURS[1], ""),
    "prefill": ("prefill", ACTION_COLOURS[0], ""),
    "select": ("choose tokens", "#d98cb3", ""),
    "recompute": ("compute them again", ACTION_COLOURS[3], "."),
    "first_token": ("last token's forward", "#5f6a77", "x"),
    "accept": ("probe the result", "#7d8f4e", ""),
    "fallback": ("fall back to the full read", "#a8735b", "\\"),
}

DIVERGING = "PRGn"
MAGNITUDE = "Viridis"


def _mode(ink: str, muted: str, grid: str, line: str, hover: str) -> dict[str, Any]:
    axis = {
        "gridcolor": grid,
        "linecolor": line,
        "zerolinecolor": line,
        "tickcolor": line,
        "tickfont": {"color": muted},
        "title": {"font": {"color": muted}},
    }
    return {
        "font": {"color": ink},
        "xaxis": axis,
        "yaxis": axis,
        "legend": {"font": {"color": ink}},
        "hoverlabel": {"bgcolor": hover, "bordercolor": line, "font": {"color": ink}},
    }


#: Layout overrides for each page colour. Apply ``xaxis``/``yaxis`` to every axis of a figure.
PLOTLY_LIGHT: dict[str, Any] = _mode("#1a1f26", "#606a76", "#e8ebee", "#b9c0c9", "#ffffff")
PLOTLY_DARK: dict[str, Any] = _mode("#e6e9ed", "#929daa", "#272d34", "#46505b", "#20262d")


@dataclass(frozen=True)
class MethodStyle:
    """How one method looks everywhere."""

    label: str
    name: str  # for a person
    index: int  # of --kv-method-<index>
    colour: str  # in figures
    dash: str
    symbol: str


#: Switched alignment steps in words, for the labels of ablations.
STEP_NAMES = {"rotate": "moving", "placeholder_offset": "text offsets", "prefix_offset": "template offsets"}


def shown_name(label: str, kind: str) -> str:
    """What a page calls a method: a registry name, a further column of it (``kvcomm 2``), or an ablation's
    label (``kvcomm without rotate``), in words; any other label as it is."""
    if label == kind:
        return METHOD_NAMES.get(kind, label)
    if label.removeprefix(f"{kind} ").isdecimal():  # one more column of it
        return f"{METHOD_NAMES.get(kind, kind)} {label.removeprefix(kind).strip()}"
    for link in ("without", "only"):
        step = label.removeprefix(f"{kind} {link} ")
        if step != label and step in STEP_NAMES:
            return f"{METHOD_NAMES.get(kind, kind)} {link} {STEP_NAMES[step]}"
    return label


def method_styles(labels: Sequence[str], names: Mapping[str, str] | None = None) -> dict[str, MethodStyle]:
    """A fixed look for each method label; ``names`` maps a label to its method's registry name.

    Dense, naive and KVCOMM always keep theirs; others follow in order.
    """
    indices: set[int] = set()
    out: dict[str, MethodStyle] = {}
    for label in labels:
        kind = (names or {}).get(label, label)
        place = METHOD_ORDER.index(kind) if kind in METHOD_ORDER else len(METHOD_ORDER)
        if place in indices:
            place = len(METHOD_ORDER)
        choices = [i for i in range(place, len(METHOD_COLOURS)) if i not in indices]
        index = choices[0] if choices else place % len(METHOD_COLOURS)
        indices.add(index)
        name = shown_name(label, kind)
        out[label] = MethodStyle(label, name, index, METHOD_COLOURS[index], DASHES[index], SYMBOLS[index])
    return out


def base_layout(height: int = 320, **changes: Any) -> dict[str, Any]:
    """Layout shared by all figures: transparent, compact, no title, mid-tone lines and text.

    ``changes`` are layout entries; dictionaries are merged one level deep.
    """
    axis = {
        "showline": True,
        "linewidth": 1,
        "linecolor": "#8b95a1",
        "gridcolor": "rgba(139,149,161,0.22)",
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": "#8b95a1",
        "tickfont": {"size": 12},
        "title": {"font": {"size": 12}, "standoff": 8},
        "automargin": True,
    }
    layout: dict[str, Any] = {
        "template": {"layout": {"xaxis": axis, "yaxis": axis}},
        "height": height,
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 16, "t": 28, "b": 44},
        "font": {"family": FONT, "size": 12, "color": "#76808c"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "hoverlabel": {"font": {"family": FONT, "size": 12}, "align": "left"},
        "hovermode": "closest",
        "bargap": 0.32,
        "modebar": {"bgcolor": "rgba(0,0,0,0)"},
    }
    for key, value in changes.items():
        layout[key] = layout[key] | value if isinstance(value, dict) and key in layout else value
    return layout


def css_variables() -> str:
    """``:root`` and ``.dark`` blocks with every colour and the type scale."""
    light = "".join(f"--kv-{name}:{pair[0]};" for name, pair in CSS_COLOURS.items())
    dark = "".join(f"--kv-{name}:{pair[1]};" for name, pair in CSS_COLOURS.items())
    scale = (
        f"--kv-font:{FONT};--kv-mono:{MONO};"
        "--kv-text-s:12px;--kv-text-m:13.5px;--kv-text-l:16px;--kv-text-xl:21px;"
        "--kv-radius:6px;"
    )
    return f":root{{{scale}{light}color-scheme:light}}\n.dark{{{dark}color-scheme:dark}}\n"


def stylesheet() -> str:
    """Everything the HTML views need: the variables, ``style.css`` and the strip's text colouring."""
    return (
        css_variables() + (Path(__file__).parent / "style.css").read_text(encoding="utf-8") + _reading_rules()
    )


def _reading_rules() -> str:
    """Rules that colour a prompt's text like the lane, one of eight, whose radio button is on."""
    marks = {1: ("reused", "solid"), 2: ("corrected", "dashed"), 3: ("recomputed", "double")}
    rules = []
    for code, (name, line) in marks.items():
        selector = ",".join(f'.kv-reading:has([data-lane="{i}"]:checked) .l{i}a{code}' for i in range(8))
        width = "3px" if line == "double" else "2px"
        rules.append(
            f"{selector}{{background:color-mix(in srgb,var(--kv-{name}) 15%,transparent);"
            f"border-bottom:{width} {line} var(--kv-{name})}}"
        )
    return "\n".join(rules) + "\n"


def script() -> str:
    """The small scripts behind tooltips, selection and jumps, pictures in steps, and figures' colours."""
    scripts = ("view.js", "steps.js", "themed.js")
    return "".join((Path(__file__).parent / name).read_text(encoding="utf-8") for name in scripts)
