# ruff: noqa: E501
"""How people tell a judge what to select: who it is, what it should find, and how it should work.

A role is put together of lists, so that each kind is said in thousands of ways. The kinds are told apart by
the words for what is selected alone; a role without such words asks for the first right candidate.
"""

from __future__ import annotations

from backend.prompts.tasks.base import ASIDES
from backend.prompts.tasks.judge_goals import GOALS, QUESTIONS, REQUESTS
from backend.prompts.tasks.parts import one, pick
from backend.prompts.tasks.words import Draw, start_sentence

# {a}: one candidate, {c}: several
_REGULAR = (
    "candidate answer solution result proposal attempt suggestion submission option agent student worker solver "
    "expert player participant response claim"
).split()
NOUNS = (
    *((noun, noun + "s") for noun in _REGULAR),
    ("reply", "replies"),
    ("entry", "entries"),
    ("one", "ones"),
    ("try", "tries"),
    ("guess", "guesses"),
)

_PERSON = "(judge|referee|arbiter|umpire|decision maker|evaluator|grader|jury|moderator|chair|reviewer|leader|examiner|boss)"
WHO = (
    "You are the judge.",
    f"You are (the|a) {_PERSON}.",
    f"You are a (fair|strict|careful|wise|good|calm|senior) {_PERSON}.",
    f"You are the {_PERSON} of (a|this|the) (team|group|contest|quiz|panel|meeting).",
    f"You act as [a] {_PERSON}.",
    f"Act as (a|the) {_PERSON}.",
    f"Be the {_PERSON}.",
    "You are the top decision maker.",
    "You decide.",
    "You have the last word.",
    "You judge the work of (others|a team|several agents|your colleagues).",
    "Several (agents|people|students) (worked on|answered) (this|the same task).",
    "Here (is|comes) the work of (others|a team).",
    "(Read|Look at|Go through|Check|Study|Compare) the {c}.",
    "(Read|Look at|Go through|Check|Compare) the {c} (one by one|in order|with care|below).",
    "Below (you see|you find|are) some {c}.",
    "I will show you some {c}.",
    "(Hi|Hello|Dear judge|OK)!",
    "A team sends you its {c}.",
    "My (friends|pupils|agents) wrote these {c}.",
    f"Imagine (that you are|being) (a|the) {_PERSON}.",
    "You are helpful.",
    "You are an assistant.",
    f"Role: {_PERSON}.",
    "There are several {c}.",
)
# before a request: {do} is "find the first right one"
LEADS = (
    "Your job: {do}.",
    "Your task: {do}.",
    "Your (job|task|duty|role|goal) is to {do}.",
    f"As the {_PERSON} of this team, {{do}}.",
    f"As (a|the) {_PERSON} you (must|have to|should) {{do}}.",
    f"You are the {_PERSON} and (must|have to|should) {{do}}.",
    "Please {do}.",
    "Now {do}.",
    "You (must|should|have to|will|are to|are asked to) {do}.",
    "(Can|Could|Will) you {do}?",
    "I (want|need|would like|ask) you to {do}.",
    "Compare the {c} and {do}.",
    "Check the {c} and {do}.",
    "Read (all|the) {c}, then {do}.",
    "Go through the {c} and {do}.",
    "Help me to {do}.",
    "Let us {do}.",
    "What you do: {do}.",
    "Judge: {do}.",
    "Task for the judge: {do}.",
    "First read everything, then {do}.",
    "All you have to do is {do}.",
)
VERBS = (
    "pick|select|choose|find|name|give|take|report|tell me|point out|return|show|show me|mark|identify|determine|state|"
    "say|indicate|single out|write down|look for|search for|give me|spot|get|announce|go for|decide on|list"
).split("|")
HOW = (
    "Then give the final answer.",
    "(Then|Afterwards|At the end|Finally) (give|state|write|say) the [final] answer.",
    "Give the (final answer|result) too.",
    "Be (brief|short|quick|fair|strict|exact|precise|honest).",
    "Be (brief|short|fair|strict) and (clear|exact|calm).",
    "Explain (your choice|briefly|why|each step).",
    "Show (your work|each step|how you decide).",
    "Go (one by one|step by step|in order|slowly).",
    "Check (each of them|all of them|every line).",
    "Think (first|step by step|before you decide).",
    "Do not (hurry|guess|skip one|be fooled by long texts|trust anybody).",
    "Only the results (matter|count).",
    "Ignore (the style|long words|how long they are|the spelling).",
    "End with the answer.",
    "Thank you!",
    "Thanks.",
    "Please.",
    "(They|Some) may be (short|long|wrong).",
    "Take care.",
    "Name (its|the) number.",
    "Say which.",
    "Give a reason.",
    "No long talk.",
    "If there is none, say 0.",
)

# roles that do not say what to select: the first right candidate
PLAIN = (
    "You are the judge.|Judge.|Check the {c}.|Evaluate the {c}.|Check.|Decide.|Compare the {c}.|You decide.|"
    "Make a decision.|Judge the {c}.|Please check.|Be the judge.|Check them.|What do you say?|Your verdict?"
).split("|")
FORMS = (
    "Write only: The best candidate is its number.",
    "Answer only with: The best candidate is its number.",
    "Say nothing but: The best candidate is its number.",
    "Write no more than: The best candidate is its number.",
    "Write only the number of the best candidate.",
    "Only the number, please: The best candidate is its number.",
    "No steps. Write: The best candidate is its number.",
    "No reasons, only: The best candidate is its number.",
    "Give the number only.",
    "Just the number.",
    "Answer with the number alone.",
    "Nothing but the number.",
    "No explanation, just which one.",
    "Write just the selection, no steps.",
    "Answer at once, without steps.",
    "Only name the best candidate.",
    "Tell only the number.",
    "Your whole answer: The best candidate is its number.",
    "One sentence: The best candidate is its number.",
    "Do not compare in writing, give the number alone.",
)


def role_text(d: Draw, kind: str, firsts: tuple[str, ...], level: float) -> str:
    """A role in open language. ``firsts``: ways to name the first candidate besides those of any list."""
    if kind == "right" and d.chance(0.06):
        return one(d, PLAIN, c=d.rng.choice(NOUNS)[1])
    a, c = d.rng.choice(NOUNS[:1] * 6 + NOUNS)
    first = d.rng.choice((*firsts, "the first one", "the first", f"the first {a}"))
    slots = {"a": a, "c": "candidates" if c == "ones" else c, "f": first}
    asked = d.rng.random()
    if asked < 0.25:
        said = one(d, QUESTIONS[kind], **slots)
    else:
        extra = asked < (0.55 if kind == "majority" else 0.38)
        do = one(d, REQUESTS[kind], **slots) if extra else f"{pick(d, VERBS)} {one(d, GOALS[kind], **slots)}"
        while not extra and do.startswith("list the first"):
            do = f"{pick(d, VERBS)} {one(d, GOALS[kind], **slots)}"
        said = one(d, LEADS, do=do, **slots) if d.chance(0.4) else start_sentence(do) + "."
        if d.chance(0.12) and not extra:
            said = start_sentence(one(d, GOALS[kind], **slots)) + d.rng.choice((".", "?", "!", ", please."))
    parts = [said]
    if d.chance(0.25 + 0.4 * level) and not said.startswith(("You are", "As ")):
        parts.insert(0, one(d, WHO, **slots))
    while d.chance(0.15 + 0.2 * level):
        aside = one(d, HOW, **slots) if d.chance(0.7) else pick(d, ASIDES)
        if aside in parts:
            break
        parts.insert(0 if d.chance(0.15) else len(parts), aside)
    text = " ".join(parts)
    if d.chance(0.06):
        text = text.lower()
    return text.rstrip(".") if d.chance(0.08) else text
