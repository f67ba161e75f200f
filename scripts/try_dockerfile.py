"""Build the Dockerfile, start its image and ask it for its page, with buildah alone: no Docker engine.

Usage, as root on Debian with the packages buildah and debootstrap:
    python scripts/try_dockerfile.py [--base IMAGE] [--torch-index URL] [--volume FROM:TO:ro] [--space DIR]
        [--storage-driver NAME] [--keep]

Without --base a minimal Debian is made with debootstrap and used as the base image. --space builds a folder
that `kvlab space docker` rendered in the repository's place. --volume shows a file or folder of this machine
to the build and leaves it out of the image: a network with mirrors or certificates of its own may need a
pip.conf (at /etc/pip.conf), a certificate or a folder of wheels there. It takes several gigabytes and some
minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

ROOT = Path(__file__).resolve().parents[1]
BASE, IMAGE = "localhost/kvlab-try-base", "localhost/kvlab-try"
# The chroot kind of isolation needs no namespaces, and containers see this machine's network.
ENVIRONMENT = os.environ | {"BUILDAH_ISOLATION": "chroot"}
PORT, UID = "7860", 1000
PATIENCE = 600.0
STOP_SECONDS = 60.0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Build the Dockerfile, start it and ask it for its page.")
    parser.add_argument("--base", help="base image; else a minimal Debian is made")
    parser.add_argument(
        "--suite", default="bookworm", help="of that Debian; its Python must be 3.11 or newer"
    )
    parser.add_argument("--torch-index", default="", help="the package index to take torch from")
    parser.add_argument(
        "--volume", action="append", default=[], help="FROM:TO:ro, shown to the build alone; may be repeated"
    )
    parser.add_argument("--space", type=Path, default=ROOT, help="the folder to build")
    parser.add_argument(
        "--storage-driver", help="buildah's; vfs needs no overlay mounts and several times the disk"
    )
    parser.add_argument("--keep", action="store_true", help="leave the images")
    return parser.parse_args()


class Buildah:
    """The program, with its options.

    Args:
        driver: where it keeps images; None for what it is set up with.
    """

    def __init__(self, driver: str | None = None) -> None:
        self.start = ["buildah", *(["--storage-driver", driver] if driver else [])]

    def show(self, *words: str) -> None:
        """Run it, and let it print."""
        subprocess.run([*self.start, *words], env=ENVIRONMENT, check=True)

    def __call__(self, *words: str) -> str:
        """What it answers."""
        process = subprocess.run(
            [*self.start, *words], env=ENVIRONMENT, check=True, text=True, stdout=subprocess.PIPE
        )
        return process.stdout.strip()

    def size(self, image: str) -> str:
        """What an image takes."""
        return str(json.loads(self("images", "--json", image))[0]["size"])

    def configuration(self, image: str) -> dict[str, Any]:
        """What an image says of how it is started, its health check among it."""
        config: dict[str, Any] = json.loads(self("inspect", "--type", "image", image))["Docker"]["config"]
        return config


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say how long a part took."""
    began = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began:,.1f} s", flush=True)


def make_base(buildah: Buildah, suite: str) -> str:
    """A minimal Debian as a base image."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["debootstrap", "--variant=minbase", suite, folder], check=True)
        subprocess.run(["chroot", folder, "apt-get", "clean"], check=True)
        container = buildah("from", "scratch")
        buildah("add", container, folder, "/")
        buildah("commit", "--rm", container, BASE)
    return BASE


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(address: str, until: float, running: subprocess.Popen[bytes]) -> bytes:
    """The body at an address, asked for until it answers."""
    while True:
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                return bytes(answer.read())
        except (URLError, OSError) as error:
            if running.poll() is not None:
                raise SystemExit(f"the container ended with {running.returncode}") from error
            if time.monotonic() > until:
                raise SystemExit(f"{address} did not answer: {error}") from error
            time.sleep(1)


def inside(pid: int) -> int:
    """The process that buildah started in the container: the first of its descendants that is no root's and
    none of buildah's own. Whichever of a process's threads started a child knows it.

    Raises:
        SystemExit: there is none.
    """
    waiting = [pid]
    while waiting:
        pid = waiting.pop(0)
        own = "buildah" in Path(f"/proc/{pid}/comm").read_text()  # or run from memory: "memfd:buildah-c"
        if Path(f"/proc/{pid}").stat().st_uid == UID and not own:
            return pid
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            waiting += map(int, children.read_text().split())
    raise SystemExit(f"no process of the container runs as uid {UID}")


def try_image(buildah: Buildah) -> None:
    """Start the image as its own command says, ask for the page, check its health as the image says, and stop
    it as a container engine does: by SIGTERM to its process.

    Raises:
        SystemExit: something is not as it should be.
    """
    configuration = buildah.configuration(IMAGE)
    port = free_port()
    command, check = (
        [str(word).replace(PORT, str(port)) for word in words]
        for words in (configuration["Cmd"], configuration["Healthcheck"]["Test"][1:])
    )
    container = buildah("from", IMAGE)
    run = [*buildah.start, "run", "--network", "host", container, "--"]
    running = subprocess.Popen([*run, *command], env=ENVIRONMENT, start_new_session=True)
    try:
        until = time.monotonic() + PATIENCE
        with timed("from start to health"):
            health = json.loads(ask(f"http://127.0.0.1:{port}/healthz", until, running))
        with timed("the page, the model's first load in it"):
            page = ask(f"http://127.0.0.1:{port}/", until, running)
        process = inside(running.pid)
        expect(health["status"] == "ok", f"/healthz said {health}")
        expect(b"kv-verdict" in page, "the page is not the lab's")
        expect(subprocess.run([*run, *check], env=ENVIRONMENT).returncode == 0, "HEALTHCHECK failed")
        with timed("from SIGTERM to the end"):
            os.kill(process, signal.SIGTERM)
            ended = running.wait(STOP_SECONDS)
        expect(ended == 0, f"it ended with {ended}")
        print(f"health {health}, page of {len(page):,} bytes, HEALTHCHECK passed, uid {UID}, ended with 0")
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        buildah("rm", container)


def expect(holds: bool, message: str) -> None:
    """Raises:
    SystemExit: it does not hold.
    """
    if not holds:
        raise SystemExit(message)


def main() -> None:
    """Build, start, ask, stop."""
    wish = arguments()
    absent = [name for name in ("buildah", *([] if wish.base else ["debootstrap"])) if not shutil.which(name)]
    if absent or os.geteuid() != 0:
        raise SystemExit(f"This needs root, and of Debian's packages: {', '.join(absent) or 'nothing more'}.")
    buildah = Buildah(wish.storage_driver)
    made = [IMAGE]
    try:
        if not wish.base:
            made.append(BASE)
            with timed("the base image"):
                make_base(buildah, wish.suite)
        base = wish.base or BASE
        options = ["--build-arg", f"BASE_IMAGE={base}", "--build-arg", f"TORCH_INDEX={wish.torch_index}"]
        options += [word for volume in wish.volume for word in ("--volume", volume)]
        with timed("the build"):
            options = ["--network", "host", "--format", "docker", *options, "-t", IMAGE]
            buildah.show("build", *options, str(wish.space))
        print(f"base {buildah.size(base)}, image {buildah.size(IMAGE)}")
        try_image(buildah)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{' '.join(error.cmd)} ended with {error.returncode}; see above.") from None
    finally:
        for image in [] if wish.keep else made:
            subprocess.run([*buildah.start, "rmi", image], stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
