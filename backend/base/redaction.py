"""Secrets stay out of messages, records and logs. Free of torch."""

import logging
import os
import re
import traceback
from collections.abc import Callable, Mapping

#: Names of environment variables that hold a secret.
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL", re.IGNORECASE)
#: Access tokens of known services, and passwords in URLs.
SECRET_LOOK = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|AKIA[A-Z0-9]{16}\b|AIza[\w-]{35}|xox[abeprs]-[\w-]{10,})"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"
)
#: Every match of SECRET_LOOK holds one of these; most texts hold none, and this search is quicker.
_SIGNS = ("hf_", "sk-", "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_", "AKIA", "AIza", "xox", "://")
SHORTEST = 8  # a value that is shorter would hide ordinary words
HIDDEN = "[hidden]"


def redact(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """``text`` without the values of secret environment variables and without what looks like a token."""
    return redacter(environ)(text)


def redacter(environ: Mapping[str, str] = os.environ) -> Callable[[str], str]:
    """:func:`redact` for many texts: the environment is searched once."""
    secret = {value for name, value in environ.items() if SECRET_NAME.search(name) and len(value) >= SHORTEST}
    values = sorted(secret, key=len, reverse=True)

    def hide(text: str) -> str:
        for value in values:
            text = text.replace(value, HIDDEN)
        return SECRET_LOOK.sub(HIDDEN, text) if any(sign in text for sign in _SIGNS) else text

    return hide


class Discreet(logging.Filter):
    """Keeps secrets and visitors' texts out of a log.

    An exception's message may quote a visitor's text, so only its type and the places in the code are
    written.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; it always passes."""
        record.msg, record.args = redact(record.getMessage()), None
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = places(record.exc_info[1])  # which formatters take instead of their own
        return True


def places(error: BaseException) -> str:
    """The types and code locations of an exception and its causes, without their messages."""
    parts = []
    ids: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in ids:
        ids.add(id(current))
        frames = "".join(
            f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n'
            for frame in traceback.extract_tb(current.__traceback__)
        )
        parts.append(f"{frames}{type(current).__module__}.{type(current).__qualname__}")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\nwhile handling\n".join(parts)


def keep_log_discreet(*names: str) -> None:
    """Filter what these loggers write. Filters are not inherited by child loggers."""
    for name in names:
        logger = logging.getLogger(name)
        if not any(isinstance(item, Discreet) for item in logger.filters):
            logger.addFilter(Discreet())
