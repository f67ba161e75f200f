"""How a prompt over documents is laid out: the role, headers of documents, where the question stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from backend.prompts.tasks.base import Piece
from backend.prompts.tasks.facts import choose
from backend.prompts.tasks.words import Draw

WHO = (
    "You are (a|an attentive|the|our) (reader|librarian|researcher|assistant|student|editor|clerk|expert|"
    "detective).;You (read|are given|get|have|see) (some|a few|several|the|short) (documents|texts|notes|"
    "passages|sources).;You are (a helpful assistant|good at reading|an honest helper|a bot that reads).;I "
    "am (a|the) (teacher|boss|reporter).;Act as (a|our|the) (reader|librarian|helper|archivist).;You work "
    "(in|for) (a|our|the) (library|archive|newspaper|office|team).;Your (job|task|work) is to (read|search|"
    "study) (documents|texts|notes).;(Here|Below) (are|come) (some|the|a few) (documents|texts|facts|"
    "notes).;You answer questions (about|over|on) (texts|documents|notes).;Imagine you (are|work as) a "
    "(reader|librarian|researcher).;(These|The following) (texts|documents|notes) are (for you|short|all "
    "we have).;(Hello|Hi)! (I|We) need (help|an answer).;This is (a|our) (test|quiz|exercise) (in|of|for) "
    "reading."
)
TASK = (
    "Answer the question.;Answer the question (from|with|using|based on) the (documents|texts|notes|facts) "
    "[alone|only].;(Read|Use|Study|Look at|Search) the (documents|texts|notes|passages) and answer [the "
    "question].;(Find|State|Give|Name|Say|Quote) (the|each|every) (fact|sentence|line) [that you need] and "
    "(answer|say the answer).;Find (the|each) fact and answer the question.;(Read|Go through) (everything|"
    "all of it|the text) (first|carefully), then answer.;(What follows|The text) (answers|decides) (my|"
    "the) question.;Answer (step by step|in one line|from the text|with facts).;(Say|Write|State) what the "
    "(documents|texts|notes) (say|tell).;First (quote|state|give) the (fact|facts), then (answer|the "
    "answer).;(Tell|Show) me what (you find|is asked|is true).;Please (answer|help me|find it) [with the "
    "documents|from the notes].;(Look|Search) for (the answer|what is asked) [in the (texts|documents)]."
)
MANNER = (
    "Be (brief|careful|exact|short|honest|precise|quick).;Do not (guess|make things up|add anything|invent "
    "facts|explain).;(Stay with|Keep to|Use only|Trust) the (facts|text|documents).;(Take your time|Think "
    "first|Read closely|No small talk).;Write (one line|little|plainly|short sentences|in English).;"
    "(Others|Many people) will (read|check|see) (this|your answer).;Think step by step.;Copy (the facts|"
    "names) exactly.;Mind (the names|who is who|each word).;(One|A short) answer is enough.;Not "
    "(everything|all of it) (matters|is needed).;Please."
)
HEADS = (
    "Document {i}:~;Document {i}: ;Doc {i}:~;Doc {i}: ;⟨{i}⟩~;⟨{i}⟩ ;Text {i}:~;Text {i}: ;Passage {i}:~;"
    "Passage {i}: ;{i}. ;{i}) ;«{i}» ;Source {i}: ;Source {i}:~;Page {i}:~;Note {i}: ;Note {i}:~;Document "
    "{i} «{t}»:~;Document {i} «{t}»: ;Doc {i} - {t}:~;{t}:~;{t}: ;# {t}~;## Document {i}~;Article {i}:~;"
    "Article {i}: ;Document {i}~;DOCUMENT {i}:~;Document #{i}: ;D{i}: ;Letter {i}:~;Message {i}: ;File "
    "{i}:~;Paragraph {i}: ;Title: {t}~;Context {i}: ;<{i}> ;Chapter {i}:~;Item {i}: ;Fact {i}: ;Record "
    "{i}:~;Story {i}:~;=== {i} ===~"
)
HEAD_OF_ONE = (
    "Document:~;Text:~;Text: ;The text:~;Context:~;Context: ;Facts:~;Notes:~;Passage:~;Here is the text:~;"
    "Read this: ;Read this:~;The facts are:~;This is what we know: ;Story:~;Article: ;Information:~"
)
TITLES = (
    "Travel notes|Diary|News|A letter|Minutes|Report|Family|People|Town news|Notes|Facts|Memo|Our village|"
    "The club|Guide|Old papers|From the archive|Weekly|Names and places|Logbook|Interview|School paper|Who "
    "is who|Inventory|Market|Summary|Blog|Travel guide|Email|History|Chronicle|About us|Pets and people|"
    "Background|Miscellany|Reminder"
).split("|")
LABELS = (
    "The question is: ;Question: ;Question:~;Q: ;The question: ;My question: ;My question is: ;Now the "
    "question: ;Here is the question: ;Here is my question:~;Answer this: ;Please answer: ;Task: ;Query: ;"
    "User question: ;The user asks: ;Asked: ;What I want to know: ;The reader asks: ;Now answer: ;User: ;"
    "Your question: ;To answer: "
)


# brackets that belong to a label, which are no choice of a pattern
BRACKETS = str.maketrans("«»⟨⟩", "()[]")


@dataclass(frozen=True)
class Layout:
    """The template text of one prompt: the role, a header for each document, what stands between them."""

    role: str
    heads: tuple[str, ...]
    between: str
    label: str
    question_first: bool

    def pieces(self, texts: Sequence[str], question: str) -> list[Piece]:
        """The prompt, up to where the answer begins."""
        asked = [Piece(self.label), Piece(question, name="user_question")]
        read = []
        for number, (head, text) in enumerate(zip(self.heads, texts, strict=True), 1):
            before = (self.between if number > 1 else "") + head
            read += [Piece(before), Piece(text, name=f"document_{number}")]
        parts = [asked, read] if self.question_first else [read, asked]
        if self.role:
            parts = [[Piece(self.role)], *parts]
        found = parts[0]
        for part in parts[1:]:
            found = [*found, Piece(self.between + part[0].text), *part[1:]]
        return [piece for piece in (*found, Piece("\n")) if piece.text]


def draw_role(draw: Draw, who: str, task: str, manner: str) -> str:
    """A role's text of sentences of three sorts; now and then none."""
    if draw.chance(0.1):
        return ""
    parts = [(who, 0.6), (task, 0.8), (manner, 0.25)]
    said = [choose(draw, patterns) for patterns, share in parts if draw.chance(share)] or [choose(draw, task)]
    if draw.chance(0.2):
        draw.rng.shuffle(said)
    return draw.rng.choices((" ", "\n"), (9, 1))[0].join(said)


def draw_label(draw: Draw, labels: str, bare: float = 0.12) -> str:
    """What stands before a question or a message, if anything."""
    if draw.chance(bare):
        return ""
    return choose_kept(draw, labels)


def choose_kept(draw: Draw, labels: str) -> str:
    """A label with its last space or line break."""
    kept = re.sub(r" (;|$)", r"^\1", labels)  # a choice loses its last space
    return choose(draw, kept).replace("^", " ").replace("~", "\n").translate(BRACKETS)


def draw_layout(draw: Draw, count: int) -> Layout:
    """The layout of a prompt over ``count`` documents."""
    between = "\n\n" if draw.chance(0.15) else "\n"
    if count == 1 and draw.chance(0.6):
        head = draw_label(draw, HEAD_OF_ONE, 0.35)
    else:
        head = draw_label(draw, HEADS, 0.05)
    titles = draw.rng.sample(TITLES, count)
    heads = tuple(head.format(i=i, t=title) for i, title in enumerate(titles, 1))
    if not head and count > 1:
        between = "\n\n"
    role = draw_role(draw, WHO, TASK, MANNER)
    return Layout(role, heads, between, draw_label(draw, LABELS), draw.chance(0.2))
