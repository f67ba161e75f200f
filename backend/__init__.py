"""The engine of KV Reuse Lab: real prefill, real reuse, on a real model.

Importing this package, :mod:`backend.errors`, :mod:`backend.prompts` or :mod:`backend.records` does
not load torch.
"""

__version__ = "0.1.0"
