"""A local text collection, and BM25 over it.

A collection is a list of passages. A file whose name ends in ``.jsonl`` holds one object with ``title``,
``text`` and perhaps ``value`` a line; any other file is plain text with an empty line between passages, where
a passage's first line is its title if more lines follow.

Ranking is Okapi BM25 (Robertson and Zaragoza 2009) over the words of title and text, without stemming::

    score(q, d) = sum over words w of q of  idf(w) * f (k1 + 1) / (f + k1 (1 - b + b |d| / mean |d|))
    idf(w) = ln(1 + (N - n + 0.5) / (n + 0.5))

with f the count of w in d, n the passages that hold w, N all passages. Two rules make it fit for a tool: a
passage whose title is the query comes first, and a word that stands in more than half of the passages (and in
more than one) says nothing and is left out, so that "the price of dragons" finds nothing where every passage
has a price. Of equal scores the earlier passage wins: the order is the same on every machine.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from backend.base.errors import PromptError
from backend.base.text import show

MAX_BYTES = 20 * 2**20
MAX_PASSAGES = 50_000
MAX_TITLE = 200  # characters
MAX_PASSAGE = 20_000  # characters
K1, B = 1.2, 0.75
COLLECTIONS = Path(__file__).parents[3] / "presets" / "collections"
PRICES = COLLECTIONS / "prices.jsonl"
_FIELD = "collection"
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Passage:
    """One text of a collection. ``value``, where there is one, is given instead of the text."""

    title: str
    text: str
    value: str | None = None


def words(text: str) -> list[str]:
    """What is compared: runs of letters and digits, whatever their case."""
    return _WORD.findall(text.casefold())


class Collection:
    """Passages and their index.

    Args:
        passages: in the order that decides between equal scores.
        name: for messages.

    Raises:
        PromptError: there are none, or too many, or one is empty or too long.
    """

    def __init__(self, passages: Iterable[Passage], name: str = "the collection") -> None:
        self.passages = tuple(passages)
        self.name = name
        if not 0 < len(self.passages) <= MAX_PASSAGES:
            raise PromptError(
                f"{name} has {len(self.passages):,} passages; 1 to {MAX_PASSAGES:,} are allowed. "
                f"{'Split it.' if self.passages else 'Add passages.'}",
                field=_FIELD,
            )
        self._titles: dict[tuple[str, ...], int] = {}
        self._postings: dict[str, list[tuple[int, int]]] = {}  # word: (passage, count), in order
        self._lengths: list[int] = []
        for number, passage in enumerate(self.passages):
            _check(passage, f"Passage {number + 1} of {name}")
            title = words(passage.title)
            self._titles.setdefault(tuple(title), number)
            counts = Counter(title + words(passage.text))
            self._lengths.append(counts.total())
            for word, count in counts.items():
                self._postings.setdefault(word, []).append((number, count))
        self._mean = sum(self._lengths) / len(self._lengths) or 1.0

    def search(self, query: str, limit: int = 1) -> list[tuple[Passage, float]]:
        """The best passages with their scores, best first; empty where no word of the query says anything.

        A passage with the query as its title has the score infinity.
        """
        scores: dict[int, float] = {}
        total = len(self.passages)
        query_words = words(query)
        for word in dict.fromkeys(query_words):
            postings = self._postings.get(word, [])
            n = len(postings)
            if n > max(1, total / 2):
                continue
            idf = math.log(1 + (total - n + 0.5) / (n + 0.5))
            for number, f in postings:
                norm = f + K1 * (1 - B + B * self._lengths[number] / self._mean)
                scores[number] = scores.get(number, 0.0) + idf * f * (K1 + 1) / norm
        if query_words and (exact := self._titles.get(tuple(query_words))) is not None:
            scores[exact] = math.inf
        order = sorted(scores, key=lambda number: (-scores[number], number))
        return [(self.passages[number], scores[number]) for number in order[:limit]]


def _check(passage: Passage, what: str) -> None:
    for part, text, limit in (
        ("title", passage.title, MAX_TITLE),
        ("text", passage.text, MAX_PASSAGE),
        ("value", "none" if passage.value is None else passage.value, MAX_PASSAGE),
    ):
        if not isinstance(text, str):
            raise PromptError(
                f"{what} has the {part} {show(text)}, which is not text. Give text.", field=_FIELD
            )
        if len(text) > limit:
            raise PromptError(
                f"{what} has a {part} of {len(text):,} characters; up to {limit:,} are allowed. Shorten it.",
                field=_FIELD,
            )
        if not text.strip() and part != "title":
            raise PromptError(f"{what} has an empty {part}. Give a {part}.", field=_FIELD)


def _from_line(line: str, what: str) -> Passage:
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or not {"title", "text"} <= set(data) <= {"title", "text", "value"}:
        raise PromptError(
            f"{what} is {show(line)}. It must be one JSON object with title, text and perhaps value.",
            field=_FIELD,
        )
    return Passage(**data)


def parse_collection(text: str, lines: bool, name: str = "the collection") -> Collection:
    """A collection from a file's text: JSON lines if ``lines``, else plain text.

    Raises:
        PromptError: a line is no passage, or see :class:`Collection`.
    """
    if lines:
        numbered = enumerate(text.split("\n"), 1)
        return Collection((_from_line(s, f"Line {n} of {name}") for n, s in numbered if s.strip()), name)
    passages = []
    for block in re.split(r"\n[ \t]*(?:\n[ \t]*)+", text.replace("\r\n", "\n").strip()):
        title, _, body = block.partition("\n")
        titled = bool(body.strip()) and len(title) <= MAX_TITLE
        passages.append(Passage(title.strip(), body.strip()) if titled else Passage("", block))
    return Collection(passages, name)


def load_collection(path: str | Path) -> Collection:
    """A collection from a UTF-8 file.

    Raises:
        PromptError: the file cannot be read, is too large or not UTF-8, or see :func:`parse_collection`.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PromptError(
            f"The collection {path} cannot be read: {error.strerror or error}. Check the path.", field=_FIELD
        ) from error
    if len(data) > MAX_BYTES:
        raise PromptError(
            f"The collection {path} has more than {MAX_BYTES // 2**20} MiB, which is the limit. Shorten it.",
            field=_FIELD,
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"The collection {path} is not UTF-8 text at byte {error.start:,}. Save it as UTF-8.",
            field=_FIELD,
        ) from error
    return parse_collection(text, path.suffix.casefold() == ".jsonl", path.name)


@cache
def price_list() -> Collection:
    """The collection that ships with the lab: a price for each thing of the embedded model's problems."""
    return load_collection(PRICES)


@cache
def encyclopedia() -> Collection:
    """A few passages of general knowledge, for the questions of the scenario *mmlu-paper*."""
    return load_collection(COLLECTIONS / "encyclopedia.jsonl")
