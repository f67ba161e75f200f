"""What a sweep's lines are compared with: the key ``against``.

::

    against: [dense, {method: naive}, {request_order: given}, {temperature: 0}]

Each is *dense* or one axis with the value that the others of that axis are compared with. A seed is none:
other seeds draw other problems, and pairs are of one problem.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from backend.base.errors import OptionError
from backend.base.text import show
from backend.records.sweep import Axis, Baseline

FIELD = "against"


def read_against(value: object, axes: Mapping[Axis, Sequence[str | int | float]]) -> tuple[Baseline, ...]:
    """The baselines of a sweep.

    Args:
        value: of the file's key.
        axes: the values that the sweep has on each axis; the first method is dense.

    Raises:
        OptionError: a baseline is not in the sweep, has nothing to be compared with, or is named twice.
    """
    rows = value if isinstance(value, list) else [value]
    baselines: list[Baseline] = []
    for row in rows:
        baseline = Baseline("method", axes["method"][0]) if row == "dense" else _baseline(row, axes)
        if baseline in baselines:
            raise OptionError(f"against has {baseline} twice. Remove one.", field=FIELD)
        baselines.append(baseline)
    if not baselines:
        raise OptionError("against is an empty list. Name a baseline, or leave the key out.", field=FIELD)
    return tuple(baselines)


def _baseline(row: Any, axes: Mapping[Axis, Sequence[str | int | float]]) -> Baseline:
    if not isinstance(row, dict) or len(row) != 1 or next(iter(row)) not in axes:
        raise OptionError(
            f"against has {show(row)}; allowed are dense and one axis with a value, as in "
            f"{{request_order: given}}. The axes are {', '.join(axes)}. Correct it.",
            field=FIELD,
        )
    [(axis, value)] = row.items()
    values, inner = axes[axis], f"{FIELD}.{axis}"
    if len(values) < 2:
        raise OptionError(
            f"against has {show(axis)}, but the lines of this sweep do not differ in it. Give it more "
            "values, or leave this baseline out.",
            field=inner,
        )
    same = [k for k in values if k == _as_labelled(axis, value) and not isinstance(value, bool)]
    if not same:
        raise OptionError(
            f"{inner} is {show(value)}; this sweep has {', '.join(map(str, values))}. Choose one of them.",
            field=inner,
        )
    return Baseline(axis, same[0])


def _as_labelled(axis: Axis, value: Any) -> Any:
    """A judge's order as rows have it, *shuffle 0*, may be written as ``orders`` has it, ``shuffle:0``."""
    return value.replace(":", " ") if axis == "judge_order" and isinstance(value, str) else value
