"""Install packages with uv, several times faster than pip: ``python scripts/install.py -e .[test]``.

Arguments are those of ``pip install`` that ``uv pip install`` shares; versions are those of constraints.txt.
uv reads neither pip's files nor its variables, so pip's settings of indexes, wheels, certificates and
constraints are passed on. uv comes from the same index into the same environment. Where uv cannot be had, or
cannot do it, pip does.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
UV = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
PINS = ["-c", str(Path(__file__).parents[1] / "constraints.txt")]
#: pip's settings that hold several values, and uv's option for each of them.
SEVERAL = {
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "constraint": "--constraint",
    "trusted-host": "--allow-insecure-host",
}
#: Settings that uv takes from its environment.
VARIABLES = {
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
}
#: Where a setting may stand; a later one overrides an earlier one.
SECTIONS = ("global", "install", ":env:")


def pip_settings(listed: str) -> dict[str, str]:
    """pip's settings for an install, from what ``pip config list`` prints: ``global.index-url='https://...'``."""
    settings: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listed.splitlines():
        name, is_setting, value = line.partition("=")
        section, _, key = name.partition(".")
        if is_setting and section in settings:
            settings[section][key] = str(ast.literal_eval(value))
    return {key: value for section in SECTIONS for key, value in settings[section].items()}


def for_uv(settings: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The same settings as options and environment variables of uv."""
    # As pip does: of all indexes the best version, not the first index that knows the name.
    options = ["--index-strategy", "unsafe-best-match"]
    if "index-url" in settings:
        options += ["--default-index", settings["index-url"]]
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    for key, option in SEVERAL.items():
        for value in settings.get(key, "").split():
            options += [option, value]
    variables = {name: settings[key] for key, names in VARIABLES.items() if key in settings for name in names}
    return options, variables


def main(words: Sequence[str]) -> int:
    """Install what is wanted; the exit status."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True).stdout
    options, variables = for_uv(pip_settings(listed))
    steps = ([*PIP, "install", "-qq", *PINS, "uv"], [*UV, *options, *PINS, *words])
    if all(subprocess.run(step, env=os.environ | variables).returncode == 0 for step in steps):
        return 0
    print("uv could not install this; pip tries.", file=sys.stderr)
    return subprocess.run([*PIP, "install", "-qq", *PINS, *words]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
