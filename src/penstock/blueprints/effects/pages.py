"""The page on which a user chooses an effect, uploads something and watches what comes of it. All of it is ours."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from penstock.api.calls import Reply
from penstock.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from penstock.api.calls import Call, Headers
    from penstock.storage import Storage

_TYPES: Final = {
    "page.css": b"text/css; charset=utf-8",
    "page.js": b"text/javascript; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}


async def show(call: Call) -> Reply:
    """The page itself. It may talk to us and to storage, and to nobody else."""
    store = call.engine.artifacts.store
    policy = _policy(origins(store, call.desk.settings.download_lifetime))
    headers: Headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    ]
    return Reply(200, _read("page.html"), headers)


async def to_show(call: Call) -> Reply:
    """To the page, whose parts are named relative to it."""
    return Reply(308, headers=[(b"location", f"{call.root}/".encode("latin-1")), (b"cache-control", b"no-store")])


async def part(call: Call) -> Reply:
    name = call.params["part"]
    if name not in _TYPES:
        raise NotFoundError("There is nothing at this path.")
    headers: Headers = [
        (b"content-type", _TYPES[name]),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-cache"),
    ]
    return Reply(200, _read(name), headers)


def origins(store: Storage, lifetime: timedelta) -> list[str]:
    """Where storage is, as a browser sees it: any URL that is signed for it tells."""
    url = urlsplit(store.sign_get("effects/page", lifetime=lifetime).url)
    return [f"{url.scheme}://{url.netloc}"]


def _policy(storage: Iterable[str]) -> str:
    there = " ".join(storage)
    rules = (
        "default-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "script-src 'self'",
        "style-src 'self'",
        f"connect-src 'self' {there}",
        f"img-src 'self' blob: {there}",
        f"media-src blob: {there}",
    )
    return "; ".join(rules)


@cache
def _read(name: str) -> bytes:
    return files("penstock.blueprints.effects").joinpath("static", name).read_bytes()
