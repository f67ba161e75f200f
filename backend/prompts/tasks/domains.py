"""What the subjects and objects of relations are drawn from, see :mod:`~backend.prompts.tasks.relations`."""
# A line is a list of words or patterns.
# ruff: noqa: E501

from __future__ import annotations

VALUES = {
    name: tuple(words.split("|"))
    for name, words in {
        "fruit": "mango|apple|pear|banana|plum|cherry|peach|kiwi|melon|lemon|papaya|fig|grape|guava|orange",
        "colour": (
            "red|blue|green|gold|black|white|brown|pink|orange|purple|yellow|silver|grey|violet|scarlet|"
            "turquoise|beige|crimson|teal|dark blue|light green"
        ),
        "food": "rice|bread|soup|fish|corn|beans|cheese|pasta|pizza|noodles|pancakes|salad|curry|sushi|eggs|"
        "tomato soup|apple pie|fried rice|potatoes|dumplings|tacos|lentils|porridge|honey|goulash",
        "drink": (
            "tea|coffee|milk|water|lemonade|cocoa|apple juice|green tea|orange juice|ginger beer|cider|"
            "mint tea"
        ),
        "job": (
            "plumber|teacher|nurse|baker|pilot|farmer|doctor|cook|painter|lawyer|engineer|clown|tailor|"
            "sailor|driver|gardener|carpenter|librarian|dentist|waiter|judge|actor|bus driver|fisherman|"
            "journalist|spy|electrician|police officer|translator|beekeeper"
        ),
        "language": "French|Spanish|German|Polish|Arabic|Hindi|Turkish|Greek|Dutch|Swahili|Japanese|Korean|Latin|"
        "Italian|Finnish|Thai|Welsh|Urdu|Czech|Norwegian",
        "instrument": "violin|piano|guitar|flute|drum|trumpet|cello|harp|organ|banjo|clarinet|accordion|saxophone|"
        "ukulele|tuba|oboe",
        "sport": (
            "tennis|football|chess|hockey|golf|rugby|volleyball|basketball|cricket|table tennis|badminton|"
            "handball|baseball|polo|darts|ice hockey"
        ),
        "animal": (
            "dog|cat|horse|parrot|rabbit|goat|hamster|owl|snake|turtle|pony|canary|lizard|donkey|ferret|"
            "goldfish|white cat|black dog|sheep|duck|frog|llama"
        ),
        "weather": "rain|snow|wind|fog|sun|frost|storms|clouds|hail|drizzle|thunder|heavy rain|sunshine|mist",
        "day": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
        "month": "January|February|March|April|May|June|July|August|September|October|November|December",
        "spot": (
            "harbour|old mill|library|bakery|station|castle|market|museum|school|hospital|post office|"
            "bridge|church|garden|farm|theatre|park|town hall|lighthouse|factory|airport|bank|zoo|hotel|"
            "tower|swimming pool|bookshop|city museum|north gate|fish market|palace|stadium|old town|"
            "university|windmill"
        ),
        "box": (
            "drawer|cupboard|kitchen|cellar|attic|box|red box|garage|basket|shed|bag|blue bag|wardrobe|"
            "desk|top drawer|fridge|garden|bathroom|suitcase|wooden chest|hall|safe|bottom shelf|jar|tent|"
            "next room"
        ),
        "thing": (
            "key|red key|blue lamp|book|map|ring|clock|old clock|letter|phone|ladder|bicycle|umbrella|"
            "hammer|green bottle|coat|hat|camera|laptop|vase|mirror|painting|violin case|rope|torch|knife|"
            "statue|golden cup|silver coin|black box|passport|wallet|kite|drum|teapot|small mirror|wooden "
            "spoon|chair|scarf|crown"
        ),
        "lock": (
            "cellar door|front door|safe|garage|garden gate|chest|back door|shed|cash box|old gate|blue "
            "door|library|drawer|attic|school gate|kitchen cupboard|boathouse"
        ),
        "vehicle": "bus|train|tram|ferry|plane|night train|boat|express|blue bus|helicopter|airship|coach",
        "material": "wood|glass|iron|stone|paper|gold|silver|plastic|wool|clay|copper|leather|bronze|marble|cotton",
        "goods": "tickets|apples|pens|books|shoes|eggs|candles|roses|lamps|stamps|pencils|cakes|hats|chairs|mugs|"
        "bananas|bricks|melons|batteries|notebooks|lemons|umbrellas|shirts|cups|plates|postcards|tulips|kites",
        "event": (
            "concert|match|meeting|party|lesson|film|wedding|exam|race|market day|play|festival|school "
            "trip|book fair|opening|lecture|parade|auction|picnic|board meeting"
        ),
        "topic": (
            "frogs|the moon|trains|old coins|volcanoes|bees|Roman law|whales|clouds|the sea|poetry|maths|"
            "medieval art|mushrooms|dinosaurs|robots|music|chemistry|the stars|bridges"
        ),
        "school": "maths|history|art|music|physics|biology|chemistry|geography|Latin|law|medicine|drawing|dance",
        "hobby": "swimming|painting|dancing|fishing|reading|cooking|hiking|singing|sailing|gardening|skiing|"
        "juggling|climbing|knitting|running|bird watching|playing cards|stamp collecting",
        "country": "France|Spain|Italy|Poland|Greece|Japan|Kenya|Brazil|Canada|Norway|Egypt|India|Peru|Chile|"
        "Turkey|Sweden|Ireland|Mexico|Portugal|Austria|New Zealand|South Africa",
        "river": "Rhine|Danube|Nile|Thames|Seine|Tiber|Vistula|Ganges|Volga|Elbe|Loire|Ebro|Po|Oder",
        "unit": "euros|dollars|pounds|cents|francs|coins|pesos|yen",
        "medal": (
            "gold medal|silver medal|first prize|bronze medal|cup|second prize|trophy|golden shoe|big prize"
        ),
        "size": "small|medium|large|tiny|huge|extra large",
        "number": "",
        "years": "",
        "year": "",
        "time": "",
        "price": "",
        "word": "",
        "person": "",
        "place": "",
    }.items()
}
# what somebody has one of, and what it is drawn from
FAVOURITES = {
    **{
        "fruit": "fruit",
        "colour": "colour",
        "color": "colour",
        "food": "food",
        "meal": "food",
        "drink": "drink",
    },
    **{
        "animal": "the animal",
        "sport": "sport",
        "instrument": "the instrument",
        "day": "day",
        "month": "month",
    },
    **{
        "subject": "school",
        "city": "place",
        "town": "place",
        "hobby": "hobby",
        "number": "number",
        "word": "word",
    },
    **{
        "dish": "food",
        "season": "month",
        "singer": "person",
        "writer": "person",
        "band": "word",
        "game": "sport",
    },
}
ATTRIBUTES = {
    **{"phone number": "number", "room number": "number", "code": "number", "password": "word"},
    **{"nickname": "word", "boss": "person", "brother": "person", "sister": "person", "mother": "person"},
    **{"father": "person", "son": "person", "daughter": "person", "uncle": "person", "aunt": "person"},
    **{
        "teacher": "person",
        "neighbour": "person",
        "doctor": "person",
        "best friend": "person",
        "wife": "person",
    },
    **{
        "husband": "person",
        "cousin": "person",
        "partner": "person",
        "home town": "place",
        "shirt size": "size",
    },
    **{"lucky number": "number", "birthplace": "place", "birth month": "month", "hair colour": "colour"},
    **{
        "locker number": "number",
        "coach": "person",
        "manager": "person",
        "assistant": "person",
        "score": "number",
    },
    **{"team": "word", "surname": "word", "ticket number": "number", "shoe size": "number"},
}
OF_PLACES = {
    **{"capital": "place", "mayor": "person", "king": "person", "queen": "person", "president": "person"},
    **{
        "population": "number",
        "largest city": "place",
        "currency": "word",
        "patron": "person",
        "zip code": "number",
    },
    **{"main export": "fruit", "national animal": "the animal", "national dish": "food", "founder": "person"},
    **{"language": "language", "governor": "person", "oldest school": "word", "postcode": "number"},
    **{"colour": "colour", "area code": "number", "sheriff": "person"},
}
COUNTED = (
    "brothers sisters children cats books coins cars dogs stamps horses hens bikes medals points keys apples"
)
COUNTED_PLACES = (
    "schools bridges churches parks people hotels gates windows buses markets houses towers cinemas"
)
ABOUTS = {
    "favourite": FAVOURITES,
    "attribute": ATTRIBUTES,
    "of place": OF_PLACES,
    "count": dict.fromkeys(COUNTED.split(), "number"),
    "count of place": dict.fromkeys(COUNTED_PLACES.split(), "number"),
}
