"""How a lab is hosted: who may frame it, which proxies are trusted, where shared runs are kept."""

from __future__ import annotations

import ipaddress
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.base.errors import OptionError
from backend.base.text import show
from backend.records.sharing.dataset import DatasetCopy
from backend.records.sharing.store import SharedRuns

SPACE_FRAMES = ("https://huggingface.co", "https://*.hf.space")


@dataclass(frozen=True)
class Hosting:
    """The settings of whoever hosts a lab.

    Args:
        frame_ancestors: pages that may show the lab in a frame.
        static_lab: address of the static lab, where visitors are sent while this one is full.
        proxies: addresses or networks whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are trusted.
        data: the folder where shared runs are stored; without one, and without a repository, they are not.
        data_repository: a private dataset repository that keeps them too, ``OWNER/NAME``.

    Raises:
        OptionError: a setting has a wrong form.
    """

    frame_ancestors: tuple[str, ...] = ()
    static_lab: str = ""
    proxies: tuple[str, ...] = ()
    data: Path | None = None
    data_repository: str = ""

    def __post_init__(self) -> None:
        for source in self.frame_ancestors:
            if not re.fullmatch(r"https?://(\*\.)?[A-Za-z0-9.-]+(:[0-9]{1,5})?", source):
                raise OptionError(
                    f"{show(source)} cannot be named as a page that frames the lab. Give an origin, such as "
                    "https://huggingface.co or https://*.hf.space.",
                    field="frame_ancestors",
                )
        address = r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[\w./~%-]*)?"
        if self.static_lab and not re.fullmatch(address, self.static_lab):
            raise OptionError(
                f"{show(self.static_lab)} is no address of a static lab. Give one such as "
                "https://example.org/lab/.",
                field="static_lab",
            )
        for proxy in self.proxies:
            try:
                wrong = ipaddress.ip_network(proxy).prefixlen == 0
            except ValueError:
                wrong = True
            if wrong:
                raise OptionError(
                    f"{show(proxy)} cannot be believed as a proxy: whoever it names is counted. Give its "
                    "address or its network, such as 10.0.0.0/8.",
                    field="proxies",
                )

    @staticmethod
    def read(environ: Mapping[str, str] = os.environ) -> Hosting:
        """As the environment says: ``KVLAB_FRAME_ANCESTORS`` and ``KVLAB_PROXIES`` (with spaces between),
        ``KVLAB_STATIC_LAB``, ``KVLAB_DATA`` and ``KVLAB_DATA_REPOSITORY``. On a Space, the hub's pages frame
        it."""
        frames = environ.get("KVLAB_FRAME_ANCESTORS", "").split()
        data = environ.get("KVLAB_DATA", "")
        return Hosting(
            tuple(frames) or (SPACE_FRAMES if environ.get("SPACE_ID") else ()),
            environ.get("KVLAB_STATIC_LAB", ""),
            tuple(environ.get("KVLAB_PROXIES", "").split()),
            Path(data).expanduser() if data else None,
            environ.get("KVLAB_DATA_REPOSITORY", ""),
        )

    def shared_runs(self) -> SharedRuns | None:
        """The store of shared runs; None where there is none.

        Raises:
            OptionError: the repository cannot be taken.
            RecordError: the folder cannot be used, or the repository cannot be reached.
        """
        copy = DatasetCopy(self.data_repository) if self.data_repository else None
        if self.data is None and copy is None:
            return None
        return SharedRuns(self.data or Path(tempfile.mkdtemp(prefix="kvlab-shared-")), copy=copy)
