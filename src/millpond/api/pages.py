"""Pages: the OpenAPI document, as it is and as a page to read; a page for each problem. All of it works offline."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millpond.api import manual, openapi, problems
from millpond.api.calls import JSON, Reply, encode
from millpond.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond.api.calls import Call, Headers

_HTML: Final[Headers] = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", manual.POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]
_KINDS: Final = {kind.code: kind for kind in problems.every_kind()}


async def document(call: Call) -> Reply:
    body = _made(call, "openapi.json", lambda: encode(_document(call)))
    return Reply(200, body, [(b"content-type", JSON), (b"cache-control", b"no-cache")])


async def docs(call: Call) -> Reply:
    body = _made(call, "docs", lambda: manual.page(_document(call), call.root, _statuses(call)).encode())
    return Reply(200, body, _HTML.copy())


async def problem(call: Call) -> Reply:
    kind = _KINDS.get(call.params["code"])
    if kind is None:
        raise NotFoundError(f"There is no problem {call.params['code'][:40]!r}.", field="code")
    return Reply(200, manual.problem_page(kind, call.root, _statuses(call)).encode(), _HTML.copy())


def _statuses(call: Call) -> manual.StatusOf:
    return partial(openapi.status_of, blueprint=call.desk.blueprint)


def _document(call: Call) -> dict[str, Any]:
    blueprint = call.desk.blueprint
    if blueprint is not None:
        return openapi.document(blueprint.routes, {}, server=call.root, blueprint=blueprint)
    kinds = {name: kind for name, kind in call.engine.app.kinds.items() if kind.is_open}
    return openapi.document(call.desk.routes, kinds, server=call.root)


def _made(call: Call, name: str, make: Callable[[], bytes]) -> bytes:
    """A page is made when it is first asked for, for the address under which that is."""
    pages = call.desk.pages
    if (call.root, name) not in pages:
        pages[call.root, name] = make()
    return pages[call.root, name]
