"""The page on which a rule is written, tried on a message, and a whole job sent through. All of it is ours."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from penstock.api.calls import Reply
from penstock.errors import NotFoundError

if TYPE_CHECKING:
    from penstock.api.calls import Call, Headers

_TYPES: Final = {
    "page.css": b"text/css; charset=utf-8",
    "page.js": b"text/javascript; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src 'self';"
    " style-src 'self'; connect-src 'self'; img-src 'self'"
)


async def show(call: Call) -> Reply:  # noqa: ARG001 - as all handlers
    """The page itself. It may talk to us, and to nobody else."""
    headers: Headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", _POLICY.encode()),
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


@cache
def _read(name: str) -> bytes:
    return files("penstock.blueprints.guard").joinpath("static", name).read_bytes()
