"""Sentence patterns of word problems: who does what to how many, in the grammar of :meth:`Draw.say`.

``<give>`` is a verb in the story's tense, ``{n}`` the number, ``{i}`` the things, ``{s}`` who it is about (``{p}`` the
pronoun, ``{o}`` its object form, ``{h}`` the possessive), ``{x}`` somebody else, ``{c}`` a container.
"""

from __future__ import annotations

IRREGULAR = {
    "be": "was", "have": "had", "give": "gave", "get": "got", "buy": "bought", "find": "found", "win": "won",
    "lose": "lost", "sell": "sold", "eat": "ate", "make": "made", "take": "took", "bring": "brought", "catch": "caught",
    "grow": "grew", "draw": "drew", "build": "built", "knit": "knitted", "come": "came", "send": "sent", "lend": "lent",
    "leave": "left", "throw": "threw", "spend": "spent", "break": "broke", "pay": "paid", "steal": "stole",
    "forget": "forgot", "cut": "cut", "put": "put", "hide": "hid", "drink": "drank", "write": "wrote", "go": "went",
    "fall": "fell", "keep": "kept", "hold": "held", "begin": "began", "shut": "shut", "see": "saw", "tear": "tore",
    "say": "said", "tell": "told", "sing": "sang", "run": "ran", "sleep": "slept", "know": "knew", "think": "thought",
    "do": "did", "dig": "dug", "steal back": "stole back", "lay": "laid", "read": "read", "feel": "felt", "sit": "sat", "meet": "met", "hear": "heard", "teach": "taught", "show": "showed", "shoot": "shot",
    "fly": "flew", "swim": "swam", "sink": "sank", "burst": "burst", "die": "died", "feed": "fed", "rise": "rose",
    "bet": "bet", "split": "split", "let": "let", "set": "set", "wake": "woke", "hang": "hung", "shrink": "shrank", "wear": "wore", "stand": "stood", "lie": "lay", "ride": "rode", "cost": "cost", "speak": "spoke", "bend": "bent", "grind": "ground", "deal": "dealt", "bite": "bit", "dive": "dived", "hit": "hit",
    "turn": "turned", "melt": "melted", "roll": "rolled", "blow": "blew", "drive": "drove", "freeze": "froze",
}  # fmt: skip

# verbs that bring something in, and that take something away: with an object that is a number of things
GAIN_VERBS = (
    "find|buy|get|receive|win|collect|gather|earn|make|bake|borrow|inherit|order|discover|catch|grow|harvest|print|"
    "draw|build|produce|knit|gain|save|acquire|obtain|pick|pick up|dig up|bring home|bring in|take home|get back|"
    "fetch|import|purchase|accept|claim|craft|cook|add|stock|unpack|download|record|write|create|paint|score|hatch|"
    "plant|raise|secure|take in|pull out|lay|sew|carve|steal|mine|dig out|rescue|invent|photograph|sign|hire|adopt|"
    "install|load|rent|attract|welcome|trap|scan|upload|reserve|clone|forge|weave|stitch|bottle|spot and take"
).split("|")
LOSS_VERBS = (
    "give away|lose|sell|drop|hand out|throw out|throw away|eat|use|use up|spend|break|donate|return|waste|trade away|"
    "pay|discard|remove|ship|deliver|forget|misplace|burn|send away|give back|hand over|destroy|ruin|consume|drink|"
    "pass on|pass out|give up|tear up|delete|leave behind|recycle|crush|swallow|bury|"
    "scatter|auction|export|cut up|mail|post|dump|sacrifice|light|crash|smash|fire|release|free|cancel|"
    "feed to the dogs|melt|freeze|bet|gamble away|wreck|launch|hurl away|erase|scrap|demolish|chop up|retire|dismiss|"
    "unload|blow up|swap away|bequeath|forfeit|pawn|empty|rip|shatter|let go|set free|do away with"
).split("|")
TO_VERBS = "give|hand|sell|send|lend|pass|donate|mail|ship|offer|return|deliver|pay|present|bring|serve|throw|show".split(
    "|"
)[:-1]
FROM_VERBS = "get|receive|buy|borrow|take|collect|accept|win|inherit|obtain|order|claim|steal|earn|acquire|pick up".split(
    "|"
)
# what things and animals do by themselves: they are there no more, or there are more of them
LEAVE_VERBS = (
    "leave|fly away|run away|escape|disappear|vanish|melt|burst|die|go away|swim off|roll away|sink|explode|"
    "walk off|drive off|get lost|run off|move out|freeze|blow away|fall off|depart|get away|drift away"
).split("|")
COME_VERBS = (
    "arrive|come|join|appear|return|turn up|show up|land|come back|move in|grow|enter|gather|fly in|swim by|emerge|"
    "walk in|come along|follow|check in|come in|pop up"
).split("|")
SOMEONE = (
    "(a|her|his|my|the) (friend|brother|sister|neighbour|cousin|teacher|uncle|aunt|classmate|customer|colleague|child)|"
    "(a|the) (stranger|shop|museum|school|boy|girl|man|woman|visitor|charity|library|bakery)|{x}|{x}|{x}|mom|dad|grandma"
)
GOT = "({n} more {i}|{n} more|{n} {i}|another {n} [{i}]|{n} extra {i}|{n} (new|additional) {i}|{n})"
LOST = "({n}|{n} of them|{n} {i}|{n} of the {i}|{n} of {h} {i})"
WHERE = (
    "[(in the garden|at the market|on the way home|at school|in a drawer|at home|on the street|in town|at work|"
    "in the park|by the river|at a fair|on the bus|in the attic|online|at the shop|in the kitchen)]"
)
WHEN = (
    "[(on Monday|on Tuesday|on Sunday|in the morning|in the evening|at noon|today|the next day|later|that day|at night|"
    "after lunch|after school|in the afternoon|this week|last week|during the day)]"
)

START = (
    "{s} <have> {n} {i}.",
    "At first {s} <have> {n} {i}.",
    "{s} <own> {n} {i}.",
    "{s} <start> with {n} {i}.",
    "{s} <begin> with {n} {i}.",
    "In the beginning {s} <have> {n} {i}.",
    "There <be> {n} {i} in {c}.",
    "{c} <contain> {n} {i}.",
    "{s} <keep> {n} {i} in {c}.",
    "{s} <find> {n} {i} " + WHERE + ".",
    "{s} <buy> {n} {i} " + WHEN + ".",
    "{s} <have> a collection of {n} {i}.",
    "{s} <bring> {n} {i} " + WHERE + ".",
    "{n} {i} <lie> in {c}.",
    "{n} {i} belong to {S}.",
    "[In the morning|Today|On Monday|This morning] {s} <have> {n} {i} [in {c}].",
    "{s} <hold> {n} {i}.",
    "{s} <get> {n} {i} (for (a|the) birthday|from SOMEONE).",
    "{s} <make> {n} {i}.",
    "{s} <collect> {n} {i} " + WHERE + ".",
    "Before the trip {s} <have> {n} {i}.",
    "{s} <pack> {n} {i} into {c}.",
    "Initially, {s} <have> {n} {i}.",
    "{s} <have> exactly {n} {i} in {c}.",
    "{s} <count> {n} {i}.",
    "A total of {n} {i} belong to {S}.",
    "{s} <have> {n} {i} to begin with.",
    "{s} <possess> {n} {i}.",
    "Suppose {s} <have> {n} {i}.",
)
# what the one it is about does: verb phrases that can be joined
GAINS = (
    "<GAIN> GOT",
    "<GAIN> GOT WHERE",
    "<GAIN> GOT WHEN",
    "<FROM> GOT from SOMEONE",
    "<be> given GOT [by SOMEONE]",
    "<get> GOT from SOMEONE",
    "<receive> GOT [as a gift]",
    "<come> home with {n} more [{i}]",
    "<add> GOT to (the pile|the collection|{h} collection|{c}|them)",
    "<be> sent GOT by SOMEONE",
    "<buy> GOT for {q} (euros|dollars|coins|cents) [each|in total]",
    "<be> handed GOT by SOMEONE",
    "<win> GOT (in a game|in a bet|at a fair|in a contest)",
    "<go> out and <GAIN> GOT",
    "<put> {n} more [{i}] (into {c}|on top|beside them)",
    "<GAIN> (as many as|no fewer than|exactly) {n} more [{i}]",
    "<decide> to buy GOT",
    "<manage> to get GOT",
    "<get> a present of {n} {i}",
    "<be> lucky and <find> GOT",
    "<receive> {n}",
    "<find> {n} more",
    "<take> {n} more from {c}",
)
LOSSES = (
    "<LOSS> LOST",
    "<LOSS> LOST WHERE",
    "<LOSS> LOST WHEN",
    "<TO> LOST to SOMEONE",
    "<give> SOMEONE LOST",
    "<take> LOST out of {c}",
    "<sell> LOST for {q} (euros|dollars|coins|cents) [each|in total]",
    "<lose> LOST (in a game|in a bet|on the way|in the snow)",
    "<share> LOST with SOMEONE",
    "<go> out and <LOSS> LOST",
    "<use> LOST (for a cake|for a project|at work|to decorate the room)",
    "<have> to give LOST (back|away|to SOMEONE)",
    "<decide> to sell LOST",
    "<leave> LOST (on the bus|in the car|at school|behind)",
    "<let> SOMEONE have LOST",
    "<LOSS> (exactly|no fewer than|as many as) {n} of them",
    "<be> robbed of LOST",
    "<offer> LOST to SOMEONE, who <take> them",
    "<part> with LOST",
)
# what somebody or something else does
OTHERS_GAIN = (
    "SOMEONE <give> {o} GOT",
    "SOMEONE <bring> {o} GOT",
    "SOMEONE <hand> {o} GOT",
    "SOMEONE <send> {o} GOT",
    "{n} more {i} <arrive>",
    "{n} more {i} <be> added [to {c}]",
    "{n} more {i} <be> (brought|delivered|put) (there|in|to {S})",
    "SOMEONE <put> {n} more {i} into {c}",
    "GOT <come> (in the mail|by post)",
    "then {s} <be> given {n} (more|{i}) by SOMEONE",
    "SOMEONE <buy> {o} GOT",
    "from SOMEONE {s} <get> GOT",
    "GOT <be> found WHERE",
    "{n} [more|new|other] [{i}] <COME>",
    "{n} more <COME> WHERE",
    "{n} (more|others|new ones) <COME> WHEN",
)
OTHERS_LOSE = (
    "SOMEONE <take> LOST (from {o}|away)",
    "SOMEONE <steal> LOST",
    "SOMEONE <eat> LOST",
    "{n} of them <be> (lost|stolen|sold|broken|eaten|given away|thrown away|taken away)",
    "{n} {i} <be> (lost|stolen|sold|broken|given away|thrown out|taken by SOMEONE|removed from {c})",
    "{n} of them <go> missing",
    "{n} of them <break>",
    "{n} of them <fall> (on the floor and break|into the river)",
    "to SOMEONE {s} <give> LOST",
    "SOMEONE <borrow> LOST",
    "SOMEONE <buy> LOST from {o}",
    "LOST <be> used up",
    "SOMEONE <destroy> LOST",
    "{n} [of them|{i}|of the {i}] <LEAVE>",
    "{n} <LEAVE> WHEN",
    "{n} of the {i} <LEAVE> WHERE",
)
TWICE = (
    "then {s} <have> twice as many [{i}]",
    "{s} <double> {h} {i}",
    "the number of {i} <double>",
    "after that {s} <have> two times as many",
    "SOMEONE <double> the number of {h} {i}",
    "the amount <double>",
    "{s} <get> as many {i} again as {p} already <have>",
    "now there <be> twice as many",
    "{p} <make> it double",
    "overnight {h} {i} <double>",
    "{s} then <own> double that number",
)
TIMES = (
    "then {s} <have> {m} times as many [{i}]",
    "the number of {i} <grow> to {m} times as many",
    "after that {p} <have> {m} times as many",
    "now there <be> {m} times as many",
    "{h} {i} become {m} times as many",
    "{s} then <own> {m} times that number",
    "the amount <be> multiplied by {m}",
    "{s} soon <have> {m} times that many",
    "{p} <multiply> {h} {i} by {m}",
)
HALF = (
    "{s} <LOSS> half of (them|the {i}|{h} {i})",
    "{s} <give> half of (them|the {i}|{h} {i}) to SOMEONE",
    "half of (them|the {i}) <be> (lost|stolen|sold|broken|eaten|given away)",
    "SOMEONE <take> half of (them|the {i})",
    "{p} <keep> only half of them",
    "{p} <LOSS> half",
    "one half of the {i} <go> missing",
    "half of {h} {i} <break>",
    "{s} <share> them equally with SOMEONE",
    "{s} <have> only half as many [{i}] left",
    "{h} {i} <be> halved",
)
# a number of groups (m) of as many each (n)
GROUPS_GAIN = (
    "{s} <buy> {m} {C} with {n} {i} (each|in each)",
    "{s} <get> {m} {C} of {n} {i} each",
    "SOMEONE <give> {o} {m} {C} with {n} {i} in each [of them]",
    "{s} <find> {n} {i} (each|every) day for {m} days",
    "{s} <receive> {n} {i} from each of {m} friends",
    "{m} friends <give> {o} {n} {i} each",
    "for {m} days {p} <collect> {n} {i} a day",
    "{s} <fill> {m} {C}, each with {n} {i}",
    "{s} <win> {m} games and <get> {n} {i} for each",
    "{m} {C} <arrive>, each of which holds {n} {i}",
    "{s} <earn> {n} {i} an hour and <work> {m} hours",
)
GROUPS_LOSE = (
    "{s} <give> {n} {i} to each of {m} friends",
    "{s} <give> {m} friends {n} {i} each",
    "{s} <LOSS> {n} (each|every|a) day for {m} days",
    "{m} children <take> {n} {i} each",
    "{s} <sell> {m} {C} of {n} {i} each",
    "for {m} days {p} <eat> {n} (each|a) day",
    "{m} visitors each <get> {n} of them",
    "{s} <use> {n} for each of {m} cakes",
)
GROUPS_START = (
    "{s} <have> {m} {C} with {n} {i} (each|in each|in each of them).",
    "There <be> {m} {C} with {n} {i} in each.",
    "There <be> {n} {i} in each of {m} {C}.",
    "{s} <own> {m} {C} of {n} {i} each.",
    "Each of {m} {C} holds {n} {i}.",
    "{m} {C} hold {n} {i} each.",
    "{s} <buy> {m} {C}. Each (one|of them) has {n} {i} in it.",
    "{s} <pack> {n} {i} into each of {m} {C}.",
    "One (box|bag|pack) holds {n} {i}. {s} <have> {m} of them.",
    "{m} people <have> {n} {i} each.",
    "{s} <make> {n} {i} a day for {m} days.",
)
CONTAINERS = (
    "boxes|bags|baskets|jars|packs|crates|rows|shelves|drawers|buckets|tins|cartons|sacks|bowls|chests|trays|stacks|"
    "piles|bundles|packets|pockets|trucks|rooms|cases|barrels"
).split("|")
CONTAINER = (
    "the box|a box|the bag|a bag|the basket|a basket|the jar|a jar|the drawer|the bucket|the cupboard|a chest|the room|"
    "the garden|the shop|the kitchen|the bowl|the tin|the sack|the garage|the fridge|the pocket|the case|the shed"
).split("|")
ASK = (
    "How many {i} <does> {s} have now?",
    "How many {i} <does> {s} have in the end?",
    "How many {i} are left with {S}?",
    "How many {i} <does> {s} have left?",
    "How many {i} <does> {s} own now?",
    "How many {i} are there now?",
    "How many are left?",
    "How many <does> {s} have?",
    "How many {i} does that make?",
    "What is the number of {i} now?",
    "How many {i} remain?",
    "Find the number of {i} [that {s} has [now|in the end]].",
    "How many {i} <does> {s} end up with?",
    "So how many {i} are there [in the end|now|at the end]?",
    "Now how many {i} <does> {s} have?",
    "Tell me how many {i} {s} has now.",
    "Count the {i} that {s} has in the end.",
    "What is the final number of {i}?",
    "With how many {i} <does> {s} end?",
    "How many {i} in (total|all) <does> {s} have [now]?",
    "Calculate how many {i} {s} has [left|now].",
    "How many {i}?",
    "How many {i} has {s} got?",
    "Say how many {i} are left.",
    "What number of {i} <does> {s} have after (that|this|all this)?",
    "At the end, how many {i} <does> {s} have?",
    "How many {i} will {s} have [then]?",
    "How many {i} <does> {s} have after that?",
)
ASK_FIRST = (
    "How many {i} <does> {s} have in the end?",
    "How many {i} are left with {S} after this?",
    "How many {i} does {s} have if the following happens?",
    "Find the number of {i}.",
    "I want to know how many {i} {s} has in the end.",
    "Question: how many {i} <does> {s} have?",
    "Tell me how many {i} {s} ends up with.",
    "How many {i} will there be?",
    "Count the {i}:",
    "How many {i} has {s} got at the end of this story?",
    "Please work out how many {i} {s} has.",
)
FILLER = (
    "(It|Today) (is|was) a (rainy|cold|warm|windy|nice|long|beautiful|cloudy|busy) (day|morning|evening|Monday).",
    "{s} <like> {i} [very much|a lot].",
    "The weather (is|was) (nice|bad|good|fine).",
    "{s} <be> (happy|tired|hungry|busy|in a good mood|a kind person|very careful).",
    "{p} <be> (happy|sad|proud|glad) about (that|it).",
    "The {i} (are|look) (very|really|quite) (pretty|old|heavy|expensive|nice|small).",
    "{s} <live> in (a small village|a big city|{t}|the mountains|an old house).",
    "{s} <have> a (dog|cat|brother|sister|bicycle|garden).",
    "{h} favourite colour is {k}.",
    "{x} <be> a good friend of {o}.",
    "{s} <love> to (sing|dance|read|swim|play|cook|travel).",
    "The sun is shining.",
    "It <rain> all day.",
    "{x} <be> at home.",
    "Everybody <smile>.",
    "Then {p} <go> (home|to bed|to school|for a walk|to {t}).",
    "{s} <think> about it for a while.",
    "What a day!",
    "The bus <be> late.",
    "{x} <watch> from the window.",
    "In the evening {p} <read> a book.",
    "This <happen> in (spring|summer|autumn|winter|May|June).",
    "Nobody <know> why.",
    "{s} <say> hello to {x}.",
    "The story (takes place|happens) in {t}.",
    "{x} <like> {k} (shoes|hats|flowers|cars).",
    "(Listen|Look|Pay attention|Please help me with this|Here is a puzzle|Think carefully).",
    "Hello!",
    "{s} and {x} are friends.",
    "{p} <put> on a {k} hat.",
    "There is music in the street.",
    "The shop <be> closed on Sunday.",
)
# with a number that does not matter
ASIDE_AMOUNTS = (
    "{x} <have> {q} {j}.",
    "{x} <own> {q} {i}.",
    "{s} <be> {a} years old.",
    "{s} also <have> {q} {j}.",
    "It <be> {a} degrees outside.",
    "{x} <be> {a} years old.",
    "{s} <pay> {q} (euros|dollars) for (lunch|the bus|a coat).",
    "The way home <be> {a} kilometres long.",
    "{x} <see> {q} {j}.",
    "{s} <live> at number {q}.",
    "The (box|bag) <weigh> {a} kilos.",
    "There <be> {q} {j} in the next room.",
    "It <take> {a} minutes.",
    "{x} <find> {q} {j} " + WHERE + ".",
    "The bus number <be> {q}.",
    "School <begin> at {a} o'clock.",
)
CONNECT = ("Then ", "After that ", "Later ", "Next ", "Afterwards ", "Soon after, ", "In the end ", "Finally, ", "So ",
           "The next day ", "On the way home ", "A week later ", "Now ", "At noon ", "But then ")  # fmt: skip
