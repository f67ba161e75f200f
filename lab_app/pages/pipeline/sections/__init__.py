"""The measurements beside runs on the pipeline's page, each in a tab of figures.

Every module here holds one ``SECTION`` and is found by itself.
"""

from backend.base.modules import modules_of
from lab_app.ui.measurement import Section

SECTIONS: tuple[Section, ...] = tuple(module.SECTION for module in modules_of(__name__))
