"""What execution agents and judges are asked, how a judge's answer is read, and what it should have said.
Free of torch.

Source: judge study, Section 3 (regimes), C.1 (the same role for all execution agents; selected index, final
answer and reason in fields of their own), limitations (pairwise, selection only, rewriting).

One structured form for every model: a reason, then ``The best candidate is N. The answer is X``. The wording
*embedded* is what the embedded model was taught; *general* spells the form out. Under *programs* answers are
code: an expected answer is a test in Python, and the judge ends with a program. Selecting without a reason
it was taught for two criteria (``GLANCES``), and learned hardly more than the most frequent answer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from backend.base.errors import OptionError
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.prompts.scoring import Scoring, extract_answer, extract_number, right
from backend.prompts.tasks.arithmetic import Problem
from backend.prompts.tasks.judging import ROLES, judgement
from backend.prompts.tasks.phrases import phrases
from backend.records.judge import ANSWER_TOKENS, CANDIDATE_TOKENS, JudgeProblem, Protocol, Regime

TASK = "\nThe task is: {user_question}"
SETS = ("all", "closest", "majority")  # criteria under which several may be selected
_SELECTION = re.compile(r"[Tt]he best candidates? (?:is|are):? ([0-9]+(?:(?:,? and |, ?)[0-9]+)*)")
_NUMBER = re.compile(r"-?[0-9][0-9,]*(?:\.[0-9]+)?")


@dataclass(frozen=True)
class Wording:
    """The roles. ``reader``: an execution agent that sees others' answers. ``form``: the instruction on the
    form of a judge's answer, by protocol. ``final``: what final answers are."""

    solver: str
    reader: str
    header: str
    form: dict[Protocol, str]
    final: Literal["text", "code"] = "text"


WORDINGS = {name: Wording(**fields) for name, fields in vars(phrases("judge_wordings")).items()}


def execution_pipeline(
    regime: Regime, count: int, wording: str = "embedded", tokens: int = CANDIDATE_TOKENS
) -> Pipeline:
    """``count`` execution agents with one role: each for itself, or each reading those before it."""
    words = WORDINGS[wording]
    agents = []
    for number in range(1, count + 1):
        template = words.solver + TASK
        if regime == "progressive" and number > 1:
            before = [words.header.format(i=i) + f"{{agent_{i}_current}}" for i in range(1, number)]
            template = words.reader + TASK + "".join(before)
        agents.append(Agent(number, f"Agent {number}", "", template + "\n", tokens))
    return Pipeline(f"execution-{regime}", "Execution agents", "", tuple(agents), scoring="none")


def judge_pipeline(
    protocol: Protocol, criterion: str, count: int, wording: str = "embedded", tokens: int = ANSWER_TOKENS
) -> Pipeline:
    """A judge over ``count`` slots, placeholders ``candidate_1``, ..., whoever's text stands there."""
    words = WORDINGS[wording]
    slots = range(1, count + 1)
    if protocol == "rewriting":
        texts = "".join(words.header.format(i=i) + f"{{candidate_{i}}}" for i in slots)
        template = words.reader + TASK + texts
    else:
        texts = "".join(f"\nCandidate {i}:\n{{candidate_{i}}}" for i in slots)
        template = ROLES[criterion] + words.form[protocol] + TASK + texts
    agent = Agent(1, "Judge", "", template + "\n", tokens)
    declared = tuple(f"candidate_{i}" for i in slots)
    scoring: Scoring = "text" if protocol == "rewriting" else "selection"
    return Pipeline(f"judge-{protocol}", "Judge", "", (agent,), declared, scoring, judge=1)


@dataclass(frozen=True)
class Verdict:
    """A judge's answer, read strictly. ``slots``: as they stood before it; ``(0,)`` is "none of them".
    ``failure``: what could not be read, in words; empty when all could."""

    slots: tuple[int, ...] | None
    answer: str | None
    reason: str
    failure: str


def read_verdict(
    text: str, count: int, protocol: Protocol, criterion: str, wording: str = "embedded"
) -> Verdict:
    """Read a judge's text.

    A selection must be stated once (or the same again), name slots that there are, and name one only where
    the criterion selects one. A final answer must follow "The answer is"; a program must be fenced as code.
    """
    failures: list[str] = []
    slots: tuple[int, ...] | None = None
    stated = [(m.start(), tuple(sorted(set(map(int, re.findall("[0-9]+", m[1])))))) for m in
              _SELECTION.finditer(text)]  # fmt: skip
    if protocol != "rewriting":
        different = {selection for _, selection in stated}
        if not stated:
            failures.append("no selection")
        elif len(different) > 1:
            failures.append("several selections")
        else:
            [selection] = different
            if any(slot > count for slot in selection) or (0 in selection and len(selection) > 1):
                failures.append(f"no candidate {selection[-1] if selection[-1] > count else 0} to select")
            elif len(selection) > 1 and criterion not in SETS:
                failures.append("a set where one is asked for")
            else:
                slots = selection
    if WORDINGS[wording].final == "text":
        answer = extract_answer(text, "text")
    else:
        answer = extract_answer(text, "code") if "```" in text else None  # else all would count as code
    if answer is None and protocol != "selection":
        failures.append("no final answer")
    reason = text[: stated[0][0]].strip() if stated else text.partition("The answer is")[0].strip()
    return Verdict(slots, answer, reason, "; ".join(failures))


def right_final(answer: str | None, expected: str | None, wording: str) -> bool:
    """Is a final answer the expected one? A program is where the expected test runs to its end after it."""
    if WORDINGS[wording].final == "code" and expected is not None:
        return right(answer, expected, "code")
    return same_final(answer, expected)


def same_final(answer: str | None, expected: str | None) -> bool:
    """Do two final answers say the same? Numbers by value where each names just one, else the words."""
    if answer is None or expected is None:
        return False
    numbers = [_NUMBER.findall(text) for text in (answer, expected)]
    if all(len(digits) == 1 for digits in numbers) and _NUMBER.fullmatch(expected.strip()):
        return extract_number(answer) == extract_number(expected)
    return " ".join(answer.split()).casefold() == " ".join(expected.split()).casefold()


def final_of(text: str, wording: str = "embedded") -> str | None:
    """What a candidate gives as its answer: after "The answer is", else its last number; or its program."""
    if WORDINGS[wording].final == "code":
        return extract_answer(text, "code")
    return extract_answer(text, "text") or extract_number(text)


def truth(
    problem: JudgeProblem, layout: Sequence[int], criterion: str
) -> tuple[tuple[int, ...] | None, str | None]:
    """The slots that should be selected in a layout, and the final answer; None where it is not known.

    For *right* the slots are all that give the expected answer (any of them is a right selection).
    """
    if criterion in ("right", "all"):
        if problem.expected is None:
            return None, None
        slots = tuple(k for k, number in enumerate(layout, 1) if number in problem.right)
        return slots or (0,), problem.expected
    finals = [final_of(problem.candidates[number - 1].text) for number in layout]
    expected = problem.expected if criterion == "corrects" else finals[0]
    if expected is None or not all(f is not None and f.isdecimal() for f in (*finals, expected)):
        return None, None
    task = Problem(problem.question, ((0, "+", 0),), int(expected))
    _, best, final = judgement(criterion, task, [int(f) for f in finals if f is not None])
    return best or (0,), final


def selection_right(slots: Sequence[int], expected: Sequence[int], criterion: str) -> bool:
    """Is a selection right? Under *right* any right candidate is; else it must be the wanted set."""
    if criterion == "right":
        return len(slots) == 1 and slots[0] in expected
    return set(slots) == set(expected)


def check_wording(name: str) -> None:
    """Refuse a wording that is not there.

    Raises:
        OptionError: with those that are.
    """
    if name not in WORDINGS:
        raise OptionError(
            f"There is no wording {name[:40]!r}; there are {', '.join(WORDINGS)}. Choose one.",
            field="judge.wording",
        )
