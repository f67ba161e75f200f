"""Look-ups on the hub without a log line per try, and the reason of a failure. Free of torch."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR

from backend.base.redaction import redact

LONGEST = 400  # characters of a reason; the hub's own fit


@contextmanager
def quiet_lookups() -> Iterator[None]:
    """Silence the library's line about each failed try; the caller reports the outcome."""
    from huggingface_hub.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(level)


def reason(error: BaseException) -> str:
    """An error's message on one line, without secrets, cut to :data:`LONGEST` characters."""
    return textwrap.shorten(redact(str(error)).rstrip(".\n "), LONGEST, placeholder=" ...")
