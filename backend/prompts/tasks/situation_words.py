"""Situations of word problems: what there is, and what makes it more, less, or neither.

A block is one kind of situation, in the grammar of :meth:`Draw.say`. ``who`` says whom it is about (*person*: anybody),
``of`` what is counted, ``at`` where it is. ``start``, ``late`` (the same, told afterwards), ``up``, ``down``, ``same`` and
``ask`` are its patterns. ``<give>`` agrees with the one it is about, ``<give/p>`` is a plural, ``<give/3>`` a singular,
``<give/g>`` a participle (*given*). MORE and LESS are numbers of things, ANY a verb for anything of its direction.
"""
# A line is a list of patterns.
# ruff: noqa: E501

from __future__ import annotations

SITUATIONS = """
who: person
of: THINGS
start: {s} <have> {n} {i};{s} <own> {n} {i};{s} <start> with {n} {i};at first {s} <have> {n} {i};{s} <have> {n} {i} at home;there <be/p> {n} {i} in {h} (bag|room|drawer|garage);{s} <count> {n} {i};(yesterday|today|last year|on Monday|in the morning) {s} <have> {n} {i};{s} <keep> {n} {i} (in a box|at home|on a shelf);{s} <collect> {n} {i}
late: {s} <have/d> {n} [{i}] (at the start|in the beginning|before|to begin with|at first|before all this);(before that|before|originally|at the outset|to start with) {s} <have/d> {n} [{i}];there <be/dp> {n} [{i}] at first
up: {s} ANY MORE;{s} ANY MORE;{x} <give/3> {o} MORE;{h} (mother|father|aunt|uncle|brother|friend|teacher|boss|son|grandpa) GIVE {o} MORE;{n} more [{i}] <COME/p>;{n} (more|new) {i} <be/p> (delivered|brought|added|bought|found);{s} <be> (given|sent|handed|lent|brought) MORE [by {x}];from {x} {s} <GET> MORE;{x} and {y} GIVEP {o} MORE
down: {s} ANY LESS;{s} ANY LESS;{s} <GIVE> {x} LESS;{s} <GIVE> LESS to {x};{n} [of them|of the {i}|{i}] <GO/p>;{n} [of them|of the {i}] <be/p> DONE [by {x}];{x} ANYX LESS;{h} (dog|sister|brother|cousin|son|neighbour|friend) (<take/3>|<break/3>|<eat/3>|<lose/3>|<hide/3>|<steal/3>) LESS;{x} <be/3> (given|sent|handed|sold|lent) LESS by {o};LESS <go/p> to {x}
same: {s} <SAME> {w} of them [again|carefully|twice];{s} <SAME> {w} of the {i};{x} <SAMEX/3> {w} of them;{w} of them are (red|old|new|heavy|very small|from {t});{s} <like> {w} of them best;{s} <show> {x} {w} of them
ask: How many {i} <does> {s} have [now|left|in the end|at the end];How many <does> {s} have [now|left];How many {i} are left;How many {i} <does> {s} [still] own;How many {i} <have> {s} got;What is the number of {i} [that {s} <have/n> [now]];How many are there [now]

who: they
of: crows|sparrows|bees|ducks|seagulls|butterflies|pigeons|swans|bats|flies|owls|geese|wasps|starlings
at: on the roof|on the wire|in the field|on the lake|in the garden|on the fence|in the bush|on the beach|in the barn|on the pond|by the river
start: there <be/p> {n} {i} {l};{n} {i} <sit/p> {l};{n} {i} <rest/p> {l};{x} <see/3> {n} {i} {l};{n} {i} are {l}
late: there <be/dp> {n} [{i}] {l} (at first|before|in the beginning)
up: {n} more [{i}] <COMEFLY/p>;another {n} [{i}] <COMEFLY/p>;{n} <COMEFLY/p>;{n} (others|new ones) <COMEFLY/p>;then {n} <come/p> back
down: {n} [of them|{i}] <GOFLY/p>;a (cat|dog|loud noise) <scare/3> {n} of them away;{n} are (frightened|scared|chased) away;a (hunter|fox|cat) <catch/3> {n} [of them]
same: {w} of them <sing/p>;{w} of them <be/p> (young|asleep|very big);{x} <feed/3> {w} of them;{x} <photograph/3> {w} of them
ask: How many {i} are {l} [now];How many {i} are [still] there;How many {i} (remain|stay);How many are left;How many [{i}] <sit/p> {l} in the end

who: the bus|a train|the ferry|the tram|a plane|the boat|an old coach|the lift|the metro|a ship
of: travellers|tourists|riders|commuters|pupils|women|men|sailors|kids|guests|workers
start: {s} <carry> {n} {i};there <be/p> {n} {i} on {s};{s} <leave> with {n} {i} on board;{n} {i} <be/p> on {s};{n} {i} <ride/p> on {s};{s} <start> with {n} {i}
late: there <be/dp> {n} [{i}] on board (at first|before|at the start)
up: {n} [more|new|other] [{i}] <BOARD/p>;it <pick/3> up {n} [more|{i}];{n} (others|more) <join/p> them;{s} <take> {n} more [{i}] on board;at {t} {n} [{i}] <BOARD/p>;another {n} <BOARD/p>
down: {n} [of them|{i}|of the {i}] <ALIGHT/p>;it <drop/3> off {n} [of them|{i}];at {t} {n} [{i}] <ALIGHT/p>;at the (next|first|second|last) (stop|station) {n} [{i}] <ALIGHT/p>;{n} have to get out
same: {w} of them <sleep/p>;{w} of them <read/p> a book;{w} of them <stand/p>;at {t} everybody <stay/3>;at {t} nobody (<leave/3>|<get/3> on|<get/3> out);{w} of them <have/p> a ticket
ask: How many {i} are on {s} [now|then|in the end];How many {i} are [still] on board;How many {i} <does> {s} carry [now];How many travel on;How many {i} arrive

who: the hall|the park|a cinema|the pool|a café|the stadium|the classroom|the gym|the hotel|the camp|the church|a theatre|the beach|the office|the club|a village|the party|the queue
of: people|visitors|guests|pupils|adults|boys|girls|students|swimmers|dancers|fans|dogs|players|members|campers
start: there <be/p> {n} {i} in {s};{n} {i} <be/p> in {s};{s} <have> {n} {i};{n} {i} <wait/p> in {s};in the (morning|evening) {n} {i} <be/p> in {s};{n} {i} <come/p> to {s}
late: there <be/dp> {n} [{i}] in {s} (at first|before|in the beginning);before, {s} <have/d> {n} [{i}]
up: {n} [more|new|other] [{i}] <COME/p>;{n} (others|more) <COME/p>;then {n} <come/p> (in|back|too);another {n} [{i}] <COME/p>;{x} <bring/3> {n} more [{i}];{n} more <sign/p> up
down: {n} [of them|{i}|of the {i}] <GOMAN/p>;{n} <GOMAN/p>;{n} [of them] <be/p> (sent home|picked up|called away|thrown out);{x} <take/3> {n} of them home;{n} <get/p> (tired|sick|bored) and <leave/p>
same: {w} of them <wear/p> a {k} hat;{w} of them <sit/p> down;{w} of them <laugh/p>;{w} of them <be/p> from {t};{x} <greet/3> {w} of them
ask: How many {i} are in {s} [now|in the end];How many {i} (remain|are left|stay);How many {i} are there [now|at the end];How many are still in {s};How many {i} <does> {s} have [now]

who: the room|the warehouse|a shed|the shop|the gallery|the attic|the school|the gym|the cellar|the garage|a restaurant|the museum|the office|the hotel|the library|the hospital
of: tables|benches|lamps|boxes|shelves|vases|mirrors|machines|beds|barrels|statues|crates|desks|bikes|paintings|carpets|screens|printers|clocks|cupboards|plants
start: there <be/p> {n} {i} in {s};{s} <have> {n} {i};{s} <hold> {n} {i};{n} {i} <stand/p> in {s};in {s} there <be/p> {n} {i};{s} <own> {n} {i}
late: there <be/dp> {n} [{i}] in {s} (at first|before|in the beginning)
up: (workers|some men|the helpers|two men) <BRINGIN/p> {n} [more] [{i}];{n} [more|new] [{i}] <be/p> (brought in|delivered|carried in|added|set up|put in|unloaded|hung up);it <GET/3> {n} [more|new] [{i}];{x} <BRINGIN/3> {n} [more] [{i}];they <BRINGIN/p> {n} [more] [{i}];a (truck|donor|neighbour) <bring/3> {n} [more] [{i}]
down: (workers|some men|the helpers|thieves) <TAKEOUT/p> LESS;LESS <be/p> (taken out|removed|carried away|thrown out|sold|stolen|broken|moved out|picked up|returned|lent out|burnt|lost in a fire|damaged and thrown away);it <sell/3> LESS;{x} <TAKEOUT/3> LESS;they <TAKEOUT/p> LESS;a (fire|flood|storm) <destroy/3> LESS;{n} [of them|{i}] <BREAK/p>
same: {x} <clean/3> {w} of them;{w} of them are (new|old|dusty|made of wood|covered|painted {k});they <repair/p> {w} of them;{x} <move/3> {w} of them to the window
ask: How many {i} are in {s} [now|in the end];How many {i} are left [in {s}];How many {i} remain;How many {i} <does> {s} [still] have [now];How many {i} are there [now]

who: person
of: files|photos|emails|songs|videos|contacts|messages|apps|games|links|notes|records|documents|pictures|films|recipes
start: {s} <have> {n} {i} on {h} (phone|computer|laptop|tablet);there <be/p> {n} {i} on {h} (phone|computer|disk);the (phone|folder|app) <show/3> {n} {i};{h} (list|folder|album|inbox) <hold/3> {n} {i};{s} <store> {n} {i};{s} <save> {n} {i}
late: there <be/dp> {n} [{i}] (at first|before)
up: {s} <(add|download|save|record|upload|copy|store|receive|import|install|create|write|keep|share in)> {n} [more|new] [{i}];{x} <send/3> {o} {n} [more|new] [{i}];{n} [more|new] [{i}] <be/p> (added|downloaded|saved|sent to {o}|restored);{n} new ones <arrive/p>
down: {s} <(delete|erase|remove|throw away|wipe|clear|lose|uninstall|drop|move away|trash|discard|cancel)> LESS;LESS <be/p> (deleted|erased|removed|lost|wiped|moved away);{x} <delete/3> LESS;{n} [of them] <get/p> lost;{n} [of them] <disappear/p>
same: {s} <(open|rename|print|look at|copy to paper|mark|sort|read|like)> {w} of them;{x} <see/3> {w} of them;{w} of them are (old|long|from {t})
ask: How many {i} are (there|left) [now];How many {i} <does> {s} have [now|left|in the end];How many {i} are on {h} list;How many [{i}] <does> {s} keep

who: the factory|a workshop|a baker|the cook|the farm|a potter|my aunt|the company|the brewery|a carpenter|the kitchen|a farmer|the dairy|the mill
of: vases|loaves|pots|bricks|tyres|toys|chairs|candles|cheeses|jars|plates|bulbs|screws|cakes|shirts|buns|dolls|tiles|lamps|pies|melons|cabbages|peaches|eggs
start: {s} <(make|produce|turn out|finish|supply|store|prepare)> {n} {i};{s} <have> {n} {i} (ready|in stock|for sale);in the (morning|night) {s} <make> {n} {i};{n} {i} <be/p> made;on Monday {s} <make> {n} {i}
late: {s} <have/d> {n} [{i}] (at first|before|in the morning)
up: {s} <(make|produce|finish|add|get|turn out)> {n} [more|new|extra] [{i}];{n} [more] [{i}] <be/p> (made|produced|finished|added|returned by the shop);then {n} more <follow/p>;a second (oven|machine|worker|team) <(make|finish|add)/3> {n} [more] [{i}]
down: {n} [of them|{i}|of the {i}] <BREAK/p>;LESS <be/p> (sold|broken|bad|eaten|burnt|delivered|sent back|thrown away|spoiled|faulty and thrown away|shipped|taken away);{s} <(sell|ship|deliver|throw away|give away|send out|export|waste|lose)> LESS;by (noon|evening|night) {n} [of them] have been (sold|eaten|taken|picked up);{n} [of them] had been sold by (noon|evening);(customers|buyers|shops) <(buy|take|order and get|pick up)/p> LESS;(mice|children|guests) <eat/p> LESS
same: {s} <(check|wrap|weigh|colour|paint|count|wash|decorate)> {w} of them;{w} of them are (very big|round|{k});{x} <(taste|try|test|look at|photograph)/3> {w} of them
ask: How many {i} are (left|there) [now|in the end];How many {i} <does> {s} [still] have [now];How many {i} remain;How many (good|whole|unsold) {i} are there

who: person
of: euros|dollars|coins|pounds|cents|francs|pesos|yen|crowns|rubles
start: {s} <have> {n} {i};{s} <have> {n} {i} in (a purse|the bank|a wallet);{s} <save> {n} {i};{s} <earn> {n} {i};there <be/p> {n} {i} in {h} (purse|account|piggy bank);{s} <start> the (day|week|month) with {n} {i};{s} <take> {n} {i} (along|to the market|on a trip)
late: {s} <have/d> {n} {i} (at first|before|at the start)
up: {s} <(earn|get|win|receive|save|find|make|borrow|collect|put in|deposit|be paid|be given)> {n} [more|{i}|more {i}] TO;{x} <(give|pay|lend|send|hand)/3> {o} {n} [more|{i}|more {i}];{s} <get> {n} [{i}] back;{h} (mother|father|boss|uncle|grandma|sister) GIVE {o} {n} [more|{i}|more {i}];the bank <add/3> {n} [{i}];{s} <sell> an old (bike|coat|lamp|chair) for {n} [{i}];{x} <pay/3> {o} back {n} [{i}]
down: {s} <(spend|pay)> {n} [{i}] (for|on) BUY;{s} <buy> BUY for {n} [{i}];{s} <(lose|give away|lend {x}|donate|pay back|take out|be fined)> {n} [{i}|of them];BUY <cost/3> {o} {n} [{i}];{s} <give> {x} {n} [{i}|of them];{x} <(borrow|steal|take)/3> {n} [{i}];{s} <have> to pay {n} [{i}] for BUY;(the bus|lunch|the ticket) <be/3> {n} [{i}]
same: {s} <count> {w} of them;{s} <show> {x} {w} of them;{s} <look> at BUY but <do> not buy it;{s} <hide> {w} of them under the bed
ask: How much money <does> {s} have [now|left|in the end];How many {i} <does> {s} have [now|left];How much is left;How many {i} are left;How much money <have> {s} got;What does {s} have left

top: 99
who: the water|the soup|the oven|the air|the room|the tea|the engine|the milk|the lake|the bath|the weather station|the greenhouse
of: degrees
start: {s} <have> {n} degrees;it <be/3> {n} degrees in {t};the temperature of {s} <be/3> {n} degrees;the thermometer <show/3> {n} degrees;in the morning it <be/3> {n} degrees;{s} <be> at {n} degrees
late: at first it <be/d3> {n} degrees;it <be/d3> {n} degrees before
up: it <(go up|climb|increase|warm up|grow|get warmer|jump)/3> by {n} [degrees];it <(get|be)/3> {n} degrees (warmer|hotter);the temperature <(climb|go up|increase)/3> by {n} [degrees];it <gain/3> {n} degrees;the sun <warm/3> it by {n} [degrees]
down: it <(drop|sink|cool down|decrease|go down|get colder|cool)/3> by {n} [degrees];it <(get|be)/3> {n} degrees (colder|cooler);the temperature <(drop|sink|decrease|go down)/3> by {n} [degrees];it <lose/3> {n} degrees;a cold wind <cool/3> it by {n} [degrees]
same: it <stay/3> like that for {w} minutes;{x} <look/3> at it {w} times;{w} minutes pass
ask: What is the temperature [now|in the end];How many degrees is it [now];How warm is it [now|in the end];How hot is it [now];What temperature does {s} have [now]

who: the water level|the price|the speed|the lift|the score|the tower|the battery|the river|the fine|the rent|the balloon|the sound
of: meters|euros|points|percent|floors|units|centimeters
start: {s} <be> at {n} {i};{s} <stand> at {n} [{i}];{s} <start> at {n} {i};at first {s} <be> at {n} [{i}];on Monday {s} <be> {n} {i}
late: it <be/d3> at {n} [{i}] before;it <start/d3> at {n} [{i}]
up: it <(rise|go up|climb|increase|grow|jump|move up|be raised)/3> by {n} [{i}];it <(rise|go up|climb|increase)/3> {n} [{i}];it <be/3> {n} [{i}] higher
down: it <(fall|go down|sink|decrease|drop|shrink|move down|be lowered|be cut|come down)/3> by {n} [{i}];it <(fall|go down|sink|drop)/3> {n} [{i}];it <be/3> {n} [{i}] lower
same: {x} <look/3> at it for {w} minutes;it <stay/3> there for {w} hours;{w} hours pass
ask: Where is {s} [now];At how many {i} is {s} [now|in the end];What is {s} [now|in the end];How high is {s} [now];What does {s} come to

top: 300
who: someone
of: pounds|kilos|grams|stone|kilograms
start: {s} <weigh> {n} {i};{s} <have> a weight of {n} {i};{h} weight <be/3> {n} {i}
late: {s} <weigh/d> {n} {i} (before|at first)
up: {s} <(put on|grow by|get heavier by|add|increase by)> {n} [more|{i}];{s} <get> {n} [{i}] heavier;{h} weight <(rise|go up|grow)/3> by {n} [{i}]
down: {s} <(shed|get rid of|slim down by|drop|take off|get lighter by|work off)> {n} [{i}];{s} <get> {n} [{i}] lighter;{h} weight <(fall|go down|drop)/3> by {n} [{i}]
same: {s} <run> for {w} minutes;{s} <eat> {w} (pears|beans|rolls);{x} <be/3> {w} years old
ask: How much <does> {s} weigh [now|then|in the end];What is {h} weight [now];How heavy is it [now];How many {i} <does> {s} weigh [now]

who: the board|a ribbon|the pipe|a cable|the fence|a thread|the wire|the queue|the beam|the hose|a chain|the wall|the curtain|the string|the bridge|a stick|the scarf
of: meters|inches|feet|centimeters|yards
start: {s} <be> {n} {i} long;{s} <measure> {n} {i};the length of {s} <be/3> {n} {i};{x} <have/3> {s}. It <be/3> {n} {i} long;{s} <have> a length of {n} {i}
late: it <be/d3> {n} {i} [long] (before|at first)
up: {x} <(add|sew on|put on|join on|glue on)/3> {n} [{i}|more|more {i}];it <(grow|be extended|be lengthened|stretch|get longer)/3> by {n} [{i}];{n} [more] {i} are added;it <get/3> {n} {i} longer;{m} parts of {u} {i} are added
down: {x} <(cut off|saw off|take off|snip off|remove|break off|trim off)/3> {n} [{i}];{n} {i} <(break off|tear off|come off|burn|fall off|be cut away|be sawn off|be removed)/p>;it <(shrink|be shortened|get shorter)/3> by {n} [{i}];it <get/3> {n} {i} shorter;{m} (bits|parts|strips) of {u} {i} are (sawn|snipped|taken|torn|broken) off;{x} <(cut|saw|snip)/3> {m} (bits|strips|lengths) of {u} {i} (each|from it)
same: {x} <paint/3> {w} {i} of it;{x} <measure/3> it {w} times;{w} {i} of it are wet
ask: How long is it [now|in the end];How long is {s} [now];What is the length [of {s}] [now];How many {i} are left;How many {i} long is it

who: the tank|a barrel|the pool|the bottle|a bucket|the jug|the well|a kettle|the truck|the cistern
of: liters|gallons|cups|pints|litres
start: {s} <hold> {n} {i};there <be/p> {n} {i} of (water|oil|milk|juice) in {s};{s} <contain> {n} {i};{n} {i} of (water|oil|wine) are in {s}
late: there <be/dp> {n} {i} in it (before|at first)
up: {x} <(pour in|add|put in|fill in)/3> {n} [more|{i}|more {i}];{n} [more] {i} <(flow in|be added|come in|run in|be poured in)/p>;{m} buckets of {u} {i} are added
down: {x} <(pour out|drink|use|take out|spill|pump out|drain|waste)/3> {n} [{i}];{n} [{i}] <(leak out|run out|flow away|evaporate|be drunk|be used|be lost|be spilled|dry up)/p>;{m} (jugs|cans) of {u} {i} are taken out
same: {x} <heat/3> it for {w} minutes;{x} <look/3> at it {w} times;the lid weighs {w} grams
ask: How many {i} are in {s} [now|in the end];How many {i} are left;How much is in {s} [now];How many {i} remain

who: person
of: points|goals|lives|gems|stars|tokens|credits
start: {s} <have> {n} {i} (in a game|in a quiz);{s} <start> with {n} {i};{s} <score> {n} {i};after round one {s} <have> {n} {i}
late: {s} <have/d> {n} [{i}] before
up: {s} <(score|win|earn|get|gain|make|collect|be awarded|pick up|be given)> {n} [more|{i}|more {i}] TO;a (bonus|good throw|right answer) <bring/3> {o} {n} [more|{i}];the judge <(give|award)/3> {o} {n} [more|{i}];{n} [{i}] are added
down: {s} <(lose|give up|forfeit|drop|be fined|pay|bet and lose)> {n} [{i}|of them];a (mistake|foul|wrong answer|penalty) <cost/3> {o} {n} [{i}];the judge <take/3> away {n} [{i}];{n} [{i}] are (taken off|deducted|lost|removed)
same: {s} <miss> {w} times;{x} <have/3> {w} {i};the game <last/3> {w} minutes
ask: How many {i} <does> {s} have [now|in the end|at the end];What is {h} score [now];How many {i} is that;With how many {i} <does> {s} finish

who: a book|the story|the test|the course|the walk|a film|the trip|the puzzle|the road|the wall|the list|the race|a play
of: pages|tasks|lessons|miles|chapters|kilometers|questions|steps|minutes|bricks|lines|parts
start: {s} <have> {n} {i};{s} <consist> of {n} {i};there <be/p> {n} {i} in {s};{x} <have/3> to do {n} {i} for {s}
late: {s} <have/d> {n} {i} in all
up: {n} [more] {i} are added;{x} <add/3> {n} [more] [{i}];the teacher <add/3> {n} [more] [{i}]
down: {x} <have/3> done {n} [of them|{i}];{x} <(do|finish|complete|get through|manage|skip|be done with)/3> {n} [of them|{i}];{n} [{i}|of them] are (done|finished|behind {x}|skipped|completed);I have (done|finished|completed) {n} [of them|{i}]
same: {w} of them are (hard|boring|easy|fun);{x} <like/3> {w} of them;{x} <sleep/3> {w} hours
ask: How many {i} are left;How many {i} are still to (do|come);How many {i} remain;How many {i} are missing

who: the forest|a city|the park|the garden|a village|the orchard|the street|the hill|an island|the field|a town|the valley
of: oaks|bushes|palms|roses|houses|pines|trees|flowers|lamps|shops|vines|poles|benches|schools|bridges|huts
start: there <be/p> {n} {i} in {s};{s} <have> {n} {i};{n} {i} <stand/p> in {s};in {s} there <be/p> {n} {i}
late: there <be/dp> {n} [{i}] in {s} (at first|before)
up: (people|volunteers|the neighbours|they) <PLANT/p> {n} [more|new] [{i}];{n} [more|new] [{i}] <be/p> (added|put up|set up|bought|finished);it <get/3> {n} [more|new] [{i}];the (mayor|owner|council) <add/3> {n} [more|new] [{i}]
down: a (fire|flood|lightning|quake|strong wind|hurricane) <(destroy|ruin|knock down|wreck|damage|carry off)/3> LESS;LESS <be/p> (cut down|destroyed|removed|torn down|blown over|felled|burnt down|knocked down|lost in a fire);{n} [of them|{i}] <(die|fall over|burn down|collapse|break|fall down|rot)/p>;(workers|they|some men) <(cut down|remove|tear down|fell|take down|pull out)/p> LESS
same: {x} <(water|paint|count|draw|photograph|visit)/3> {w} of them;{w} of them are (old|very tall|{k}|famous)
ask: How many {i} are in {s} [now|in the end];How many {i} <does> {s} have [now|left];How many {i} are (left|standing);How many {i} remain

who: person
of: chickens|sheep|cows|rabbits|goats|ducks|horses|pigs|fish|dogs|bees|turkeys|cats|mice|hamsters|parrots|snails|frogs|worms
start: {s} <have> {n} {i};{s} <keep> {n} {i};there <be/p> {n} {i} on {h} farm;{s} <own> {n} {i};{s} <look> after {n} {i}
late: {s} <have/d> {n} [{i}] (at first|before)
up: {s} <(buy|get|raise|adopt|catch|rescue|find|take in|breed)> {n} [more|{i}|more {i}];{n} [more|young] [{i}] <be/p> (born|hatched|bought|brought);{n} <(be born|hatch|come back|walk in|come along|turn up)/p>;{x} <(bring|give|lend|send)/3> {o} {n} [more|{i}]
down: {n} [of them|{i}|of the {i}] <GOBEAST/p>;a (fox|wolf|thief|bear|hawk|snake) <(take|eat|steal|kill|catch|carry off)/3> LESS;{s} <(sell|lose|give away|set free|let go|slaughter|swap)> LESS;LESS <be/p> (stolen|sold|eaten|killed|set free|lost|given away|taken by a fox)
same: {s} <(feed|wash|brush|count|stroke|name|weigh)> {w} of them;{w} of them are (hungry|ill|white|asleep);{x} <photograph/3> {w} of them
ask: How many {i} <does> {s} have [now|left|in the end];How many {i} are left;How many {i} <does> {s} [still] own;How many {i} are there [now]

who: person
of: drones|sleds|balloons|glasses|candles|rockets|matches|sparklers|torches|firecrackers|kites|bikes|trucks|umbrellas|bulbs|plates|windows|toys|lighters|phones|arrows|tyres|lamps|vases|chairs
start: {s} <have> {n} {i};{s} <own> {n} {i};{s} <start> with {n} {i};{s} <bring> {n} {i};{s} <buy> {n} {i}
late: {s} <have/d> {n} [{i}] (at first|before|in the beginning)
up: {s} <(buy|get|find|build|repair and get back|order|fetch|make|win|pick up|dig out)> {n} [more|{i}|new ones|more {i}];{x} <(lend|give|bring|sell)/3> {o} {n} [more|{i}|more {i}]
down: {s} <(crash|smash|burn|break|light|wreck|ruin|blow up|shoot off|use up|set on fire|burst|crush|scrap|drop and break|fire off|launch|let fly|damage|snap|run over|bend and throw away)> LESS;{n} [of them|{i}] <(burst|break|explode|burn out|fly away|crack|get smashed|shatter|sink|go out|catch fire|melt|get stolen|be ruined|stop working)/p>;LESS <be/p> (smashed|broken|burnt|lit|wrecked|used up|crushed|shot off|launched|destroyed)
same: {s} <(paint|clean|count|dust|wrap|mark|colour|label|polish|test)> {w} of them [{k}];{w} of them are ({k}|old|new|cheap);{x} <(paint|look at|touch|clean)/3> {w} of them
ask: How many {i} <does> {s} have [now|left|in the end];How many {i} are left;How many {i} <does> {s} [still] own;How many (good|whole) {i} are there;How many [{i}] <have> {s} got
"""
GAIN = "buy|find|get|win|receive|collect|pick|earn|make|gather|pick up|take in|order|dig up|bring home|borrow|save|inherit|build|catch|harvest|bake|sew|print|knit|fetch|discover|fish out|trade in|put in|add|carve|get hold of|come across|come home with|take home|pull out|craft|lay aside|unpack|be handed|be sent|be lent|be left|claim back|win back|get back|take back|buy back".split("|")  # fmt: skip
LOSE = "lose|sell|use|use up|break|drop|give away|throw away|throw out|eat|burn|cut up|cut off|hand out|hand over|hand back|give back|bring back|send off|send away|send back|ship off|pass on|pass out|leave behind|tear up|trade away|swap away|lend out|spend|waste|donate|return|deliver|post|mail|deposit at the bank|forget|bury|smash|crash|wreck|ruin|spoil|destroy|crush|drink|swallow|sacrifice|recycle|dump|empty out|gamble away|bet and lose|discard|remove|delete|release|let go of|part with|get rid of|do away with|set aside for {x}|put in the bin|be robbed of|run out of|melt down|light|fire off|chop up|finish off|pour away|shoot off|snap|shatter|scrap|misplace|pawn|auction off|consume|share out|deal out|surrender|abandon".split("|")  # fmt: skip
SAME = "paint|count|wash|clean|look at|show {x}|draw|photograph|polish|dust|sort|wrap|name|admire|touch|check|weigh|measure|label|describe|dream of|turn over|line up|talk about|decorate|hold up|repair|mark|colour|stack|dry|smell|test|move|think of".split("|")  # fmt: skip
GO = "get lost|break|fall off|go missing|vanish|disappear|fall into the river|burn|go bad|fall apart|roll away|wear out|rot|blow away|get stolen|sink|drop out|come off|slip away|get broken|go to waste|be left behind".split("|")  # fmt: skip
# lists of verbs that patterns name
VERBS = {
    "COME": "arrive|come|appear|turn up|show up|come in|come along|come back|come by|get there|follow|join".split("|"),
    "GO": GO,
    "GOMAN": "leave|go home|go away|walk out|run off|drive home|walk away|go out|hurry away|get up and leave|say goodbye|"
    "slip out|drop out|quit|move away|disappear|step out|go to bed|depart|head home".split("|"),
    "GOBEAST": "run off|escape|run away|die|get lost|get away|break out|jump over the fence|wander off|go missing|disappear|"
    "get out|fall ill and die|swim away|slip away|vanish|take off".split("|"),
    "GOFLY": "fly off|leave|take off|fly south|disappear|flap away|fly over the hill|swim away|dive away|go away|take wing|"
    "fly home|move on|flutter away|set off|vanish".split("|"),
    "COMEFLY": "land|join them|come|appear|fly in|settle down|come back|return|sit down beside them|swim by|turn up|flutter in|"
    "gather there|follow|show up".split("|"),
    "BOARD": "get on|step in|climb in|board|come on board|jump on|enter|walk in|join|get in|hop on|climb aboard|come in".split("|"),
    "ALIGHT": "get off|step out|climb out|leave|walk out|jump off|go home|hop off|get out|step off|walk off|climb down|go out".split("|"),
    "BRINGIN": "bring in|carry in|bring|deliver|put in|set up|unload|add|roll in|fetch".split("|"),
    "TAKEOUT": "take out|carry out|remove|take away|carry away|throw out|sell|bring away|drag out|lend out|move out|steal".split("|"),
    "BREAK": "break|crack|fall apart|get broken|burst|fall down|go bad|get damaged|be faulty|go missing|get lost|rot|spoil".split("|"),
    "PLANT": "add|put up|set up|build|create|put in|raise|plan and add".split("|"),
    "GET": "get|receive|buy|take|borrow|collect|accept|win|inherit".split("|"),
    "GIVE": "give|hand|send|lend|sell|bring|pay|leave|pass|throw|serve|mail".split("|"),
    "SAME": SAME, "SAMEX": SAME,
}  # fmt: skip
BUY = (
    "((a|the) (shirt|meal|coat|ticket|lamp|cake|haircut|toy|taxi|concert|present|gift|hat|radio|phone case|tent|pizza|chair|"
    "newspaper|coffee|magazine|game|camera|bag)|breakfast|dinner|food|petrol|medicine|shoes|repairs|flowers|the rent|school)"
)
MORE = "({n} more|{n} more {i}|{n} {i}|{n}|another {n} [{i}]|{n} (new|extra) [ones])"
LESS = "({n}|{n} of them|{n} {i}|{n} of the {i}|{n} of these)"
TAIL_UP = (
    "from (the garden|a friend|the attic|a stranger|her uncle|the market|work|the shop next door)|in (the park|the street|a shop|"
    "{t}|the woods|a contest)|at (a fair|the market|school|an auction|the beach)|as a (gift|present|prize|reward)|for (a|her|his) "
    "(birthday|party|trip|collection)|to (fill the box|have enough|please {x})|with (a friend|{x}|great luck)"
)
TAIL_DOWN = (
    "for (a|the) (cake|soup|party|school play|dress|model|bracelet|picture|bridge|game|salad|fire|roof|hut|kite|neighbour|show|tower|"
    "costume|quilt|curtain|sauce)|to (make a mask|help {x}|a friend|build a house|decorate the tree|a museum|{h} cousin|the poor|"
    "charity|please {x}|an old man)|(by accident|in anger|in a hurry|by mistake|at once)|in (a game|the park|the lake|the snow|{t}|a fire)|"
    "at (school|the market|work|a fair)|because of the rain|on the way home|with (a friend|{x})"
)
TIMES = (
    ("last week", "this week", "today"), ("yesterday", "today", "tonight"), ("in the morning", "in the afternoon", "in the evening"),
    ("on Monday", "on Tuesday", "on Wednesday"), ("in May", "in June", "in July"), ("first", "then", "at the end"),
    ("at first", "later", "in the end"), ("on the first day", "on the second day", "on the third day"), ("last year", "this year", "now"),
    ("in spring", "in summer", "in autumn"), ("before lunch", "after lunch", "at night"), ("at 9 o'clock", "at noon", "at 5 o'clock"),
    ("on Friday", "on Saturday", "on Sunday"), ("by noon", "after that", "by night"), ("last month", "this month", "today"),
)  # fmt: skip
SINGLE_TIMES = "later|then|after that|the next day|a week later|soon|that night|next|after a while|at last|now|in the end|one day|two days later|afterwards|at the end|by evening|the same day|finally|meanwhile".split("|")  # fmt: skip
PARTICIPLES = {
    "break": "broken", "eat": "eaten", "give": "given", "steal": "stolen", "take": "taken", "throw": "thrown",
    "tear": "torn", "forget": "forgotten", "drink": "drunk", "get": "got", "do": "done", "be": "been", "hide": "hidden",
    "wear": "worn", "draw": "drawn", "write": "written", "fall": "fallen", "see": "seen",
}  # fmt: skip
# what does not matter, and what does not matter though it has a number
ASIDES = (
    "(It|Today) (is|was) a (cold|long|nice|busy|rainy) day.", "{x} <be/3> (happy|tired|late|at work|on holiday).",
    "The weather is (fine|bad|nice).", "{x} and {y} are friends.", "{x} <look/3> on.", "Nobody is (sad|angry|late) about it.",
    "Thank you for (your help|reading this).", "{x} <like/3> (music|the sea|{t}|{k}).", "(Hi|Hello|Good morning)!", "This is (a puzzle|easy|a story).",
    "(Can|Could) you help me?", "That is (a pity|great|a lot|fine).", "{x} <live/3> in {t}.", "The {i} are (nice|old|{k}).",
)  # fmt: skip
NUMBERED = (
    "{x} <be/3> {a} (years old|years|[years of age]).", "(My|His|Her) (dog|cat|uncle|mother|teacher|father|house) is {a}.",
    "(My|The) (uncle|neighbour|king) is {a} years old.", "The (shop|film|trip|match|game|party) (takes|lasts) {a} (minutes|hours).",
    "(The bank|It all|School|The bus) (closes|opens|starts|leaves) at {a}.", "{x} <live/3> at number {a}.", "It is page {a}.",
    "There are {a} people in the street.", "{x} <have/3> {a} (hats|cousins|friends|pens).", "{x} <drive/3> {a} (miles|kilometers).",
    "The (ticket|entry|door) number is {a}.", "It <be/3> {a} degrees outside.", "{x} <wait/3> {a} minutes.", "The year has 365 days.",
)  # fmt: skip
CARRIED_IN = "boxes|bags|baskets|jars|packs|crates|rows|buckets|tins|cartons|sacks|bowls|trays|piles|packets|cases|barrels|groups|bundles|cups|drawers".split("|")  # fmt: skip
