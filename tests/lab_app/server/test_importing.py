"""Importing the page: what it does not wait for, and what it leaves as it was."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import ModuleType

import pytest

from lab_app.server import fast_import as importing

LIGHTLY = "from lab_app.server.fast_import import import_lightly\nimport_lightly()\n"


@pytest.mark.slow
def test_the_framework_renders_no_typing_stubs_and_is_left_out_of_collections() -> None:
    """A third of what importing the page took; its components are whole. And importing the package alone
    changes nothing."""
    code = (
        "import sys\nbefore = list(sys.meta_path)\nimport lab_app\nassert sys.meta_path == before\n"
        f"{LIGHTLY}import gc, gradio as gr\n"
        "assert gc.isenabled()\n"
        "kept, walked = gc.get_freeze_count(), len(gc.get_objects())\n"
        "assert kept > 10 * walked, (kept, walked)\n"
        "import inspect, gradio.component_meta as meta\n"
        "assert meta.create_or_modify_pyi(1, 2, 3) is None\n"
        "assert callable(gr.Button.click) and callable(gr.Textbox.submit)\n"
        "assert inspect.getsource(gr.Button)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_the_collector_rests_meanwhile_and_goes_on_as_before(fails: bool, enabled: bool) -> None:
    seen = []

    def run(module: ModuleType) -> None:
        seen.append(gc.isenabled())
        if fails:
            raise ImportError(module.__name__)

    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        if fails:
            with pytest.raises(ImportError, match="large"):
                importing._undisturbed(run, ModuleType("large"))
        else:
            importing._undisturbed(run, ModuleType("large"))
        assert seen == [False]
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_it_is_installed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    importing.import_lightly()
    before = list(sys.meta_path)
    importing.import_lightly()
    assert sys.meta_path == before
