"""The page on which a user makes an ad, and the page of a product that does not exist, to try it with. All is ours."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from penstock.api.calls import Reply
from penstock.errors import NotFoundError

if TYPE_CHECKING:
    from penstock.api.calls import Call, Headers

PARTS: Final = {
    "page.css": b"text/css; charset=utf-8",
    "page.js": b"text/javascript; charset=utf-8",
    "icon.svg": b"image/svg+xml",
    "sample.css": b"text/css; charset=utf-8",
    "sample.jpg": b"image/jpeg",
}
_STRICT: Final = ("default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'")


async def show(call: Call) -> Reply:
    """The page itself. It may talk to us and to storage, and to nobody else."""
    store = call.engine.artifacts.store
    url = urlsplit(store.sign_get("studio/page", lifetime=call.desk.settings.download_lifetime).url)
    storage = f"{url.scheme}://{url.netloc}"
    policy = (
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        f"img-src 'self' {storage}",
        f"media-src {storage}",
    )
    return _html("page.html", policy)


async def to_show(call: Call) -> Reply:
    """To the page, whose parts are named relative to it."""
    return Reply(308, headers=[(b"location", f"{call.root}/".encode("latin-1")), (b"cache-control", b"no-store")])


async def sample(call: Call) -> Reply:  # noqa: ARG001 - as all that answer
    """A shop's page, so that there is one where there is no network."""
    return _html("sample.html", ("style-src 'self'", "img-src 'self'"))


async def part(call: Call) -> Reply:
    name = call.params["part"]
    if name not in PARTS:
        raise NotFoundError("There is nothing at this path.")
    headers: Headers = [
        (b"content-type", PARTS[name]),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-cache"),
    ]
    return Reply(200, _read(name), headers)


def _html(name: str, policy: tuple[str, ...]) -> Reply:
    headers: Headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", "; ".join((*_STRICT, *policy)).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    ]
    return Reply(200, _read(name), headers)


@cache
def _read(name: str) -> bytes:
    return files("penstock.blueprints.studio").joinpath("static", name).read_bytes()
