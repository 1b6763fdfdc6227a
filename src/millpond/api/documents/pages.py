"""Pages: the OpenAPI document as JSON and as HTML, and a page for each problem. All of them work offline."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millpond import errors
from millpond.api import problems
from millpond.api.calls import JSON, Reply, encode
from millpond.api.documents import manual, openapi
from millpond.api.routes import HTML, Route
from millpond.api.scopes import ANYBODY
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
_KINDS: Final = {kind.code: kind for kind in problems.all_errors()}


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
    return partial(openapi.status_of, product=call.state.product)


def _document(call: Call) -> dict[str, Any]:
    product = call.state.product
    if product is not None:
        return openapi.document(product.routes, {}, server=call.root, product=product)
    kinds = {name: kind for name, kind in call.engine.app.kinds.items() if kind.is_open}
    return openapi.document(call.state.routes, kinds, server=call.root)


def _made(call: Call, name: str, make: Callable[[], bytes]) -> bytes:
    """Render a page on its first request, once for each mount path."""
    pages = call.state.pages
    if (call.root, name) not in pages:
        pages[call.root, name] = make()
    return pages[call.root, name]


ROUTES: Final = (
    Route(
        method="GET",
        path="/openapi.json",
        handle=document,
        summary="Get this document.",
        who=ANYBODY,
        answers={200: dict[str, Any]},
    ),
    Route(
        method="GET",
        path="/docs",
        handle=docs,
        summary="Get this document as an HTML page.",
        who=ANYBODY,
        offers=(HTML,),
        answers={200: None},
    ),
    Route(
        method="GET",
        path="/docs/problems/{code}",
        handle=problem,
        summary="Get the explanation of a problem.",
        who=ANYBODY,
        offers=(HTML,),
        answers={200: None},
        errors=(errors.NotFoundError,),
    ),
)
