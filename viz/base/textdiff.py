"""One text against another, token by token, as HTML."""

from collections.abc import Sequence
from difflib import SequenceMatcher

from markupsafe import Markup, escape

MAX_TOKENS = 4000
DELETED = Markup('<del class="kv-del" title="only in the full read">{}</del>')
INSERTED = Markup('<ins class="kv-ins{}" title="not in the full read">{}</ins>')


def diff_html(reference: Sequence[str], tokens: Sequence[str], start: int | None = None) -> Markup:
    """``tokens`` with what differs from ``reference`` marked.

    Insertions become ``<ins>``, left-out tokens ``<del>``; both differ in underline and in background.
    ``start`` marks the first different token.
    """
    if list(reference) == list(tokens) or max(len(reference), len(tokens)) > MAX_TOKENS:
        return plain_html(tokens)
    out: list[Markup] = []
    matcher = SequenceMatcher(None, list(reference), list(tokens), autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            out.append(plain_html(tokens[c:d]))
            continue
        if b > a:
            out.append(DELETED.format(_visible_text(reference[a:b])))
        if d > c:
            first = " kv-first" if start is not None and c <= start < d else ""
            out.append(INSERTED.format(first, _visible_text(tokens[c:d])))
    return Markup().join(out)


def plain_html(tokens: Sequence[str]) -> Markup:
    """Tokens as escaped text."""
    return escape("".join(tokens))


def _visible_text(tokens: Sequence[str]) -> str:
    text = "".join(tokens)
    return text if text.strip() else text.replace("\n", "↵\n").replace(" ", "␣") or "∅"
