"""The judge study's Tables 1 to 4. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping

from backend.reproduce.spec import Column, Line, Reproduction, Scale, Scaled, SweepPlan, numbers, table

JUDGE = "meta-llama/Llama-3.2-3B-Instruct"
ACCURACY, JCR, REUSE = Column("accuracy", "accuracy"), Column("JCR", "as_dense"), Column("reuse", "blocks")
ORDERS = {"No": "identity", "Yes": "shuffle 0"}
REGIMES = {"Progressive Refinement": "progressive", "Parallel Exploration": "parallel"}
NAMES = {"Dense Prefill": "dense", "Naïve Reuse": "naive", "KVCOMM": "kvcomm", "PAL-KV": "palkv"}
STUDY = (
    "As in the study, the candidates are written once by dense agents, all methods read the same texts, at "
    "paper scale the candidates alone are copied (temperature 1), and reuse is the share of candidates "
    "copied. How many candidates and anchors there were is lost in its text: four candidates as in its case "
    "study, V 5 as its Table 3 at V 5 has Table 1's figures. "
)
OURS = (
    "At embedded scale candidates solve word problems of one or two calculations at temperature 2, which "
    "leaves half of them wrong, and the whole prompt is copied: with the candidates alone copied our judge "
    "keeps nearly every choice (FINDINGS), for what moves it is the words between them. Where two are right "
    "a judge that takes the other one is as good: JCR, not accuracy, is the measure. The embedded model's "
    "judge writes its steps before it names a candidate. "
)
DATA = {"gsm8k": "general", "mmlu": "general", "humaneval": "programs"}  # how their judges are asked
MMLU = "MMLU's questions are drawn from the file, the study's are 153 of the validation split"
SETTING = "Llama-3.2-3B-Instruct, two RTX 4090, bf16, at most 512 tokens"


def _tasks(**more: object) -> tuple[Mapping[str, object], ...]:
    """A judge over generated candidates in each regime."""
    return tuple({"label": regime, "judge": _judge(regime, **more)} for regime in REGIMES.values())


def _judge(regime: str, **more: object) -> Mapping[str, object]:
    """Half of the candidates are wrong; a prompt is copied whole. Else the judge has nothing to lose."""
    return {"regime": regime, "candidates": 4, "steps": 0, "temperature": 2, **more}


def _data_tasks(
    regimes: tuple[str, ...] = tuple(REGIMES.values()), sets: tuple[str, ...] = ("mmlu",), **more: object
) -> tuple[Mapping[str, object], ...]:
    """The same over data sets' questions."""
    return tuple(
        {
            "label": f"{data} {regime}",
            "data": data,
            "format": data,
            "draw": "random" if data == "mmlu" else "first",  # MMLU has one subject after the other
            "judge": {
                "regime": regime,
                "candidates": 4,
                "candidates_only": True,
                "wording": DATA[data],
                "answer_tokens": 512,
                "max_new_tokens": 512,
                **more,
            },
        }
        for data in sets
        for regime in regimes
    )


def _at(regime: str, order: str, method: str, data: str = "") -> Mapping[Scale, Mapping[str, str]]:
    where = {"judge_order": ORDERS[order], "method": method}
    found: dict[Scale, Mapping[str, str]] = {}
    if data in ("", "GSM8K"):  # word problems stand for GSM8K
        found["embedded"] = {"task": REGIMES[regime], **where}
    if data.lower() in DATA:
        found["paper"] = {"task": f"{data.lower()} {REGIMES[regime]}", **where}
    return found


# accuracy, JCR and reuse of MMLU, then of GSM8K, then of HumanEval; the bracketed changes are left out
_T1 = """
Progressive Refinement, No, Dense Prefill | 45.09 100.00 00.00 71.34 100.00 00.00 33.54 100.00 00.00
Progressive Refinement, No, Naïve Reuse | 49.02 31.37 100.00 11.83 50.87 100.00 45.96 64.60 100.00
Progressive Refinement, No, KVCOMM | 39.22 66.67 32.55 64.14 87.91 29.93 51.55 57.14 48.32
Progressive Refinement, No, PAL-KV | 42.48 69.28 32.55 64.59 89.23 29.93 49.69 66.46 48.32
Progressive Refinement, Yes, Dense Prefill | 44.44 100.00 00.00 70.51 100.00 00.00 31.68 100.00 00.00
Progressive Refinement, Yes, Naïve Reuse | 39.86 27.45 100.00 16.98 19.88 100.00 49.06 23.60 100.00
Progressive Refinement, Yes, KVCOMM | 39.87 39.87 32.29 63.84 51.75 31.86 49.69 21.74 44.84
Progressive Refinement, Yes, PAL-KV | 47.06 31.37 32.29 62.53 51.27 31.86 49.07 24.22 44.84
Parallel Exploration, No, Dense Prefill | 49.02 100.00 00.00 67.32 100.00 00.00 28.57 100.00 00.00
Parallel Exploration, No, Naïve Reuse | 61.44 26.14 100.00 20.34 23.93 100.00 40.99 39.75 100.00
Parallel Exploration, No, KVCOMM | 47.06 58.16 44.84 39.63 59.19 63.12 31.68 61.49 66.96
Parallel Exploration, No, PAL-KV | 45.10 62.75 44.84 41.17 59.55 63.12 32.30 64.60 66.96
Parallel Exploration, Yes, Dense Prefill | 51.63 100.00 00.00 70.28 100.00 00.00 25.63 100.00 00.00
Parallel Exploration, Yes, Naïve Reuse | 36.60 24.18 100.00 19.86 24.92 100.00 50.31 27.95 100.00
Parallel Exploration, Yes, KVCOMM | 43.14 46.41 44.84 38.89 34.43 63.21 37.27 32.92 66.96
Parallel Exploration, Yes, PAL-KV | 43.14 45.75 44.84 39.95 35.32 63.21 36.02 36.65 66.96
"""
_POOLED = ("dense", "naive", "kvcomm:capacity=5@kvcomm", "palkv:capacity=5@palkv")


def _t1() -> tuple[Line, ...]:
    lines = []
    for place, data in enumerate(("MMLU", "GSM8K", "HumanEval")):
        for label, row in numbers(_T1):
            regime, order, name = label.split(", ")
            shuffled = "shuffled" if order == "Yes" else "in order"
            at = _at(regime, order, NAMES[name], data)
            lines.append(Line(f"{data}, {regime}, {shuffled}, {name}", row[3 * place : 3 * place + 3], at))
    return tuple(lines)


TABLE_1 = Reproduction(
    "judges-table-1",
    "judges",
    "Table 1 (Section 6.1)",
    "How often does a judge select another candidate when candidates are copied?",
    SETTING,
    STUDY + OURS + "Word problems stand for GSM8K; MMLU and HumanEval have no counterpart here.",
    (ACCURACY, JCR, REUSE),
    _t1(),
    {
        "embedded": Scaled(
            SweepPlan(_tasks(), _POOLED, 60, 10, mode="pinned"),
            "four candidates on generated word problems, both regimes, both orders; embedded model",
            2,
            absent="the embedded model has no judged problems of this data set",
        ),
        "paper": Scaled(
            SweepPlan(_data_tasks(sets=tuple(DATA)), _POOLED, 150, 10, mode="pinned"),
            "both regimes and orders on GSM8K's, MMLU's and HumanEval's files, in words of ours, for the "
            "study's are lost in its text (a programmer's are after the KVCOMM paper's); a judge of programs "
            f"ends with one, which the unit tests run; {MMLU}",
            240,
            JUDGE,
        ),
    },
)
_T2 = """
Progressive Refinement, No | 45.09 43.79 28.76
Progressive Refinement, Yes | 44.44 45.10 32.03
Parallel Exploration, No | 49.02 48.37 22.22
Parallel Exploration, Yes | 54.25 47.71 31.37
"""


def _t2(label: str) -> Mapping[Scale, Mapping[str, str]]:
    regime, order = label.split(", ")
    here = {"task": REGIMES[regime], "judge_order": ORDERS[order], "method": "masked"}
    return {**_at(regime, order, "masked", "MMLU"), "embedded": here}


_STRICT: Mapping[Scale, Mapping[str, str]] = {
    "embedded": {"method": "strict"}, "paper": {"method": "strict"}
}  # fmt: skip
_MASKED = ("dense", "masked", "masked:scope=strict@strict")
TABLE_2 = Reproduction(
    "judges-table-2",
    "judges",
    "Table 2 (Section 6.2)",
    "What does a judge lose when no candidate can see another?",
    "MMLU, Llama-3.2-3B-Instruct",
    "Everything is computed; only attention between the candidates' texts is cut, or, strictly, between each "
    "with the words before it and the others with theirs. "
    + OURS
    + "A judge that writes its steps compares what it has written, not what it read, so masking need not "
    "collapse it.",
    (
        Column("accuracy, dense", "dense_accuracy"),
        Column("accuracy, masked", "accuracy"),
        Column("JCR, masked", "as_dense"),
        Column("accuracy, strictly masked", "accuracy", at=_STRICT),
        Column("JCR, strictly masked", "as_dense", at=_STRICT),
    ),
    tuple(Line(label, (*row, None, None), _t2(label)) for label, row in numbers(_T2)),
    {
        "embedded": Scaled(
            SweepPlan(_tasks(), _MASKED, 60, mode="pinned"),
            "four candidates on generated word problems, both regimes, both orders; embedded model",
            2,
        ),
        "paper": Scaled(
            SweepPlan(_data_tasks(), _MASKED, 150, mode="pinned"),
            f"both regimes and orders on MMLU's file; {MMLU}",
            30,
            JUDGE,
        ),
    },
)
_SIZES = (5, 10, 15, 20)
_T3 = """
KVCOMM, V 5 | 39.87 39.87 32.29
KVCOMM, V 10 | 37.25 38.56 47.58
KVCOMM, V 15 | 37.91 38.56 52.55
KVCOMM, V 20 | 34.64 34.64 57.25
PAL-KV, V 5 | 47.06 31.37 32.29
PAL-KV, V 10 | 35.29 37.91 47.58
PAL-KV, V 15 | 43.14 35.29 52.55
PAL-KV, V 20 | 34.64 37.25 57.25
"""
_SIZED = tuple(
    {"name": name, "label": f"{shown}, V {v}", "capacity": v}
    for name, shown in (("kvcomm", "KVCOMM"), ("palkv", "PAL-KV"))
    for v in _SIZES
)


def _shuffled(method: str, regime: str = "progressive") -> Mapping[Scale, Mapping[str, str]]:
    where = {"judge_order": "shuffle 0", "method": method}
    return {"embedded": {"task": regime, **where}, "paper": {"task": f"mmlu {regime}", **where}}


TABLE_3 = Reproduction(
    "judges-table-3",
    "judges",
    "Table 3 (appendix A.3)",
    "Does a larger pool make a judge steadier under shuffling?",
    "MMLU, Progressive Refinement, shuffled, Llama-3.2-3B-Instruct",
    STUDY + OURS + "A pool of V anchors needs more than V problems to fill.",
    (ACCURACY, JCR, REUSE),
    table(_T3, {label: _shuffled(label) for label, _ in numbers(_T3)}),
    {
        "embedded": Scaled(
            SweepPlan(
                (
                    {
                        "label": "progressive",
                        "judge": _judge("progressive", orders="shuffle:0"),
                    },
                ),
                ("dense", *_SIZED),
                60,
                25,
                mode="pinned",
            ),
            "four candidates on generated word problems, written one after the other, shuffled; embedded "
            "model",
            1,
        ),
        "paper": Scaled(
            SweepPlan(
                _data_tasks(("progressive",), orders="shuffle:0"), ("dense", *_SIZED), 150, 25, mode="pinned"
            ),
            f"Progressive Refinement, shuffled, on MMLU's file; {MMLU}",
            50,
            JUDGE,
        ),
    },
)
_ALIGNED = ("dense", "kvcomm:capacity=5@kvcomm", "slotaligned:capacity=5@slotaligned")
TABLE_4 = Reproduction(
    "judges-table-4",
    "judges",
    "Table 4 (appendix A.4)",
    "Does keeping anchors by slot steady a judge under shuffling?",
    "MMLU, shuffled, Llama-3.2-3B-Instruct",
    STUDY + OURS,
    (ACCURACY, JCR, REUSE),
    (
        Line("Progressive Refinement, KVCOMM", (39.87, 39.87, 32.29), _shuffled("kvcomm")),
        Line("Progressive Refinement, slot-aligned", (43.79, 36.84, 26.14), _shuffled("slotaligned")),
        Line("Parallel Exploration, KVCOMM", (43.14, 46.41, 44.84), _shuffled("kvcomm", "parallel")),
        Line(
            "Parallel Exploration, slot-aligned", (43.14, 45.10, 44.44), _shuffled("slotaligned", "parallel")
        ),
    ),
    {
        "embedded": Scaled(
            SweepPlan(_tasks(orders="shuffle:0"), _ALIGNED, 60, 10, mode="pinned"),
            "four candidates on generated word problems, both regimes, shuffled; embedded model",
            1,
        ),
        "paper": Scaled(
            SweepPlan(_data_tasks(orders="shuffle:0"), _ALIGNED, 150, 10, mode="pinned"),
            f"both regimes, shuffled, on MMLU's file; {MMLU}",
            40,
            JUDGE,
        ),
    },
)

ALL = (TABLE_1, TABLE_2, TABLE_3, TABLE_4)
