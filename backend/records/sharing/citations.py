"""BibTeX for a run: the lab, and the papers of the methods that it compared. Only what is known for sure is
filled in; a method of the lab's own cites the lab and the work that it builds on."""

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from backend import __version__

LAB = "kvreuselab"
FILE = Path(__file__).parents[3] / "presets" / "citations.bib"
#: Method -> keys. A method that is not here is the reference, or a control of the lab.
PAPERS: dict[str, tuple[str, ...]] = {
    "prefix": ("kwon2023vllm",),
    "naive": ("ye2025kvcomm", "liang2026judges"),
    "kvcomm": ("ye2025kvcomm",),
    "palkv": ("liang2026judges", "ye2025kvcomm"),
    "slotaligned": ("liang2026judges", "ye2025kvcomm"),
    "cacheblend": ("yao2025cacheblend",),
    "epic": ("hu2025epic",),
    "promptcache": ("gim2024promptcache",),
    "block_attention": ("sun2024block",),
    "kvlink": ("yang2025kvlink",),
    "segments": ("segments",),
    "prophetkv": ("wang2026prophetkv",),
    "ape": ("yang2025ape",),
    "relaycaching": ("geng2026relaycaching",),
    "droidspeak": ("liu2026droidspeak",),
    "lragent": ("jeon2026lragent",),
    "repair": ("liang2026judges",),
    "masked": ("liang2026judges",),
    "recompute_slots": ("liang2026judges",),
}


@functools.cache
def entries() -> Mapping[str, str]:
    """The papers' BibTeX by key, as it stands in ``presets/citations.bib``."""
    blocks = FILE.read_text(encoding="utf-8").strip().split("\n\n")
    return {re.match(r"@\w+\{(.+),", entry)[1]: entry for entry in blocks}  # type: ignore[index]


def citations(methods: Iterable[str]) -> str:
    """BibTeX of the lab and of the papers behind these methods, each once."""
    keys = dict.fromkeys(key for name in methods for key in PAPERS.get(name, ()))
    own = f"""@software{{{LAB},
  title = {{{{KV Reuse Lab}}}},
  version = {{{__version__}}},
  license = {{Apache-2.0}}
}}"""
    return "\n\n".join([own, *(entries()[key] for key in keys)]) + "\n"
