# ruff: noqa: E501
"""How people write a candidate down: headers, results and sentences around them, work in their own form."""

from __future__ import annotations

import re
from itertools import pairwise

from backend.prompts.tasks.parts import one, pick
from backend.prompts.tasks.words import THINGS, Draw

# {i} the number, {l} a letter, {n} a name, {r} a role; those without {i} count by their place
HEADERS = (
    "Candidate {i}:",
    "Agent {i}:",
    "Answer {i}:",
    "Solution {i}:",
    "Result {i}:",
    "Student {i}:",
    "Proposal {i}:",
    "Option {i}:",
    "Attempt {i}:",
    "Reply {i}:",
    "Worker {i}:",
    "Solver {i}:",
    "Submission {i}:",
    "candidate {i}:",
    "Candidate {i} says:",
    "Agent {i} says:",
    "Agent {i} answers:",
    "Agent {i} thinks:",
    "Answer of candidate {i}:",
    "Answer of agent {i}:",
    "Output of agent {i}:",
    "Candidate {i} =",
    "Candidate {i} -",
    "Candidate no. {i}:",
    "Candidate #{i}:",
    "C{i}:",
    "A{i}:",
    "#{i}:",
    "#{i}",
    "({i})",
    "{i}.",
    "{i})",
    "{i}:",
    "[{i}]",
    "**Candidate {i}**",
    "## Candidate {i}",
    "Candidate {i} ({n}):",
    "Agent {i} ({r}):",
    "Agent {i}, role is {r}, output is:",
    "Agent {i}, {r}:",
    "Candidate {i}, {n}, writes:",
    "Solution of {n}:",
    "Answer of {n}:",
    "{n}:",
    "{n} says:",
    "{n} thinks:",
    "{n} wrote:",
    "From {n}:",
    "{l}:",
    "({l})",
    "{l})",
    "Option {l}:",
    "Answer {l}:",
    "Candidate {l}:",
    "The {r}:",
    "{r}:",
)
ROLE_NAMES = (
    "Math Solver|Inspector|Analyst|Checker|Programming Expert|Mathematical Analyst|Student|Expert|Teacher|Critic|"
    "Reader|Planner|Accountant|Engineer|Assistant|Scientist|Helper|Beginner|Coder|Tester|Writer|Reviewer"
).split("|")
LEADS = (
    "The task is: |Task: |Question: |Problem: |Q: |Here is the task: |The question is: |The question: |Exercise: |"
    "The problem is: |They were asked: |What they had to solve: |Given: ||The problem: |This was asked: |"
    "This is the question: |They worked on this: |User question: |Puzzle: |The exercise: |To solve: "
).split("|")

# ways to give a result; {v} is it, {u} what is counted, {x} and {y} other numbers
BARE = ("{v}", "{v}", "{v}", "{v}.", "{v}!", "= {v}", "{v} {u}", "**{v}**", "-> {v}", "({v})", "{v} {u}.")
SAID = (
    "The answer is {v}",
    "The answer is {v}",
    "The answer is {v}.",
    "the answer is {v}",
    "Answer: {v}",
    "Answer = {v}",
    "My answer is {v}.",
    "My answer: {v}",
    "The result is {v}.",
    "Result: {v}",
    "The final answer is {v}.",
    "Final answer: {v}",
    "It is {v}.",
    "It's {v}",
    "It must be {v}.",
    "That is {v}.",
    "That makes {v}.",
    "This gives {v}.",
    "I (get|got) {v}.",
    "I (think|believe|say|guess|am sure) it is {v}.",
    "I think it's {v}",
    "I think {v}.",
    "I would say {v}.",
    "I'd say {v}!",
    "I say {v}",
    "I vote for {v}.",
    "For me it is {v}.",
    "We (get|found|have) {v}.",
    "So it is {v}.",
    "So {v}.",
    "Therefore {v}.",
    "Clearly {v}.",
    "Definitely {v}.",
    "Maybe {v}?",
    "Perhaps it is {v}.",
    "Surely {v}.",
    "Of course it is {v}.",
    "It comes to {v}.",
    "It should be {v}.",
    "The solution is {v}.",
    "The correct answer is {v}.",
    "Solution: {v}",
    "My guess is {v}.",
    "Without doubt {v}.",
    "Easy: {v}.",
    "Hm, {v}?",
    "In the end it is {v}.",
    "After some thought: {v}.",
    "I am not sure, but I think {v}.",
    "I checked it, it is {v}.",
    "Let me see. It is {v}.",
    "Everyone knows it is {v}.",
    "You asked, I say {v}.",
    "{v} is my answer.",
    "{v}, I think.",
    "{v}, I am sure.",
    "{v} it is.",
)
COUNTED = (
    "x = {v}",
    "n = {v}",
    "total = {v}",
    "y={v}",
    "It is {v} {u}.",
    "There are {v} {u}.",
    "The answer is {v} {u}",
    "The answer is {v} {u}.",
    "I think it's {v} {u}.",
    "(She|He) has {v} {u}.",
    "(She|He) has {v} left.",
    "They have {v} {u} left.",
    "{v} {u} are left.",
    "{v} {u} in all.",
    "{n} has {v} {u}.",
    "{n} has {v} {u} now.",
    "At the end there are {v} {u}.",
    "In total {v} {u}.",
    "The total is {v}.",
    "The sum is {v}.",
    "The number is {v}.",
    "I count {v}.",
    "I counted {v} {u}.",
    "It costs {v} {u}.",
    "About {v}.",
    "Around {v} {u}.",
    "Exactly {v}!",
    "So {n} has {v} {u}.",
    "{n} is left with {v}.",
    "Number of {u}: {v}",
    "It adds up to {v}.",
    "${v}",
    "{v} euros",
)
# other numbers stand before the result
LONGER = (
    "I took {x} and {y} and got {v}.",
    "Not {x} but {v}.",
    "At first I had {x}, now I have {v}.",
    "It is more than {x}: {v}.",
    "{x} cannot be. It is {v}.",
    "(She|He) started with {x} and ended with {v} {u}.",
    "With {x} and {y} it comes to {v}.",
    "The others say {x}. I say {v}.",
    "Somebody said {x}, but it is {v}.",
    "I used {x}, then {y}. The answer is {v}",
    "Between {x} and {y}, so {v}.",
    "After {x} and {y} there are {v} {u}.",
    "We have {x} {u} and {y} {u}, in all {v}.",
    "{n} has {x} {u} at first and {v} in the end.",
    "Step 1: {x}. Step 2: {v}.",
    "First {x}, then {y}, last {v}.",
    "My first guess was {x}, my second {y}, my answer is {v}.",
    "Start: {x}. End: {v}.",
    "I thought of {x}. Then I checked again. The answer is {v}.",
    "{x}? No, {v}.",
)
UNCLEAR = "I don't know.|?|...|-|No idea.|I cannot tell.|no answer|(empty)|I am not sure.|I give up.|Pass.|???".split(
    "|"
)
SUMS = (
    "{e}",
    "{e} = ?",
    "{e} =",
    "What is {e}?",
    "what is {e}",
    "How much is {e}?",
    "Calculate {e}.",
    "Compute {e}",
    "Work out {e}.",
    "Solve {e}.",
    "What does {e} give?",
    "What do you get for {e}?",
    "{e}?",
    "Please compute {e}.",
    "Find x: x = {e}",
    "The sum {e}",
    "Evaluate {e}.",
    "Tell me {e}.",
    "What is the value of {e}?",
    "How many is {e}?",
)
_UNITS = frozenset(THINGS)
_STEP = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)\.")


def said(d: Draw, value: str, unit: str, others: tuple[int, ...], form: str | None = None) -> str:
    """A candidate that gives a result and shows no work; ``form`` where all candidates have the same."""
    slots = {"v": value, "u": unit, "n": d.name()}
    if form is not None:
        return form.format(**slots, x=0, y=0)
    if not value.isdecimal():
        return one(d, SAID if d.chance(0.5) else ("{v}", "{v}", "{v}.", "{v}!"), **slots)
    at = d.rng.random()
    if at < 0.15 and others:
        return one(d, LONGER, **slots, x=d.rng.choice(others), y=d.rng.choice(others))
    return one(d, BARE if at < 0.45 else SAID if at < 0.8 else COUNTED, **slots)


def same_form(d: Draw, counts: bool) -> str:
    """A form that all candidates share."""
    forms = (BARE, SAID, SAID, COUNTED) if counts else (("{v}", "{v}."), SAID)
    return d.say(pick(d, d.rng.choice(forms)))


def worked(d: Draw, text: str, unit: str) -> str:
    """A written solution (steps and "The answer is") in somebody's own form."""
    steps = _STEP.findall(text)
    if not steps or d.chance(0.3):
        return text
    value = steps[-1][3]
    tight = d.chance(0.5)
    lines = [f"{a}{op}{b}={c}" if tight else f"{a} {op} {b} = {c}" for a, op, b, c in steps]
    body = d.rng.choice((", ", "; ", ". ", "\n", " and ", ", then ", " -> ", ". Then ")).join(lines)
    if d.chance(0.2) and all(a[3] == b[0] for a, b in pairwise(steps)):
        chain = steps[0][0]
        for index, (_, op, right, _) in enumerate(steps):
            if index and op in "*/" and {x[1] for x in steps[:index]} & {"+", "-"}:
                chain = f"({chain})"
            chain += f"{op}{right}" if tight else f" {op} {right}"
        body = f"{chain}={value}" if tight else f"{chain} = {value}"
    opening = d.rng.choice(("", "", "", "", "We have ", "First ", "I compute ", "Work: ", "So: "))
    endings = (
        "",
        "",
        f". So {value}.",
        f", so it is {value}.",
        f". The answer is {value}",
        f". Answer: {value}",
    )
    return opening + body + d.rng.choice((*endings, f". It is {value} {unit}.", "."))


def unit_of(question: str) -> str | None:
    """What a question counts, where it is a thing that the lists know."""
    return next((word for word in re.findall(r"[a-z]+", question) if word in _UNITS), None)
