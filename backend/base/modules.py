"""Imports the modules of a package, which register themselves."""

import importlib
import pkgutil
import sys
from types import ModuleType


def modules_of(package: str) -> list[ModuleType]:
    """Import every module of a package and its subpackages; the package itself is imported already."""
    modules = pkgutil.walk_packages(sys.modules[package].__path__, f"{package}.")
    return [importlib.import_module(module.name) for module in modules]
