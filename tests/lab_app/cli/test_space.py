"""A rendered Space holds what its image and its card need, and its copy of the lab starts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from backend.base.errors import LabError, OptionError
from lab_app.cli.space import (
    PICTURE,
    PORT,
    ROOT,
    docker_card,
    render_docker,
    split_card,
    with_picture,
    zero_card,
)  # fmt: skip
from lab_app.static_lab.site import CARD


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render_docker(tmp_path_factory.mktemp("space") / "lab", "t4-small")


def test_the_card_is_complete_and_the_readme_follows_it(space: Path) -> None:
    card, body = split_card((space / "README.md").read_text(encoding="utf-8"))
    assert (card["sdk"], card["app_port"], card["suggested_hardware"]) == ("docker", PORT, "t4-small")
    assert {card["colorFrom"], card["colorTo"]} <= set(
        "red yellow green blue indigo purple pink gray".split()
    )
    assert card["title"] == "KV Reuse Lab"
    assert body == split_card((ROOT / "README.md").read_text(encoding="utf-8"))[1]


def test_the_port_of_the_card_is_the_one_that_the_image_serves(space: Path) -> None:
    dockerfile = (space / "Dockerfile").read_text(encoding="utf-8")
    assert f"EXPOSE {PORT}\n" in dockerfile
    assert f'"--port", "{PORT}"' in dockerfile
    assert '"--host", "0.0.0.0"' in dockerfile


def test_everything_that_the_image_copies_is_there_and_nothing_else(space: Path) -> None:
    dockerfile = (space / "Dockerfile").read_text(encoding="utf-8")
    copied = {
        name
        for line in re.findall(r"^COPY --chown=1000:1000 (.+)$", dockerfile, re.MULTILINE)
        for name in line.split()[:-1]
    }
    assert copied
    assert [name for name in copied if not (space / name).exists()] == []
    names = {path.name for path in space.iterdir()}
    assert names == {name.split("/")[0] for name in copied} | {"Dockerfile", ".dockerignore", "docs"}
    assert not list(space.rglob("__pycache__"))


def test_the_copy_runs_by_itself(space: Path) -> None:
    code = "import lab_app.cli.space as s; from lab_app.cli.main import commands; print(s.ROOT); commands()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=space, capture_output=True, text=True, timeout=300,
        env={"PATH": "", "PYTHONPATH": str(space), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == space


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(LabError, match="not empty"):
        render_docker(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_hardware_that_spaces_do_not_have_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cpu-basic"):
        render_docker(tmp_path / "lab", "a-supercomputer")
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize("text", ["# no card\n", "---\n- a list\n---\n", "---\ntitle: no end\n"])
def test_a_readme_without_a_card_is_refused(text: str) -> None:
    with pytest.raises(LabError, match="no card"):
        split_card(text)


def test_the_card_of_the_repository_itself_is_a_docker_card() -> None:
    card, _ = split_card((ROOT / "README.md").read_text(encoding="utf-8"))
    assert docker_card(card).items() >= card.items()


#: huggingface.co/docs/hub/spaces-config-reference, and what a model's or dataset's card has beside it.
KEYS = {
    "title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "python_version", "app_file", "app_port",
    "suggested_hardware", "startup_duration_timeout", "short_description", "thumbnail", "tags", "license",
}  # fmt: skip


def test_cards_say_what_the_hub_knows() -> None:
    card, body = split_card((ROOT / "README.md").read_text(encoding="utf-8"))
    for made in (docker_card(card), zero_card(card, "6.0.0"), split_card(CARD)[0]):
        assert set(made) <= KEYS
        assert len(made.get("short_description", "")) <= 60
        assert len(made["emoji"]) == 1
    named = with_picture(card, "me/lab")["thumbnail"]
    assert named == f"https://huggingface.co/spaces/me/lab/resolve/main/{PICTURE}"
    assert (ROOT / PICTURE).is_file()
    assert f"]({PICTURE})" in body, "the README's own picture is in the Space"
    with pytest.raises(OptionError, match="OWNER/NAME"):
        with_picture(card, "https://x")
