"""Session cookies and protection against cross-site request forgery. Only this module reads cookies.

A browser attaches cookies to the requests of any site's page. So a request that changes something must also contain a
token that only the dashboard's pages can read, and its origin must be this server if the browser states one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from millpond.engine.access import sessions
from millpond.errors import CsrfError, MediaTypeError

if TYPE_CHECKING:
    from millpond.api.calls import Call
    from millpond.engine.access.sessions import Session

CSRF: Final = b"millpond-csrf"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_COOKIE: Final = "millpond_session"
_PORTS: Final = {"http": 80, "https": 443}
_SHOWN: Final = 100


def cookie(call: Call) -> str | None:
    """The secret of the session from the browser's cookie."""
    name = _name(call)
    for pair in (call.header(b"cookie") or "").split(";"):
        given, _, value = pair.strip().partition("=")
        if given == name and value:
            return value
    return None


def kept(call: Call, secret: str, seconds: float) -> tuple[bytes, bytes]:
    """The header that sets the cookie for the given seconds; with 0, it deletes the cookie.

    Scripts cannot read it, requests from other sites do not include it, and it is sent to the dashboard's paths only.
    """
    traits = [f"{_name(call)}={secret}", f"Path={call.root}", f"Max-Age={seconds:.0f}", "HttpOnly", "SameSite=Strict"]
    if _is_secure(call):
        traits.append("Secure")
    return b"set-cookie", "; ".join(traits).encode("latin-1")


def _name(call: Call) -> str:
    """The name of the cookie. It has the port, because browsers share cookies between all ports of a host."""
    _, _, port = (call.header(b"host") or "").rpartition(":")
    return f"{_COOKIE}_{port}" if port.isdigit() else _COOKIE


def _is_secure(call: Call) -> bool:
    """Whether the browser uses HTTPS. A client may forge the proxy header: that only makes the cookie stricter."""
    return call.scope.get("scheme") == "https" or call.header(b"x-forwarded-proto") == "https"


def check_page(call: Call) -> None:
    """Reject a request that the browser attributes to another site."""
    site = call.header(b"sec-fetch-site")
    if site is not None and site != "same-origin":
        raise CsrfError(
            f"The browser reports that the request comes from another site ({site[:_SHOWN]!r}).", field="Sec-Fetch-Site"
        )
    origin = call.header(b"origin")
    if origin is not None and _place(origin) not in _own_places(call):
        raise CsrfError(
            f"The request comes from a page of {origin[:_SHOWN]!r}, which is not the origin of this server.",
            field="Origin",
            hint="Behind a proxy, forward the Host header or set MILLPOND_PUBLIC_URL.",
        )


def check_form(call: Call) -> None:
    """Reject a request that a form, or a script of any site, can send without a CORS preflight."""
    if b"content-type" not in call.headers:
        raise MediaTypeError(field="Content-Type", hint="Set Content-Type: application/json.")


def check_token(call: Call, session: Session) -> None:
    """Reject a request without the CSRF token of its session."""
    if not sessions.is_csrf(session, call.header(CSRF)):
        raise CsrfError(
            "The CSRF token of the session is missing or wrong.",
            field="Millpond-Csrf",
            hint="Send the csrf value of GET /ui/session as Millpond-Csrf.",
        )


def _own_places(call: Call) -> set[tuple[str, int | None] | None]:
    """The origins of the dashboard, with and without TLS, which may end at a proxy; and that of the public URL."""
    host, public = call.header(b"host") or "", call.state.settings.public_url
    named = {_place(f"{scheme}://{host}") for scheme in _PORTS} | {_place(public) if public else None}
    return named - {None}


def _place(origin: str) -> tuple[str, int | None] | None:
    """The host and port of an origin."""
    try:
        parts = urlsplit(origin)
        if not parts.hostname:
            return None
        return parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
