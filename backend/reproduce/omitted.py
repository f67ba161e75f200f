"""What the papers leave out: whole requests instead of first tokens, and energy. Free of torch."""

from __future__ import annotations

from backend.reproduce.spec import LLAMA, Column, LatencyPlan, Line, Reproduction, Scaled

_METHODS = ("dense", "prefix", "naive", "kvcomm")
LATENCY = Reproduction(
    "end-to-end",
    "omitted",
    "no table: the papers time the first token alone",
    "What is left of the gain when the whole request is timed, and what does it cost in energy?",
    "KVCOMM reports time to first token only (up to 7.82x, Table 2); no paper reports energy",
    "Each method serves the requests by itself, from the request's arrival to the last agent's last token, "
    "with "
    "encoding of outside texts, gate, matching, correction, recording of anchors and decoding included. "
    "Prefill is "
    "the part of it that reuse can save. Energy is the GPU's own counter (NVML) over the measured "
    "requests; on a "
    "CPU there is none.",
    (
        Column("whole request", "wall_ms", "ms"),
        Column("dense over it", "ratio", "times"),
        Column("time to first tokens", "ttft_ms", "ms"),
        Column("dense over it, first tokens", "ttft_ratio", "times"),
        Column("decoding", "decode_ms", "ms"),
        Column("agents that reused", "agents"),
        Column("right", "accuracy"),
        Column("energy a request", "joules", "joules"),
    ),
    tuple(
        Line(
            f"{agents} agents, {method}",
            (None,) * 8,
            {"embedded": {"task": pipeline, "method": method}},
        )
        for agents, pipeline in ((3, "math-2"), (5, "math-4"))
        for method in _METHODS
    )
    + tuple(
        Line(f"GSM8K's four agents, {m}", (None,) * 8, {"paper": {"task": "gsm8k-paper", "method": m}})
        for m in _METHODS
    ),
    {
        "embedded": Scaled(
            LatencyPlan(("math-2", "math-4"), _METHODS, 15, 15),
            "solvers and a judge on generated word problems, one request at a time; embedded model",
            4,
            absent="prompts of this length are beyond the embedded model",
        ),
        "paper": Scaled(
            LatencyPlan(("gsm8k-paper",), _METHODS, 20, 20),
            "the paper's four GSM8K agents on the preset's own problems, one request at a time",
            40,
            LLAMA,
            absent="measured at embedded scale",
        ),
    },
)

ALL = (LATENCY,)
