"""Importing large packages without what an import of the page need not wait for.

Two things, together half of the time that it would take:

* Whenever the web framework is imported, it reads its own sources, renders a typing stub for each of its
  eighty components and compares it with the one beside the source, to write it anew where they differ: for
  those alone who write components of their own, and it writes to the installation.
* Modules make some 300,000 objects that stay, and the garbage collector walks through them again and again
  to find that they do; later too, 0.2 s and more at a time in which nobody's run goes on. So it rests
  meanwhile, and what is loaded then is left out of its walks for good.
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
    """Takes the call out. A version of the framework that has no such call loses nothing."""
    run(module)
    if hasattr(module, CALL):
        setattr(module, CALL, lambda *_: None)


def _undisturbed(run: Run, module: ModuleType) -> None:
    """Lets the garbage collector rest meanwhile, and leaves to it what is made later."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        run(module)
    finally:
        if collecting:
            gc.freeze()
            gc.enable()


class _Lighter(MetaPathFinder):
    """Finds those modules as they would be found, and runs them in another way."""

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
    """Call before those packages are imported; for what is imported already, it changes nothing."""
    if not any(isinstance(finder, _Lighter) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Lighter())
