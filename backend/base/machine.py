"""What machine this is, in words, for reports of what was measured on it."""

from __future__ import annotations

import platform


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((x.partition(":")[2].strip() for x in file if x.startswith("model name")), name)
    except OSError:
        return name
