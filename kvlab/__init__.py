"""KV Reuse Lab for programs and notebooks: one call that says what reuse of the KV cache does to a prompt.

>>> import kvlab
>>> found = kvlab.compare("math-3", methods=["naive"])
>>> found.methods
('dense', 'naive')
>>> found.to_frame()[["agent", "method", "tokens_reused"]].shape
(8, 3)
>>> kvlab.open(found.save("run.kvrun")).answers == found.answers
True

A result shows itself in a notebook as the page's report, and is a table of pandas, one row for each agent and
method, with :meth:`~kvlab.comparison.Comparison.to_frame`. :func:`~kvlab.logs.xray` says what reuse would
save of a log of calls. ``kvlab.harness`` is a model of the LM Evaluation Harness. Whatever cannot be done is
a :class:`LabError` whose text says what to change.
"""

from __future__ import annotations

from backend import __version__
from backend.base.errors import LabError
from kvlab.comparison import Comparison, compare, open
from kvlab.logs import LogXRay, xray

__all__ = ["Comparison", "LabError", "LogXRay", "__version__", "compare", "open", "xray"]
