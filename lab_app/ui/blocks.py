"""The framework's page, with cheaper answers and without fetching addresses.

A handler answers with the few widgets that changed, out of hundreds that it may change. The framework would
process all of them, at every step of a run.

It would also download any address that stands in a box where it expects an uploaded file.
"""

import copy
import re
from collections.abc import Sequence
from typing import Any

import gradio as gr
from gradio.blocks import Block, BlockFunction, BlocksConfig  # type: ignore[attr-defined]
from gradio.components.api_component import Api
from gradio.state_holder import SessionState

ADDRESS = re.compile(r"\s*([a-z][a-z0-9+.-]+:|//)", re.IGNORECASE)


def refuse_addresses(values: Any) -> None:
    """Refuse addresses in the place of uploaded files.

    Raises:
        gr.Error: there is one.
    """
    parts = [values]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            path = part.get("path")
            if isinstance(path, str) and ADDRESS.match(path):
                raise gr.Error("The lab does not fetch addresses. Upload a file.", print_exception=False)
            parts += part.values()


def filled(expected: Sequence[Any], values: list[Any]) -> list[Any]:
    """A program's values by position; those left out at the end get their defaults.

    Raises:
        gr.Error: there are too many.
    """
    if len(values) > len(expected):
        raise gr.Error(
            f"The call has {len(values)} values; up to {len(expected)} are allowed. Leave the last ones out.",
            print_exception=False,
        )
    return [*values, *(widget.value for widget in expected[len(values) :])]


class Session(BlocksConfig):
    """A session's copy of the page. The framework would describe every widget for it anew, which takes 0.1 s
    and 1 MB, for links that the lab does not offer (``deep_link``)."""

    @staticmethod
    def config_for_block(*_: Any) -> dict[str, Any]:
        """Nothing."""
        return {}


#: What the framework says of every widget and its client never reads (tests/lab_app/ui/test_blocks.py): a
#: third of the configuration.
UNREAD = (
    "api_info", "api_info_as_input", "api_info_as_output", "example_inputs", "skip_api", "component_class_id",
    "key",
)  # fmt: skip
UNREAD_PROPS = ("preserved_by_key", "_retryable", "_undoable", "likeable", "streamable")


class PageConfig(BlocksConfig):
    """The page, of which each session gets a :class:`Session`."""

    @staticmethod
    def config_for_block(
        _id: int, rendered_ids: list[int], block: Block, renderable: Any = None
    ) -> dict[str, Any]:
        """See ``gradio.blocks.BlocksConfig``; the endpoints for programs are described in full."""
        config: dict[str, Any] = BlocksConfig.config_for_block(_id, rendered_ids, block, renderable)
        if isinstance(block, Api):
            return config
        props = {name: value for name, value in config["props"].items() if name not in UNREAD_PROPS}
        return {name: value for name, value in config.items() if name not in UNREAD} | {"props": props}

    def __copy__(self) -> Session:
        new = Session(self.root_block)
        new.blocks, new.fns, new.fn_id = self.blocks.copy(), self.fns.copy(), self.fn_id
        return new


class LabBlocks(gr.Blocks):
    """Blocks that look only at the outputs that an answer names; all others get the framework's skip."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.default_config = PageConfig(self)

    async def preprocess_data(
        self,
        block_fn: BlockFunction,
        inputs: list[Any],
        state: SessionState | None,
        explicit_call: bool = False,
    ) -> list[Any]:
        """See ``gradio.Blocks.preprocess_data``.

        Raises:
            gr.Error: an address stands where a file should; or a program's call has too many values.
        """
        if block_fn.inputs and all(isinstance(widget, Api) for widget in block_fn.inputs):
            inputs = filled(block_fn.inputs, inputs)
        refuse_addresses(inputs)
        values: list[Any] = await super().preprocess_data(block_fn, inputs, state, explicit_call)
        return values

    async def postprocess_data(
        self, block_fn: BlockFunction, predictions: list[Any] | dict[Any, Any], state: SessionState | None
    ) -> list[Any]:
        """See ``gradio.Blocks.postprocess_data``; the same answer."""
        if isinstance(predictions, dict) and predictions and all(isinstance(k, Block) for k in predictions):
            ids = {widget._id for widget in predictions}
            widgets = [widget for widget in block_fn.outputs if widget._id in ids]
            if len(widgets) == len(predictions) < len(block_fn.outputs):
                subset = copy.copy(block_fn)
                subset.outputs = widgets
                answers = await super().postprocess_data(subset, predictions, state)
                values = {widget._id: value for widget, value in zip(widgets, answers, strict=True)}
                return [values[w._id] if w._id in values else gr.skip() for w in block_fn.outputs]
        return await super().postprocess_data(block_fn, predictions, state)

    def handle_streaming_diffs(
        self,
        block_fn: BlockFunction,
        data: list[Any],
        session_hash: str | None,
        run: str | None,
        final: bool,
        simple_format: bool = False,
    ) -> list[Any]:
        """See ``gradio.Blocks.handle_streaming_diffs``; later messages of a run hold whole values, not edits.

        The browser applies edits to the last message's values and loses those that it has not drawn yet: a
        fast run ended with its last figures missing.
        """
        whole = list(data)
        diffs: list[Any] = super().handle_streaming_diffs(
            block_fn, data, session_hash, run, final, simple_format
        )
        if final:
            return diffs
        return [
            edits if edits is value or not edits else [["replace", [], value]]
            for value, edits in zip(whole, diffs, strict=True)
        ]
