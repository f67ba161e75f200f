"""A log's texts cut into pieces, each tokenised once however often it was sent.

A piece is a message's header, a tool, or a paragraph (with the blank lines behind it). Most tokenizers never
join a paragraph's end and the next one's beginning; what the cuts cost is measured (:meth:`Pieces.cut_tax`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from backend.base.errors import OptionError
from backend.logs.calls import PARAGRAPH, TOOLS, Call

EMBEDDED = "embedded"
_FOLDER = Path(__file__).parents[2] / "presets" / "model"
BATCH = 1 << 20  # characters
TAXED = 1 << 22  # characters of messages that are tokenised whole, to compare

Ids = NDArray[np.int32]


def load_tokenizer(name: str = EMBEDDED) -> Any:
    """A tokenizer without its model: the lab's own, a folder or file with ``tokenizer.json``, or a hub's id.

    Raises:
        OptionError: there is none.
    """
    path = _FOLDER if name == EMBEDDED else Path(name).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        tokenizer = Tokenizer.from_file(str(file)) if file.exists() else Tokenizer.from_pretrained(name)
    except Exception as error:  # the library raises Exception itself
        why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise OptionError(
            f"The tokenizer {name!r} cannot be loaded: {why}. Name a folder or file with tokenizer.json, a "
            f"model of the hub, or {EMBEDDED}.",
            field="tokenizer",
        ) from None
    tokenizer.encode_special_tokens = True  # control tokens in a text stay text
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class Pieces:
    """The distinct pieces, numbered as they come.

    Attributes:
        texts: of each piece; ``headers`` are the numbers of those that begin a message, with its role.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.texts: list[str] = []
        self.headers: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._of_text: dict[tuple[int, int], tuple[int, ...]] = {}
        self._pending = 0  # characters that are not yet tokenised
        self._ids: list[NDArray[np.uint32]] = []
        self._tokenised = 0
        self._cut: list[tuple[int, ...]] = []  # messages of several pieces

    def of(self, call: Call) -> Ids:
        """The numbers of a call's pieces in the order in which the model reads them: tools, then messages."""
        numbers: list[int] = []
        if call.tools:
            numbers.append(self._header(TOOLS))
            numbers += [self._number(f"{tool.text}\n") for tool in call.tools]
        for message in call.messages:
            if message.role:
                numbers.append(self._header(message.role))
            numbers += self._paragraphs(message.text)
        if self._pending > BATCH:
            self._tokenise()
        return np.array(numbers, np.int32)

    def _header(self, role: str) -> int:
        number = self._number(f"\n[{role}]\n")
        self.headers[number] = role
        return number

    def _paragraphs(self, text: str) -> tuple[int, ...]:
        key = hash(text), len(text)
        if (numbers := self._of_text.get(key)) is None:
            numbers = self._of_text[key] = tuple(map(self._number, PARAGRAPH.split(text)))
            if len(numbers) > 1:
                self._cut.append(numbers)
        return numbers

    def _number(self, text: str) -> int:
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
            self._pending += len(text)
        return number

    def _tokenise(self) -> None:
        self._ids += self._encoded(self.texts[self._tokenised :])
        self._tokenised, self._pending = len(self.texts), 0

    def _encoded(self, texts: Sequence[str]) -> Iterator[NDArray[np.uint32]]:
        for encoded in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False):
            yield np.array(encoded.ids, np.uint32)

    def tokens(self) -> Tokens:
        """All pieces' tokens."""
        self._tokenise()
        return Tokens(self._ids)

    def cut_tax(self, tokens: Tokens) -> tuple[int, int]:
        """Tokens that cutting at paragraphs adds, and of how many that was measured: the first messages of
        several paragraphs."""
        total, room, whole = 0, TAXED, []
        for numbers in self._cut:
            text = "".join(self.texts[n] for n in numbers)
            if (room := room - len(text)) < 0:
                break
            whole.append(text)
            total += int(tokens.lengths[list(numbers)].sum())
        return total - sum(map(len, self._encoded(whole))), total


def messages_of(pieces: Sequence[int], headers: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    """A call's pieces by message, each with its role; a plain prompt has none."""
    out: list[tuple[str, list[int]]] = []
    for piece in pieces:
        if piece in headers:
            out.append((headers[piece], []))
        elif out:
            out[-1][1].append(piece)
        else:
            out.append(("", [piece]))
    return out


class Tokens:
    """Tokens of numbered pieces in one array.

    Attributes:
        flat: all tokens, piece after piece; a piece's are ``flat[starts[n] : starts[n] + lengths[n]]``.
    """

    def __init__(self, ids: Sequence[NDArray[np.uint32]]) -> None:
        self.lengths = np.array([len(piece) for piece in ids], np.int64)
        self.starts = np.concatenate([[0], self.lengths.cumsum()[:-1]]).astype(np.int64)
        self.flat = np.concatenate(ids) if ids else np.zeros(0, np.uint32)

    def count(self, pieces: Ids) -> int:
        """Tokens of a call."""
        return int(self.lengths[pieces].sum())

    def of(self, pieces: Ids) -> NDArray[np.uint32]:
        """A call's tokens in a row."""
        lengths = self.lengths[pieces]
        shift = self.starts[pieces] - lengths.cumsum() + lengths
        tokens: NDArray[np.uint32] = self.flat[np.repeat(shift, lengths) + np.arange(lengths.sum())]
        return tokens

    def renumbered(self, place: Ids) -> Tokens:
        """The same pieces under other numbers.

        Args:
            place: of each piece, its new number.
        """
        if (place[1:] > place[:-1]).all():
            return self
        ends = self.starts + self.lengths
        return Tokens([self.flat[self.starts[n] : ends[n]] for n in place.argsort()])
