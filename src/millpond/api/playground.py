"""Playgrounds: a page to try a product, with its style sheet and script, all served by this server.

The page may connect to this server and, if it shows files, to storage, and to no other host.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from millpond.api.calls import Reply
from millpond.api.routes import HTML, Route
from millpond.api.scopes import ANYBODY
from millpond.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.api.calls import Call, Headers
    from millpond.api.routes import Handler

TYPES: Final = {"css": b"text/css", "js": b"text/javascript", "svg": b"image/svg+xml", "jpg": b"image/jpeg"}
_STRICT: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; script-src 'self'; style-src 'self'"
_FIRST: Final = {"/": ("page.html", "Get the playground page.")}


def playground(
    package: str, *, more: Mapping[str, tuple[str, str]] | None = None, with_storage: bool = False
) -> tuple[Route, ...]:
    """The routes of the pages in the package's ``static`` folder. ``more`` maps other paths to a file and a summary.

    Only pages of the same origin may show them in a frame, as the dashboard does.
    """
    pages = _FIRST | dict(more or {})
    return (
        page("", redirect_to_page, "Open the playground page.", status=308),
        *(page(path, _shown(package, name, with_storage=with_storage), text) for path, (name, text) in pages.items()),
        parts(package, b"no-cache"),
    )


def page(path: str, handle: Handler, summary: str, status: int = 200) -> Route:
    return Route(
        method="GET",
        path=path,
        group="page",
        handle=handle,
        summary=summary,
        who=ANYBODY,
        offers=(HTML,),
        answers={status: None},
    )


async def redirect_to_page(call: Call) -> Reply:
    """Redirect to the path with a slash, because the page refers to its assets by relative URLs."""
    return Reply(308, headers=[(b"location", f"{call.root}/".encode("latin-1")), (b"cache-control", b"no-store")])


def _shown(package: str, name: str, *, with_storage: bool) -> Handler:
    async def show(call: Call) -> Reply:
        policy = f"{strict(storage(call) if with_storage else None)}; frame-ancestors 'self'"
        return html(read(package, name) or b"", policy)

    show.__name__ = name.partition(".")[0]  # operation ids contain it and must be unique
    return show


def html(body: bytes, policy: str) -> Reply:
    """An HTML page with its content security policy."""
    headers: Headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    ]
    return Reply(200, body, headers)


def parts(package: str, keeping: bytes) -> Route:
    """The route of the assets of a package's pages; ``keeping`` is their Cache-Control header."""

    async def part(call: Call) -> Reply:
        name = call.params["part"]
        media = TYPES.get(name.rpartition(".")[2])
        body = None if media is None else read(package, name)
        if media is None or body is None:
            raise NotFoundError("No resource exists at this path.")
        headers: Headers = [
            (b"content-type", media + b"; charset=utf-8" if media.startswith(b"text/") else media),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", keeping),
        ]
        return Reply(200, body, headers)

    return Route(
        method="GET",
        path="/static/{part}",
        group="page",
        handle=part,
        summary="Get an asset of the page.",
        who=ANYBODY,
        offers=tuple(TYPES.values()),
        answers={200: None},
        errors=(NotFoundError,),
    )


def storage(call: Call) -> str:
    """The origin of storage as a browser sees it, which is part of any signed URL."""
    url = urlsplit(call.engine.artifacts.store.sign_get("page", lifetime=call.state.settings.download_lifetime).url)
    return f"{url.scheme}://{url.netloc}"


def strict(store: str | None) -> str:
    """The policy of a page: it may connect to this server and, if it shows files, to storage."""
    also = "" if store is None else f" {store}"
    return f"{_STRICT}; connect-src 'self'{also}; img-src 'self' blob:{also}; media-src blob:{also}"


def read(package: str, name: str) -> bytes | None:
    """A file of the package's ``static`` folder; None if there is no such file."""
    folder = files(package).joinpath("static")
    there = {each.name for each in folder.iterdir()} if folder.is_dir() else set[str]()
    return folder.joinpath(name).read_bytes() if name in there else None
