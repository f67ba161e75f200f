"""The page's own words. Terms are explained by the one glossary in ``viz.glossary``."""

from __future__ import annotations

NAME = "KV Reuse Lab"
TITLE = "KV Reuse Lab: what cache reuse does to a pipeline of agents"
TAGLINE = "what cache reuse does to a pipeline of agents"

SCENARIO = "Scenario"
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
NO_SET = "This scenario has no set of requests; type one."
WARM = "Fill empty anchor pools first"
WARM_COUNT = "with requests of the set"
WARM_BUTTON = "Fill now"
FORGET = "Empty the pools"
ABLATE = "Also run with each step switched off"
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
