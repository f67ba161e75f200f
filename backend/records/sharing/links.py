"""A small JSON value as text that fits into a web address, and back.

The text is a version digit and base64url of raw DEFLATE of compact JSON. It is made to stand behind ``#`` in
an address: that part stays in the browser and appears in no server's log and in no referrer.
"""

import base64
import binascii
import json
import re
import zlib
from typing import Any

from backend.base.bounded_json import excess
from backend.base.errors import RecordError

VERSION = "1"
LINK_CHARACTERS = 6_000  # mail programs and chats cut longer addresses
UNPACKED_BYTES = 1 << 20
_TEXT = re.compile(r"[0-9][A-Za-z0-9_-]*")


class LinkTooLong(RecordError):
    """The value is fine, but a link cannot carry it."""


def to_link(value: Any) -> str:
    """The value as text.

    Raises:
        LinkTooLong: it would not fit into a link.
    """
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(body) + packer.flush()
    text = VERSION + base64.urlsafe_b64encode(packed).decode().rstrip("=")
    if len(text) > LINK_CHARACTERS or len(body) > UNPACKED_BYTES:
        raise LinkTooLong(
            f"This bench takes {len(text):,} characters; a link carries up to {LINK_CHARACTERS:,}. Save it "
            "as a file, or shorten what you edited."
        )
    return text


def from_link(text: str) -> Any:
    """The inverse of :func:`to_link`.

    Raises:
        RecordError: the text is damaged, of another version, or unpacks to more than is allowed.
    """
    if len(text) > LINK_CHARACTERS or not _TEXT.fullmatch(text):
        raise RecordError(
            f"This link is damaged: it holds {len(text):,} characters, and a link of the lab is up to "
            f"{LINK_CHARACTERS:,} letters, digits, - and _. Copy it again, whole."
        )
    if text[0] != VERSION:
        raise RecordError(
            f"This link is of version {text[0]}; this lab reads version {VERSION}. Ask for a new one."
        )
    try:
        packed = base64.b64decode(text[1:] + "=" * (-len(text[1:]) % 4), altchars=b"-_", validate=True)
        unpacker = zlib.decompressobj(-15)
        body = unpacker.decompress(packed, UNPACKED_BYTES)
        if unpacker.unconsumed_tail:
            raise RecordError(
                f"This link unpacks to more than {UNPACKED_BYTES // 2**10} KiB and was not opened."
            )
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError("cut short")
        return read_json(body)
    except (ValueError, zlib.error, binascii.Error, RecursionError):
        raise RecordError("This link is damaged or cut short. Copy it again, whole.") from None


def read_json(body: bytes) -> Any:
    """JSON as the lab writes it: no constants like NaN, no key twice, within the bounds of
    :mod:`backend.base.bounded_json`.

    Raises:
        ValueError: it is not.
    """

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is no number")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(items)) != len(items):
            raise ValueError("a key stands twice")
        return dict(items)

    if problem := excess(body):
        raise ValueError(f"it {problem}")
    return json.loads(body.decode("utf-8"), parse_constant=constant, object_pairs_hook=pairs)
