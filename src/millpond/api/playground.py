"""Playgrounds: a page to try a blueprint on, with its style and script. All of it is ours, and served by us.

The page may talk to us and, where it shows files, to storage; to nobody else.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from millpond.api.calls import Reply
from millpond.api.routes import ANYBODY, HTML, Route
from millpond.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.api.calls import Call, Headers
    from millpond.api.routes import Handler

TYPES: Final = {"css": b"text/css", "js": b"text/javascript", "svg": b"image/svg+xml", "jpg": b"image/jpeg"}
_STRICT: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; script-src 'self'; style-src 'self'"
_FIRST: Final = {"/": ("page.html", "The page to try it on.")}


def playground(
    package: str, *, more: Mapping[str, tuple[str, str]] | None = None, with_storage: bool = False
) -> tuple[Route, ...]:
    """The routes of the pages in the package's ``static`` folder: each path with its file and what it is.

    The dashboard shows them in a frame; it is of the same origin, and no other page may.
    """
    pages = _FIRST | dict(more or {})
    return (
        page("", to_first, "To the page to try it on.", status=308),
        *(page(path, _shown(package, name, with_storage=with_storage), told) for path, (name, told) in pages.items()),
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


async def to_first(call: Call) -> Reply:
    """To the page, whose parts are named relative to it."""
    return Reply(308, headers=[(b"location", f"{call.root}/".encode("latin-1")), (b"cache-control", b"no-store")])


def _shown(package: str, name: str, *, with_storage: bool) -> Handler:
    async def show(call: Call) -> Reply:
        policy = f"{strict(storage(call) if with_storage else None)}; frame-ancestors 'self'"
        return html(read(package, name) or b"", policy)

    show.__name__ = name.partition(".")[0]  # for each operation has a name of its own
    return show


def html(body: bytes, policy: str) -> Reply:
    """A page that does nothing but what its policy says."""
    headers: Headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    ]
    return Reply(200, body, headers)


def parts(package: str, keeping: bytes) -> Route:
    """What the pages of a package are made of, and for how long a browser may keep it."""

    async def part(call: Call) -> Reply:
        name = call.params["part"]
        media = TYPES.get(name.rpartition(".")[2])
        body = None if media is None else read(package, name)
        if media is None or body is None:
            raise NotFoundError("There is nothing at this path.")
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
        summary="A part of a page.",
        who=ANYBODY,
        offers=tuple(TYPES.values()),
        answers={200: None},
        errors=(NotFoundError,),
    )


def storage(call: Call) -> str:
    """Where storage is, as a browser sees it: any URL that is signed for it tells."""
    url = urlsplit(call.engine.artifacts.store.sign_get("page", lifetime=call.desk.settings.download_lifetime).url)
    return f"{url.scheme}://{url.netloc}"


def strict(store: str | None) -> str:
    """What a page may load, and whom it may call: us and, where it shows files, storage."""
    also = "" if store is None else f" {store}"
    return f"{_STRICT}; connect-src 'self'{also}; img-src 'self' blob:{also}; media-src blob:{also}"


def read(package: str, name: str) -> bytes | None:
    """A file of the package's ``static`` folder; none where it has no such file."""
    folder = files(package).joinpath("static")
    there = {each.name for each in folder.iterdir()} if folder.is_dir() else set[str]()
    return folder.joinpath(name).read_bytes() if name in there else None
