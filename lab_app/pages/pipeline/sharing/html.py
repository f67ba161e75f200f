"""HTML of saving and sharing. Every value is escaped here."""

import json
from collections.abc import Mapping
from typing import Any

from lab_app.ui import text
from viz.base.format import escape, size

TENSOR_BYTES = 32 << 20  # as backend.session.tensors, which needs torch, allows


def saving(token: str | None, tensor_bytes: int) -> str:
    """The links that save the run on the screen; ``tensor_bytes``: size of its keys and values, 0 where they
    are not kept."""
    if token is None:
        return f'<p class="kv-help">{text.NO_RECORD}</p>'
    name = escape(token)
    about = with_tensors = ""
    if not tensor_bytes:
        about = f" {text.NO_TENSORS}"
    elif tensor_bytes > TENSOR_BYTES:
        message = text.TENSORS_TOO_LARGE.format(bytes=size(tensor_bytes), limit=size(TENSOR_BYTES))
        about = f" {escape(message)}"
    else:
        with_tensors = _save(
            f"bundle/{name}?tensors=1", "kv-save-tensors", f"{text.SAVE_TENSORS} {size(tensor_bytes)}"
        )
    return (
        '<div class="kv-saves">'
        f"{_save(f'record/{name}', 'kv-download', text.SAVE_RUN)}"
        f"{_save(f'bundle/{name}', 'kv-save-bundle', text.SAVE_BUNDLE)}"
        f"{_save(f'report/{name}', 'kv-save-report', text.SAVE_REPORT)}{with_tensors}"
        f'<details class="kv-about kv-help"><summary>{text.RECORD_ABOUT}</summary>{text.RECORD_HELP}{about}'
        "</details></div>"
    )


def _save(path: str, id_: str, label: str) -> str:
    return f'<a class="kv-button" id="{id_}" href="lab/{path}" download>{escape(label)}</a>'


def link(fragment: str, message: str) -> str:
    """A link to copy. The browser completes it with the page's address."""
    href = escape(f"#{fragment}")
    return (
        f'<div class="kv-link" role="status"><p class="kv-help">{escape(message)}</p>'
        f'<a class="kv-shared-link" href="{href}" target="_blank" rel="noopener">{text.OPEN_LINK}</a>'
        f'<button type="button" class="kv-small-button" data-kv="copy">{text.COPY_LINK}</button></div>'
    )


def draft(bench: Mapping[str, Any], address: str, run: bool = False) -> str:
    """The form as the server last read it, for the tab's memory and address (``assets/share.js``).

    Args:
        bench: the form as JSON values.
        address: the link to it; empty where that would be too long.
        run: press Run, once.
    """
    content = escape(json.dumps(bench, ensure_ascii=False, separators=(",", ":")))
    return (
        f'<i hidden class="kv-kept" data-bench="{content}" data-link="{escape(address)}"'
        f"{' data-run' if run else ''}></i>"
    )
