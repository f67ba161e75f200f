"""A judge's outcome to change in tests: dense takes the first of two candidates and is right."""

from __future__ import annotations

from backend.records.judge import JudgeOutcome

BLANK = JudgeOutcome(
    problem=1, order="identity", layout=(1, 2), method="dense", state="dense", slots=(1,), selected=(1,),
    answer="5", failure="", correct=True, selection_right=True, consistent=True, same_answer=True,
    blocks=2, reused_blocks=0, prompt_tokens=10, reused_tokens=0, forwarded_tokens=10,
    margin=1.0, dense_margin=1.0, floor=1e-6, near_tie=False, twin=False, kl_first=0.0,
    kl_mean=0.0, ttft_ms=1.0, parts_ms={}, text="",
)  # fmt: skip
