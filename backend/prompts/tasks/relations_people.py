"""Relations of people, as text; :mod:`~backend.prompts.tasks.relations` reads it."""
# A line is a list of patterns.
# ruff: noqa: E501

PEOPLE = """
favourite: person > k, about=favourite
says: {s}'s favourite {k} is {o};the favourite {k} of {s} is {o};{o} is {s}'s favourite {k};{o} is the favourite {k} of {s}
asks: What is {s}'s favourite {k}?;What is the favourite {k} of {s}?;Which {k} is {s}'s favourite?;Which {k} is the favourite of {s}?
that: {s}'s favourite {k};the favourite {k} of {s}
told: what {s}'s favourite {k} is;what the favourite {k} of {s} is
back: Whose favourite {k} is {o}?

attribute: person > k, about=attribute
says: {s}'s {k} is {o};the {k} of {s} is {o};{o} is {s}'s {k};{o} is the {k} of {s}
asks: {W} is {s}'s {k}?;{W} is the {k} of {s}?
that: {s}'s {k};the {k} of {s}
told: {w} {s}'s {k} is;{w} the {k} of {s} is
back: Whose {k} is {o}?

count: person > number, about=count
says: {s} has {o} {k};{s} has (exactly|only|already|now) {o} {k};{s} has got {o} {k}
asks: How many {k} does {s} have?;How many {k} has {s} got?;Of {k}, how many does {s} have?
that: the number of {k} that {s} has;the number of {s}'s {k}
told: how many {k} {s} has
back: Who has {o} {k}?;Which person has {o} {k}?
who: the (person|one) (who|that) has {o} {k}

home: person > place
says: {s} lives in {o};{s} has (a house|a flat|a home) in {o};{s} resides in {o};{s} (now|today) lives in {o};the home of {s} is in {o}
asks: Where does {s} live?;(In which|In what) (city|town|place) does {s} live?;(Which|What) (city|town|place) does {s} live in?;{s} lives where?;{s} lives in (which|what) (city|town)?
that: the (city|town|place) where {s} lives;the (city|town|place) (that|which) {s} lives in
told: where {s} lives;(which|what) (city|town) {s} lives in
back: Who lives in {o}?;(Which|What) person lives in {o}?;Who has a home in {o}?
who: the (person|one) (who|that) lives in {o};the (person|one) living in {o}

origin: person > place
says: {s} comes from {o};{s} is from {o};{s} comes from {o} (by birth|as we know)
asks: Where does {s} come from?;Where is {s} from?;(Which|What) (city|town|place) does {s} come from?;{s} comes from where?
that: the (city|town|place) (that|which) {s} comes from;the (city|town) {s} is from
told: where {s} (is|comes) from;(which|what) (city|town) {s} comes from
back: Who (is|comes) from {o}?;(Which|What) person comes from {o}?
who: the (person|one) (who|that) comes from {o};the (person|one) from {o}

trip: person > place
says: {s} (travels|flies|goes|drives) to {o};{s} takes a trip to {o};{s} is on the way to {o}
asks: Where does {s} (go|travel)?;(Which|What) (city|town|place) does {s} travel to?;Where is {s} going?;{s} goes where?
that: the (city|town|place) (that|which) {s} (goes|travels) to
told: where {s} (goes|travels|is going)
back: Who (goes|travels) to {o}?;Who is going to {o}?
who: the (person|one) (who|that) travels to {o}

work place: person > the spot
says: {s} works at {o};{s} has a job at {o};{s} is employed at {o};{s}'s job is at {o}
asks: Where does {s} work?;At (which|what) place does {s} work?;{s} works where?;Where is {s} employed?
that: the place where {s} works
told: where {s} works
back: Who works at {o}?;Who has a job at {o}?;(Which|What) person works at {o}?
who: the (person|one) (who|that) works at {o}

meeting: person > the spot
says: {s} (waits|is waiting) (at|near|behind) {o};{s} (waits|is waiting) for us at {o}
asks: Where does {s} wait?;Where is {s} waiting?;{s} waits where?
that: the place where {s} waits
told: where {s} (waits|is waiting)
back: Who (waits|is waiting) at {o}?
who: the (person|one) (who|that) waits at {o}

job: person > job
says: {s} works as {a} {o};{s} is {a} {o};{s} has a job as {a} {o};{s} earns money as {a} {o};{s}'s job is {o};{s} is {a} {o} (by trade|by profession)
asks: What is {s}'s job?;What is the (job|profession|occupation) of {s}?;What does {s} do for a living?;What does {s} work as?;(Which|What) job does {s} have?
that: the (job|profession|occupation) of {s};{s}'s (job|profession)
told: what {s} does for a living;(what|which) job {s} has;what {s} works as
back: Who (is|works as) {a} {o}?;(Who|Which person) is the {o}?;Who has a job as {a} {o}?
who: the {o};the (person|one) who works as {a} {o};the (person|one) who is {a} {o}

language: person > language
says: {s} speaks {o};{s} can speak {o};{s} is fluent in {o};{s} talks in {o};the language of {s} is {o}
asks: (What|Which) language does {s} speak?;What does {s} speak?;In (what|which) language is {s} fluent?;(What|Which) language can {s} speak?
that: the language (that|which) {s} speaks;the language of {s};{s}'s language
told: (which|what) language {s} speaks;what {s} speaks
back: Who (speaks|can speak) {o}?;(Who|Which person) is fluent in {o}?
who: the (person|one) (who|that) (speaks|can speak) {o}

learning: person > language
says: {s} (learns|studies) {o};{s} is learning {o};{s} takes lessons in {o}
asks: (What|Which) language does {s} learn?;(What|Which) language is {s} learning?;What does {s} (study|learn)?
that: the language (that|which) {s} (learns|is learning)
told: (which|what) language {s} (learns|is learning)
back: Who (learns|studies|is learning) {o}?
who: the (person|one) (who|that) learns {o}

instrument: person > the instrument
says: {s} plays {o};{s} can play {o};{s} plays {o} (well|at home|in a band|every day|on Sundays);{s} takes lessons on {o}
asks: (What|Which) instrument does {s} play?;What does {s} play?;(What|Which) instrument can {s} play?
that: the instrument (that|which) {s} plays;{s}'s instrument;the instrument of {s}
told: what {s} plays;(what|which) instrument {s} plays
back: Who (plays|can play) {o}?;(Which|What) person plays {o}?
who: the (person|one) (who|that) plays {o};the player of {o}
group: play

sport: person > sport
says: {s} plays {o};{s} plays {o} (on Mondays|every week|with friends|very well);{s} likes to play {o}
asks: (What|Which) (sport|game) does {s} play?;What does {s} play?;What does {s} like to play?
that: the (sport|game) (that|which) {s} plays;{s}'s (sport|game)
told: what {s} plays;(which|what) (sport|game) {s} plays
back: Who plays {o}?;(Which|What) person plays {o}?;Who likes to play {o}?
who: the (person|one) (who|that) plays {o}
group: play

pet: person > animal
says: {s} has {a} {o};{s} owns {a} {o};{s} keeps {a} {o};{s}'s pet is {a} {o};the pet of {s} is {a} {o};{s} has {a} {o} (as a pet|at home)
asks: (What|Which) (pet|animal) does {s} (have|own|keep)?;What is {s}'s pet?;What is the pet of {s}?
that: {s}'s pet;the (pet|animal) of {s};the animal (that|which) {s} has
told: (what|which) (pet|animal) {s} has
back: Who (has|owns|keeps) {a} {o}?;Who is the owner of the {o}?
who: the (person|one) (who|that) has {a} {o};the owner of the {o}

food: person > food
says: {s} eats {o};{s} eats {o} (for lunch|for dinner|every day|for breakfast|at noon);{s} (often|always|only) eats {o}
asks: What does {s} eat?;{s} eats what?;What food does {s} eat?;What is {s} eating?
that: the food (that|which) {s} eats;what {s} eats
told: what {s} eats
back: Who eats {o}?;(Which|What) person eats {o}?
who: the (person|one) (who|that) eats {o}

drink: person > drink
says: {s} drinks {o};{s} drinks {o} (in the morning|every day|at noon|with lunch);{s} (often|always|only) drinks {o}
asks: What does {s} drink?;{s} drinks what?;(What|Which) drink does {s} have?
that: the drink of {s};{s}'s drink;what {s} drinks
told: what {s} drinks
back: Who drinks {o}?;(Which|What) person drinks {o}?
who: the (person|one) (who|that) drinks {o}

likes: person > food
says: {s} likes {o};{s} (really|also|mostly) likes {o};{s} is fond of {o};{s} is a fan of {o}
asks: What does {s} like?;{s} likes what?;What is {s} fond of?
that: what {s} likes;the food (that|which) {s} likes
told: what {s} likes
back: Who (likes|is fond of) {o}?;(Which|What) person likes {o}?
who: the (person|one) (who|that) likes {o}
group: like

hobby: person > hobby
says: {s} likes {o};{s}'s hobby is {o};the hobby of {s} is {o};{s} spends the weekend {o};{s} enjoys {o}
asks: What is {s}'s hobby?;What is the hobby of {s}?;What does {s} (like|enjoy)?;(What|Which) hobby does {s} have?
that: {s}'s hobby;the hobby of {s}
told: what {s} likes to do;what {s}'s hobby is
back: Who (likes|enjoys) {o}?;Whose hobby is {o}?
who: the (person|one) (who|that) (likes|enjoys) {o}
group: like

dislike: person > food
says: {s} hates {o};{s} does not like {o};{s} cannot stand {o};{s} (really|also) hates {o};{s} hates {o} (most|a lot)
asks: What does {s} (hate|not like)?;What can {s} not stand?
that: what {s} (hates|does not like)
told: what {s} (hates|does not like)
back: Who (hates|does not like|cannot stand) {o}?
who: the (person|one) (who|that) hates {o}

clothes: person > colour
says: {s} wears a {o} (hat|coat|shirt|scarf);{s} is dressed in {o};{s} wears {o};{s} has a {o} (hat|coat|jacket)
asks: (What|Which) (colour|color) does {s} wear?;What does {s} wear?;What (colour|color) is {s} wearing?
that: the (colour|color) (that|which) {s} wears
told: (what|which) (colour|color) {s} wears
back: Who wears {o}?;Who is dressed in {o}?

paint: person > colour
says: {s} likes {o};{s} likes the colour {o};{s} likes {o} (best|most|a lot)
asks: (What|Which) (colour|color) does {s} like?;(What|Which) (colour|color) does {s} like (best|most)?
that: the (colour|color) (that|which) {s} likes
told: (what|which) (colour|color) {s} likes
back: Who likes {o}?
group: like

birth year: person > year
says: {s} was born in {o};{s} came into the world in {o};{s}'s birth year is {o};the year of {s}'s birth is {o};in {o} {s} was born
asks: When was {s} born?;In (what|which) year was {s} born?;(What|Which) year was {s} born in?;What is the birth year of {s}?
that: the year (when|in which) {s} was born;the birth year of {s};{s}'s birth year
told: when {s} was born;in (what|which) year {s} was born
back: Who was born in {o}?;(Which|What) person was born in {o}?
who: the (person|one) (who|that) was born in {o};the (person|one) born in {o}

age: person > years
says: {s} is {o} years old;{s} is {o};{s} is aged {o};{s} has an age of {o} years;{s} turned {o} (last week|today|this year)
asks: How old is {s}?;What is the age of {s}?;What age is {s}?;What is {s}'s age?
that: the age of {s};{s}'s age
told: how old {s} is
back: Who is {o} [years old]?
who: the (person|one) (who|that) is {o} years old

birthday: person > month
says: {s}'s birthday is in {o};{s} has a birthday in {o};the birthday of {s} is in {o};{s} celebrates a birthday in {o}
asks: When is {s}'s birthday?;When is the birthday of {s}?;In (which|what) month is the birthday of {s}?;(Which|What) month is {s}'s birthday in?
that: the month of {s}'s birthday;the month (when|in which) {s} has a birthday
told: when {s}'s birthday is
back: Who has a birthday in {o}?;Whose birthday is in {o}?
who: the (person|one) (who|that) has a birthday in {o}

day: person > day
says: {s} (arrives|comes) on {o};{s} comes (to us|home|here|back) on {o};on {o} {s} (arrives|comes)
asks: When does {s} (arrive|come)?;On (which|what) day does {s} (arrive|come)?
that: the day (when|on which) {s} comes
told: when {s} (arrives|comes)
back: Who (arrives|comes) on {o}?

owns: person > the thing
says: {s} owns {o};{o} belongs to {s};{s} is the owner of {o};{o} is {s}'s
asks: What does {s} own?;What belongs to {s}?;{s} owns what?;Of what is {s} the owner?
that: what {s} owns;the thing (that|which) {s} owns;the thing that belongs to {s}
told: what {s} owns;what belongs to {s}
back: Who owns {o}?;Who is the owner of {o}?;To whom does {o} belong?;Whose is {o}?;Who does {o} belong to?
who: the (person|one) (who|that) owns {o};the owner of {o}

bought: person > the thing
says: {s} (buys|bought) {o};{s} bought {o} (yesterday|last week);{o} was bought by {s}
asks: What did {s} buy?;What was bought by {s}?;{s} bought what?
that: what {s} bought;the thing (that|which) {s} bought
told: what {s} bought
back: Who bought {o}?;By whom was {o} bought?
who: the (person|one) (who|that) bought {o};the buyer of {o}

lost: person > the thing
says: {s} lost {o};{s} has lost {o};{o} was lost by {s};{s} lost {o} (yesterday|on the way)
asks: What did {s} lose?;{s} lost what?;What was lost by {s}?
that: what {s} lost;the thing (that|which) {s} lost
told: what {s} lost
back: Who lost {o}?;By whom was {o} lost?
who: the (person|one) (who|that) lost {o}

uses: person > the vehicle
says: {s} takes {o};{s} travels (with|on) {o};{s} takes {o} (home|every day|to work);{s} rides on {o}
asks: (What|Which vehicle) does {s} take?;How does {s} travel?;{s} takes what?
that: the vehicle (that|which) {s} takes;what {s} takes
told: what {s} takes;how {s} travels
back: Who takes {o}?

room: person > number
says: {s} (is|sits|stays) in room {o};{s} has room {o};room {o} belongs to {s};room {o} is {s}'s;{s} got room number {o}
asks: (Which|What) room does {s} have?;(Which|What) room is {s} in?;In (which|what) room is {s}?;What is the room of {s}?;What is {s}'s room?
that: the room of {s};{s}'s room
told: (which|what) room {s} is in
back: Who (is in|has) room {o}?;Whose room is room {o}?
who: the (person|one) in room {o}

studies: person > school
says: {s} studies {o};{s} is a student of {o};{s} takes (a class|a course|lessons) in {o}
asks: (What|Which subject) does {s} (study|take)?;{s} studies what?;In (what|which) subject does {s} take lessons?;(What|Which) subject does {s} study?
that: the subject of {s};{s}'s subject
told: (what|which) subject {s} has
back: Who studies {o}?

writes about: person > topic
says: {s} writes [a book] about {o};{s} writes about {o} (every day|for the paper);{s}'s book is about {o}
asks: What does {s} write about?;What is {s}'s book about?;{s} writes about what?
that: the (topic|subject) of {s};what {s} writes about
told: what {s} writes about
back: Who writes [a book] about {o}?

prize: person > the medal
says: {s} (won|wins|got|received) {o};{o} (went|goes) to {s};{s} won {o} (again|last year);{o} was won by {s}
asks: What did {s} win?;(What|Which prize) did {s} (win|get|receive)?;{s} won what?
that: what {s} won;the prize (that|which) {s} won
told: what {s} won
back: Who (won|got|received) {o}?;To whom did {o} go?;By whom was {o} won?
who: the winner of {o};the (person|one) (who|that) won {o}

married: person > person, mutual=yes
says: {s} is married to {o};{s} married {o};{s} is the (husband|wife) of {o}
asks: (Whom|Who) is {s} married to?;(Who|Whom) did {s} marry?;To whom is {s} married?
that: the (person|one) (whom|that|who) {s} (married|is married to)
told: (who|whom) {s} is married to
back: Who is married to {o}?;Who married {o}?

friend: person > person, mutual=yes
says: {s} is a friend of {o};{s} and {o} are friends;{s} is friends with {o}
asks: (Who|Whom) is {s} (a friend of|friends with)?;Who is a friend of {s}?
that: the friend of {s};{s}'s friend;the (person|one) {s} is friends with
told: who {s} is friends with

earns: person > price
says: {s} earns {o} (|a day|a week|an hour);{s} gets {o} (a day|for the work);the (pay|wage) of {s} is {o};we pay {s} {o};{s} is paid {o}
asks: How much (money does|does) {s} (earn|get)?;What does {s} earn?;What is the pay of {s}?;How much is {s} paid?
that: the pay of {s};{s}'s pay
told: how much [money] {s} earns;what {s} earns
back: Who (earns|gets|is paid) {o}?
who: the (person|one) (who|that) earns {o}

neighbour: person > person, mutual=yes
says: {s} is the neighbour of {o};{s} lives next door to {o};{s} and {o} are neighbours
asks: Who is the neighbour of {s}?;Who lives next door to {s}?;Who is {s}'s neighbour?
that: the neighbour of {s};{s}'s neighbour;the (person|one) (who|that) lives next door to {s}
told: who the neighbour of {s} is;who lives next door to {s}

boss: person > person
says: {o} is the boss of {s};{s}'s boss is {o};{s} has {o} as a boss;the boss of {s} is {o}
asks: Who is the boss of {s}?;Who is {s}'s boss?;Whom does {s} have as a boss?
that: the boss of {s};{s}'s boss
told: who the boss of {s} is;who {s}'s boss is
back: Whose boss is {o}?;Of whom is {o} the boss?

gift: person > the thing
says: {s} (got|received) {o} as a gift;{s} was given {o};the gift for {s} was {o};{o} was the present for {s}
asks: What did {s} (get|receive) as a gift?;What was {s} given?;What was the (gift|present) for {s}?
that: the (gift|present) for {s};what {s} (got|received) as a gift
told: what {s} (got|was given) as a gift
back: Who (got|received) {o} as a gift?;Who was given {o}?

sells: person > the thing
says: {s} sells {o};{s} offers {o} for sale;{o} is sold by {s};{o} is for sale at {s}'s
asks: What does {s} sell?;What does {s} offer for sale?;What is sold by {s}?
that: what {s} sells;the thing (that|which) {s} sells
told: what {s} sells
back: Who sells {o}?;By whom is {o} sold?

collects: person > goods
says: {s} collects {o};{s} has a collection of {o};{s}'s collection is of {o};{s} gathers {o}
asks: What does {s} collect?;Of what does {s} have a collection?;{s} collects what?
that: what {s} collects
told: what {s} collects
back: Who collects {o}?;Who has a collection of {o}?

visited: person > country
says: {s} visited {o};{s} was in {o} last year;{s} spent the summer in {o};{s} went on holiday to {o};{s} has been to {o}
asks: Which country did {s} visit?;Where did {s} spend the summer?;Where was {s} last year?;Which country has {s} been to?
that: the country (that|which) {s} visited;the country {s} has been to
told: which country {s} visited;where {s} (was|has been)
back: Who visited {o}?;Who was in {o} last year?

wakes: person > time
says: {s} (wakes|gets) up at {o};{s} rises at {o};at {o} {s} gets up;{s}'s day begins at {o}
asks: When does {s} (wake|get) up?;At what time does {s} get up?;When does {s}'s day begin?
that: the time (when|at which) {s} gets up
told: when {s} (wakes|gets) up
back: Who gets up at {o}?;Who wakes up at {o}?

sleeps: person > the spot
says: {s} sleeps at {o};{s} spends the night at {o};{s} stays at {o};at {o} {s} has a bed
asks: Where does {s} sleep?;Where does {s} spend the night?;Where does {s} stay?
that: the place where {s} (sleeps|stays)
told: where {s} (sleeps|stays)
back: Who (sleeps|stays) at {o}?;Who spends the night at {o}?

made-up verb: person > person
says: {s} {v}s {o};{s} {v}s {o} (today|often|at night|every day|twice a week)
asks: (Who|Whom) does {s} {v}?;{s} {v}s (whom|who)?
that: the (person|one) (whom|that|who) {s} {v}s;the (person|one) {s} {v}s
told: (who|whom) {s} {v}s
back: Who {v}s {o}?;(Which|What) person {v}s {o}?
who: the (person|one) (who|that) {v}s {o}

made-up verb of things: person > made-up
says: {s} {v}s {o};{s} {v}s the {o};{s} {v}s {o} (today|often|at night|every day)
asks: What does {s} {v}?;{s} {v}s what?
that: what {s} {v}s;the thing (that|which) {s} {v}s
told: what {s} {v}s
back: Who {v}s (|the ){o}?

made-up noun: person > made-up
says: {s}'s {v} is {o};the {v} of {s} is {o};{o} is the {v} of {s}
asks: What is {s}'s {v}?;What is the {v} of {s}?;(Which|What) {v} does {s} have?
that: the {v} of {s};{s}'s {v}
told: what the {v} of {s} is
back: Whose {v} is {o}?

made-up noun of people: person > person
says: {s}'s {v} is {o};the {v} of {s} is {o};{o} is the {v} of {s}
asks: Who is {s}'s {v}?;Who is the {v} of {s}?
that: the {v} of {s};{s}'s {v}
told: who the {v} of {s} is
back: Whose {v} is {o}?
"""
