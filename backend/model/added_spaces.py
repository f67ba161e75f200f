"""A tokenizer that adds and drops nothing at the ends of a text.

SentencePiece-style tokenizers put a space before every text, and some drop white space at its ends. For a
segment of a prompt both are wrong: the model would read a different prompt.
"""

import copy
import json
from typing import Any

from tokenizers import Tokenizer

DROPPED = ("Prepend", "Strip", "WhitespaceSplit")
#: Replaces WhitespaceSplit, which also drops white space at the ends: runs of it become one space.
ONE_SPACE = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
LISTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


def without_added_spaces(tokenizer: Any) -> Any:
    """A tokenizer that encodes and decodes a text as part of a longer one.

    Args:
        tokenizer: of transformers. One without the ``tokenizers`` library as its backend is returned as it
        is.

    Returns:
        A changed copy, or the tokenizer itself if it adds and drops nothing.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return tokenizer
    state = json.loads(backend.to_str())
    original = json.dumps(state)
    splits = _has(state["pre_tokenizer"], "WhitespaceSplit") and _has(state["pre_tokenizer"], "Metaspace")
    for name in LISTS:
        # Without it, words that only white space separates would be joined.
        exceptions = () if splits or name != "pre_tokenizer" else ("WhitespaceSplit",)
        state[name] = _plain(state[name], LISTS[name], exceptions)
    if splits:
        parts = [ONE_SPACE] if state["normalizer"] is None else [state["normalizer"], ONE_SPACE]
        state["normalizer"] = {"type": "Sequence", "normalizers": parts}
    if json.dumps(state) == original:
        return tokenizer
    # Only the components are replaced; the vocabulary need not be read again.
    state["model"], state["added_tokens"], state["post_processor"] = _NO_MODEL, [], None
    plain, result = Tokenizer.from_str(json.dumps(state)), copy.deepcopy(tokenizer)
    for name in LISTS:
        setattr(result.backend_tokenizer, name, getattr(plain, name))
    return result


_NO_MODEL = {"type": "WordLevel", "vocab": {"": 0}, "unk_token": ""}


def _has(part: dict[str, Any] | None, kind: str) -> bool:
    if part is None:
        return False
    return part["type"] == kind or any(_has(x, kind) for x in part.get("pretokenizers", ()))


def _plain(part: dict[str, Any] | None, parts: str, exceptions: tuple[str, ...]) -> dict[str, Any] | None:
    """A component without the steps that change the ends of a text; None if no step remains."""
    if part is None or (part["type"] in DROPPED and part["type"] not in exceptions):
        return None
    if part["type"] == "Sequence":
        children = [x for x in (_plain(child, parts, exceptions) for child in part[parts]) if x is not None]
        return {**part, parts: children} if children else None
    if part["type"] == "Metaspace":
        return {**part, "prepend_scheme": "never"}
    if part["type"] == "ByteLevel" and parts == "pretokenizers":
        return {**part, "add_prefix_space": False}
    return part
