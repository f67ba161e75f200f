"""Relations of places, things, events and made-up words, as text; :mod:`~backend.prompts.tasks.relations` reads it."""
# A line is a list of patterns.
# ruff: noqa: E501

THINGS = """
attribute of a place: place > k, about=of place
says: the {k} of {s} is {o};{s}'s {k} is {o};{o} is the {k} of {s}
asks: {W} is the {k} of {s}?;{W} is {s}'s {k}?
that: the {k} of {s};{s}'s {k}
told: {w} the {k} of {s} is
back: {o} is the {k} of which place?;{o} is the {k} of what?

capital: country > place
says: the capital of {s} is {o};{o} is the capital of {s};the capital city of {s} is {o};{s} has the capital {o};{s}'s capital is {o}
asks: What is the capital [city] of {s}?;(Which|What) (city|town) is the capital of {s}?;What is {s}'s capital [city]?
that: the capital [city] of {s};{s}'s capital [city]
told: (what|which city) the capital of {s} is
back: {o} is the capital of (what|which country)?;Which country has the capital {o}?
who: the country whose capital is {o}

count of a place: place > number, about=count of place
says: {s} has {o} {k};there are {o} {k} in {s};in {s} there are {o} {k};you (can find|find|can see) {o} {k} in {s}
asks: How many {k} does {s} have?;How many {k} are [there] in {s}?;How many {k} are there in {s}?
that: the number of {k} in {s}
told: how many {k} there are in {s};how many {k} {s} has
back: (Which|What) (town|city|place) has {o} {k}?
who: the (town|city|place) (that has|with) {o} {k}

where things are: the thing > the box
says: {s} is in {o};{s} lies in {o};you find {s} in {o};{s} is kept in {o};in {o} there is {s};{s} was put in {o}
asks: Where is {s}?;Where do (I|you|we) find {s}?;Where is {s} kept?;Where does {s} lie?;{s} is where?
that: the place where {s} is
told: where {s} is;where {s} lies;where to find {s}
back: What (is|lies) in {o}?;What do (I|you) find in {o}?;What is kept in {o}?

opens: the thing > the lock
says: {s} opens {o};{o} is opened with {s};{s} fits {o};with {s} you can open {o};you open {o} with {s};{s} is for {o}
asks: What does {s} open?;What is opened with {s}?;{s} opens what?;What is {s} for?;What can (I|you) open with {s}?
that: what {s} opens
told: what {s} opens
back: What opens {o}?;What do (I|you|we) need to open {o}?;What fits {o}?;With what is {o} opened?

colour of: the thing > colour
says: {s} is {o};the (colour|color) of {s} is {o};{s} is painted {o};{s} has a {o} (colour|cover)
asks: (What|Which) (colour|color) is {s}?;What is the (colour|color) of {s}?;(What|Which) (colour|color) does {s} have?
that: the (colour|color) of {s}
told: (what|which) (colour|color) {s} is
back: What is {o}?;(Which|What) thing is {o}?

made of: the thing > material
says: {s} is made of {o};{s} is [made] out of {o};{s} consists of {o};{o} is what {s} is made of
asks: What is {s} made of?;(What|Which) material is {s} made of?;What does {s} consist of?;What is {s} made from?
that: the material of {s};the material {s} is made of
told: what {s} is made of
back: What is made of {o}?;(Which|What) thing is made of {o}?

price of one: the thing > price
says: {s} costs {o};the price of {s} is {o};you pay {o} for {s};{s} is sold for {o};{s} is worth {o}
asks: How much (is|does) {s} cost?;What does {s} cost?;What is the price of {s}?;How much do (I|you) pay for {s}?;How much is {s}?
that: the price of {s};{s}'s price
told: what {s} costs;how much {s} costs
back: What costs {o}?;(Which|What) thing costs {o}?

price: goods > price
says: {s} cost {o};the price of {s} is {o};{s} are sold for {o};you get {s} for {o};{s} cost {o} (a piece|each);we sell {s} for {o}
asks: How much do {s} cost?;What do {s} cost?;What is the price of {s}?;How much are {s}?;How much do (I|you) pay for {s}?
that: the price of {s}
told: what {s} cost;how much {s} cost
back: What costs {o}?;What do you get for {o}?

stock of: goods > number
says: there are {o} {s} (in the shop|in the store|left|in stock);the shop has {o} {s};we have {o} {s} (in stock|left|in store);{o} {s} are (left|in stock)
asks: How many {s} are (there|left|in stock)?;How many {s} does the shop have?;How many {s} do we have?
that: the number of {s}
told: how many {s} there are

event place: the event > place
says: {s} takes place in {o};{s} is held in {o};{s} happens in {o};{o} is where {s} takes place
asks: Where does {s} take place?;(In which|In what) (city|town) is {s}?;Where is {s} held?;{s} takes place where?
that: the (city|town|place) where {s} takes place;the (city|town) of {s}
told: where {s} (takes place|is held|is)
back: What takes place in {o}?;What is held in {o}?

event day: the event > day
says: {s} is on {o};{s} takes place on {o};{s} starts on {o};on {o} there is {s};{s} was moved to {o}
asks: When is {s}?;(Which|What) day is {s}?;On (which|what) day is {s}?;(On which|On what) day does {s} take place?;{s} is when?
that: the day of {s}
told: when {s} is;on (which|what) day {s} is
back: What is on {o}?;What takes place on {o}?
group: event when

event time: the event > time
says: {s} (starts|begins) at {o};{s} is at {o};at {o} {s} (starts|begins);the start of {s} is at {o}
asks: When does {s} (start|begin)?;(At what time|What time) does {s} (start|begin)?;What time is {s}?;When is {s}?
that: the time (when|at which) {s} (starts|begins)
told: when {s} (starts|begins)
group: event when

organiser: the event > person
says: {s} is organised by {o};{o} organises {s};{o} plans {s};{o} is in charge of {s}
asks: Who (organises|plans) {s}?;By whom is {s} organised?;Who is in charge of {s}?
that: the (person|one) (who|that) (organises|plans) {s};the organiser of {s}
told: who (organises|plans) {s}
back: What does {o} (organise|plan)?;What is {o} in charge of?

author: the thing > person
says: {s} was made by {o};{o} made {s};{o} is the maker of {s};{s} is a work of {o}
asks: Who made {s}?;By whom was {s} made?;Who is the maker of {s}?;{s} was made by whom?
that: the maker of {s};the (person|one) (who|that) made {s}
told: who made {s}
back: What did {o} make?;What was made by {o}?

land of: place > country
says: {s} is in {o};{s} lies in {o};{s} is a (town|city) in {o};you find {s} in {o};{s} belongs to {o}
asks: Where is {s}?;(In which|In what) country is {s}?;(Which|What) country is {s} in?;Where does {s} lie?;{s} is in (which|what) country?
that: the country (where|in which) {s} lies;the country {s} is in
told: (which|what) country {s} is in;where {s} is
back: (Which|What) (city|town|place) (is|lies) in {o}?
who: the (city|town) in {o}

river: place > river
says: {s} lies on the {o};the {o} flows through {s};the river (in|of) {s} is the {o};{s} is a (town|city) on the {o};the {o} runs through {s}
asks: (Which|What) river (flows|runs) through {s}?;What is the river (in|of) {s}?;On (which|what) river does {s} lie?
that: the river (in|of) {s};the river that flows through {s}
told: (which|what) river (flows|runs) through {s}
back: (Which|What) (city|town|place) lies on the {o}?;Through (which|what) (city|town) does the {o} flow?
who: the (city|town) on the {o}

weather: place > weather
says: {s} has {o};there is {o} in {s};the weather in {s} is {o};they have {o} in {s}
asks: What is the weather in {s}?;(What|Which|What kind of) weather does {s} (have|get)?;{s} has what weather?
that: the weather in {s};the weather (that|which) {s} has
told: what the weather in {s} is;(what|which) weather {s} has
back: (Which|What) (city|town|place) has {o}?;Where is there {o}?
who: the (city|town|place) (that has|with) {o}

near: place > place, mutual=yes
says: {s} is near {o};{s} lies (next to|close to|near) {o};{s} is a neighbour of {o}
asks: (Which|What) (city|town|place) is {s} near?;(Which|What) (city|town) is {s} close to?;What does {s} lie close to?
that: the (city|town) (that is near|close to) {s};the (city|town) near {s}
told: (what|which) (city|town) {s} is near

distance: place > number
says: {s} is {o} (kilometres|miles|km) away;{s} lies {o} (kilometres|miles|km) from here;it is {o} (kilometres|miles|km) to {s};you drive {o} (kilometres|miles) to {s}
asks: How far is {s}?;How far away is {s}?;How many (kilometres|miles) is it to {s}?;How far is it to {s}?
that: the distance to {s}
told: how far [away] {s} is

famous: place > food
says: {s} is (famous|known) for {o};{s} is known for its {o};{s} is (widely|also|well) known for its {o};people know {s} for its {o}
asks: What is {s} (famous|known) for?;{s} is (famous|known) for what?;What is it that {s} is known for?
that: what {s} is (famous|known) for
told: what {s} is (famous|known) for
back: (Which|What) (city|town|place) is (famous|known) for {o}?
who: the (city|town|place) (that is known|known|famous) for {o}

built: the spot > year
says: {s} was built in {o};{s} was opened in {o};{s} dates from {o};in {o} {s} was built;they built {s} in {o}
asks: When was {s} (built|opened)?;(In what|In which|What) year was {s} built?;How old is {s}?;{s} was built when?
that: the year (when|in which) {s} was built
told: when {s} was (built|opened)
back: What was (built|opened) in {o}?

spot place: the spot > place
says: {s} is in {o};{s} stands in {o};you find {s} in {o};{s} lies in {o}
asks: Where is {s}?;(In which|In what|Which) (city|town) is {s} [in]?;Where does {s} stand?;Where do (I|you) find {s}?
that: the (city|town) where {s} (is|stands)
told: where {s} (is|stands)
back: What (stands|is) in {o}?

guard: the spot > person
says: {o} runs {s};{s} is run by {o};the head of {s} is {o};{o} is the head of {s}
asks: Who runs {s}?;By whom is {s} run?;Who is the head of {s}?
that: the (person|one) (who|that) runs {s};the head of {s}
told: who runs {s}
back: What does {o} run?;What is {o} the head of?

ride: the vehicle > place
says: {s} goes to {o};{s} takes you to {o};{s} leaves for {o};{s} brings people to {o};with {s} you get to {o}
asks: Where does {s} go?;(Which|What) (city|town|place) does {s} go to?;{s} goes where?;Where does {s} take you?
that: the (city|town|place) (that|which) {s} goes to;the (city|town) {s} goes to
told: where {s} goes
back: What goes to {o}?;How do (I|you) get to {o}?;What takes you to {o}?

leaves: the vehicle > time
says: {s} leaves at {o};{s} departs at {o};at {o} {s} leaves;{s} starts at {o}
asks: When does {s} (leave|depart|start)?;(At what time|What time) does {s} (leave|depart)?;When is {s} leaving?
that: the time (when|at which) {s} (leaves|departs)
told: when {s} (leaves|departs)
back: What (leaves|departs) at {o}?

made-up verb among things: the made-up > the made-up
says: {s} {v}s {o}
asks: What does {s} {v}?;{s} {v}s what?
that: what {s} {v}s
told: what {s} {v}s
back: What {v}s {o}?

made-up number: the made-up > number
says: the {v} of {s} is {o};{s} has a {v} of {o};{s}'s {v} is {o}
asks: What is the {v} of {s}?;(What|Which) {v} does {s} have?
that: the {v} of {s}
told: what the {v} of {s} is

code: word > number
says: {s} (is|means|stands for) {o};{s} = {o};{s}: {o};the code for {s} is {o};the number of {s} is {o};{s} has [the] number {o}
asks: What is {s}?;What does {s} (mean|stand for)?;What is the (code|number) (for|of) {s}?;(Which|What) number does {s} have?;{s} = ?
that: the (code|number) (for|of) {s}
told: what {s} (means|is|stands for)
back: What (is|means|stands for) {o}?
"""
