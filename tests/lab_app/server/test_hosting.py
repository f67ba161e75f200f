"""What whoever hosts a lab may set: checked before it starts, from the environment and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.base.errors import OptionError
from lab_app.cli.main import commands, hosting_of
from lab_app.server.hosting import SPACE_FRAMES, Hosting
from lab_app.server.serve import serve


@pytest.mark.parametrize(
    "wrong", ["*", "https://a.b; script-src *", "javascript:x", "https://a b", "", "https://a.b/"]
)
def test_frame_ancestors_are_origins(wrong: str) -> None:
    with pytest.raises(OptionError, match="cannot be named"):
        Hosting((wrong,))


@pytest.mark.parametrize("wrong", ["*", "0.0.0.0/0", "::/0", "a.host", "", "10.0.0.1/8"])
def test_proxies_are_addresses_and_not_everybody(wrong: str) -> None:
    with pytest.raises(OptionError, match=r"such as 10\.0\.0\.0/8"):
        Hosting(proxies=(wrong,))


def test_the_static_lab_is_an_address_of_the_web() -> None:
    assert Hosting(static_lab="https://example.org/lab/").static_lab
    with pytest.raises(OptionError, match="no address"):
        Hosting(static_lab="javascript:alert(1)")


def test_the_command_line_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("FRAME_ANCESTORS", "https://a.org https://b.org"), ("PROXIES", "10.0.0.0/8"), ("DATA", "/there"),
        ("STATIC_LAB", "https://a.org/"), ("DATA_REPOSITORY", "me/runs"),
    ):  # fmt: skip
        monkeypatch.setenv(f"KVLAB_{name}", value)
    given = ["--proxy", "::1", "--data", "/here", "--static-lab", "https://b.org/"]
    assert hosting_of(commands().commands["serve"].make_context("serve", given).params) == Hosting(
        ("https://a.org", "https://b.org"), "https://b.org/", ("::1", "10.0.0.0/8"), Path("/here"), "me/runs"
    )
    assert Hosting.read({}) == Hosting()
    assert Hosting.read({"SPACE_ID": "me/lab"}).frame_ancestors == SPACE_FRAMES


def test_a_repository_needs_a_network() -> None:
    with pytest.raises(OptionError, match="--offline"):
        serve(offline=True, hosting=Hosting(data_repository="me/runs"))
