"""``kvlab schema``: the JSON schema of a saved run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable


def add_schema(add: Callable[..., argparse.ArgumentParser]) -> None:
    """The command."""
    add("schema", schema, "Print the JSON schema of a saved run's record.json.")


def schema(args: argparse.Namespace) -> int:
    from backend.records.run import RunRecord
    from backend.records.schema import json_schema

    print(json.dumps(json_schema(RunRecord), indent=1))
    return 0
