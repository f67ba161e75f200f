"""The signed cookie by which the server recognises a browser that opened the page. It holds an id alone."""

import hashlib
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie

from starlette.requests import Request


class Browsers:
    """Makes cookies and checks them. The secret ends with the process: after a restart, pages have to be
    reloaded."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def id_of(self, request: Request) -> str:
        """The id in a request's cookie; empty without a valid one."""
        try:
            morsel = SimpleCookie(request.headers.get("cookie", "")).get(_name(request))
        except CookieError:
            return ""
        browser, _, signed = morsel.value.partition(".") if morsel is not None else ("", "", "")
        return browser if browser and hmac.compare_digest(signed.encode(), self._sign(browser)) else ""

    def cookie(self, request: Request) -> str:
        """A ``Set-Cookie`` for a new browser. Over HTTPS it is also sent from a frame in another site's
        page, as on Hugging Face Spaces, and is separate for each such site."""
        browser = secrets.token_urlsafe(12)
        secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
        same = "SameSite=None; Secure; Partitioned" if secure else "SameSite=Lax"
        return f"{_name(request)}={browser}.{self._sign(browser).decode()}; Path=/; HttpOnly; {same}"

    def _sign(self, browser: str) -> bytes:
        return hmac.new(self._secret, browser.encode(), hashlib.sha256).hexdigest().encode()


def _name(request: Request) -> str:
    """The cookie's name, with the port: a host's ports share cookies, and each may serve a lab."""
    return f"kvlab-{(request.scope.get('server') or ('', 0))[1]}"
