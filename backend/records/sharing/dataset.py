"""A private dataset repository that keeps shared runs where the host's disk does not last.

One file a run, ``runs/DAY/ID.kvbundle``: so a listing gives every id and its day.
"""

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from backend.base.errors import OptionError, RecordError
from backend.base.hub_errors import quiet_lookups, reason
from backend.base.text import show

_NAME = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
_PATH = re.compile(r"runs/([0-9]{4}-[0-9]{2}-[0-9]{2})/([A-Za-z0-9_-]{22,64})\.kvbundle")


class StoredRun(NamedTuple):
    """A run in the repository: its id, the second at which its day began, and its bytes."""

    name: str
    stored: float
    size: int


class DatasetCopy:
    """The repository.

    Args:
        repository: ``OWNER/NAME``; made, private, where it is not there.
        api: a ``huggingface_hub.HfApi``; by default one with the token of the environment.

    Raises:
        OptionError: this is no repository's name, or others can read it: ids are links, and it lists them.
        RecordError: it cannot be reached or made.
    """

    def __init__(self, repository: str, api: Any = None) -> None:
        if not _NAME.fullmatch(repository):
            raise OptionError(
                f"{show(repository)} is no dataset repository. Give OWNER/NAME.", field="data_repository"
            )
        if api is None:
            from huggingface_hub import HfApi

            api = HfApi()
        self._api, self._repository = api, {"repo_id": repository, "repo_type": "dataset"}
        self._paths: dict[str, str] = {}
        with _hub_errors(f"The dataset repository {repository} cannot be used"):
            api.create_repo(**self._repository, private=True, exist_ok=True)
            private = bool(api.repo_info(**self._repository).private)
        if not private:
            raise OptionError(
                f"{repository} can be read by everybody, and so could every shared run. Make it private.",
                field="data_repository",
            )

    def runs(self) -> list[StoredRun]:
        """Every run in the repository.

        Raises:
            RecordError: it cannot be reached.
        """
        runs = []
        with _hub_errors("The dataset repository cannot be listed"):
            for entry in self._api.list_repo_tree(**self._repository, recursive=True):
                if match := _PATH.fullmatch(entry.path):
                    day = datetime.strptime(match[1], "%Y-%m-%d").replace(tzinfo=UTC)
                    self._paths[match[2]] = entry.path
                    runs.append(StoredRun(match[2], day.timestamp(), int(entry.size)))
        return runs

    def put(self, name: str, content: bytes, now: float) -> None:
        """Add a run; it is there when this returns.

        Raises:
            RecordError: it cannot be added.
        """
        path = f"runs/{datetime.fromtimestamp(now, UTC):%Y-%m-%d}/{name}.kvbundle"
        with _hub_errors("The run could not be stored in the dataset repository"):
            self._api.upload_file(
                **self._repository, path_or_fileobj=content, path_in_repo=path, commit_message="A shared run"
            )
        self._paths[name] = path

    def get(self, name: str) -> bytes | None:
        """A run; None where there is none.

        Raises:
            RecordError: it cannot be reached.
        """
        if name not in self._paths:
            return None
        with tempfile.TemporaryDirectory() as folder, _hub_errors("The stored run cannot be read just now"):
            path = self._api.hf_hub_download(**self._repository, filename=self._paths[name], local_dir=folder)
            return Path(path).read_bytes()

    def delete(self, names: Sequence[str]) -> None:
        """Delete runs, those that are there, in one commit.

        Raises:
            RecordError: they cannot be deleted.
        """
        paths = [self._paths[name] for name in names if name in self._paths]
        if paths:
            with _hub_errors("Expired runs stay in the dataset repository"):
                self._api.delete_files(
                    **self._repository, delete_patterns=paths, commit_message=f"Expired: {len(paths)}"
                )
            for name in names:
                self._paths.pop(name, None)


@contextmanager
def _hub_errors(message: str) -> Iterator[None]:
    """Whatever the hub's client raises becomes a :class:`RecordError`, without secrets."""
    try:
        with quiet_lookups():
            yield
    except Exception as error:  # of the many kinds that a network has
        raise RecordError(f"{message}: {reason(error)}. Try again in a minute.") from None
