"""``scripts/install.py``: what pip is told reaches uv, and pip does what uv cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import install

LISTED = """\
:env:.find-links='/wheels /more'
:env:.timeout='30'
download.index-url='https://elsewhere.example/simple'
global.cert='/etc/ca.crt'
global.extra-index-url='https://a.example/simple\\nhttps://b.example/simple'
global.find-links='/old'
global.index-url='https://user:word@c.example/simple'
global.no-index='false'
install.constraint='/tmp/pins.txt'
install.trusted-host='c.example'
"""


def test_what_pip_is_told_reaches_uv() -> None:
    options, variables = install.for_uv(install.pip_settings(LISTED))
    pairs = list(zip(options[::2], options[1::2], strict=True))
    assert pairs == [
        ("--index-strategy", "unsafe-best-match"),
        ("--default-index", "https://user:word@c.example/simple"),
        ("--index", "https://a.example/simple"),
        ("--index", "https://b.example/simple"),
        ("--find-links", "/wheels"),
        ("--find-links", "/more"),
        ("--constraint", "/tmp/pins.txt"),
        ("--allow-insecure-host", "c.example"),
    ]
    assert variables == {"SSL_CERT_FILE": "/etc/ca.crt", "UV_HTTP_TIMEOUT": "30"}


def test_without_an_index_none_is_asked() -> None:
    options, _ = install.for_uv(install.pip_settings("global.no-index='yes'\n"))
    assert "--no-index" in options
    assert install.for_uv({}) == (["--index-strategy", "unsafe-best-match"], {})


@pytest.mark.parametrize(
    ("failing", "ran", "status"),
    [((), "uv", 0), (("-m uv",), "pip", 0), (("install -qq -c", "-m uv"), "pip", 1)],
    ids=["uv", "uv fails", "nothing can be had"],
)
def test_pip_does_what_uv_cannot(
    failing: tuple[str, ...], ran: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(command: list[str], **_: Any) -> Any:
        asked.append(" ".join(command[1:]))
        bad = any(part in asked[-1] for part in failing)
        return SimpleNamespace(returncode=int(bad), stdout="global.index-url='https://c.example'\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert install.main(["-e", ".[test]"]) == status
    assert asked[-1].startswith(f"-m {ran} ")
    assert asked[-1].endswith("constraints.txt -e .[test]")
    assert ran == "pip" or "--default-index https://c.example" in asked[-1]
