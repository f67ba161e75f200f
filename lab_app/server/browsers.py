"""The signed cookie by which a browser that opened the page is known again, and nothing else of it."""

import hashlib
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie

from starlette.requests import Request


class Browsers:
    """Gives out cookies and knows its own. Its secret ends with the process: after a restart, a page is
    opened again."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def id_of(self, request: Request) -> str:
        """The id in a request's cookie; empty where there is none of ours."""
        try:
            morsel = SimpleCookie(request.headers.get("cookie", "")).get(_name(request))
        except CookieError:
            return ""
        browser, _, signed = morsel.value.partition(".") if morsel is not None else ("", "", "")
        return browser if browser and hmac.compare_digest(signed.encode(), self._sign(browser)) else ""

    def cookie(self, request: Request) -> str:
        """A ``Set-Cookie`` for a new browser. Over HTTPS it is also sent where the page stands in a frame of
        another, as on Hugging Face Spaces, and is kept apart for each such page."""
        browser = secrets.token_urlsafe(12)
        secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
        same = "SameSite=None; Secure; Partitioned" if secure else "SameSite=Lax"
        return f"{_name(request)}={browser}.{self._sign(browser).decode()}; Path=/; HttpOnly; {same}"

    def _sign(self, browser: str) -> bytes:
        return hmac.new(self._secret, browser.encode(), hashlib.sha256).hexdigest().encode()


def _name(request: Request) -> str:
    """Cookies are shared by all ports of a host, and each may have a lab."""
    return f"kvlab-{(request.scope.get('server') or ('', 0))[1]}"
