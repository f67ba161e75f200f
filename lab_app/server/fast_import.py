"""Imports large packages in half the time, by leaving out two things:

* On import, the web framework renders a typing stub for each of its eighty components and rewrites the one
  in the installation where they differ. Only authors of components need that.
* Modules make some 300,000 objects that stay. The garbage collector would walk through them again and again,
  later too, for 0.2 s and more in which no run goes on. It is off during these imports, and their objects are
  frozen.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

STUBS, CALL = "gradio.component_meta", "create_or_modify_pyi"
LARGE = ("torch", "transformers", "gradio")

Run = Callable[[ModuleType], None]


def _without_stubs(run: Run, module: ModuleType) -> None:
    """Run the module, then disable the call that renders stubs, if this version has it."""
    run(module)
    if hasattr(module, CALL):
        setattr(module, CALL, lambda *_: None)


def _undisturbed(run: Run, module: ModuleType) -> None:
    """Run the module with the garbage collector off, then freeze all objects."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        run(module)
    finally:
        if collecting:
            gc.freeze()
            gc.enable()


class _Lighter(MetaPathFinder):
    """Finds these modules as usual, and wraps how they are run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != STUBS and name not in LARGE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run, way = spec.loader.exec_module, _without_stubs if name == STUBS else _undisturbed
            spec.loader.exec_module = lambda module: way(run, module)  # type: ignore[method-assign]
        return spec


def import_lightly() -> None:
    """Call before these packages are imported; modules that are loaded already stay as they are."""
    if not any(isinstance(finder, _Lighter) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Lighter())
