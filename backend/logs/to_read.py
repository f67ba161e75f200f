"""A page's request to read a log's calls with a model. Free of torch."""

from dataclasses import dataclass

from backend.logs.advice import Advice
from backend.logs.calls import Call
from backend.logs.xray import BLOCK
from backend.records.log_reading import ReadingRequest


@dataclass(frozen=True)
class LogToRead:
    """Read these calls.

    Attributes:
        calls: by their time.
        advice: layouts that the X-ray proposes, in blocks of ``block`` tokens as the lab's own tokenizer
            counts them; they are tried where ``reading`` says so.
    """

    reading: ReadingRequest
    calls: tuple[Call, ...]
    advice: tuple[Advice, ...] = ()
    block: int = BLOCK
