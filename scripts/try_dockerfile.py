"""Build the Dockerfile, start its image and ask it for its page, with buildah alone: no Docker engine.

Usage, as root on Debian with the packages buildah and debootstrap:
    python scripts/try_dockerfile.py [--base IMAGE] [--torch-index URL] [--space DIR] [--keep]

Without --base a minimal Debian is made with debootstrap and used as the base image. --space builds a folder
that `kvlab space docker` rendered in the repository's place. It takes several gigabytes and some minutes.
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
from pathlib import Path
from urllib.error import URLError

ROOT = Path(__file__).resolve().parents[1]
BASE, IMAGE = "localhost/kvlab-try-base", "localhost/kvlab-try"
# vfs and chroot need neither overlay mounts nor namespaces.
ENVIRONMENT = os.environ | {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
PATIENCE = 300.0
STOP_SECONDS = 60.0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Build the Dockerfile, start it and ask it for its page.")
    parser.add_argument("--base", help="base image; else a minimal Debian is made")
    parser.add_argument(
        "--suite", default="bookworm", help="of that Debian; its Python must be 3.11 or newer"
    )
    parser.add_argument("--torch-index", default="", help="the package index to take torch from")
    parser.add_argument("--space", type=Path, default=ROOT, help="the folder to build")
    parser.add_argument("--keep", action="store_true", help="leave the images")
    return parser.parse_args()


def buildah(*words: str) -> str:
    """What buildah answers."""
    done = subprocess.run(["buildah", *words], env=ENVIRONMENT, check=True, text=True, stdout=subprocess.PIPE)
    return done.stdout.strip()


def make_base(suite: str) -> str:
    """A minimal Debian as a base image."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["debootstrap", "--variant=minbase", suite, folder], check=True)
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


def try_image() -> None:
    """Start the image as its own command says, ask for the page, and stop it as a container engine does."""
    configuration = json.loads(buildah("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]
    command = [str(word) for word in configuration["Cmd"]]
    port = free_port()
    command[command.index("--port") + 1] = str(port)
    container = buildah("from", IMAGE)
    words = ["buildah", "run", "--network", "host", container, "--", *command]
    running = subprocess.Popen(words, env=ENVIRONMENT, start_new_session=True)
    try:
        until = time.monotonic() + PATIENCE
        health = json.loads(ask(f"http://127.0.0.1:{port}/healthz", until, running))
        page = ask(f"http://127.0.0.1:{port}/", until, running)
        assert health["status"] == "ok", health
        assert b"kv-verdict" in page, "the page is not the lab's"
        os.killpg(running.pid, signal.SIGTERM)
        running.wait(STOP_SECONDS)
        print(
            f"user {configuration.get('User')}: health {health}, page of {len(page):,} bytes, stopped in time"
        )
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        buildah("rm", container)


def main() -> None:
    """Build, start, ask, stop."""
    wish = arguments()
    absent = [name for name in ("buildah", *([] if wish.base else ["debootstrap"])) if not shutil.which(name)]
    if absent or os.geteuid() != 0:
        raise SystemExit(f"This needs root, and of Debian's packages: {', '.join(absent) or 'nothing more'}.")
    base = wish.base or make_base(wish.suite)
    given = ["--build-arg", f"BASE_IMAGE={base}", "--build-arg", f"TORCH_INDEX={wish.torch_index}"]
    buildah("build", "--network", "host", "--format", "docker", *given, "-t", IMAGE, str(wish.space))
    try:
        try_image()
    finally:
        if not wish.keep:
            buildah("rmi", IMAGE)


if __name__ == "__main__":
    main()
