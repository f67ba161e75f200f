"""The engine of KV Reuse Lab: real prefill, real reuse, on a real model.

Importing this package, :mod:`backend.base.errors`, :mod:`backend.prompts.pipeline` or
:mod:`backend.records.run` does not load torch.
"""

import os

# OpenMP reads this when torch is loaded. Threads that spin while they wait slow other busy programs on the
# machine twenty-fold: a run of 5 s took 112 s beside others.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

__version__ = "0.1.0"
