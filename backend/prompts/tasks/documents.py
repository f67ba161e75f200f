"""Questions over facts spread across documents: one hop or two."""

import random
from collections.abc import Sequence

from backend.prompts.tasks.base import COLORS, NAMES, PRESET_WORDS, Document, Piece, Style, is_held_out
from backend.prompts.tasks.facts import Statement, Story, choose, draw_story
from backend.prompts.tasks.layouts import draw_layout
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.whole_facts import Sentence, WholeStory, draw_whole_story
from backend.prompts.tasks.words import Draw, start_sentence

DOCUMENTS = phrases("documents")

CITIES: tuple[str, ...] = PRESET_WORDS.cities
LANDS: tuple[str, ...] = PRESET_WORDS.lands
FOODS: tuple[str, ...] = PRESET_WORDS.foods

READER = "You read documents. Find each fact and answer the question."
STOCK = 0.32  # share of training documents in the presets' words
WHOLE = 0.5  # share of the others whose facts are written whole
MOST_FURTHER = 7  # questions behind the first one
QUIZ = 0.85  # share of the rest that asks further questions, in training alone
# by relation: its sentence, and the question about it
FACTS: dict[str, str] = PRESET_WORDS.facts
ONE_HOP: dict[str, str] = PRESET_WORDS.one_hop
RANGE = {"boss": NAMES, "friend": NAMES, "city": CITIES, "color": COLORS, "food": FOODS, "land": LANDS}
TWO_HOPS = {
    (first, second): ask
    for first, who in (("boss", "{s} helps"), ("friend", "{s} trusts"))
    for second, ask in (
        ("city", f"The one whom {who} lives in what city?"),
        ("color", f"The one whom {who} likes what?"),
        ("food", f"The one whom {who} eats what?"),
    )
} | {("city", "land"): "The city that {s} lives in has what weather?"}
KINDS = ("one-hop", "two-hop")
Fact = tuple[str, str, str]  # subject, relation, object
Written = Statement | Sentence


def sentence(fact: Fact) -> str:
    """The fact as the documents say it."""
    return FACTS[fact[1]].format(s=fact[0], o=fact[2])


def draw_facts(rng: random.Random, kind: str, count: int) -> tuple[str, list[Fact], list[Fact]]:
    """The question, the facts that answer it, and others; a subject has one object per relation."""
    people = rng.sample(NAMES, min(len(NAMES), count + 3))
    subject = people[0]
    objects: dict[tuple[str, str], str] = {}

    def add(who: str, relation: str) -> Fact | None:
        if (who, relation) in objects:
            return None
        options = [x for x in RANGE[relation] if x != who and (x in people or relation in ("city", "land"))]
        if relation in ("color", "food"):
            options = list(RANGE[relation])
        objects[who, relation] = rng.choice(options)
        return who, relation, objects[who, relation]

    if kind == "one-hop":
        relation = rng.choice(list(ONE_HOP))
        who = rng.choice(CITIES) if relation == "land" else subject
        needed = [add(who, relation)]
        question = ONE_HOP[relation].format(s=who)
    else:
        first, second = rng.choice(list(TWO_HOPS))
        hop = add(subject, first)
        assert hop is not None
        needed = [hop, add(hop[2], second)]
        question = TWO_HOPS[first, second].format(s=subject)
    facts = [fact for fact in needed if fact]
    others: list[Fact] = []
    while len(others) < count:
        relation = rng.choice(list(FACTS))
        near = facts[-1][0] if rng.random() < 0.3 else rng.choice(people)
        who = rng.choice(CITIES) if relation == "land" else near
        if (who in CITIES) == (relation == "land") and (fact := add(who, relation)):
            others.append(fact)
    return question, facts, others


def make_documents(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    """(d) ``size`` documents (else up to 10) of some facts, and a question of one or two hops.

    In the presets' words the answer states each hop as the documents do: ``Nina helps Hugo. Hugo lives in
    Rome. The answer is Rome``. In open wording it comes at once, of two hops behind what leads from the first
    to the second: ``First Hugo. The answer is Rome``.
    """
    if style.wording == "stock" or (style.wording == "any" and size != 1 and rng.random() < STOCK):
        return _stock(rng, style, held_out, kind, size)
    return _open(rng, style, held_out, kind, size)


def _stock(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    count = size or min(style.upto(rng, 3, 10), style.upto(rng, 3, 10))
    while True:
        texts, question, facts = _draw(rng, kind, count, style)
        if is_held_out(question + " ".join(texts)) == held_out:
            break
    hops = " ".join(map(sentence, facts))
    answer = facts[-1][2]
    pieces = stock_pieces(READER, texts, question, f"{hops} The answer is {answer}")
    return Document("documents", kind, pieces, answer, count)


def stock_pieces(reader: str, texts: Sequence[str], question: str, answer: str) -> tuple[Piece, ...]:
    """The prompt over documents in the presets' words, and the answer."""
    pieces = [Piece(reader)]
    for number, text in enumerate(texts, 1):
        pieces += [Piece(f"\nDocument {number}:\n"), Piece(text, name=f"document_{number}")]
    pieces += [Piece("\nThe question is: "), Piece(question, name="user_question"), Piece("\n")]
    return (*pieces, Piece(answer, answer=True))


def _draw(rng: random.Random, kind: str, count: int, style: Style) -> tuple[list[str], str, list[Fact]]:
    extra = rng.randint(0, round(count * 0.8 * style.level))
    question, facts, others = draw_facts(rng, kind, count - (1 if kind == "one-hop" else 2) + extra)
    # each needed fact in a document of its own, the others anywhere
    homes = rng.sample(range(len(facts) if style.answers_first else count), len(facts))
    shelves: list[list[Fact]] = [[] for _ in range(count)]
    for fact, home in zip(facts, homes, strict=True):
        shelves[home].append(fact)
    for fact in others:
        empty = [shelf for shelf in shelves if not shelf]
        rng.choice(empty or [shelf for shelf in shelves if len(shelf) < 3] or shelves).append(fact)
    for shelf in shelves:
        rng.shuffle(shelf)
    texts = [" ".join(map(sentence, shelf)) for shelf in shelves]
    return texts, question, facts


def _open(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    hop_count = KINDS.index(kind) + 1
    while True:
        draw = style.draw(rng)
        most = 3 + round(7 * style.level)
        count = size or min(rng.randint(1, most), rng.randint(1, most))
        extra = max(count, 2) - hop_count + rng.randint(0, 1 + round((2 + count * 1.4) * style.level))
        whole = style.wording == "any" and draw.chance(WHOLE)
        story: Story | WholeStory
        if whole:
            story = draw_whole_story(draw, hop_count, max(1, extra))
        else:
            quiz = MOST_FURTHER if style.trains and draw.chance(QUIZ) else 0
            story = draw_story(draw, hop_count, max(1, extra), quiz)
        texts, hops = _write_documents(draw, count, story.needed, story.others, style.answers_first)
        if is_held_out(story.question + " ".join(texts)) == held_out:
            break
    layout = draw_layout(draw, count)
    # with a capital where the text has it at the start of a sentence
    answer = story.answer if story.answer in hops[-1] else start_sentence(story.answer)
    reasoning = f"First {story.bridge}. " if story.bridge else ""
    target = Piece(f"{reasoning}The answer is {answer}", answer=True)
    pieces = [*layout.pieces(texts, story.question), target]
    if isinstance(story, Story):
        told = "\n".join(texts)
        for question, found in story.further:
            found = found if found in told else start_sentence(found)
            pieces += [Piece(f"\n{question}\n"), Piece(f"The answer is {found}", answer=True)]
    return Document("documents", kind, tuple(pieces), answer, count)


def _write_documents(
    draw: Draw, count: int, needed: Sequence[Written], others: Sequence[Written], answers_first: bool
) -> tuple[list[str], list[str]]:
    """The documents' texts, and the sentences that hold the needed facts."""
    rng = draw.rng
    shelves: list[list[Written | None]] = [[] for _ in range(count)]
    homes: list[int] = []
    if answers_first or count >= len(needed):
        firsts = min(count, len(needed))
        homes = rng.sample(range(firsts if answers_first else count), firsts)
    homes += [rng.randrange(count) for _ in needed[len(homes) :]]
    for fact, home in zip(needed, homes, strict=True):
        shelves[home].append(fact)
    for fact in others:
        empty = [shelf for shelf in shelves if not shelf]
        rng.choice(empty or shelves).append(fact)
    fillers = [shelf for shelf in shelves if not shelf]
    fillers += [shelf for shelf in shelves if shelf and draw.chance(0.08)]
    for shelf in fillers:
        shelf.append(None)
    # sentences are separated in the same way in all documents
    mark = "" if draw.chance(0.06) else "."
    between = rng.choices((" ", "\n", "\n- "), (80, 14, 6))[0] if mark else "\n"
    joined = 0.12 if mark and draw.chance(0.3) else 0.0
    sentence_of: dict[int, str] = {}
    texts = []
    for shelf in shelves:
        rng.shuffle(shelf)
        sentences: list[str] = []
        while shelf:
            head = shelf.pop()
            if head is None:
                sentences.append(choose(draw, DOCUMENTS.fillers).rstrip("." if not mark else ""))
                continue
            facts, text = [head], head.text
            if shelf and (other := shelf[-1]) and draw.chance(joined):
                facts.append(other)
                shelf.pop()
                text += rng.choice((" and ", ", and ", ", but ", "; ")) + facts[1].text
            sentences.append(start_sentence(text) + mark)
            for fact in facts:
                sentence_of[id(fact)] = sentences[-1]
        lead = "- " if between == "\n- " else ""
        texts.append(lead + between.join(sentences))
    return texts, [sentence_of[id(fact)] for fact in needed]
