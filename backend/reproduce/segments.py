"""H1 to H4 of the segment-reuse plan, and what beside them. Free of torch."""

from __future__ import annotations

from backend.reproduce.spec import Column, HypothesesPlan, Line, Reproduction, Scaled

SETTING = (
    "ReAct agents on HotpotQA and ToolBench-like tasks, 7B models: a plan, of which no figures are published"
)
CAVEAT = (
    "The paper states what would refute it and measures nothing; its limits stand beside our figures. Ours "
    "are "
    "agents that look up prices and calculate, with short prompts, so segments of {} tokens count. Fewer "
    "than 30 "
    "observations decide nothing. "
)
COMMON = {"minimum_tokens": 12, "maximum_tokens": 256, "window_tokens": 32, "shingle": 4}
PLAN = HypothesesPlan(40, common=COMMON)
# Thirty observations decide. Forty episodes have 7 segments alike behind another beginning, and 3 prompts
# with a graft that is not exact; of the latter a hundred have 7, and more where shorter segments count.
MORE = HypothesesPlan(100, common=COMMON)
SHORT = HypothesesPlan(
    100,
    grid="none",
    common={
        "minimum_tokens": 6,
        "maximum_tokens": 256,
        "window_tokens": 12,
        "shingle": 3,
        "context_tau": 0.2,
    },
)
LARGE = HypothesesPlan(200, turns=12)
HERE = "ReAct turns with the calculator and the price list; embedded model"


def _one(
    number: int,
    sentence: str,
    columns: tuple[Column, ...],
    limits: tuple[str | None, ...],
    more: str = "",
    plan: HypothesesPlan = PLAN,
) -> Reproduction:
    name = f"H{number}"
    where = {"hypothesis": name}
    return Reproduction(
        f"segments-h{number}",
        "segments",
        f"{name} (hypotheses that can be falsified)",
        sentence,
        SETTING,
        CAVEAT.format(plan.common["minimum_tokens"]) + more,
        columns,
        (Line(name, limits, {"embedded": where, "paper": where}),),
        {
            "embedded": Scaled(plan, HERE, 15),
            "paper": Scaled(
                LARGE,
                "the same loop with the plan's segment lengths",
                120,
                "mistralai/Mistral-7B-Instruct-v0.3",
            ),
        },
    )


H1 = _one(
    1,
    "Does segment reuse save a fifth of the time without losing success?",
    (Column("less time a turn", "less time"), Column("success lost", "success lost")),
    ("at least 20", "at most 1 to 2"),
)
H2 = _one(
    2,
    "Does a small halo keep the ends of grafts near dense?",
    (
        Column("mean KL at the ends", "mean KL", "nats"),
        Column("grafts under 0.1", "share of grafts under 0.1"),
    ),
    ("under 0.1", None),
    "With segments of 12 tokens, too few grafts are not exact. ",
    SHORT,
)
H3 = _one(
    3,
    "How many of the segments that MinHash finds are reusable?",
    (Column("precision at tau 0.8", "precision"),),
    ("over 70",),
    "The plan leaves open what reusable means: here, grafting it alone moves the next token's distribution "
    "by less "
    "than 0.1 nats.",
    MORE,
)
H4 = _one(
    4,
    "Is moving keys stable, and does the probe cap the worst?",
    (
        Column("worst error of a moved key", "worst key error", "number"),
        Column("worst KL without the probe", "worst KL, no probe", "nats"),
        Column("worst KL with it", "worst KL, probe", "nats"),
    ),
    ("stable", None, "capped"),
)

ALL = (H1, H2, H3, H4)
