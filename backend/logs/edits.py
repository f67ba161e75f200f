"""What changed between two versions of a text, in words: a time stamp, an id, a counter, an edit ..."""

import re
import unicodedata
from difflib import SequenceMatcher

WHITE, CASE, FORM = "white space", "letter case", "form of characters"
LINES, WORDS, KEYS = "order of lines", "order of words", "order of keys"
STAMP, DATE, UUID, ID = "time stamp", "date", "uuid", "id"
ADDRESS, PATH, COUNTER, NUMBER = "address", "path", "counter", "number"
EDITED = "paragraph edited"

_DAY = r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?(?:Z|\s?[+-]\d{2}:?\d{2})?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_DAY_IN_MONTH = rf"{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s\d{{4}})?"
_WEEKDAY = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?\b,?"
_MONTH_DAY = rf"(?:{_WEEKDAY}\s)?(?:{_DAY_IN_MONTH}|\d{{1,2}}\.?\s{_MONTH}(?:\s\d{{4}})?)"
_EPOCH = r"\b1[4-9]\d{8}(?:\d{3}|\d{6})?(?:\.\d+)?\b"
_HOST = r"\d{1,3}(?:\.\d{1,3}){3}"
#: Kinds of what changes, the most special first: with all of a kind masked, both texts have to agree.
CLASSES = [
    (kind, re.compile(pattern))
    for kind, pattern in (
        (UUID, r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"),
        (STAMP, rf"(?:(?:{_DAY}|{_MONTH_DAY}),?(?:T|\s(?:at\s)?)?)?{_CLOCK}|{_EPOCH}"),
        (DATE, rf"\b(?:{_DAY}|{_MONTH_DAY}|{_WEEKDAY}|{_MONTH}\s\d{{4}})"),
        (ADDRESS, rf"\b[a-z][a-z+.-]*://[^\s\"'<>)]+|\b(?:localhost|{_HOST}):\d+|\b{_HOST}\b"),
        (PATH, r"(?:[A-Za-z]:\\|~?/|\.{1,2}/|\b[\w.-]+/)[\w.@+-]*(?:[/\\][\w.@+-]+)*"),
        (ID, r"\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])\w[\w-]{5,}\b|\b[0-9a-fA-F]{7,}\b"),
        (NUMBER, r"[-+]?\d[\d,]*(?:\.\d+)?%?"),
    )
]  # fmt: skip
_COUNTED = re.compile(
    r"(?:step|turn|iteration|attempt|round|call|message|page|retry|try|request|no|number|index|count|tick|n|#)"
    r"\W{0,3}$",
    re.IGNORECASE,
)
_LONGEST = 600  # words of a text that are aligned
ALIKE = 0.4  # share of words that two versions of one text have in common at the least


def edit(before: str, after: str) -> str | None:
    """What makes ``after`` of ``before``; None where they are two different texts."""
    if before.split() == after.split() or "".join(before.split()) == "".join(after.split()):
        return WHITE
    if before.casefold() == after.casefold():
        return CASE
    if _plain(before) == _plain(after):
        return FORM
    for kind, parts in ((LINES, str.splitlines), (KEYS, _keyed), (WORDS, str.split)):
        old, new = (sorted(filter(None, map(str.strip, parts(t)))) for t in (before, after))
        if old and old == new:
            return kind
    line = _first_line(before, after)
    if change := volatile(before, after) or volatile(*line):
        return change
    one, other = before.split()[:_LONGEST], after.split()[:_LONGEST]
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    if matcher.ratio() < ALIKE:
        return None
    tag, i1, i2, j1, j2 = next(op for op in [*matcher.get_opcodes(), ("end", 0, 0, 0, 0)] if op[0] != "equal")
    if tag == "replace":
        return (
            volatile(" ".join(one[max(0, i1 - 3) : i2 + 2]), " ".join(other[max(0, j1 - 3) : j2 + 2]))
            or EDITED
        )
    return EDITED


def volatile(before: str, after: str) -> str | None:
    """The kind of what changed, if nothing else did."""
    for kind, pattern in CLASSES:
        if pattern.sub("\x00", before) == pattern.sub("\x00", after):
            if kind is not NUMBER:
                return kind
            changed = zip(pattern.finditer(before), pattern.finditer(after), strict=True)
            one, other = next((a, b) for a, b in changed if a.group() != b.group())
            return COUNTER if _counts(one, other, before) else NUMBER
    return None


def _counts(one: re.Match[str], other: re.Match[str], text: str) -> bool:
    if not (one.group().isdecimal() and other.group().isdecimal()) or len(one.group()) > 15:
        return False
    near = abs(int(one.group()) - int(other.group())) <= 3
    return near or bool(_COUNTED.search(text[max(0, one.start() - 20) : one.start()]))


def _plain(text: str) -> str:
    """Without differences of form: quotes, dashes, composed letters."""
    text = unicodedata.normalize("NFKC", text)
    return re.sub(
        "[\u2010-\u2015\u2212]", "-", re.sub("[\u2018-\u201b]", "'", re.sub("[\u201c-\u201f]", '"', text))
    )


def _keyed(text: str) -> list[str]:
    """A text with an object in it as its words, however they are ordered."""
    return re.findall(r"[\w.-]+|[^\w\s,]", text) if "{" in text and ":" in text else []


def _first_line(before: str, after: str) -> tuple[str, str]:
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    return next(((a, b) for a, b in pairs if a != b), ("", after))
