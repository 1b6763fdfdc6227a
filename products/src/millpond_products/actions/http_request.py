"""http-request: one request through the outbound guard. Only its method and its URL without the query are logged."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import values
from millpond.errors import InputError, OutboundFailedError, OutboundRefusedError, PermanentError
from millpond_products.actions import once

if TYPE_CHECKING:
    from millpond.kinds import Handler
    from millpond.product import Engine, OutboundResponse
    from millpond_products.actions.inputs import HttpRequest
    from millpond_products.settings import ProductSettings

SIZE_MAX: Final = 64 * 1024
"""Bytes of a response that are kept; the rest is not read."""
_ERROR_BODY_MAX: Final = 1_000
_HEADERS_MAX: Final = 100
_HEADER_MAX: Final = 8_192
_SUCCESSFUL: Final = range(100, 400)
_REDIRECTS: Final = range(300, 400)
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE: Final = re.compile(r"[\t -~\x80-\xff]{0,8192}")
_RESERVED: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_REFUSED: Final = "The URL may not be called"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


async def check(engine: Engine, settings: ProductSettings, given: HttpRequest) -> None:  # noqa: ARG001 - the signature of all checks
    """Refuse an input that could only fail."""
    await engine.outbound.admit(given.url, field="input.url")
    _check(given)


def _check(given: HttpRequest) -> None:
    if given.body is not None and given.json is not msgspec.UNSET:
        raise InputError("body and json are mutually exclusive.", field="input.json", hint="Send either body or json.")
    for name, value in given.headers.items():
        field = f"input.headers.{values.printable(name, 100)}"
        if not _NAME.fullmatch(name):
            raise InputError("The value is not a valid header name.", field=field)
        if name.lower() in _RESERVED:
            raise InputError("The header is set automatically and cannot be overridden.", field=field)
        if not _VALUE.fullmatch(value):
            raise InputError("The value is too long or contains invalid characters.", field=field)


def handler(engine: Engine) -> Handler:
    async def request(job: Any, given: HttpRequest) -> dict[str, Any]:
        _check(given)
        url = _loggable_url(engine, given)
        if given.method not in _SAFE:
            await once.begin(job, "The request")
        await job.log(f"{given.method} {url}")
        answer = await once.watched(job, _send(engine, given, url))
        await job.log(f"The URL responded with HTTP {answer.status} after {answer.seconds:.3f} s.{_notes(answer)}")
        return _output(given, answer)

    return request


async def _send(engine: Engine, given: HttpRequest, url: str) -> OutboundResponse:
    headers, body = dict(given.headers), b""
    if given.json is not msgspec.UNSET:
        body = msgspec.json.encode(given.json)
        if not any(name.lower() == "content-type" for name in headers):
            headers["content-type"] = "application/json"
    elif given.body is not None:
        body = given.body.encode()
    try:
        return await engine.outbound.send(
            given.method, given.url, headers=headers, body=body, seconds=given.timeout_seconds, size_max=SIZE_MAX
        )
    except OutboundRefusedError as error:
        raise PermanentError(f"{_REFUSED}: {error.message}", url=url) from None
    except OutboundFailedError as error:
        raise PermanentError(f"The URL did not respond: {error.message}", url=url, reason=error.reason) from None


def _loggable_url(engine: Engine, given: HttpRequest) -> str:
    """The URL for the log, without its query, which may contain keys. A URL with a password is refused."""
    try:
        target = engine.outbound.check(given.url)
    except OutboundRefusedError as error:
        raise PermanentError(f"{_REFUSED}: {error.message}") from None
    path, mark, _ = target.path.partition("?")
    return f"{target.origin}{path}" + ("?…" if mark else "")


def _notes(answer: OutboundResponse) -> str:
    note = " Redirects are not followed." if answer.status in _REDIRECTS else ""
    return note + (f" Only the first {SIZE_MAX:,} bytes are kept." if answer.is_cut else "")


def _output(given: HttpRequest, answer: OutboundResponse) -> dict[str, Any]:
    text = values.printable(answer.body.decode("utf-8", "replace"), SIZE_MAX)
    expected = given.expect_status
    accepted = _SUCCESSFUL if expected is None else (expected,) if isinstance(expected, int) else tuple(expected)
    if answer.status not in accepted:
        raise PermanentError(
            f"The URL responded with HTTP {answer.status}.", status=answer.status, body=text[:_ERROR_BODY_MAX]
        )
    headers = {name: values.printable(value, _HEADER_MAX) for name, value in answer.headers.items()}
    return {
        "status": answer.status,
        "headers": dict(list(headers.items())[:_HEADERS_MAX]),
        "body": text,
        "isCut": answer.is_cut,
        "seconds": round(answer.seconds, 3),
    }
