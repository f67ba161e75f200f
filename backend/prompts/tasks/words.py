"""Words for the generated tasks: an open vocabulary, and a small grammar to write patterns in.

Whoever edits a prompt brings names, things and sentences of their own. So the tasks draw from long lists, from
made-up words and, while training, from a dictionary of the system if there is one (:func:`use_dictionary`). One
in eight names and things is kept from training, and one in ten patterns whose words other patterns of its list have
(:func:`split`): held-out edits ask for what is new in a sentence, not for the meaning of a word never read before.
"""

import hashlib
import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from backend.prompts.tasks.phrases import phrases

WORDS = phrases("words")
FUNCTION_WORDS = frozenset(WORDS.function_words)


_ONSETS = "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl kr l m n p pl pr qu r s sh sk sl sm sn sp st t th tr v w x y z".split()
_VOWELS = "a e i o u a e i o u ai au ea ee ei ia io oo ou".split()
_CODAS = ["", "", "", *"b ck d f g l ll m n nd ng nk p r rd rk rt s sh sk ss st t x z".split()]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYSTEM_WORDS = Path("/usr/share/dict/words")
_dictionary: tuple[str, ...] = ()


def is_unseen(text: str, one_in: int = 8) -> bool:
    """Is this word or pattern kept from training? One in ``one_in`` is."""
    return int.from_bytes(hashlib.sha256(f"kept:{text}".encode()).digest()[:2], "big") % one_in == 0


def use_dictionary(path: Path) -> int:
    """Let :meth:`Draw.word` draw from a word list too (a word a line); returns how many it has.

    For training alone: what it draws depends on the machine's list.
    """
    global _dictionary
    lines = path.read_text(encoding="utf-8", errors="ignore").split("\n")
    _dictionary = tuple(w for w in lines if 3 <= len(w) <= 12 and w.isalpha() and not is_unseen(w.lower()))
    return len(_dictionary)


class Draw:
    """The random choices of one document, on one side of the split of words and patterns.

    Args:
        rng: where they come from.
        unseen: draw words and patterns that training never shows, where a list has any.
        trains: for training alone, which has further patterns.
    """

    def __init__(self, rng: random.Random, unseen: bool = False, trains: bool = False) -> None:
        self.rng = rng
        self.unseen = unseen
        self.trains = trains
        self.unseen_patterns: list[str] = []  # drawn so far, which training never shows

    # -- choices

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, patterns: Sequence[str], one_in: int = 10) -> str:
        """One of the patterns of this document's side; of all where that side has none."""
        trained, unseen = split(tuple(patterns), one_in)
        if self.unseen and unseen:
            pattern = self.rng.choice(unseen)
            self.unseen_patterns.append(pattern)
            return pattern
        return self.rng.choice(patterns if self.unseen else trained)

    def pick_word(self, words: Sequence[str]) -> str:
        """One of the names or things of this document's side; of all where that side has none."""
        return self.rng.choice(_words(tuple(words), self.unseen))

    def say(self, pattern: str, **slots: object) -> str:
        """A pattern with its choices made: ``(a|b)`` is one of them, ``[a]`` is there or not, ``{slot}`` is filled.

        A choice may hold choices. Spaces that an absent part leaves behind are closed up.
        """
        text = re.sub(r" +", " ", self._expand(pattern)).strip()
        text = re.sub(r" ([.,?!;:])", r"\1", text)
        return text.format(**slots) if slots else text

    def phrase(self, patterns: Sequence[str], **slots: object) -> str:
        """One pattern of a list, of this document's side, with its choices made."""
        return self.say(self.pick(patterns), **slots)

    def _expand(self, text: str) -> str:
        while inner := INNERMOST.search(text):
            chosen = self.rng.choice(inner[0][1:-1].split("|"))
            if inner[0][0] == "[" and self.rng.random() < 0.5:
                chosen = ""
            text = text[: inner.start()] + chosen + text[inner.end() :]
        return text

    # -- words

    def word(self) -> str:
        """A made-up word in small letters, or one of the dictionary."""
        rng = self.rng
        while True:
            if _dictionary and rng.random() < 0.5:
                return rng.choice(_dictionary).lower()
            if rng.random() < 0.12:
                word = "".join(rng.choice(_LETTERS) for _ in range(rng.randint(3, 7)))
            else:
                word = "".join(
                    rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)
                    for _ in range(rng.choice((1, 2, 2, 2, 3)))
                )
            if 3 <= len(word) <= 11 and is_unseen(word) == self.unseen:
                return word

    def name(self) -> str:
        """Somebody's name: a first name, a made-up one, two words, or a title before a name."""
        at = self.rng.random()
        first = self.pick_word(WORDS.first_names) if at < 0.72 else self.word().capitalize()
        if 0.60 < at < 0.66:
            return f"{first} {self.pick_word(WORDS.last_names)}"
        if 0.66 < at < 0.70:
            return f"{self.rng.choice(WORDS.titles)} {self.pick_word(WORDS.last_names)}"
        if 0.70 < at < 0.72:
            return f"{first} {self.pick_word([x for x in WORDS.first_names if x != first])}"
        return first

    def names(self, count: int) -> list[str]:
        """Different names; no one's first word is another's."""
        names: dict[str, str] = {}
        while len(names) < count:
            name = self.name()
            names.setdefault(name.split()[0] if name.split()[0] not in WORDS.titles else name, name)
        return list(names.values())

    def thing(self) -> str:
        """Things, in the plural: a noun, a made-up one, or one with an adjective before it."""
        at = self.rng.random()
        noun = self.pick_word(WORDS.things) if at < 0.8 else plural(self.word())
        return f"{self.rng.choice(WORDS.adjectives)} {noun}" if self.rng.random() < 0.12 else noun

    def things(self, count: int) -> list[str]:
        """Different things."""
        things: dict[str, None] = {}
        while len(things) < count:
            things.setdefault(self.thing())
        return list(things)

    def color(self) -> str:
        return self.pick_word(WORDS.colors) if self.chance(0.85) else self.word()

    def place(self) -> str:
        """A town's name."""
        return self.pick_word(WORDS.places) if self.chance(0.6) else self.word().capitalize()

    def number(self, low: int = 1, high: int = 9999) -> int:
        """A number, small ones more often: every power of ten about alike, as far as the bounds allow."""
        if high <= low:
            return low
        limit = self.rng.choice(
            [x for x in (20, 100, 100, 100, 200, 1000, 1000, 10_000) if x > 1.5 * low] or [high + 1]
        )
        return self.rng.randint(low, max(low, min(high, limit - 1)))


INNERMOST = re.compile(r"\([^()\[\]]*\)|\[[^()\[\]]*\]")  # a choice that holds no other


@cache
def split(patterns: tuple[str, ...], one_in: int = 10) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The patterns that training shows, and those that are kept from it.

    One in ``one_in`` is kept from training, if the others have all of its words: a held-out pattern should
    test how the model reads, not whether it can guess a word that it never read.
    """
    candidates = [x for x in patterns if is_unseen(x, one_in)]
    if len(candidates) == len(patterns):
        return patterns, ()
    trained_words = FUNCTION_WORDS.union(*(pattern_words(x) for x in patterns if x not in candidates))
    unseen = tuple(x for x in candidates if pattern_words(x) <= trained_words)
    return tuple(x for x in patterns if x not in unseen), unseen


@cache
def _words(words: tuple[str, ...], unseen: bool) -> tuple[str, ...]:
    return tuple(x for x in words if is_unseen(x) == unseen) or words


def pattern_words(pattern: str) -> set[str]:
    """The words of a pattern, in small letters, without its slots and the forms of its verbs."""
    return {w.lower() for w in re.findall(r"[^\W\d_]+", re.sub(r"\{[^}]*\}|/\w+>", " ", pattern))}


def plural(word: str) -> str:
    """The plural that English makes of a word it does not know."""
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return word[:-1] + "ies"
    return word + "s"


def start_sentence(text: str) -> str:
    """With a capital at its start."""
    return text[:1].upper() + text[1:]
