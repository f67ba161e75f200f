"""The widgets of saving, sharing and undo (handlers: ``lab_app.pages.pipeline.sharing.actions``)."""

from typing import Any

import gradio as gr

from lab_app.pages.pipeline.sharing.html import saving
from lab_app.ui import text
from lab_app.ui.components import block
from lab_app.ui.page import PageBuilder


def build_edits(page: PageBuilder) -> None:
    """Undo, redo and the link, above the form."""
    with gr.Row(elem_classes="kv-line", elem_id="kv-edits"):
        small: dict[str, Any] = {"size": "sm", "scale": 0, "min_width": 0}
        page.add(
            undo=gr.Button(text.UNDO, interactive=False, elem_id="kv-undo", **small),
            redo=gr.Button(text.REDO, interactive=False, elem_id="kv-redo", **small),
            bench_link=gr.Button(text.LINK_BENCH_BUTTON, elem_id="kv-bench-link", **small),
        )
    page.add(
        bench_shared=block("bench-shared"),
        bench_kept=block("bench-kept"),
        carried=gr.Textbox(visible=False, elem_id="kv-carried"),
    )


def build_files(page: PageBuilder) -> None:
    """Under the results: files, and the link to the run."""
    with gr.Column(elem_id="kv-file", elem_classes="kv-part"):
        gr.HTML(f'<h2 class="kv-part-title">{text.FILES}</h2>', apply_default_css=False)
        page.add(download=block("download-area", saving(None, 0)))
        page.add(
            # sharing needs a folder for stored runs
            share=gr.Button(
                text.SHARE_RUN, size="sm", elem_id="kv-share", visible=page.lab.shared is not None
            ),
            upload=gr.UploadButton(
                text.OPEN_FILE, file_count="single", type="binary", size="sm", elem_id="kv-upload"
            ),
        )
        page.add(run_shared=block("run-shared"))
        page.error("record", own=True)
