"""What looking something up on the hub says: nothing of every try, and once why it failed. Free of torch."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR

from backend.base.redaction import redact

LONGEST = 400  # characters of a reason; the hub's own fit


@contextmanager
def quiet_lookups() -> Iterator[None]:
    """Without the library's lines about each try that failed; what came of them is the caller's to say."""
    from huggingface_hub.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(level)


def reason(error: BaseException) -> str:
    """What an error says, on one line and without secrets: whole, or as many words of it as fit."""
    return textwrap.shorten(redact(str(error)).rstrip(".\n "), LONGEST, placeholder=" ...")
