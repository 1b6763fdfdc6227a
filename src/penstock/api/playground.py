"""Playgrounds: a page to try a blueprint on, with its style and script. All of it is ours, and served by us.

The page may talk to us and, where it shows files, to storage; to nobody else.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from penstock.api.calls import Reply
from penstock.api.routes import ANYBODY, HTML, Route
from penstock.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.api.calls import Call, Headers
    from penstock.api.routes import Handler

_TYPES: Final = {"css": b"text/css", "js": b"text/javascript", "svg": b"image/svg+xml", "jpg": b"image/jpeg"}
_STRICT: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " script-src 'self'; style-src 'self'"
)
_FIRST: Final = {"/": ("page.html", "The page to try it on.")}


def playground(
    package: str, *, more: Mapping[str, tuple[str, str]] | None = None, with_storage: bool = False
) -> tuple[Route, ...]:
    """The routes of the pages in the package's ``static`` folder: each path with its file and what it is."""
    pages = _FIRST | dict(more or {})
    return (
        _route("", _to_first, "To the page to try it on.", status=308),
        *(_route(path, _page(package, name, with_storage=with_storage), told) for path, (name, told) in pages.items()),
        Route(
            method="GET",
            path="/static/{part}",
            group="page",
            handle=_part(package),
            summary="A part of a page.",
            who=ANYBODY,
            offers=tuple(_TYPES.values()),
            answers={200: None},
            errors=(NotFoundError,),
        ),
    )


def _route(path: str, handle: Handler, summary: str, status: int = 200) -> Route:
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


async def _to_first(call: Call) -> Reply:
    """To the page, whose parts are named relative to it."""
    return Reply(308, headers=[(b"location", f"{call.root}/".encode("latin-1")), (b"cache-control", b"no-store")])


def _page(package: str, name: str, *, with_storage: bool) -> Handler:
    async def show(call: Call) -> Reply:
        headers: Headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", _policy(f" {_storage(call)}" if with_storage else "").encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cache-control", b"no-cache"),
        ]
        return Reply(200, _read(package, name), headers)

    show.__name__ = name.partition(".")[0]  # for each operation has a name of its own
    return show


def _part(package: str) -> Handler:
    async def part(call: Call) -> Reply:
        name = call.params["part"]
        media = _TYPES.get(name.rpartition(".")[2])
        if media is None or name not in _names(package):
            raise NotFoundError("There is nothing at this path.")
        headers: Headers = [
            (b"content-type", media + b"; charset=utf-8" if media.startswith(b"text/") else media),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"no-cache"),
        ]
        return Reply(200, _read(package, name), headers)

    return part


def _storage(call: Call) -> str:
    """Where storage is, as a browser sees it: any URL that is signed for it tells."""
    url = urlsplit(call.engine.artifacts.store.sign_get("page", lifetime=call.desk.settings.download_lifetime).url)
    return f"{url.scheme}://{url.netloc}"


def _policy(storage: str) -> str:
    return f"{_STRICT}; connect-src 'self'{storage}; img-src 'self' blob:{storage}; media-src blob:{storage}"


@cache
def _names(package: str) -> frozenset[str]:
    return frozenset(each.name for each in files(package).joinpath("static").iterdir())


@cache
def _read(package: str, name: str) -> bytes:
    return files(package).joinpath("static", name).read_bytes()
