"""Data sets of the hub: which files hold a split, brought into the hub's cache.

Configurations and splits are those that a data set's card (``README.md``) names. Where it names none, files
do: ``main/test-00000-of-00002.parquet`` is of the split *test* in *main*, ``test.jsonl`` in *default*. What
was fetched before is read again without a network.
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from backend.base.errors import PromptError
from backend.base.hub_errors import quiet_lookups, reason
from backend.base.text import show

CARD = "README.md"
SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".csv")  # of several in a split, the first is read
LISTED = 12  # splits in a message
_SHARD = re.compile(r"-[0-9]{5}-of-([0-9]{5})(-[0-9a-f]+)?$")

Splits = Mapping[tuple[str, str], Sequence[str]]  # a configuration and a split: its files


@dataclass(frozen=True)
class HubData:
    """A split of a data set on the hub.

    Attributes:
        config, split: if None, the format's usual one, or the only one that there is.
        revision: a branch, a tag or a commit, if None the newest; once fetched, the commit.
        paths: its files, once fetched.
    """

    id: str
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    paths: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """For labels and messages: ``openai/gsm8k main/test``."""
        return " ".join(filter(None, (self.id, "/".join(filter(None, (self.config, self.split))))))

    @property
    def written(self) -> str:
        """As a sweep file names it."""
        facts = {"hub": self.id, "config": self.config, "split": self.split, "revision": self.revision}
        named = {key: value for key, value in facts.items() if value is not None}
        return yaml.safe_dump(named, default_flow_style=True, sort_keys=False, width=math.inf).strip()


@quiet_lookups()
def fetch(data: HubData, usual: HubData | None = None) -> HubData:
    """Bring a split into the hub's cache.

    Args:
        usual: its configuration and split are taken where ``data`` leaves them open, if they are there.

    Raises:
        PromptError: it is not there or cannot be reached, or it is open which split is meant.
    """
    import huggingface_hub as hub
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]  # public all the same

    if not sys.stderr.isatty():
        disable_progress_bars()  # a log file wants no bar
    try:
        folder = Path(
            hub.snapshot_download(data.id, repo_type="dataset", revision=data.revision, allow_patterns=CARD)
        )
        commit = folder.name
        unreached: Exception | None = None
        try:
            listed = hub.dataset_info(data.id, revision=commit).siblings or []
            names = [file.rfilename for file in listed]
        except Exception as error:  # what is in the cache can be read all the same
            names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
            unreached = error
        splits = splits_of(names, _card(folder))
        if unreached and not splits:
            raise unreached
        there_are = "the hub cannot be reached, and its cache has" if unreached else "there are"
        config, split = _choice(data, usual, splits, there_are)
        chosen = replace(data, config=config, split=split, revision=commit)
        files = splits[config, split]
        parts = max((int(m[1]) for name in files if (m := _SHARD.search(_stem(name)))), default=1)
        if len(files) < parts:
            raise PromptError(
                f"Of {chosen.name}, {there_are} {len(files)} of {parts} files. Fetch the others where there "
                "is a network, or give a local file.",
                field="data",
            )
        paths = [hub.hf_hub_download(data.id, n, repo_type="dataset", revision=commit) for n in files]
    except PromptError:
        raise
    except Exception as error:  # of the many kinds that a network has
        raise _failed(data, error) from None
    return replace(chosen, paths=tuple(map(Path, paths)))


def splits_of(names: Sequence[str], card: object = None) -> Splits:
    """A data set's splits with those of its files that can be read, in the order of their names.

    Args:
        names: of all its files.
        card: the metadata of its card.
    """
    readable = sorted(
        name for name in names if name.endswith(SUFFIXES) and not _stem(name).startswith("dataset_info")
    )
    splits: dict[tuple[str, str], list[str]] = {}
    for config, split, patterns in _declared_files(card):
        matching = [name for name in readable if any(fnmatchcase(name, pattern) for pattern in patterns)]
        splits.setdefault((config, split), []).extend(matching)
    if not any(splits.values()):
        splits = {}
        for name in readable:
            splits.setdefault(_configuration_and_split(name), []).append(name)
    return {place: _one_kind(files) for place, files in splits.items() if files}


def _declared_files(card: object) -> Iterator[tuple[str, str, list[str]]]:
    """Configuration, split and patterns of file names, as a card has them."""
    for config in _list(card.get("configs") if isinstance(card, dict) else None):
        if isinstance(config, dict):
            for entry in _list(config.get("data_files")):
                row = entry if isinstance(entry, dict) else {"path": entry}
                patterns = [str(pattern) for pattern in _list(row.get("path"))]
                yield str(config.get("config_name", "default")), str(row.get("split", "train")), patterns


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _configuration_and_split(name: str) -> tuple[str, str]:
    """Configuration and split by a file's name."""
    folders, split = name.split("/")[:-1], _SHARD.sub("", _stem(name))
    if split.isdecimal() and folders:  # main/test/0000.parquet, as the hub converts
        split = folders.pop()
    return folders[-1] if folders and folders[-1] != "data" else "default", split


def _stem(name: str) -> str:
    file = name.rpartition("/")[2]
    return next(file.removesuffix(suffix) for suffix in (*SUFFIXES, "") if file.endswith(suffix))


def _one_kind(names: list[str]) -> list[str]:
    kinds = ([name for name in names if name.endswith(suffix)] for suffix in SUFFIXES)
    return next(kind for kind in kinds if kind)


def _card(folder: Path) -> object:
    from huggingface_hub import metadata_load

    try:
        return metadata_load(folder / CARD)
    except (OSError, ValueError, yaml.YAMLError):  # then the names say it
        return None


def _choice(data: HubData, usual: HubData | None, splits: Splits, there_are: str) -> tuple[str, str]:
    if not splits:
        raise PromptError(
            f"The data set {show(data.id)} holds no Parquet, JSON lines, JSON or CSV file. Try revision: "
            "refs/convert/parquet, where the hub keeps what it converts, or give a local file.",
            field="data",
        )
    matches = [p for p in splits if data.config in (None, p[0]) and data.split in (None, p[1])]
    for place, name in enumerate((usual.config, usual.split) if usual else ()):
        matches = [p for p in matches if p[place] == name] or matches
    if len(matches) == 1:
        return matches[0]
    named = (("split", data.split), ("config", data.config))
    requested = " of ".join(f"{kind} {show(name)}" for kind, name in named if name is not None)
    listed = [f"{config}/{split}" for config, split in matches or splits]
    more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
    raise PromptError(
        f"The data set {show(data.id)} has {'several splits' if matches else f'no {requested}'}; {there_are} "
        f"{', '.join(listed[:LISTED])}{more} (config/split). Name one of them by config and split.",
        field="data",
    )


def _failed(data: HubData, error: Exception) -> PromptError:
    from huggingface_hub import errors

    what = f"The data set {show(data.id)}"
    if isinstance(error, errors.HFValidationError):
        message = f"{what} has no name that the hub could have. Write it as in openai/gsm8k."
    elif isinstance(error, errors.GatedRepoError):
        message = (
            f"{what} is gated. Accept its terms at https://huggingface.co/datasets/{data.id} and log in "
            "(hf auth login), or give a local file."
        )
    elif isinstance(error, errors.RepositoryNotFoundError):
        message = (
            f"{what} is not on the hub, or it is private. Check the id; for a private one log in "
            "(hf auth login)."
        )
    elif isinstance(error, errors.RevisionNotFoundError):
        message = f"{what} has no revision {show(data.revision)}. Give a branch, a tag or a commit, or none."
    else:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        message = (
            f"{what} cannot be loaded from the hub ({type(cause).__name__}: {reason(cause)}), and is not in "
            "its cache. Check the network; without one, fetch it elsewhere into the cache (hf download "
            f"{data.id} --repo-type dataset), or give a local file."
        )
    return PromptError(message, field="data")
