"""The modules of a package whose parts register themselves."""

import importlib
import pkgutil
import sys
from types import ModuleType


def modules_of(package: str) -> list[ModuleType]:
    """Every module of an imported package and of the packages in it, imported, by name."""
    found = pkgutil.walk_packages(sys.modules[package].__path__, f"{package}.")
    return [importlib.import_module(module.name) for module in found]
