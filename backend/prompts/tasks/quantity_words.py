"""Tables for comparisons, rates, groups, lists and prices, in the grammar of :mod:`situation_words`."""
# A line is a list of patterns.
# ruff: noqa: E501

from __future__ import annotations

# {s} and {t} are compared: THAN and AS name {s}, or nobody where that is clear; {u} is asked about
COMPARED = """
who: person
of: THINGS
base: {s} <have> {n} {i};{s} <own> {n} {i};{s} <(buy|find|collect|count|get|make|draw|keep|win)> {n} {i};there are {n} {i} in {z} bag;{z} {i}: {n};{n} {i} belong to {r};{s} <have> got {n} {i}
more: {t} <(have|own|get|count|find|buy)/3> {n} more [{i}] THAN;{t} <have/3> {n} [{i}] more THAN;{t} <have/3> got {n} (more|extra) [{i}] THAN;compared with {r}, {t} <have/3> {n} more;{t} is {n} {i} ahead of {r}
less: {t} <(have|own|get|count|find|buy)/3> {n} (fewer|less) [{i}] THAN;{t} <have/3> {n} (fewer|less) THAN;{t} is {n} {i} behind {r};compared with {r}, {t} <have/3> {n} fewer
times: {t} <(have|own|get|count|find|buy|collect)/3> {m} as many [{i}] AS;{t} <have/3> {m} the number of {i} AS
ask: How many {i} does {u} have;How many does {u} have;How many {i} has {u} got;How many {i} does {u} (own|have) [in total|now]
all: How many {i} do they have (together|in total|altogether|in all);How many {i} is that (together|altogether|in all|in total);How many {i} do {r} and {t} have together
apart: How many more {i} does {u} have;What is the difference;By how many {i} is {u} ahead

top: 70
who: person
of: years|years|months
base: {s} <be> {n} {i} old;{s} <be> {n};{z} age is {n};{s} (is|will be) {n} {i} old
more: {t} <be/3> {n} {i} older THAN;{t} <be/3> {n} {i} older THAN;{t} <be/3> older THAN by {n} {i};{t} was born {n} {i} before {r};{t} <be/3> the older one by {n} {i}
less: {t} <be/3> {n} {i} younger THAN;{t} <be/3> {n} {i} younger THAN;{t} was born {n} {i} after {r};{t} <be/3> younger THAN by {n} {i}
times: {t} <be/3> {m} as old AS;{z} (mother|aunt|uncle|dog|house), {t}, <be/3> {m} as old
ask: How old is {u};What is the age of {u};How many {i} old is {u};What age is {u}
all: How old are they together;What do their ages add up to;What is the sum of their ages
apart: How many {i} older is {u};What is the difference of their ages;By how many {i} is {u} older

top: 400
who: person
of: centimeters|inches|cm
base: {s} <be> {n} {i} tall;{s} <measure> {n} {i};{z} height is {n} {i}
more: {t} <be/3> {n} {i} (taller|bigger) THAN;{t} <be/3> taller THAN by {n} {i}
less: {t} <be/3> {n} {i} (shorter|smaller) THAN;{t} <be/3> (shorter|smaller) THAN by {n} {i}
times: {t} <be/3> {m} as tall AS
ask: How tall is {u};What is the height of {u};How many {i} does {u} measure
all: How tall are they together;How many {i} is that together
apart: How many {i} taller is {u};What is the difference

who: the box|the bag|the dog|the cat|the stone|the chair|the parcel|the suitcase|the melon|the bike|the table|the horse|the pig|the cake|the child|the sack
of: kilos|pounds|grams|tons|kilograms
base: {s} <weigh> {n} {i};{s} <have> a weight of {n} {i};the weight of {s} is {n} {i};{s} <be> {n} {i} heavy
more: {t} <be/3> {n} {i} heavier THAN;{t} <weigh/3> {n} {i} more THAN;{t} <weigh/3> {n} more THAN
less: {t} <be/3> {n} {i} lighter THAN;{t} <weigh/3> {n} {i} less THAN;{t} <weigh/3> {n} less THAN
times: {t} <be/3> {m} as heavy AS;{t} <weigh/3> {m} as much AS
ask: How much does {u} weigh;How heavy is {u};What is the weight of {u};How many {i} does {u} weigh
all: How much do they weigh together;How much do both weigh;How heavy are they together
apart: How much heavier is {u};What is the difference in weight;How many {i} heavier is {u}

who: the lamp|the coat|the bike|the chair|the hat|the tent|the radio|the table|the cup|the ticket|the cake|the watch|the ring|the game|the toy|the shirt|the bag
of: euros|dollars|pounds|cents|francs|yen|pesos|coins
base: {s} <cost> {n} {i};the price of {s} is {n} {i};{s} <be> sold for {n} {i};{s} <be> {n} {i};one <pay/3> {n} {i} for {s}
more: {t} <cost/3> {n} {i} more THAN;{t} <cost/3> {n} more THAN;{t} <be/3> {n} {i} (dearer|more expensive) THAN
less: {t} <cost/3> {n} {i} less THAN;{t} <cost/3> {n} less THAN;{t} <be/3> {n} {i} cheaper THAN
times: {t} <cost/3> {m} as much AS;{t} <be/3> {m} as expensive AS
ask: How much does {u} cost;What does {u} cost;What is the price of {u};How many {i} does {u} cost;How much is {u}
all: How much do they cost together;What do both cost [together];How much is that in (all|total)
apart: How much more does {u} cost;What is the difference in price;How many {i} dearer is {u}

who: the blue ribbon|the rope|the red fence|the river|the bridge|the road|the green pipe|the wall|the train|the ship|the street|the snake|the first stick|the tower|the hill|the tree
of: meters|feet|kilometers|miles|inches|yards
base: {s} <be> {n} {i} long;the length of {s} is {n} {i};{s} <measure> {n} {i}
more: {t} <be/3> {n} {i} longer THAN;{t} <be/3> longer THAN by {n} {i};{t} <measure/3> {n} {i} more THAN
less: {t} <be/3> {n} {i} shorter THAN;{t} <be/3> shorter THAN by {n} {i};{t} <measure/3> {n} {i} less THAN
times: {t} <be/3> {m} as long AS
ask: How long is {u};What is the length of {u};How many {i} does {u} measure
all: How long are they together;What is the length of both [together]
apart: How many {i} longer is {u};What is the difference in length

who: the film|the play|the trip|the first lesson|the flight|the song|the match|the game|the walk|the concert|the second lesson|the drive|the test
of: minutes|hours|seconds|days
base: {s} <(take|last)> {n} {i};{s} <be> {n} {i} long;one <need/3> {n} {i} for {s}
more: {t} <(take|last)/3> {n} {i} (longer|more) THAN;{t} <be/3> {n} {i} longer THAN
less: {t} <(take|last)/3> {n} {i} less THAN;{t} <be/3> {n} {i} shorter THAN
times: {t} <(take|last)/3> {m} as long AS
ask: How long does {u} (take|last);How many {i} does {u} take;How long is {u}
all: How long do they take together;How many {i} are both together
apart: How many {i} longer is {u};What is the difference

who: person
of: kilometers|miles|laps|steps|points|goals|pages|euros|hours|words|dollars|sentences
base: {s} <do> {n} {i};{s} <(score|walk|read|manage|get|run|earn|write)> {n} {i};{s} <have> {n} {i}
more: {t} <(do|get|manage|have)/3> {n} more [{i}] THAN;{t} <do/3> {n} [{i}] more THAN
less: {t} <(do|get|manage|have)/3> {n} (fewer|less) [{i}] THAN
times: {t} <(do|get|manage|have)/3> {m} as many [{i}] AS
ask: How many {i} does {u} (do|have|get|manage);How many does {u} have;How many {i} is that for {u}
all: How many {i} do they have (together|in all|altogether);How many {i} is that together
apart: How many {i} more does {u} have;What is the difference
"""
# what somebody does at a rate: verb and things
RATES = (
    "read chapters|run kilometers|bake cakes|write letters|earn dollars|save cents|paint pictures|pick apples|walk miles|"
    "plant trees|solve puzzles|learn words|type lines|answer calls|wash cars|sell tickets|drink glasses|eat nuts|build chairs|"
    "knit scarves|fold shirts|make candles|print posters|catch fish|pack boxes|draw maps|swim laps|milk cows|take photos|"
    "collect stamps|lay bricks|cook meals|send emails|repair bikes|spend euros|clean rooms|produce bottles|carry stones|fill bags|play games|climb stairs"
).split("|")
SPANS = "day|hour|week|minute|month|year|evening|morning|night|lesson".split("|")
RATE = (
    "{s} <DO> {n} {i} (every|each|a|per|in one|in a) {d}. How many {i} <does> {s} DO in {m} {d}s?",
    "(Every|Each) {d} {s} <DO> {n} {i}. How many {i} is that in {m} {d}s?",
    "In one {d} {s} <DO> {n} {i}. How many {i} <does> {s} DO in {m} {d}s?",
    "For {m} {d}s {s} <DO> {n} {i} (a|every|each) {d}. How many {i} [is that|are there] [in all|altogether]?",
    "How many {i} <does> {s} DO in {m} {d}s if {s} <DO> {n} (a|per|every|each) {d}?",
    "{s} <DO> {n} {i} (a|per) {d} and <go> on for {m} {d}s. How many {i} is that?",
    "{s} <need> one {d} for {n} {i}. How many {i} <does> {s} DO in {m} {d}s?",
    "{s} always <DO> {n} {i} (a|per) {d}. How many [{i}] will it be after {m} {d}s?",
)
RATE_LEFT = (
    "There are {v} {i} [in all]. {s} <DO> {n} [{i}] (every|each|a|per) {d}. How many {i} are (left|still to do) after {m} {d}s?",
    "{s} <want> to DO {v} {i}. {s} <DO> {n} (a|every|each) {d} for {m} {d}s. How many {i} are (left|missing)?",
    "{v} {i} are waiting. For {m} {d}s {s} <DO> {n} (a|every) {d}. How many {i} remain?",
)
# what holds how many of what: {m} of the first with {n} of the last each
CARRIERS = (
    "trees have apples|squads have runners|ducks have ducklings|shelves hold books|buses carry people|tables have legs|houses have windows|"
    "flats have rooms|dogs have puppies|cars have wheels|boxes contain nails|classes have pupils|bags hold nuts|rows have chairs|"
    "books have chapters|teams have swimmers|plates hold cookies|bushes have roses|turtles have babies|shirts have buttons|boats carry sailors|"
    "albums have pictures|crates hold bottles|weeks have lessons|halls have seats|drawers hold spoons|spiders have legs|packets contain seeds|"
    "jars contain sweets|gardens have bushes|towers have floors|trains have coaches|games have levels|nests hold chicks|villages have shops|boys carry bags"
).split("|")
CARRIED = (
    "There are {m} {C}. Each [of them|{c}] <V/3> {n} {i}.", "{m} {C} <V/p> {n} {i} each.", "Each of {m} {C} <V/3> {n} {i}.", "{s} <own> {m} {C}, and each {c} <V/3> {n} {i}.",
    "{s} <have> {m} {C}. Each {c} <V/3> {n} {i}.", "{s} <have> {m} {C}. (Every|Each) (one|{c}) <V/3> {n} {i}.", "One {c} <V/3> {n} {i}. There are {m} {C}.", "{m} {C} each <V/p> {n} {i}.",
    "Every {c} <V/3> {n} {i}. {s} <have> {m} {C}.", "{s} <see> {m} {C} with {n} {i} each.", "{s} <buy> {m} {C} with {n} {i} (each|in each {c}|apiece).", "There are {m} {C} with {n} {i} each.",
)  # fmt: skip
EACH = (
    "Each of (the|) {m} {g} (gets|needs|eats|takes|receives|brings|buys) {n} {i}.", "{m} {g} (need|get|bring|take|want|eat) {n} {i} each.",
    "{s} <give> {n} {i} to (each|every one) of {m} {g}.", "{s} <give> each of {m} {g} {n} {i}.", "There are {m} {g}. Each one (gets|needs|brings|takes) {n} {i}.",
    "For each of {m} {g} {s} <need> {n} {i}.", "{m} {g} come, and each (gets|brings|takes) {n} {i}.",
)  # fmt: skip
GROUP = "guests|runners|pupils|dogs|boys|girls|nurses|players|tourists|workers|cousins|nephews|teachers|babies|singers|horses|rooms|teams".split(
    "|"
)
ASK_EACH = (
    "How many {i} is that [in all|altogether|in total]?", "How many {i} are (needed|there) [in all|altogether]?", "How many {i} [in all|altogether]?",
    "How many [{i}] do they have (together|altogether|in all)?", "What is the number of {i}?", "How many {i} must there be?", "How many {i} does that make?",
)  # fmt: skip
SHARED = (
    "{s} <(share|split|divide|deal out)> {v} {i} [equally|evenly|fairly] (among|between) {m} {g}. How many {i} does each [of them|one] get?",
    "{m} {g} <(share|split|divide)/p> {v} {i} (equally|evenly|fairly). How many (does each get|{i} does each of them get|are there for each)?",
    "{s} <have> {v} {i} and <give> each of {m} {g} the same number. How many does each get?",
    "{v} {i} are (divided|split|shared) [equally|evenly] (among|between|by) {m} {g}. How many {i} (for each|does each have|does one get)?",
    "There are {v} {i} for {m} {g}. How many can each (have|get) [if all get the same]?", "{v} {i} for {m} {g}: how many each?",
    "{s} <(put|pack|lay)> {v} {i} into {m} {C}, the same number in each. How many {i} are in each {c}?",
    "{s} <(put|pack|place|sort)> {v} {i} (equally|evenly) into {m} {C}. How many {i} are in (one|each|a) {c}?",
    "{v} {i} fill {m} {C}. How many {i} fit into one {c}?", "{m} {C} hold {v} {i} [in all]. How many {i} does one {c} hold?",
    "{s} <(put|pack)> {v} {i} into {C}, {m} in each. How many {C} are (there|needed|filled)?", "A {c} holds {m} {i}. How many {C} <do/p> {v} {i} (fill|need)?",
    "{s} <make> {C} of {m} {i} from {v} {i}. How many {C} are there?", "{s} <pay> {v} euros for {m} {i}. How much is one?",
    "{m} {i} cost {v} dollars. What does one cost?", "{s} <need> {v} minutes for {m} {i}. How many minutes is that for each?",
)  # fmt: skip
# a whole and its kinds
KINDS = {
    "animals": "leopards|zebras|bears|wolves|camels|hippos|elephants|foxes|seals|goats|snakes|horses|deer|apes|giraffes|penguins|owls|rabbits",
    "vehicles": "cars|trucks|vans|bikes|buses|trams|taxis|scooters|tractors|motorbikes",
    "fruits": "apples|pears|plums|oranges|figs|lemons|kiwis|mangoes|peaches|limes|bananas",
    "flowers": "roses|tulips|daisies|lilies|asters|violets|poppies|irises",
    "people": "men|women|children|boys|girls|babies|adults|teachers|students",
    "toys": "dolls|balls|blocks|trains|puzzles|robots|kites|bears|tops",
    "vegetables": "carrots|onions|beans|leeks|peppers|beets|potatoes|cucumbers",
    "pieces of furniture": "tables|chairs|beds|desks|shelves|sofas|stools|lamps",
    "drinks": "teas|coffees|juices|colas|beers|waters|lemonades",
    "instruments": "guitars|drums|flutes|violins|pianos|horns|harps",
    "coins": "pennies|dimes|nickels|quarters|gold coins|silver coins|copper coins",
    "birds": "ducks|geese|swans|crows|gulls|hawks|doves",
    "clothes": "shirts|socks|coats|hats|scarves|gloves|skirts|jackets",
    "tools": "hammers|saws|drills|files|axes|wrenches|screwdrivers",
    "things": "keys|cups|books|pens|spoons|boxes|bottles|stones|caps|ropes|maps",
}  # fmt: skip
SPOTS = (
    "in a (park|barn|garden|shop|hall|street|box|house|town|yard|shed|club|camp|field)|on (a farm|a shelf|an island|the street|the list|a table)|at (the market|the harbour|school)|in the (store|museum|cellar|room|forest|picture)"
)  # fmt: skip
LISTED = (
    "there (are|were) {list} {l}", "{s} <have> {list}", "{l} there are {list}", "{s} <(see|count|own|buy|find|collect|bring|pack)> {list} [{l}]", "{list} are {l}", "you can see {list} {l}", "we (have|see|count) {list}",
)  # fmt: skip
LIST_LOSS = "{n} [of the] {i} <(get lost|run away|go|break|disappear|get stolen|leave|go missing|fall out|move away|vanish)/p>|{n} [of the] {i} are (sold|taken away|removed|stolen|given away|lost|brought away)|{x} <(take|sell|lose|remove|give away|buy)/3> {n} [of the] {i}".split("|{")  # fmt: skip
LIST_GAIN = "{n} more {i} (come|arrive|are added|are bought|join them|are found)|{x} <(bring|add|buy|find)/3> {n} more {i}".split(
    "|{"
)
ASK_LIST = (
    "How many {w} are there [in all|altogether|in total|now]?", "How many {w} is that [together|in all]?", "What is the number of {w}?", "How many {w} are {l} [altogether|now|in all]?",
    "How many {w} [altogether|in total]?", "Count the {w}.", "How many {w} are there all together?",
)  # fmt: skip
PERIODS = {
    "months": "in August|in September|in March|in April|in July|in October|last month|this month",
    "days": "on Monday|on Tuesday|on Friday|yesterday|today|on the first day|on the second day|on Saturday|on Sunday",
    "weeks": "last week|this week|in the first week|in the second week|in the third week",
    "years": "last year|this year|in 2019|in 2020|in the first year|in the second year",
    "rounds": "in the first round|in the second round|in round three|in the last round|in round four",
    "places": "at home|at school|in the park|at the market|in {t}|in the kitchen|at work|in the garden",
}  # fmt: skip
PERIOD_DO = "sell|make|find|collect|buy|have|see|get|count|write|pick|bake|need|catch|win|earn|receive|repair|print|produce".split(
    "|"
)
ASK_PERIOD = (
    "How many {i} is that (altogether|in all|in total|together)?", "How many {i} <does> {s} DO in {both} {periods}?", "How many {i} (together|altogether|in all) in {both} {periods}?",
    "How many {i} <does> {s} DO (altogether|in all|in total)?", "What is the total [number of {i}]?", "How many {i} were there in {both} {periods}?",
)  # fmt: skip
GOODS = "cup|hat|lamp|bag|ball|chair|bun|apple|card|key|shirt|cake|stamp|toy|bottle|melon|pencil|tea|coffee|plate|sandwich|ruler|candle|poster|comic|ticket|brush|juice|orange|roll|notebook|mug".split(
    "|"
)
PRICED = (
    "(A|One) {a} costs {p} {e} and (a|one) {b} costs {q} {e}.", "A {a} is {p} {e}, a {b} is {q} {e}.", "{A} cost {p} {e} each, {B} {q} {e} each.", "A shop sells {A} for {p} {e} and {B} for {q} {e} [each].",
    "The price of a {a} is {p} {e}. The price of a {b} is {q}.", "One {a}: {p} {e}. One {b}: {q} {e}.", "{s} <pay> {p} {e} for a {a} and {q} {e} for a {b}.", "You pay {p} {e} a {a} and {q} {e} a {b}.",
)  # fmt: skip
ASK_PRICED = (
    "How much (are|is|do we pay for) {x}?", "How much (do|will) {x} cost?", "{s} <buy> {x}. How much <does> {s} pay?", "{s} <take> {x}. How many {e} is that?", "What do {x} cost [together|in all]?",
    "{s} <order> {x}. What does it cost?", "What is the price of {x}?", "How many {e} <does> {s} need for {x}?",
)  # fmt: skip
# a part of something, and what the rest is; KEPT_PARTS: the whole is as many as before
KEPT_PARTS = "painted|{k}|asleep|wet|wear|clean|old|from|small|wrapped|wood|counted|locked|swim"
PARTS = (
    "are (hurt|ill|injured)>are (fit|healthy|well)|are not hurt", "are (broken|damaged|cracked)>are (whole|fine|good)|still work", "are painted {k}>are not [painted] {k}|have another colour", "are {k}>are not {k}|have another colour|are of another colour",
    "are full>are (empty|not full)", "are asleep>are (awake|not asleep)", "are (ripe|ready)>are not (ripe|ready)|are still green", "are (done|finished)>are not (done|finished)|are still to do", "are open>are (closed|not open)",
    "are wet>are (dry|not wet)", "are taken>are [still] free|are not taken", "wear a hat>(wear|have) no hat|do not wear a hat", "are clean>are (dirty|not clean)", "are old>are new|are not old", "are (here|back)>are missing|are not here",
    "are wrapped>are not wrapped", "are from {t}>are not from {t}|come from somewhere else", "are small>are (big|large)|are not small", "are (bad|rotten)>are [still] (good|fresh)", "are sold>are not sold|are unsold|are left", "are made of wood>are not made of wood",
    "are counted>are not counted", "can swim>cannot swim", "have a stain>have no stain|are without a stain", "are locked>are not locked|are unlocked",
)  # fmt: skip
