"""The dashboard's pages: one document for all paths, whose script renders the requested page."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from html import escape
from typing import TYPE_CHECKING, Final

from millpond.api import playground
from millpond.errors import StorageUnavailableError

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.api.routes import Route

PACKAGE: Final = "millpond.ui"
SHELL: Final = "index.html"
PATHS: Final = (
    "/",
    "/jobs",
    "/jobs/{id}",
    "/batches",
    "/batches/{id}",
    "/kinds",
    "/kinds/{kind}",
    "/schedules",
    "/schedules/new",
    "/schedules/{id}",
    "/schedules/{id}/edit",
    "/fleet",
    "/fleet/{id}",
    "/failures",
    "/failures/{fingerprint}",
    "/credits",
    "/credits/{tenant}/{account}",
    "/webhooks",
    "/webhooks/{id}",
    "/deliveries/{id}",
    "/inbox",
    "/playground",
    "/playground/{kind}",
    "/access",
    "/access/{tenant}",
    "/audit",
    "/system",
    "/bulk",
    "/bulk/{id}",
)
FOR_EVER: Final = b"public, max-age=31536000, immutable"
_PLACE: Final = b"{root}"
_STYLE: Final = (
    "body{font:1rem/1.6 system-ui,sans-serif;color-scheme:light dark;max-width:34rem;margin:18vh auto;padding:0 1.5rem}"
    "h1{font-size:1.25rem;font-weight:600}code{font:.95em ui-monospace,monospace;padding:.1em .35em;border-radius:.3em;"
    "background:color-mix(in srgb,currentColor 9%,transparent)}"
)
_UNBUILT: Final = f"""\
<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Millpond: the dashboard was not built</title><style>{_STYLE}</style>
<h1>The dashboard was not built</h1>
<p>This Millpond runs from a source tree, and the dashboard has not been built there yet. Run <code>make ui</code> in
that tree, and reload this page. Installed packages contain the dashboard.</p>
<p>Everything in the dashboard is also available through the API and the command line: <code>millpond --help</code>.</p>
</html>
""".encode()
_UNBUILT_POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'sha256-"
    f"{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
)


_NOT_PAGES: Final = frozenset({"static", "session", "docs"})
"""First segments of paths below the dashboard that are not pages."""


def pages() -> tuple[Route, ...]:
    """The document for every path, and its static files. Their names contain a hash, so browsers cache them for ever.

    The query of a page is read by its script only.
    """
    return (
        dataclasses.replace(
            playground.page("", playground.redirect_to_page, "Redirect to the dashboard.", status=308), query=None
        ),
        *(dataclasses.replace(playground.page(path, show, "Get the dashboard."), query=None) for path in PATHS),
        playground.parts(PACKAGE, FOR_EVER),
    )


def lost() -> Route:
    return dataclasses.replace(
        playground.page("/nowhere", nowhere, "No page of the dashboard.", status=404), query=None
    )


def is_nowhere(call: Call, parts: list[str]) -> bool:
    """Whether a browser requests a page that does not exist."""
    return call.method == "GET" and parts[0] not in _NOT_PAGES and b"text/html" in call.headers.get(b"accept", b"")


async def show(call: Call) -> Reply:
    shell = playground.read(PACKAGE, SHELL)
    if shell is None:
        made = playground.html(_UNBUILT, _UNBUILT_POLICY)
        made.status = 503
        return made
    policy = f"{playground.strict(_storage(call))}; frame-src 'self'; frame-ancestors 'none'"
    return playground.html(shell.replace(_PLACE, escape(call.root).encode()), policy)


async def nowhere(call: Call) -> Reply:
    """The same document for an unknown path, whose page says so and links to others."""
    made = await show(call)
    made.status = max(made.status, 404)
    return made


def _storage(call: Call) -> str | None:
    """The origin of storage, if it is available. The rest of the dashboard works without it."""
    try:
        return playground.storage(call)
    except StorageUnavailableError:
        return None
