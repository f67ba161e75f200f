"""Is an answer right, as the papers count it.

* Pipelines' own scorings (:mod:`backend.prompts.scoring`): *number* (the last number, GSM8K and AIME),
  *choice* (the letter stated last, MMLU), *code* (unit tests in the sandbox, HumanEval), *text*, *selection*,
  *none*.
* *math*: what stands in the last ``\\boxed{}``, else after "The answer is", else the last number, compared
  after LaTeX's ways to write the same are made one (MATH: Hendrycks et al. 2021, whose normaliser this
  follows).
* *contains*: some gold answer occurs in the prediction, both normalised (KVLink, appendix: "correct if any
  sub-string of the prediction exactly matches any gold answer"), and its F1 is SQuAD's token F1 for what
  follows the last "The answer is", else for the whole text. Both normalise as SQuAD does: small letters, no
  punctuation, no articles.
* *rouge*: Rouge-L (Lin 2004) of a summary, by Google's ``rouge_score`` with its stemmer, as CacheBlend's code
  takes it. A summary is neither right nor wrong.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from backend.base.errors import OptionError
from backend.prompts.scoring import Scoring, extract_answer, extract_number, right

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SPACING = re.compile(r"\\[!,;:> ]|\\(?:left|right|big|Big|displaystyle|limits)(?![a-zA-Z])|\\\$|\$|\\%|%")
_WORDS = re.compile(r"\\(?:text|mathrm|mbox|textbf|mathbf)\{([^{}]*)\}")
_UNIT = re.compile(r"(?<=[0-9}])\s*\\(?:text|mathrm|mbox)\{[^{}]*\}\s*(?:\^\{?[0-9]\}?)?$")
_DEGREES = re.compile(r"\^\{?\\circ\}?|°")
_SHORT_FRACTION = re.compile(r"\\frac\s*([0-9a-z])\s*([0-9a-z])|\\frac\s*([0-9a-z])\s*(?=\{)")
_SLASH = re.compile(r"(-?)([0-9]+)/([0-9]+)")
_PLAIN_NUMBER = re.compile(r"-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?")


@dataclass(frozen=True)
class Score:
    """``answer``: what was read off, if anything. ``correct``: None where nothing is right or wrong.
    ``value``: token F1 for questions over texts, Rouge-L for summaries, else 1 or 0."""

    answer: str | None
    correct: bool | None
    value: float


def score(text: str, golds: Sequence[str], scorer: str) -> Score:
    """Score a text against the known answers; any of them is right.

    Args:
        scorer: one of the above, by its name.
    """
    if scorer == "contains":
        answer = extract_answer(text, "text") or text.strip() or None
        f1 = max((token_f1(answer or "", gold) for gold in golds), default=0.0)
        goods = [normalised(gold) for gold in golds]
        return Score(answer, any(good in normalised(text) for good in goods if good), f1)
    if scorer == "rouge":
        return Score(text.strip() or None, None, max((rouge_l(text, gold) for gold in golds), default=0.0))
    if scorer == "math":
        answer = math_answer(text)
        hit = answer is not None and any(same_math(answer, gold) for gold in golds)
        return Score(answer, hit, float(hit))
    own: Scoring = scorer  # type: ignore[assignment]  # the pipelines' own, but for those above
    answer = extract_answer(text, own)
    hit = any(right(answer, gold, own) for gold in golds)
    return Score(answer, hit, float(hit))


def normalised(text: str) -> str:
    """SQuAD's normal form: small letters, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.casefold().translate(_PUNCTUATION)).split())


def token_f1(answer: str, gold: str) -> float:
    """Harmonic mean of precision and recall over the words of both normal forms."""
    words, gold_words = normalised(answer).split(), normalised(gold).split()
    if not words or not gold_words:
        return float(words == gold_words)
    common = sum((Counter(words) & Counter(gold_words)).values())
    return 2 * common / (len(words) + len(gold_words))


def rouge_l(summary: str, gold: str) -> float:
    """F measure of the longest common subsequence of words, stemmed.

    Raises:
        OptionError: see :func:`rouge`.
    """
    return float(rouge().score(gold, summary)["rougeL"].fmeasure)


@cache
def rouge() -> Any:
    """The scorer, of a package that is an extra.

    Raises:
        OptionError: it is not installed.
    """
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise OptionError(
            "Summaries are scored by the package rouge-score, which is not installed. Install it (pip "
            "install 'kv-reuse-lab[rouge]'), or choose another format.",
            field="format",
        ) from None
    return RougeScorer(["rougeL"], use_stemmer=True)


def math_answer(text: str) -> str | None:
    """The final answer of a mathematical solution."""
    return boxed(text) or extract_answer(text, "text") or extract_number(text)


def boxed(text: str) -> str | None:
    """What stands in the last ``\\boxed{...}``, whose braces may nest; None if none is closed."""
    for start in reversed([m.end() for m in re.finditer(r"\\(?:boxed|fbox)\s*\{", text)]):
        depth = 1
        for place in range(start, len(text)):
            depth += (text[place] == "{") - (text[place] == "}")
            if depth == 0:
                return text[start:place].strip() or None
    return None


def same_math(answer: str, gold: str) -> bool:
    """Do two answers in LaTeX say the same?"""
    a, b = plain_math(answer), plain_math(gold)
    if a == b:
        return True
    if _PLAIN_NUMBER.fullmatch(a) and _PLAIN_NUMBER.fullmatch(b):
        return float(a.replace(",", "")) == float(b.replace(",", ""))
    return False


def plain_math(text: str) -> str:
    """One of the ways to write an answer in LaTeX."""
    text = text.strip().rstrip(".").replace("\n", " ").replace("dfrac", "frac").replace("tfrac", "frac")
    text = _WORDS.sub(r"\1", _UNIT.sub("", _SPACING.sub("", _DEGREES.sub("", text))))
    if text.count("=") == 1 and re.fullmatch(r"\s*[a-zA-Z]\s*", text.partition("=")[0]):
        text = text.partition("=")[2]  # x = 5
    text = _SHORT_FRACTION.sub(lambda m: f"\\frac{{{m[1]}}}{{{m[2]}}}" if m[1] else f"\\frac{{{m[3]}}}", text)
    text = re.sub(r"\\sqrt\s*([0-9a-z])", r"\\sqrt{\1}", text)
    text = "".join(text.split())
    if match := _SLASH.fullmatch(text):
        text = f"{match[1]}\\frac{{{match[2]}}}{{{match[3]}}}"
    return "0" + text if text.startswith(".") else text.replace("-.", "-0.")
