"""Is a saved run what the model does? It is run again, and the answers are compared token by token."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from backend.base.errors import RecordError
from backend.model.load import LoadedModel
from backend.prompts.presets import load_preset
from backend.records.events import RunDone
from backend.records.run import RunRecord
from backend.session.revision import NOTE
from backend.session.session import LabSession
from backend.studies.gallery import GalleryEntry, judge_example, try_example


@dataclass(frozen=True)
class Verified:
    """One run beside its repetition.

    Attributes:
        name: of the run.
        differs: what came out otherwise, in words; empty where nothing did.
        skipped: methods that also follow from earlier requests, which the record does not hold.
    """

    name: str
    differs: tuple[str, ...]
    skipped: tuple[str, ...] = ()


def verify_run(model: LoadedModel, record: RunRecord, name: str) -> Verified:
    """Run a record's request again, under the methods that keep no pool.

    Raises:
        RecordError: it was recorded with other weights.
        LabError: the request cannot be run.
    """
    check_weights(model, record.model.weights_hash)
    revised = any(note.startswith(NOTE) for note in record.notes)
    pooled = {pool.method for pool in record.pools}
    skipped = tuple(label for label in record.labels[1:] if revised or label in pooled)
    methods = tuple(m for m in record.request.methods if m.label not in skipped)
    request = replace(record.request, methods=methods, probe_offsets=False, probe_attention=False)
    [repetition] = [e.record for e in LabSession(model).run(request) if isinstance(e, RunDone)]
    differs = []
    for outcome in repetition.outcomes:
        before = record.outcome(outcome.agent, outcome.method)
        if before.token_ids.tolist() != outcome.token_ids.tolist():
            differs.append(
                f"agent {outcome.agent} under {outcome.method} wrote {before.text!r} and now {outcome.text!r}"
            )
    return Verified(name, tuple(differs), skipped)


def verify_gallery(model: LoadedModel, weights: str, entries: tuple[GalleryEntry, ...]) -> Iterator[Verified]:
    """Run every entry of a gallery again.

    Raises:
        RecordError: it was found with other weights.
        LabError: an entry cannot be run.
    """
    check_weights(model, weights)
    for entry in entries:
        preset = load_preset(entry.preset)
        record = try_example(model, preset, entry.example)
        repetition = judge_example(preset, entry.example, record, entry.name)
        final = preset.pipeline.final
        answers = {label: record.outcome(final, label).answer for label in ("dense", "naive")}
        differs = (
            ()
            if repetition == entry
            else (f"{entry.dense!r} and {entry.reused!r}, now {answers['dense']!r} and {answers['naive']!r}",)
        )
        yield Verified(entry.name, differs)


def check_weights(model: LoadedModel, recorded: str) -> None:
    """Refuse to compare runs of other weights."""
    if model.info.weights_hash != recorded:
        raise RecordError(
            f"Recorded with the weights {recorded}; {model.info.name} has {model.info.weights_hash}. "
            "Name the model with --model."
        )
