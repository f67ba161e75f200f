"""Where something was measured: the machine and the versions that decide results."""

import platform
from importlib.metadata import version

from backend import __version__


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((x.partition(":")[2].strip() for x in file if x.startswith("model name")), name)
    except OSError:
        return name


def versions() -> dict[str, str]:
    """Versions that decide results, from the packages' metadata: nothing heavy is imported."""
    return {
        "kv-reuse-lab": __version__,
        "torch": version("torch"),
        "transformers": version("transformers"),
        "python": platform.python_version(),
    }
