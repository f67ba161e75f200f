"""The page's own words. Terms are explained by the one glossary in ``viz.glossary``."""

from __future__ import annotations

NAME = "KV Reuse Lab"
TITLE = "KV Reuse Lab: what cache reuse does to a pipeline of agents"
TAGLINE = "what cache reuse does to a pipeline of agents"

SCENARIO = "Scenario"
CHECKED = "Checked examples of all scenarios"
EFFECTS = {"flip": "Reuse flips this", "harmless": "Reuse is harmless here"}
CHOOSE_ONE = "Choose one of {count}"
NO_ANSWER = "no answer"
OTHER_WEIGHTS = "These were checked with other weights than the ones loaded here, so the answers may differ."
NO_LONGER_CHECKED = "Edited since it was checked, so the answers may differ."
REQUEST = "Request"
METHODS = "Methods to compare"
AGENTS = "Agents and their prompts"
MORE = "Mode and decoding"

METHODS_HELP = "Dense, the reference, always runs beside them."
MODES = {
    "pinned": "Pinned: every method reads the texts that dense wrote",
    "free": "Free-running: each method reads its own texts",
}
NEXT = "Next of the set"
MANY = "Run the next of the set"
MAY_BE_EMPTY = "may be empty"
NO_SET = "This scenario has no set of requests; type one."
WARM = "Fill empty pools first"
WARM_COUNT = "with requests of the set"
WARM_BUTTON = "Fill now"
FORGET = "Empty the pools"
ABLATE = "Also run with each step off"
PROFILE = "Profile"
PROFILE_HELP = "Sets every option below at once; each can still be changed by itself."
EVERY_PROFILE = "Also run every other profile"
MORE_OPTIONS = "More options"
DECLARED = "Extra placeholders, separated by commas"
DECLARED_HELP = "Names in braces that the request fills, such as document. Any other brace stays text."

RUN = "Run"
RUNNING = "Cancel"
CANCELLING = "Stopping after this step"

QUESTION_1 = "Did reuse change the outcome?"
QUESTION_2 = "Where does it come from?"
QUESTION_3 = "What would repair it?"
ALL_SEGMENTS = "whole prompt"

EMPTY_VERDICT = "Nothing has been run here yet."
EMPTY_HELP = (
    "Press Run on the left: the agents answer the question once with every prompt read in full (dense), and "
    "once more with each reuse method. The difference appears here."
)
EDITED = "The bench was edited since this run, so the results below belong to the earlier input."
AGAIN = "Run again"
FIRST_RUN = "This is a saved run. Press Run to make your own, or open another record below."
OPENED = "Opened a saved record. The bench on the left keeps what you typed."
CANCELLED = "Stopped. The results below are from the run before."
UNEXPECTED = (
    "The lab met an error that it did not expect ({kind}). Nothing you typed is lost. Try again, or change "
    "the last thing you edited; the server's log holds the details."
)
RECORD_HELP = (
    "One file holds everything on this screen: prompts, texts, actions, offsets, timings and the model's "
    "certificate. It opens here again, on any machine, without running the model."
)
NO_RECORD = "There is no run to save yet."
WAITING = "Another run has the model: {before} before you."

NOTHING_RUN = "Nothing to look at yet"
NOTHING_RUN_HELP = "Press Run on the left. This tab then shows the run."

PROXIMITY = "Proximity"
PROXIMITY_QUESTION = "Does nearness in embedding space predict nearness in the cache? (KVCOMM, Fig. 4)"
PROXIMITY_HELP = (
    "KVCOMM corrects a text by what similar texts needed, so it must hold that similar tokens have similar "
    "KV, and that a change of prefix moves them alike. This measures both on the loaded model, without a run."
)
PREFIX_A = "Prefix A"
PREFIX_B = "Prefix B"
PROXIMITY_NUMBERS = {"vocabulary": "Tokens sampled", "pairs": "Pairs", "seed": "Seed"}
MEASURE = "Measure"
MEASURES_ALREADY = "A measurement of this page is still going on."
MEASURE_EDITED = "Edited since this measurement, so the figures belong to the earlier input. Measure again."
MEASURE_SAVE = "Save this measurement"
PROXIMITY_PLAN = "What will be measured?"
PROXIMITY_STEPS = (
    "Sample tokens of the vocabulary and take the pairs whose embeddings are nearest, in thirds: near, mid "
    "and far.",
    "Read every token behind prefix A. How far apart are the keys and values of a pair, layer by layer?",
    "Read every token behind prefix B as well. What changes from A to B is a token’s offset: how far apart "
    "are the offsets of a pair?",
    "Correlate those distances with the distance of the embeddings. Reuse by anchors rests on the second "
    "correlation.",
)
