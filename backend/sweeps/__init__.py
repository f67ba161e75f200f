"""Sweeps: comparisons over a grid of tasks, methods, models and orders, as rows that survive a kill.

::

    spec      a sweep file, checked        datasets  published problems from files or the hub
    problems  what a task sends            traces    prompts of another system, replayed
    grid      shards, keys of rows         scoring   right or wrong, as the papers count it
    runner    shards on a model            rows      the columns
    run       the loop: progress, resuming store     the SQLite file
    stats     lines with intervals         compare   lines against lines: paired tests
    choices   methods of a sweep file      against   what lines are compared with
    cluster   shards at once, on Ray       hub       data sets' files from the hub
    desk      a sweep that a page asks for export    CSV and Parquet

In Python::

    from backend.model.load import load_model
    from backend.sweeps.compare import compare
    from backend.sweeps.run import SweepDone, run_sweep
    from backend.sweeps.runner import ModelRunner
    from backend.sweeps.spec import read_sweep
    from backend.sweeps.summary import summarise
    from backend.sweeps.store import SweepStore

    with SweepStore("orders.sqlite") as store:
        for event in run_sweep(read_sweep("orders.yaml"), store, ModelRunner(load_model)):
            print(event)
"""
