"""A sweep's rows as one table in a file: CSV or Parquet."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from backend.records.sweep import Cell
from backend.sweeps.data_rows import parquet_module
from backend.sweeps.rows import COLUMNS, TRUTHS, Row, sql_type

ExportFormat = Literal["csv", "parquet"]


def export(rows: Sequence[tuple[Cell, str, Row]], path: Path, format: ExportFormat) -> None:
    """Write rows in the order of the grid, under the labels that the sweep has now.

    Raises:
        OptionError: Parquet without pyarrow.
        OSError: the file cannot be written.
    """
    table = [
        replace(
            row, task=cell.task, model=cell.model, method=method, judge_order=cell.judge_order
        )
        for cell, method, row in rows
    ]  # fmt: skip
    if format == "csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(row.values for row in table)
        return
    parquet = parquet_module()
    import pyarrow

    columns = {name: [getattr(row, name) for row in table] for name in COLUMNS}
    parquet.write_table(pyarrow.Table.from_pydict(columns, _schema()), path)


def _schema() -> object:
    """Types from the columns, so that a column of None has one too."""
    import pyarrow

    kinds = {"TEXT": pyarrow.string(), "INTEGER": pyarrow.int64(), "REAL": pyarrow.float64()}
    return pyarrow.schema(
        [(name, pyarrow.bool_() if name in TRUTHS else kinds[sql_type(name).split()[0]]) for name in COLUMNS]
    )
