"""Builds the page, connects widgets to handlers, and serves it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from backend.gallery import GALLERY
from backend.sharing.store import SharedRuns
from lab_app import text, web
from lab_app.gallery import read_gallery
from lab_app.handlers import Handlers
from lab_app.index_cache import KeptIndex
from lab_app.operations import Operations, until_asked_to_stop
from lab_app.operations import routes as operation_routes
from lab_app.page import build_page
from lab_app.pages import build_pages, navigation
from lab_app.sessions import Engine, Lab, Model
from lab_app.theme import theme
from lab_app.wiring import Wiring

LOG = logging.getLogger("lab_app")
FIRST_PRESET = "math-3"
FIRST_RUN = Path(__file__).resolve().parents[1] / "presets" / "first_run.kvrun"
MAX_UPLOAD = "64mb"
QUEUE_LENGTH = 48


def engine_session(model: Model) -> Engine:
    """A fresh engine session, a trust domain of its own."""
    from backend.session import LabSession

    return LabSession(model)  # type: ignore[arg-type]


def build_app(
    model_loader: Callable[[], Model],
    *,
    engine: Callable[[Model], Engine] = engine_session,
    first_run: Path | None = FIRST_RUN,
    gallery: Path = GALLERY,
    preset: str = FIRST_PRESET,
    weights: Sequence[str] = (),
    operations: Operations | None = None,
    data: Path | None = None,
) -> tuple[gr.Blocks, Lab]:
    """The page and the lab behind it.

    Args:
        model_loader: called once, at the first visit.
        engine: makes the engine session of a visit.
        first_run: a saved record for a visitor's first look.
        gallery: the file of the checked examples; need not exist.
        preset: the scenario on the bench at first.
        weights: the names of other weights that the engine sessions have, for agents to run on.
        operations: counts what the engine sessions do.
        data: the folder where shared runs are stored; without one they are not.
    """
    operations = operations or Operations()
    shared = SharedRuns(data) if data is not None else None
    lab = Lab(model_loader, operations.counted(engine), shared=shared)
    operations.watch(lab)
    handlers = Handlers(lab, first_run, read_gallery(gallery))
    with gr.Blocks(
        title=text.TITLE, fill_width=True, analytics_enabled=False, delete_cache=(1800, 3600)
    ) as blocks:
        page = build_page(preset, tuple(weights), navigation)
        main = Wiring(page, handlers)
        main.connect(blocks, preset)
        build_pages(lab, main)
    # The browser tells every widget named here how each event stands: by default all outputs, hundreds.
    for event in blocks.fns.values():
        event.show_progress_on = [page["status"]]
    blocks.queue(api_open=False, max_size=QUEUE_LENGTH, default_concurrency_limit=None)
    return blocks, lab


def free_port(host: str) -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def serve(
    host: str = "127.0.0.1",
    port: int = 7860,
    model_name: str = "embedded",
    *,
    device: str | None = None,
    dtype: str | None = None,
    preset: str = FIRST_PRESET,
    budget_mb: int = 1024,
    weights: Sequence[tuple[str, str]] = (),
    data: Path | None = None,
    block: bool = True,
) -> tuple[gr.Blocks, str]:
    """Load the model, then serve the page.

    Args:
        host: address to listen on.
        port: port to listen on; 0 for any free one.
        model_name: ``embedded``, a folder or a hub id.
        device: ``cpu``, ``cuda`` or ``mps``; the best one when absent.
        dtype: ``fp32``, ``bf16`` or ``fp16``.
        preset: the scenario on the bench at first.
        budget_mb: MiB of cached KV that each visitor's session may hold.
        weights: names, and the models whose weights agents may run on under them.
        data: the folder where shared runs are stored; without one they are not.
        block: wait until the server is stopped.

    Returns:
        the running page and its address.

    Raises:
        LabError: a model cannot be loaded, or the caches of other weights do not fit it.
    """
    from backend.model import load_model
    from backend.session import LabSession

    model = load_model(model_name, device=device, dtype=dtype)
    others = {name: load_model(where, device=device, dtype=dtype) for name, where in weights}

    def engine(loaded: Any) -> Engine:
        return LabSession(loaded, budget_bytes=budget_mb << 20, others=others)

    loaded: Any = model
    engine(loaded)  # refuses other weights that do not fit now, not at the first visit
    return launch(
        lambda: loaded,
        host,
        port,
        preset=preset,
        block=block,
        engine=engine,
        weights=tuple(others),
        data=data,
    )


def launch(
    model_loader: Callable[[], Model],
    host: str,
    port: int,
    *,
    preset: str = FIRST_PRESET,
    block: bool = True,
    engine: Callable[[Model], Engine] = engine_session,
    first_run: Path | None = FIRST_RUN,
    gallery: Path = GALLERY,
    weights: Sequence[str] = (),
    data: Path | None = None,
) -> tuple[gr.Blocks, str]:
    """Serve the page for a model."""
    operations = Operations()
    blocks, lab = build_app(
        model_loader, engine=engine, first_run=first_run, gallery=gallery, preset=preset, weights=weights,
        operations=operations, data=data,
    )  # fmt: skip
    routes = [*web.routes(lab), *operation_routes(lab, operations)]
    _, address, _ = blocks.launch(
        server_name=host,
        server_port=port or free_port(host),
        share=False,
        quiet=True,
        show_error=False,
        prevent_thread_lock=True,
        _frontend=False,  # else it gives up where the page takes more than 3 s, as on a busy machine
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        enable_monitoring=False,
        max_file_size=MAX_UPLOAD,
        state_session_capacity=256,
        theme=theme(),
        head=web.HEAD,
        app_kwargs={
            "routes": routes,
            "middleware": [Middleware(web.ClosedDoors), Middleware(KeptIndex)],
            "docs_url": None,
            "redoc_url": None,
            "openapi_url": None,
        },
    )
    if block:
        LOG.info("serving at %s", address)
        until_asked_to_stop(lab, operations, lambda: blocks.close(verbose=False))
    return blocks, address
