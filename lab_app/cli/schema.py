"""``kvlab schema``: the JSON schema of a saved run."""

import json


def schema() -> int:
    """Print the JSON schema of a saved run's record.json."""
    from backend.records.run import RunRecord
    from backend.records.schema import json_schema

    print(json.dumps(json_schema(RunRecord), indent=1))
    return 0
