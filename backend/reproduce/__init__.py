"""Reproductions: the papers' tables and figures as ready-made experiments (``kvlab reproduce``).

::

    spec       what a reproduction is: the paper's figures, and where ours are found      (no torch)
    kvcomm     Tables 1 to 6 and A.2 to A.6             judges    Tables 1 to 4           (no torch)
    kvlink     Tables 1 to 3, 5, Figures 3 and 6        segments  H1 to H4                (no torch)
    omitted    what the papers leave out: end-to-end latency and energy                   (no torch)
    registry   all of them by name                                                        (no torch)
    result     a run as JSON and as Markdown, the paper's figure beside ours              (no torch)
    run        carries a plan out: sweeping, studies and timings by the kind of plan, in a context
    training   weights that a plan needs and that are not here, trained before it is carried out
    energy     joules, where the GPU reports them

A reproduction says what to run in terms of what the lab has (sweeps, studies, benches) and holds no machinery
of its own.
"""
