"""Reproductions: the papers' tables and figures as ready-made experiments (``kvlab reproduce``).

::

    spec       what a reproduction is: the paper's figures, and the plan for ours         (no torch)
    reader     the tables of presets/reproductions, one file for each paper, checked      (no torch)
    registry   all of them by name                                                        (no torch)
    result     a run as JSON and as Markdown, the paper's figure beside ours              (no torch)
    run        carries a plan out: sweeping, studies and timings by the kind of plan, in a context
    training   weights that a plan needs: those that are missing are trained first
    energy     joules, where the GPU reports them

A reproduction says what to run in terms of what the lab has (sweeps, studies, benches) and holds no machinery
of its own.
"""
