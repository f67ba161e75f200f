"""What everybody uses: errors, text checks, statistics, files of rows. Free of torch and of the lab's ideas.

Whatever stands in every other room stands on this one, so it knows no prompt, no record and no model. An
error raised here says what to do about it, for its words reach a person as they are.

Others use the names below, here or from their modules.
"""

from backend.base.cancel import stop_if
from backend.base.clock import Clock
from backend.base.errors import (
    BudgetError,
    LabError,
    MemoryFullError,
    ModelError,
    NotRelocatableError,
    OptionError,
    PromptError,
    RateError,
    RecordError,
    RunCancelled,
)
from backend.base.machine import processor, versions
from backend.base.ranges import check_ranges, check_whole
from backend.base.redaction import redact
from backend.base.row_file import RowFile
from backend.base.serialization import Saved, decode, encode, pack, unpack
from backend.base.statistics import (
    Share,
    bootstrap,
    bootstrap_interval,
    mean_and_half,
    mean_interval,
    share,
    share_of,
    wilson,
)
from backend.base.text import check_label, check_text, show

__all__ = [
    "BudgetError",
    "Clock",
    "LabError",
    "MemoryFullError",
    "ModelError",
    "NotRelocatableError",
    "OptionError",
    "PromptError",
    "RateError",
    "RecordError",
    "RowFile",
    "RunCancelled",
    "Saved",
    "Share",
    "bootstrap",
    "bootstrap_interval",
    "check_label",
    "check_ranges",
    "check_text",
    "check_whole",
    "decode",
    "encode",
    "mean_and_half",
    "mean_interval",
    "pack",
    "processor",
    "redact",
    "share",
    "share_of",
    "show",
    "stop_if",
    "unpack",
    "versions",
    "wilson",
]
