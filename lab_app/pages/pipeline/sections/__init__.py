"""What is measured beside runs on the pipeline's page, each in its tab of figures.

Every module here holds one ``SECTION``; they need no other list.
"""

import importlib
import pkgutil

from lab_app.ui.measurement import Section

_MODULES = pkgutil.iter_modules(__path__, f"{__name__}.")
SECTIONS: tuple[Section, ...] = tuple(importlib.import_module(module.name).SECTION for module in _MODULES)
