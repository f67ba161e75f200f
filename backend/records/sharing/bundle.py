"""A bundle: one zip with a run's record, the bench behind it, versions, citations and figures as CSV.

Only the record, the bench and the list of contents are read back; the rest is for people and their programs.
A bundle may come from anybody, so every name, size and type is checked before anything is used.
"""

import hashlib
import io
import json
import re
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend import __version__
from backend.base.errors import RecordError
from backend.base.serialization import MOST_PARTS, open_zip
from backend.records.run import RunRecord
from backend.records.sharing.citations import citations
from backend.records.sharing.links import read_json

FORMAT = 1
MOST_FILES = 128
BUNDLE_BYTES = 96 << 20  # of all files, unpacked
MOST_FILE_BYTES = 96 << 20  # of a file that is opened
SMALL_BYTES = 4 << 20  # of the list and of the bench
CONTENTS, RECORD, BENCH, TENSORS = "bundle.json", "record.kvrun", "bench.json", "tensors.safetensors"
_NAME = re.compile(
    r"bundle\.json|record\.kvrun|bench\.json|versions\.json|CITATION\.bib|README\.txt|tensors\.safetensors|"
    r"figures/[a-z0-9_]{1,60}\.csv"
)
README = """\
A run of KV Reuse Lab {version}.

record.kvrun         everything that the page shows of the run; opens in the lab, without a model
bench.json           what stood on the bench: scenario, prompts, values, methods and their options
versions.json        of the lab, of the libraries and of the weights
CITATION.bib         the lab, and the papers of the methods that were compared
figures/*.csv        the numbers behind the figures
tensors.safetensors  (if asked for) keys and values; names and shapes are in its metadata

Open this zip in the lab (Open a saved run), or make a page of it that needs no lab:
kvlab report THIS.zip -o report.html
"""


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds. ``bench``: the bench as JSON values, which the caller checks; ``figures``: CSV
    texts by name; ``tensors``: a safetensors file's content."""

    record: RunRecord | None = None
    bench: Mapping[str, Any] | None = None
    figures: Mapping[str, str] = field(default_factory=dict)
    tensors: bytes = b""

    def to_bytes(self) -> bytes:
        """The zip; the same bundle gives the same bytes."""
        files: dict[str, bytes] = {"README.txt": README.format(version=__version__).encode()}
        if self.record is not None:
            files[RECORD] = self.record.to_bytes()
            versions = {**self.record.versions, "model": self.record.model.name}
            versions |= {"weights": self.record.model.weights_hash, "run": self.record.id}
            files["versions.json"] = _json(versions)
            files["CITATION.bib"] = citations(m.name for m in self.record.request.methods).encode()
        if self.bench is not None:
            files[BENCH] = _json(self.bench)
        files |= {f"figures/{name}.csv": text.encode() for name, text in self.figures.items()}
        if self.tensors:
            files[TENSORS] = self.tensors
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        listed = {"format": FORMAT, "lab": __version__, "sha256": hashes}
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, content in {CONTENTS: _json(listed), **files}.items():
                entry = zipfile.ZipInfo(name)  # without the time of day
                packed = name in (RECORD, TENSORS)
                entry.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        return out.getvalue()


def is_bundle(content: bytes) -> bool:
    """Does a zip hold a list of contents? (A record is a zip too.)"""
    try:
        with open_zip(content, MOST_PARTS) as archive:
            return CONTENTS in archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        return False


def read_bundle(content: bytes, limit_bytes: int = BUNDLE_BYTES) -> Bundle:
    """A bundle from a file's content. Figures and tensors stay in the file.

    Raises:
        RecordError: it is no bundle, is damaged or too large, or holds what a bundle does not.
    """
    try:
        with open_zip(content, MOST_PARTS) as archive:
            entries = _checked(archive, limit_bytes)
            listed = read_json(_content(archive, entries[CONTENTS], SMALL_BYTES))
            if listed.get("format") != FORMAT:
                raise RecordError(
                    f"The bundle has format {str(listed.get('format'))[:20]!r}; this version reads format "
                    f"{FORMAT}. Open it with the lab that wrote it."
                )
            members = {}
            for name, limit in ((RECORD, limit_bytes), (BENCH, SMALL_BYTES)):
                if name in entries:
                    members[name] = _content(archive, entries[name], limit)
                    if hashlib.sha256(members[name]).hexdigest() != listed["sha256"].get(name):
                        raise RecordError(f"{name} in this bundle was changed or damaged. It was not opened.")
        bench = read_json(members[BENCH]) if BENCH in members else None
        if bench is not None and not isinstance(bench, dict):
            raise ValueError("the bench is no table")
    except RecordError:
        raise
    except Exception as error:
        raise RecordError(
            f"This is not a complete bundle of the lab ({type(error).__name__}). "
            "Choose a file that the lab's bundle button wrote."
        ) from None
    record = RunRecord.from_bytes(members[RECORD]) if RECORD in members else None
    if record is None and bench is None:
        raise RecordError("This bundle holds neither a run nor a bench. Choose another file.")
    return Bundle(record, bench)


def _checked(archive: zipfile.ZipFile, limit_bytes: int) -> dict[str, zipfile.ZipInfo]:
    """The entries by name, if every one of them may be in a bundle."""
    entries = archive.infolist()
    if len(entries) > MOST_FILES:
        raise RecordError(f"The bundle holds {len(entries):,} files; up to {MOST_FILES} are allowed.")
    total = sum(entry.file_size for entry in entries)
    if total > limit_bytes:
        raise RecordError(
            f"The bundle unpacks to {total / 2**20:,.0f} MiB; up to {limit_bytes // 2**20} MiB are opened. "
            "Save it without tensors."
        )
    out: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        linked = stat.S_ISLNK(entry.external_attr >> 16)
        if not _NAME.fullmatch(entry.filename) or entry.filename in out or linked or entry.flag_bits & 1:
            raise RecordError(
                f"The bundle holds {entry.filename[:60]!r}, which no bundle of the lab does (or twice, or "
                "as a link). It was not opened."
            )
        out[entry.filename] = entry
    return out


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limit: int) -> bytes:
    if entry.file_size > limit:
        raise RecordError(
            f"{entry.filename} unpacks to {entry.file_size / 2**20:,.0f} MiB; up to {limit // 2**20} MiB are "
            "allowed. The bundle was not opened."
        )
    return archive.read(entry)


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode()


def read_run(content: bytes) -> Bundle:
    """A saved run from a file's content: a bundle, or a record by itself.

    Raises:
        RecordError: it is neither, or damaged, or too large.
    """
    if len(content) > MOST_FILE_BYTES:
        raise RecordError(
            f"The file has {len(content) / 2**20:,.0f} MiB; up to {MOST_FILE_BYTES // 2**20} MiB are opened."
        )
    return read_bundle(content) if is_bundle(content) else Bundle(RunRecord.from_bytes(content))


def read_file(path: Path) -> Bundle:
    """A saved run; see :func:`read_run`.

    Raises:
        RecordError: the file cannot be read, or holds none.
    """
    try:
        return read_run(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path.name} cannot be read: {error.strerror}. Choose another file.") from None
