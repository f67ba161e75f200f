"""Sweeps: comparisons over a grid of tasks, methods, models and orders, as rows that survive a kill.

::

    spec        what a sweep compares    read         a sweep file, checked
    datasets    published problems       hub          data sets' files from the hub
    problems    what a task sends        traces       prompts of another system, replayed
    grid        shards, keys of rows     method_axes  methods of a sweep file
    runner      shards on a model        ray_cluster  shards at once, on Ray
    run         progress, resuming       store, rows  the SQLite file and its columns
    scoring     right or wrong           summary      lines with intervals
    compare     paired tests of lines    baselines    what lines are compared with
    page_sweep  asked for from a page    export       CSV and Parquet
    frontier    the best compositions of methods, found round by round

In Python::

    from backend.model.load import load_model
    from backend.sweeps.compare import compare
    from backend.sweeps.read import read_sweep
    from backend.sweeps.run import run_sweep
    from backend.sweeps.runner import ModelRunner
    from backend.sweeps.summary import summarise
    from backend.sweeps.store import SweepStore

    with SweepStore("orders.sqlite") as store:
        for event in run_sweep(read_sweep("orders.yaml"), store, ModelRunner(load_model)):
            print(event)
"""
