"""``kvlab verify``: run a saved run, or every row of a gallery, again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument

from backend.base.errors import RecordError
from lab_app.cli.common import Device, DeviceMap, Dtype, Model, Quantise, loading, path_of

if TYPE_CHECKING:
    from backend.studies.gallery import GalleryEntry


def verify(
    file: str = Argument(..., metavar="FILE", help="a .kvrun file, a bundle, or a gallery (.json or .jsonl)"),
    model: Model = "embedded",
    device: Device = None,
    dtype: Dtype = None,
    device_map: DeviceMap = None,
    quantise: Quantise = None,
) -> int:
    """Run a saved run or a gallery again; 0 where every answer is the same, else 1."""
    from backend.model.load import load_model
    from backend.records.sharing.bundle import read_file
    from backend.studies.verify import verify_gallery, verify_run

    path = path_of(file)
    loaded = load_model(model, dtype=dtype, **loading(device, device_map, quantise))
    if path.suffix in (".json", ".jsonl"):
        results = verify_gallery(loaded, *read_gallery(path))
    else:
        record = read_file(path).record
        if record is None:
            raise RecordError(f"{path.name} holds a bench and no run. Name a saved run.")
        results = iter([verify_run(loaded, record, path.name)])
    same = count = 0
    for result in results:
        count += 1
        same += not result.differs
        verdict = "; ".join(result.differs) or "the same"
        skipped = (
            f" (not repeated, since they also follow from earlier requests: {', '.join(result.skipped)})"
        )
        print(f"{result.name}: {verdict}{skipped if result.skipped else ''}", flush=True)
    print(f"{same} of {count} the same")
    return 0 if same == count else 1


def read_gallery(path: Path) -> tuple[str, tuple[GalleryEntry, ...]]:
    """The weights and the entries of a gallery, as one JSON file or as a row a line.

    Raises:
        RecordError: the file is no gallery.
    """
    from backend.studies.gallery import GalleryEntry, load_gallery

    try:
        if path.suffix == ".json":
            return load_gallery(path)
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        [weights] = {row.pop("weights") for row in rows}
        return weights, tuple(GalleryEntry(**row) for row in rows)
    except OSError as error:
        raise RecordError(f"{path.name} cannot be read: {error.strerror}. Choose another file.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{path.name} is no gallery ({type(error).__name__}): rows with weights, name, effect, preset, "
            "values, expected, dense and reused. `kvlab space dataset` writes one."
        ) from None
