"""Serves the page: loads the model, and starts the server with its routes and limits."""

import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from backend.base.errors import OptionError
from backend.base.redaction import keep_log_discreet
from backend.cache.process_memory import share_heaps
from backend.session.limits import Limits
from backend.studies.gallery import GALLERY
from lab_app.api.callers import Callers
from lab_app.app import FIRST_PRESET, FIRST_RUN, build_app, engine_session
from lab_app.pages.pipeline.examples import first_scenario
from lab_app.server import downloads as web
from lab_app.server.connections import server_settings
from lab_app.server.heartbeats import Heartbeats
from lab_app.server.hosting import Hosting
from lab_app.server.index_cache import IndexCache
from lab_app.server.monitoring import Operations, until_asked_to_stop
from lab_app.server.monitoring import routes as operation_routes
from lab_app.server.offline import go_offline, is_local
from lab_app.server.placeholder_page import early_page
from lab_app.server.prefill import prefill_pools
from lab_app.server.request_guard import RequestGuard
from lab_app.server.request_limits import Counts
from lab_app.ui.theme import theme
from lab_app.visits.engine import Engine, Model
from lab_app.visits.visits import keep_swept

LOG = logging.getLogger("lab_app")
MAX_UPLOAD = "32mb"


def free_port(host: str) -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def is_for_programs(blocks: gr.Blocks, number: object) -> bool:
    """Whether an event is one of the endpoints for programs."""
    event = blocks.fns.get(number) if isinstance(number, int) else None
    return event is not None and event.api_visibility == "public"


def serve(
    host: str = "127.0.0.1",
    port: int = 7860,
    model_name: str = "embedded",
    *,
    device: str | None = None,
    dtype: str | None = None,
    preset: str | None = None,
    budget_mb: int | None = None,
    weights: Sequence[tuple[str, str]] = (),
    limits: Limits | None = None,
    offline: bool | None = None,
    hosting: Hosting | None = None,
    mcp: bool = False,
    block: bool = True,
) -> tuple[gr.Blocks, str]:
    """Load the model, then serve the page.

    Args:
        host: address to listen on.
        port: port to listen on; 0 for any free one.
        model_name: ``embedded``, a folder or a hub id.
        device: ``cpu``, ``cuda`` or ``mps``; the best one when absent.
        dtype: ``fp32``, ``bf16`` or ``fp16``.
        preset: the scenario on the bench at first; one that suits the model when absent.
        budget_mb: MiB of cached KV that each visitor's session may hold, where it is not as in ``limits``.
        weights: names, and the models whose weights agents may run on under them.
        limits: what each visitor may ask for, and all together.
        offline: refuse every connection that leaves this machine; by default if all models are local.
        hosting: how it stands on the network, and where shared runs are kept.
        mcp: answer MCP clients at ``/mcp`` too.
        block: wait until the server is stopped.

    Returns:
        the running page and its address.

    Raises:
        LabError: a model cannot be loaded, or the caches of other weights do not fit it.
    """
    share_heaps()
    limits = limits or Limits()
    if budget_mb is not None:
        limits = replace(limits, visit_mb=budget_mb)
    names = (model_name, *(where for _, where in weights))
    hub = hosting.data_repository if hosting else ""
    if offline and hub:
        raise OptionError(
            f"--offline refuses every connection, and {hub} is on a hub. Leave one of them out.",
            field="data_repository",
        )
    if offline or (offline is None and not hub and all(map(is_local, names))):
        go_offline(host)
    import backend.lab
    from backend.cache.memory_budget import MemoryBudget, free_bytes
    from backend.model.load import is_shipped, load_model
    from backend.session.session import LabSession

    model = load_model(model_name, device=device, dtype=dtype)
    others = {name: load_model(where, device=device, dtype=dtype) for name, where in weights}

    def engine(loaded: Any) -> Engine:
        session = LabSession(
            loaded, budget_bytes=limits.visit_bytes, others=others, limits=limits, memory=memory
        )
        return backend.lab.Lab(session)

    loaded: Any = model
    own_model = not is_shipped(model_name)  # the saved runs are of the models that ship
    if preset is None:
        preset = first_scenario(model.info.context_tokens) if own_model else FIRST_PRESET
    memory = MemoryBudget(limits.total_bytes, lambda: free_bytes(model.device))
    engine(loaded)  # so that other weights that do not fit are refused now, not at the first visit
    return launch(
        lambda: loaded, host, port, preset=preset, block=block, engine=engine, weights=tuple(others),
        first_run=None if own_model else FIRST_RUN, gallery=None if own_model else GALLERY, limits=limits,
        hosting=hosting, mcp=mcp, fill_pools=True,
    )  # fmt: skip


def launch(
    model_loader: Callable[[], Model],
    host: str,
    port: int,
    *,
    preset: str = FIRST_PRESET,
    block: bool = True,
    engine: Callable[[Model], Engine] = engine_session,
    first_run: Path | None = FIRST_RUN,
    gallery: Path | None = GALLERY,
    weights: Sequence[str] = (),
    limits: Limits | None = None,
    hosting: Hosting | None = None,
    mcp: bool = False,
    fill_pools: bool = False,
) -> tuple[gr.Blocks, str]:
    """Serve the page for a model.

    Args:
        fill_pools: then fill the scenario's pools (:mod:`lab_app.server.prefill`).

    Raises:
        OptionError: ``mcp`` is asked for and its package is not installed.
    """
    hosting = hosting or Hosting()
    operations, counts = Operations(), Counts()
    app = build_app(
        model_loader, engine=operations.counted(engine), first_run=first_run, gallery=gallery, preset=preset,
        weights=weights, limits=limits, shared=hosting.shared_runs(),
    )  # fmt: skip
    blocks, lab = app.blocks, app.lab
    operations.watch(lab)
    keep_swept(lab)
    keep_log_discreet("lab_app")
    routes = [*web.routes(lab, app.page.forms), *operation_routes(lab, operations, counts)]
    more: dict[str, Any] = {}
    if mcp:
        from lab_app.api.mcp import Tools

        tools = Tools(lab, Callers(lab))
        routes.append(tools.route())
        more["lifespan"] = tools.lifespan
    with server_settings(hosting.proxies) as counts.connections:
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
            state_session_capacity=2 * lab.limits.visits,
            max_threads=2 * lab.limits.visits + 64,  # everybody may wait for the model, and click meanwhile
            theme=theme(),
            head=web.HEAD,
            app_kwargs={
                "routes": routes,
                "middleware": [
                    Middleware(
                        RequestGuard,
                        frame_ancestors=hosting.frame_ancestors,
                        static_lab=hosting.static_lab,
                        full=lambda: lab.full,
                        counts=counts,
                        opened=[route.path_regex for route in routes],
                        heartbeats=Heartbeats(lab.tab_returned, lab.leave, lambda: blocks.app.stop_event),
                        for_programs=lambda number: is_for_programs(blocks, number),
                    ),
                    Middleware(IndexCache, early=early_page(app.page, app.navigation)),
                ],
                "docs_url": None,
                "redoc_url": None,
                "openapi_url": None,
                **more,
            },
        )
    if fill_pools:
        prefill_pools(lab, preset)
    if block:
        LOG.info("serving at %s", address)
        until_asked_to_stop(lab, operations, lambda: blocks.close(verbose=False))
    return blocks, address
