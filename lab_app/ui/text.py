"""The page's own words. Terms are explained by the one glossary in ``viz.base.glossary``."""

from backend.base.ranges import SEEDS
from lab_app.ui.validation import NumberField

NAME = "KV Reuse Lab"
PURPOSE = (
    "A language model keeps what it has read as a cache of keys and values. Given a copy of that cache, the "
    "next agent need not read the same text again. But the copy was made where other text stood before it, "
    "so the next agent may answer differently. Here you see whether it does, why, and what repairs it."
)
TOO_LONG = (
    "{name}: too long. The prompt of {agent} has {tokens:,} tokens; with {asked:,} for its answer that is "
    "more than the {limit:,} that this model can read. Shorten it."
)
FOR_MODEL = {"any": "larger model", "embedded": "the lab's own model"}
READING = "Reading the prompts as decided"
DECODING = "Writing the answers that differ"
PURPOSE_TOUR = "Take the tour"
PURPOSE_PLAY = "Play it"
TITLE = "KV Reuse Lab: can agents share memory instead of reading again?"
TAGLINE = "Can agents share memory instead of reading the same text again?"

LESSON = "Lesson"
LESSON_HELP = "Lesson mode: hide options and figures for experts. The address keeps it."

PAGES = "Pages"
PIPELINE = "Compare"

SCENARIO = "Scenario"
CHECKED = "Checked examples, by what reuse does"
EFFECTS = {"flip": "Answer changes", "harmless": "Answer stays"}
CHOOSE_ONE = "Choose one of {count}"
NO_ANSWER = "no answer"
OTHER_WEIGHTS = "These were checked with other weights than the ones loaded here, so the answers may differ."
NO_LONGER_CHECKED = "Edited since it was checked, so the answers may differ."
REQUEST = "Request"
METHODS = "Methods to compare"
AGENTS = "Agents and their prompts"
MORE = "Mode and decoding"

METHODS_HELP = "The full read, the reference, always runs beside them."
NEXT = "Next problem"
MANY = "Run more problems"
MAY_BE_EMPTY = "may be empty"
NO_SET = "This scenario has no set of requests; type one."
NO_NUMBER = "The request holds no number to change. Write one, or fill the pools with other problems."
WARM = "Warm up the anchor pools first"
WARM_OWN = "with your request in other numbers"
WARM_OWN_HELP = "Off: with other problems. On: no anchors are nearer, so this shows KVCOMM at its best."
WARM_BUTTON = "Fill now"
FORGET = "Empty the pools"
ABLATE = "Also run with each step off"
PROFILE = "Profile"
PROFILE_HELP = "Sets every option below at once; each can still be changed by itself."
EVERY_PROFILE = "Also run every other profile"
MORE_OPTIONS = "More options"
TURNS = "Turns"
TURNS_HELP = (
    "How often the agents run. From the second turn on, {agent_2_history_-1} holds what agent 2 wrote in the "
    "turn before."
)
WEIGHTS = "Weights"
WEIGHTS_HELP = (
    "What this agent reads and writes with: the lab’s own weights, or others of the same architecture, such "
    "as a fine-tuned model’s. The full read reads each agent’s prompt with that agent’s."
)
OWN_WEIGHTS = "The lab’s own"
WEIGHTS_MISSING = "{name} (not in this lab)"
WEIGHTS_WARNING = (
    "These are not the lab’s own weights. A cache that passes between this agent and the others is not what "
    "its reader’s weights would have computed, so a reused text can be wrong by its weights as well as by "
    "its context. The notes of a run say how wrong."
)
STUDY_WEIGHTS = (
    "Agent {agent} runs on the weights {name!r}, and this study reads with the lab’s own alone. Choose the "
    "lab’s own for it under “Agents and their prompts”, or ask for 0 requests."
)
DECLARED = "Extra placeholders, separated by commas"
DECLARED_HELP = "Names in braces that the request fills, such as document. Any other brace stays text."

RUN = "Run"
OPENING = "Opening the page."
RUNNING = "Cancel"
CANCELLING = "Stopping after this step"

ALL_SEGMENTS = "whole prompt"

EMPTY_VERDICT = "Nothing has been run here yet."
EMPTY_HELP = (
    "Press Run: the agents answer the question once with every prompt read in full, and "
    "once more with each reuse method. The difference appears here."
)
ATTENTION_OFF = "Attention was not recorded in this run"
ATTENTION_RERUN = "Record attention and rerun"
EDITED = "The setup was edited since this run, so the results below belong to the earlier input."
AGAIN = "Run again"
SET_GAMMA = "Set gamma to {gamma}"
FILL_OWN = "Fill its pools with this request in other numbers"
FIRST_RUN_HERE = "This is a saved run. Press Run to make your own."
FIRST_RUN = "This is a saved run. Press Run to make your own, or open another record below."
OPENED = "Opened a saved record. The setup on the left keeps what you typed."
RUN_ELSEWHERE = (
    "Another run of yours is still going on, here or on another page. Wait for it or press Cancel there."
)
MCP_INSTRUCTIONS = (
    "A lab for KV-cache reuse between language-model agents on a real, small model. Begin with `presets` and "
    "`methods`; `run` compares methods with the full read on one request, `judge` on candidates before a "
    "judge."
)
MCP_POST = "This is the lab's MCP server; it takes POST requests of MCP clients."
CALL_ELSEWHERE = (
    "Another call of this session is still going on. Wait for it or cancel it, or use a session of its own."
)
CALL_UNEXPECTED = (
    "The lab met an error that it did not expect ({kind}). Try again, or change the call; the server's "
    "log holds the details."
)
CANCELLED = "Stopped. The results below are from the run before."
UNEXPECTED = (
    "The lab met an error that it did not expect. Nothing you typed is lost. Try again, or change "
    "the last thing you edited; the server's log holds the details."
)
RECORD_ABOUT = "What’s in them?"
RECORD_HELP = (
    "One file holds everything on this screen and opens here again, on any machine, without running the "
    "model. The bundle adds the setup, citations and the figures’ numbers; the report needs no lab."
)
NO_RECORD = "There is no run to save yet."
PACED = "Requests came faster than this lab allows to one visitor. Going on in {seconds} s."
LIMITS_TITLE = "Limits of this lab"
OPENED_BUNDLE = "Opened a saved run, and put its setup back on the left."
CANNOT_BE_DRAWN = "This record is complete but cannot be drawn by this version of the lab."
FILES = "Files"
OPEN_FILE = "Open a saved run"
SAVE_RUN = "Save this run"
SAVE_BUNDLE = "Bundle (.zip)"
SAVE_REPORT = "Report (.html)"
SAVE_TENSORS = "Bundle with tensors,"
NO_TENSORS = "This run’s tensors are not held here."
TENSORS_TOO_LARGE = "Its tensors take {bytes}, more than the {limit} that a bundle holds."
SHARE_RUN = "Share this run"
LINK_BENCH_BUTTON = "Link to this setup"
UNDO = "Undo"
REDO = "Redo"
NO_STORE = (
    "This lab keeps no runs: it was started without a folder for them (kvlab serve --data DIR). Save the "
    "bundle and send it, or send a link to the setup."
)
NO_STORE_HERE = (
    "This link names a run that was stored in a lab. The lab here keeps none (it was started without "
    "--data), so ask the sender for the file."
)
LINK_OF_RUN = "This link shows the run with all its figures, to whoever has it, for {days}."
LINK_OF_BENCH = (
    "This link holds the whole setup: scenario, prompts, values, methods and options. Nothing is stored."
)
LINK_STORED_BENCH = "The setup is too long for a link, so it was stored; this link finds it for {days}."
OPEN_LINK = "Open the link"
COPY_LINK = "Copy the link"
LINK_RUN = "This run was shared with you. Nothing was run to show it; press Run to repeat it here."
LINK_BENCH = "The setup on the left is as the sender’s link says. Press Run to run it."
LINK_BROKEN = "This link, or what this tab remembered of the setup, cannot be read. The usual page is shown."
RESUMED = "The setup is as this tab left it. Open the page in a new tab to begin afresh."

NOTHING_RUN = "Nothing to look at yet"
NOTHING_RUN_HELP = "Press Run. This tab then shows the run."

METHODS_ELSEWHERE = "The full read always runs beside them. Their options are those set on the Compare page."
CLOSER = "Look closer"
GONE = "The server no longer holds this run. Run it again."
EXAMPLE = "Example"
EXAMPLE_NEXT = "Next example"

DOCUMENTS = "Documents"
DOCUMENTS_TITLE = "Documents and a question"
DOCUMENTS_HELP = (
    "Each document is encoded once, alone. Whatever the question and the order, its cache is then copied "
    "into the prompt; the methods differ in what they do about the context that it has not seen."
)
DOCUMENTS_EMPTY = "Nothing has been read here yet."
DOCUMENTS_EMPTY_HELP = (
    "Press Run: a reader answers the question once with every document read in full, and "
    "once more with each chosen method. Then shuffle the documents or ask something else, and run again: "
    "what was encoded once is known."
)
DOCUMENTS_EDITED = "Edited since this run, so the results below belong to the earlier input."
DOCUMENTS_CLOSER_HELP = "On Compare: errors by layer, offsets, times and the record of this run, to be saved."
DOCUMENT_EMPTY = "Document {number} is empty. Write a text, or remove it."

JUDGE = "Judge"
JUDGE_TITLE = "What is judged"
JUDGE_HELP = (
    "A judge reads candidate answers and selects. Its cache of each candidate can be copied from where the "
    "candidate was written; then the candidates were encoded without seeing each other."
)
JUDGE_CRITERION = "The judge selects"
JUDGE_CRITERIA = {
    "right": "the first right one",
    "all": "all right ones",
    "corrects": "the first that corrects an earlier one",
    "differs": "the first that differs from candidate 1",
    "closest": "the one closest to candidate 1",
    "majority": "the majority",
}
JUDGE_PROTOCOL = "The judge writes"
JUDGE_PROTOCOLS = {
    "joint": "what it found, the number and the answer",
    "selection": "the number alone",
    "pairwise": "which of every two is better",
    "rewriting": "an answer of its own",
}
JUDGE_SLOTS_ONLY = "Copy the candidates alone"
JUDGE_SLOTS_ONLY_HELP = (
    "As the judge study does: the question and the words around are computed. Off: methods copy them, too."
)
JUDGE_EXPECTED = "Known answer"
JUDGE_CANDIDATES = "Candidates"
JUDGE_SOURCES = {"typed": "Typed", "progressive": "One after the other", "parallel": "Independently"}
JUDGE_SOURCE_HELP = {
    "typed": "Typed texts have no cache yet, so each is encoded alone.",
    "progressive": "Agents write them, each reading those before it. Their own caches are what is reused.",
    "parallel": "Agents write them without seeing each other. Their own caches are what is reused.",
}
JUDGE_WRITE = "Write them"
JUDGE_WROTE = "Written by the model. Press Run to judge them."
JUDGE_CHANGED = (
    "These are not (or no longer) what the model wrote in this way, so they count as typed: each is encoded "
    "alone. “Write them” makes new ones."
)
JUDGE_ORDERS = "Orders"
JUDGE_ORDER_KINDS = {
    "identity": "As they stand", "shuffle": "As they stand, and shuffled", "all": "Every order"
}  # fmt: skip
JUDGE_EVERY_ORDER = (
    "Every order is judged with up to four candidates. Remove some, or choose “As they stand, and shuffled”."
)
JUDGE_NUMBERS = {
    "shuffles": NumberField("Shuffles", 1, 5),
    "seed": NumberField("Seed", *SEEDS),
    "warm": NumberField("Problems for the pools", 0, 40),
    "budget": NumberField("Tokens that repair may read again (%)", 0, 100, whole=False),
    "temperature": NumberField("Temperature", 0.0, 5.0, whole=False),
}
JUDGE_OWN = "Fill the pools with this problem in other numbers"
JUDGE_OWN_FACT = "The anchors are this problem in other numbers, the nearest there are."
JUDGE_FILL_OWN = "Fill its pools with this problem in other numbers"
JUDGE_REPAIR = "Also repair"
JUDGE_REPAIR_HELP = "Computes each candidate’s end again, where its answer stands."
JUDGE_GATED = "Read in full where two quick verdicts disagree"
JUDGE_GATED_HELP = (
    "From these verdicts, without a new run: what such a judge would select, and how much it would read."
)
JUDGE_EMPTY = "No verdict yet."
JUDGE_EMPTY_HELP = (
    "Press Run: the judge reads the candidates once in full and once with each method, "
    "in every chosen order. A different selection under the same order is what reuse did."
)
JUDGE_MORE = "Attention by layer, head and token"
JUDGE_PICK_ORDER = "Order"
JUDGE_PICK_METHOD = "Method"
CANDIDATE_EMPTY = "Candidate {number} is empty. Write a text, or remove it."
JUDGE_SET = "Repeat on many problems"
JUDGE_SET_HELP = (
    "Draws problems, gets candidates for each, and judges them as above: the same criterion, orders and "
    "methods. The figures follow along; what is finished stays when you cancel. Hundreds of problems are "
    "better sent with kvlab judge, whose batches survive a restart."
)
JUDGE_SET_NUMBERS = {
    "count": NumberField("Problems", 1, 300),
    "candidates": NumberField("Candidates of each", 2, 6),
    "set_seed": NumberField("Seed", *SEEDS),
}
JUDGE_SET_SOURCE = "Candidates are"
JUDGE_SET_SOURCES = {"typed": "Drawn", "progressive": "Written in turn", "parallel": "Written apart"}
JUDGE_SET_RUN = "Judge the set"
JUDGE_SET_STOPPED = "Stopped. The figures hold the problems that were finished."
GATE = "Can a gate tell beforehand?"
GATE_HELP = (
    "From what is known of a candidate set before the verdict (do the candidates agree, how alike and how "
    "long are they, how sure was the method’s own gate) a simple classifier learns where reuse keeps the "
    "selection. It is tested on problems that it did not learn from; twenty problems are few, a hundred are "
    "better."
)
GATE_TRAIN = "Train a gate on this set"
GATE_TARGET = "Reuse is safe under"
GATE_EVERY = "every method"
GATE_THRESHOLD = "Reuse only where the chance is at least"
GATE_NO_SET = "No set was judged in this visit, so there is nothing to learn from. Judge a set first."

MEASURE = "Measure"
TEXTS = "Texts"  # a pane: what each agent wrote
TOKENS = "Tokens"  # a pane: the prompt's tokens by what happened to them
JUDGE_BLAME = "Find what changed it"
JUDGE_BLAME_HELP = "On Compare: which part of the cache changed this order’s choice, and what repairs it?"
JUDGE_OPENED = (
    "The judge’s run and its setup. To search what changed its choice, press Run, then Measure below."
)
JUDGE_PANES = ("Verdicts", "What the judge wrote", "Tokens", "Attention", "Many problems")
LOOP_PANES = ("Turns", "Tokens of a turn", "Figures of a turn", "All episodes")
DOCUMENTS_PANES = ("Answers", "Tokens", "Many problems")
REPAIR_THIS = "Repair this"
REPAIR_HELP = "Adds a column: {what}, with keys and values of the full read in place of its own."
REPAIRED = "Repaired in part, with keys and values of the full read. That costs a full read."
MEASURES_ALREADY = "A measurement of this page is still going on."
MEASURE_EDITED = "Edited since this measurement, so the figures belong to the earlier input. Measure again."
MEASURE_SAVE = "Save this measurement"
LOOP = "Agent loop"
LOOP_TITLE = "A question for an agent with tools"
LOOP_HELP = (
    "The agent thinks, calls a tool (lookup or calc), reads what it gave, and goes on until it writes "
    "finish[...]. Each turn’s prompt is everything so far, so most of it was read before."
)
LOOP_NEXT = "Next problem"
LOOP_TURNS = "Most turns"
LOOP_FREE_WHERE = (
    "This cannot be traced: each method went on from its own turns, so the caches hold different texts."
)
LOOP_FREE_REPAIR = "Run it pinned: then every method reads the same turns, and their caches can be compared."
LOOP_EMPTY = "No episode has been run here yet."
LOOP_EMPTY_HELP = (
    "Press Run: the agent answers turn by turn, once with every prompt read in full and "
    "once with each chosen method. The next episodes find in the store what this one left."
)
LOOP_EDITED = "Edited since this episode, so the turns below belong to the earlier input."
LOOP_TURN = "A turn’s figures"
LOOP_FRAGMENTS = "Where did the prompt of turn {turn} come from?"
LOOP_SO_FAR_HELP = "{count} with these methods in this visit. Other methods begin the count again."
LOOP_CLOSER_HELP = "On Compare: every figure of this episode, and its record, to be saved."

SWEEP = "Sweeps"
SWEEP_TITLE = "A comparison over many problems"
SWEEP_HELP = (
    "What is compared, as text. Of every list, each value is run with each value of the other lists. All "
    "methods answer the same problems. Rows are kept as they come, so a stopped, changed or longer sweep "
    "computes only what is missing."
)
SWEEP_START = "Start from"
SWEEP_OWN = "What you wrote before"
SWEEP_TAKE = "Take the last run of Compare"
SWEEP_TEXT = "Sweep (YAML)"
SWEEP_LINES_TITLE = "A file beside it"
SWEEP_LINES = "Lines"
SWEEP_LINES_HELP = (
    "Problems, or the prompts that agents of another system were sent (a trace), one JSON object a line. The "
    "text above names them: <code>data: lines.jsonl</code> with a <code>format</code>, or "
    "<code>trace: lines.jsonl</code>. Many of them come better as a file: JSON lines, a JSON list or CSV, "
    "up to 16 MiB."
)
SWEEP_UPLOAD = "Upload a file"
SWEEP_UPLOADED = (
    "{lines}, {size}, kept here as <code>{name}</code>. Name it in the text above: <code>data: {name}</code> "
    "with a <code>format</code>, or <code>trace: {name}</code>. Another upload takes its place."
)
SWEEP_PLAN = "<b>{rows}</b> in {cells}"
SWEEP_THERE = ", {there:,} of them computed already"
SWEEP_SECONDS = "; {lasts} here."
SWEEP_ALL_THERE = "; nothing is missing."
SWEEP_RIGHT = "Are answers still right?"
SWEEP_GAIN = "What is gained?"
SWEEP_EMPTY = "No sweep has been run here yet."
SWEEP_EMPTY_HELP = (
    "Press Run: figures and tests appear while rows come in. Stop it whenever you like; Run goes on."
)
SWEEP_EDITED = "Edited since this sweep, so the figures below belong to the earlier text."
SWEEP_STOPPED = "Stopped. What is finished is kept: press Run to go on."
SWEEP_NO_RUN = "There is no run on the Compare page. Run something there, or start from an example."
SWEEP_TAKEN = (
    "Taken from the Compare page: its scenario with the prompts as edited, its methods and options. "
    "Repaired columns are left out."
)
SWEEP_FILES = "These rows as a file"
SWEEP_FILES_HELP = (
    "SQLite holds all that this visit computed: <code>kvlab sweep FILE.yaml --out FILE.sqlite</code> goes on "
    "with it. The server holds them as long as this visit."
)

# -- your logs

LOGS = "Logs"
LOGS_TITLE = "Log"
LOGS_PANES = ("What to change", "Answers", "Calls")
LOGS_HELP = (
    "What would reuse of the KV cache save of the calls of <b>your own agents</b>? Here is a log of the lab's"
    " own; open yours: JSON lines of OpenAI's or Anthropic's interface, OpenTelemetry spans, or prompts, up"
    " to 4 MiB (<code>kvlab xray FILE</code> takes more). It stays in this visit, secrets are masked, and "
    "nothing of it is stored."
)
LOGS_READING = "Read calls with the model"
LOGS_READING_HELP = (
    "Do the answers stay? Calls drawn from every agent are read in full and under reuse, until the budget is "
    "spent."
)
LOGS_NUMBERS = {
    "sample": NumberField("Calls", 1, 200),
    "budget": NumberField("Budget (prompt tokens)", 100, 200_000),
    "seed": NumberField("Seed", *SEEDS),
}
LOGS_SAME = "Two answers are the same if they have"
LOGS_SAMES = [("the same text", "none"), ("the same number", "number")]
LOGS_LAYOUTS = "Also try the prompts reordered as “What to change” proposes"
LOGS_NOT_READ = "Press Run to see whether the answers stay."
LOGS_NOT_READ_HELP = (
    "The rest needs no model. Run reads some of these calls with the loaded model, in full and with their "
    "texts copied, and says which answers changed, and because of what."
)
LOGS_EDITED = "Edited since these calls were read. Press Run to read again."
LOGS_UPLOAD = "Open a log of your own agents"
LOGS_SESSION = "Session"
LOGS_NO_SESSION = "calls without a session"
LOGS_FILE = "your-log.jsonl"
LOGS_TOO_LARGE = "The log has {size}; up to {most} are opened here. Give a part of it, or use kvlab xray."
LOGS_PACKED = "This file is compressed. Unpack it, or use the command kvlab xray, which reads .gz and .eval."
