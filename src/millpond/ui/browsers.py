"""Browsers: what tells that a request comes from a page of ours, and from whom. Cookies are looked at here alone.

A browser sends a cookie along with whatever any page makes it send. So a request that acts must show more: a token that
only our own pages can read, and, where the browser says from which page it comes, that it is one of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from millpond.engine import sessions
from millpond.errors import CsrfError, MediaTypeError

if TYPE_CHECKING:
    from millpond.api.calls import Call
    from millpond.engine.sessions import Session

CSRF: Final = b"millpond-csrf"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_COOKIE: Final = "millpond_session"
_PORTS: Final = {"http": 80, "https": 443}
_SHOWN: Final = 100


def cookie(call: Call) -> str | None:
    """The secret of the session that a browser holds for us."""
    name = _name(call)
    for pair in (call.header(b"cookie") or "").split(";"):
        given, _, value = pair.strip().partition("=")
        if given == name and value:
            return value
    return None


def kept(call: Call, secret: str, seconds: float) -> tuple[bytes, bytes]:
    """The header by which a browser keeps a cookie for so long; with none left, it forgets it.

    No script can read it, no other site makes the browser send it, and it goes to nothing but what is under the door.
    """
    traits = [f"{_name(call)}={secret}", f"Path={call.root}", f"Max-Age={seconds:.0f}", "HttpOnly", "SameSite=Strict"]
    if _is_secure(call):
        traits.append("Secure")
    return b"set-cookie", "; ".join(traits).encode("latin-1")


def _name(call: Call) -> str:
    """A browser has one jar for all ports of a host: two servers on one machine must not take each other's cookie."""
    _, _, port = (call.header(b"host") or "").rpartition(":")
    return f"{_COOKIE}_{port}" if port.isdigit() else _COOKIE


def _is_secure(call: Call) -> bool:
    """Whether the browser came by https. A proxy may say so, or anybody: it can only make the cookie more strict."""
    return call.scope.get("scheme") == "https" or call.header(b"x-forwarded-proto") == "https"


def check_page(call: Call) -> None:
    """Refuse a request that the browser says another site's page has sent."""
    site = call.header(b"sec-fetch-site")
    if site is not None and site != "same-origin":
        raise CsrfError(
            f"The browser says that it comes from another page ({site[:_SHOWN]!r}).", field="Sec-Fetch-Site"
        )
    origin = call.header(b"origin")
    if origin is not None and _place(origin) not in _own_places(call):
        raise CsrfError(
            f"It comes from a page of {origin[:_SHOWN]!r}, which is not this server as the browser sees it.",
            field="Origin",
            hint="Behind a proxy, let that pass the Host header on, or set MILLPOND_PUBLIC_URL.",
        )


def check_form(call: Call) -> None:
    """Refuse what a form, or a script of any page, can send without being asked whether it may."""
    if b"content-type" not in call.headers:
        raise MediaTypeError(field="Content-Type", hint="Set Content-Type: application/json.")


def check_token(call: Call, session: Session) -> None:
    """Refuse a request that does not show the token of its very session."""
    if not sessions.is_csrf(session, call.header(CSRF)):
        raise CsrfError(
            "It lacks the token of the session, or shows another.",
            field="Millpond-Csrf",
            hint="Send the csrf of GET /ui/session as Millpond-Csrf.",
        )


def _own_places(call: Call) -> set[tuple[str, int | None] | None]:
    """Where a browser may have got our pages from; it tells the host, and whether it came by TLS only a proxy knows."""
    host, public = call.header(b"host") or "", call.desk.settings.public_url
    named = {_place(f"{scheme}://{host}") for scheme in _PORTS} | {_place(public) if public else None}
    return named - {None}


def _place(origin: str) -> tuple[str, int | None] | None:
    """Host and port of an address."""
    try:
        parts = urlsplit(origin)
        if not parts.hostname:
            return None
        return parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
