"""Word problems in situations: people in a bus, files on a phone, a rope that is cut, money, birds.

What happens is drawn as more, less or neither, from the tables of ``presets/tasks/situations.yaml``. The
first amount is given at the start, at the end or inside another sentence; what is clear may be left out.
"""

import re
from typing import Any

from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.story_teller import Person, Step, Story, StoryProblem, compute, draw_person, verb
from backend.prompts.tasks.words import Draw, start_sentence

SITUATIONS = phrases("situations")


PARTICLES = ("away", "out", "up", "off", "back", "in", "over", "down")
COUNT_WORDS = "two three four five six seven eight nine ten eleven twelve".split()
_DOUBLED = (
    "get put cut let sit win run drop ship set dig chop bet wrap forget grab knit shred snap scrap swap"
).split()
_BETWEEN = (" and ", " and ", ", then ", " and then ", ", and ", " and later ", ", but ")
_VERB = re.compile(r"<([A-Za-z ,{}']+)(?:/(\w*))?>")


def participle(base: str) -> str:
    """The form after *is*: ``given away`` of ``give away``."""
    head, _, tail = base.partition(" ")
    return f"{SITUATIONS.participles.get(head) or verb(head, '3', True)} {tail}".strip()


def gerund(base: str) -> str:
    """The form after *after*: ``giving away`` of ``give away``."""
    head, _, tail = base.partition(" ")
    if head.endswith("e") and not head.endswith(("ee", "oe")) and head != "be":
        head = "dying" if head == "die" else head[:-1] + "ing"
    elif head in _DOUBLED:
        head += head[-1] + "ing"
    else:
        head += "ing"
    return f"{head} {tail}".strip()


class Telling:
    """One story of a situation: whom it is about, what is counted, and its tense."""

    def __init__(self, d: Draw, situation: int | None = None) -> None:
        self.d = d
        tables = SITUATIONS.situations
        # the first table (anybody's things, any verb) is drawn a third of the time
        at = situation if situation is not None else 0 if d.chance(0.33) else d.rng.randrange(len(tables))
        self.table = tables[at]
        kind = d.pick_word(self.table["who"])
        if kind in ("person", "someone"):
            self.who = draw_person(d)
            while kind == "someone" and self.who.pronoun == "it":
                self.who = draw_person(d)
            if d.chance(0.08):
                self.who = Person("I", "I", "me", "my", "1", "1")
        elif kind == "they":
            self.who = Person("they", "they", "them", "their", "p", "p")
        else:
            self.who = Person(kind, "it", "it", "its")
        self.thing = d.thing() if self.table["of"] == ("THINGS",) else d.pick_word(self.table["of"])
        self.place = d.pick_word(self.table.get("at", ("there",)))
        self.past = d.chance(0.5)
        self.mentioned = False
        self.others = self._two_others()
        self.times = d.rng.choice(SITUATIONS.times) if d.chance(0.25) else ()

    def _two_others(self) -> list[str]:
        """Two names that have no word in common with the one it is about."""
        subject, others = self.who.subject.split(), list[str]()
        while len(others) < 2:
            others = [name for name in self.d.names(4) if name.split()[-1] not in subject]
        return others[:2]

    @property
    def top(self) -> int:
        return int(self.table.get("top", ("9999",))[0])

    def fill(self, pattern: str, past: bool | None = None, **more: Any) -> str:
        """A pattern with its choices made, its verbs in form and its slots filled."""
        d, person = self.d, self.who
        tense = self.past if past is None else past
        text = d.say(pattern)
        for name, options in (("BUY", SITUATIONS.buy), ("MORE", SITUATIONS.more), ("LESS", SITUATIONS.less)):
            if name in text:
                text = d.say(re.sub(rf"\b{name}\b", lambda _, o=options: o, text))  # type: ignore[misc]

        def form(match: re.Match[str]) -> str:
            base, how = match[1], match[2]
            if base in SITUATIONS.verbs:
                base = d.rng.choice(SITUATIONS.verbs[base])
            if how == "g":
                return participle(base)
            is_past = how in ("d", "d3", "dp") or (tense and how != "n")
            agrees = {"d3": "3", "dp": "p", "d": "", "n": ""}.get(how or "", how) or person.agrees
            return " and ".join(verb(part, agrees, is_past) for part in base.split(" and "))

        text = _VERB.sub(form, text)
        first, second = self.others
        slots = {
            "s": self.subject(), "p": person.pronoun, "o": person.object,
            "h": person.possessive,
            "i": self.thing, "l": self.place, "x": first if d.chance(0.7) else second, "y": second,
            "t": d.place(),
            "k": d.color(), **more,
        }  # fmt: skip
        if slots["y"] == slots["x"]:
            slots["y"] = first
        return text.format(**slots)

    def subject(self) -> str:
        """The name at its first mention, later a pronoun or the name again."""
        who, d = self.who, self.d
        if not self.mentioned:
            return who.subject
        if d.chance(0.5) and who.agrees == who.pronoun_agrees:
            return who.pronoun
        return re.sub(r"^an? ", "the ", who.subject)

    def event(self, kind: str, bare: bool = False) -> str:
        """What happens, as a pattern: ``bare`` where the things have not been named."""
        d = self.d
        pattern = d.pick(self.table[kind])
        pattern = pattern.replace("TO", "").replace("GIVEP", "<GIVE/p>").replace("GIVE ", "<GIVE/3> ")
        if "ANY" in pattern or "DONE" in pattern:
            base = d.rng.choice(SITUATIONS.gain if kind == "up" else SITUATIONS.lose)
            head, _, last = base.rpartition(" ")
            form = "lose" if "{x}" in base else base.replace("be ", "")
            pattern = pattern.replace("DONE", f"<{form}/g>")
            how = "/3" if "ANYX" in pattern else ""
            verb_part, tail = (head, f" {last}") if last in PARTICLES and d.chance(0.4) else (base, "")
            pattern = re.sub(r"ANYX? (MORE|LESS)", lambda m: f"<{verb_part}{how}> {m[1]}{tail}", pattern)
        elif kind != "same" and self.table["of"] == ("THINGS",) and d.chance(0.12):
            pattern = re.sub(r"^\{s\} ", "{s} also ", pattern)
        things = self.table["of"] == ("THINGS",)
        if things and d.chance(0.4) and ("ANY" in pattern or re.match(r"\{s\} <", pattern)):
            pattern += f" ({SITUATIONS.tail_up if kind == 'up' else SITUATIONS.tail_down})"
        return named(pattern) if bare else pattern


def named(pattern: str) -> str:
    """The pattern with the things named beside their number."""
    pattern = re.sub(r"\b(MORE|LESS)\b", "{n} {i}", pattern, count=1)
    return re.sub(r"\{n\} (more )?\[[^\]]*\](?: \[\{i\}\])?", "{n} {i}", pattern, count=1)


def number(d: Draw, n: int, share: float = 0.08) -> str:
    """A number in digits, a small one now and then in letters."""
    return COUNT_WORDS[n - 2] if 2 <= n <= 12 and d.chance(share) else str(n)


def draw_situation(d: Draw, story: Story, steps: int) -> StoryProblem:
    """An amount in a situation that changes about ``steps`` times."""
    t, rng = Telling(d), d.rng
    top = min(story.highest, t.top)
    low = min(story.lowest, top // 4)
    value = start = d.number(max(4, low), top)
    solution: list[Step] = []
    events: list[str] = []  # patterns of events, with their numbers as slots
    slots: list[dict[str, Any]] = []
    hidden = rng.choices(("", "late", "inside"), (80, 10, 10))[0]
    while len(solution) < max(1, steps):
        if events and d.chance(0.12) and value > 2:
            events.append(t.event("same"))
            slots.append({"w": rng.randint(2, min(value, 99))})
            continue
        gain = d.chance(0.45) and value + 2 <= top and not (hidden == "inside" and not solution)
        if not gain and value < 4:
            gain = True
        pattern = t.event("up" if gain else "down", bare=not events and bool(hidden))
        op = "+" if gain else "-"
        most = top - value if gain else value - 1
        if "{m}" in pattern:
            m = rng.randint(2, 6)
            u = d.number(2, max(2, most // m))
            if m * u > most or hidden:
                continue
            solution.append((m, "*", u))
            slots.append({"m": number(d, m), "u": u})
            n = m * u
        else:
            n = d.number(max(2, min(low, most)), max(2, most))
            slots.append({"n": number(d, n)})
        events.append(pattern)
        solution.append((value, op, n))
        value = compute(*solution[-1])
        if value > top or value < 0:
            return draw_situation(d, story, steps)
    sentences = _start(t, start, hidden, events, slots)
    ask = d.phrase(t.table["ask"])
    ask = ask.replace("<does>", verb("does", t.who.agrees, t.past and d.chance(0.4)))
    if hidden or len(events) > 2 or not d.chance(0.06) or not ask.startswith("How"):
        sentences.append(start_sentence(t.fill(ask, past=False)) + "?")
    else:
        clauses = [x.rstrip(".") for x in sentences]
        t.mentioned = False
        question = t.fill(ask, past=False)
        keep = (*t.others, t.who.subject[0].isupper() and t.who.subject.split()[0], "I")
        clauses = [x if x.split()[0] in keep else x[:1].lower() + x[1:] for x in clauses]
        sentences = [start_sentence(f"{question} if {' and '.join(clauses)}?")]
    for share, patterns in ((story.filler, SITUATIONS.asides), (story.amounts, SITUATIONS.numbered)):
        if d.chance(share) and len(sentences) > 1:
            t.mentioned = True
            text = start_sentence(t.fill(d.pick(patterns), a=rng.randint(2, 99)))
            sentences.insert(rng.randint(0, len(sentences) - 1), text)
    return re.sub(r" +", " ", " ".join(sentences)), solution, value


def _start(t: Telling, value: int, hidden: str, events: list[str], slots: list[dict[str, Any]]) -> list[str]:
    """The sentences before the question: what there is at first, and what happens."""
    d = t.d
    sentences: list[str] = []
    amount = number(d, value)
    if not hidden:
        pattern = d.pick(t.table["start"])
        while "{m}" in pattern:
            pattern = d.pick(t.table["start"])
        text = t.fill(pattern, n=amount)
        has_time = re.match(r"(?i)(in|on|at|after|last|yesterday|today|before|the) ", text)
        sentences.append(start_sentence(text) + "." if has_time else _timed(t, text, 0))
        t.mentioned = "{s}" in pattern or t.mentioned
    elif hidden == "inside":
        first = events[0]
        # excludes phrases such as *5 of the 30 degrees colder*
        if "{n} {i}" in first and not re.search(r"^it |\bby \{n\}|\{i\} (\(|\w+er\b)", first):
            owner = "{h}" if t.table["who"] == ("person",) and "{s} " in first[:4] else "the"
            events[0] = first.replace("{n} {i}", f"{{n}} of {owner} {value} {{i}}", 1)
        else:
            sentences.append(_timed(t, t.fill(d.pick(t.table["start"]), n=amount), 0))
        t.mentioned = t.mentioned or bool(sentences)
    has_subject = [pattern.startswith("{s} ") for pattern in events]
    at, late_at = 0, -1
    if hidden == "late":
        late_at = len(events) if d.chance(0.6) else d.rng.randint(1, len(events))
    while at < len(events):
        if at == late_at:
            sentences.append(start_sentence(t.fill(d.pick(t.table["late"]), n=amount)) + ".")
            late_at = -1
        begin = at
        if has_subject[at] and at + 1 < len(events) and has_subject[at + 1] and d.chance(0.12):
            verb_form = re.sub(
                r"^\{s\} (?:also )?<([^/>]+)>",
                lambda m: "After " + gerund(d.pick(SITUATIONS.verbs.get(m[1], (m[1],)))),
                events[at],
            )
            if verb_form.startswith("After ") and "(" not in verb_form.split("ing")[0]:
                text = f"{t.fill(verb_form, **slots[at])}, {_clause(t, events[at + 1], slots[at + 1], True)}"
                sentences.append(start_sentence(text) + ".")
                at += 2
                continue
        text = _clause(t, events[at], slots[at], True)
        t.mentioned = t.mentioned or has_subject[at]
        while at + 1 < len(events) and d.chance(0.4) and at + 1 != late_at:
            both = has_subject[at] and has_subject[at + 1]
            at += 1
            text += d.rng.choice(_BETWEEN) + _clause(t, events[at], slots[at], not both)
        sentences.append(_timed(t, text, begin + 1))
        at += 1
    if late_at >= 0:
        sentences.append(start_sentence(t.fill(d.pick(t.table["late"]), n=amount)) + ".")
    return sentences


def _clause(t: Telling, pattern: str, slots: dict[str, Any], subject: bool) -> str:
    return t.fill(pattern if subject else pattern.removeprefix("{s} "), **slots)


def _timed(t: Telling, text: str, at: int) -> str:
    """A sentence, with a word on when it happens before or behind it now and then."""
    d = t.d
    if t.times and at < len(t.times):
        time = t.times[at]
    elif at and d.chance(0.3):
        time = d.pick(SITUATIONS.single_times)
    else:
        return start_sentence(text) + "."
    if d.chance(0.6) or ", " in text or time in ("next", "again"):
        return start_sentence(time) + d.rng.choice((" ", " ", ", ")) + text + "."
    return f"{start_sentence(text)} {time}."
