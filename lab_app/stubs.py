"""Importing the web framework without its housekeeping.

Whenever it is imported, it reads its own sources, renders a typing stub for each of its eighty components and
compares it with the one beside the source, to write it anew where they differ: a third of the time that the
page takes to import, and writes to the installation, for those alone who write components of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

MODULE, CALL = "gradio.component_meta", "create_or_modify_pyi"


class _WithoutStubs(MetaPathFinder):
    """Finds that one module as it would be found, and takes the call out once it is loaded. A version of the
    framework that has no such call loses nothing."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != MODULE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def execute(module: ModuleType) -> None:
                run(module)
                if hasattr(module, CALL):
                    setattr(module, CALL, lambda *_: None)

            spec.loader.exec_module = execute  # type: ignore[method-assign]
        return spec


def leave_out_stubs() -> None:
    """Call before the framework is imported; later it changes nothing."""
    if MODULE not in sys.modules:
        sys.meta_path.insert(0, _WithoutStubs())
