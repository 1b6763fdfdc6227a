"""http-request: one request through the outbound guard. What is secret in it is never logged."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import values
from millpond.blueprints.actions import once
from millpond.errors import InputError, OutboundFailedError, OutboundRefusedError, PermanentError

if TYPE_CHECKING:
    from millpond.blueprints.actions.inputs import HttpRequest
    from millpond.engine.engine import Engine
    from millpond.kinds import Handler
    from millpond.outbound import Answer
    from millpond.settings import Settings

SIZE_MAX: Final = 64 * 1024
"""Bytes of an answer that are kept; what comes after them is not read."""
_TOLD_MAX: Final = 1_000
_HEADERS_MAX: Final = 100
_HEADER_MAX: Final = 8_192
_WELL: Final = range(100, 400)
_MOVED: Final = range(300, 400)
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE: Final = re.compile(r"[\t -~\x80-\xff]{0,8192}")
_OURS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_REFUSED: Final = "The URL may not be called"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


async def check(engine: Engine, settings: Settings, given: HttpRequest) -> None:  # noqa: ARG001 - as all checks
    """Refuse at once what could only fail."""
    await engine.outbound.admit(given.url, field="input.url")
    _check(given)


def _check(given: HttpRequest) -> None:
    if given.body is not None and given.json is not msgspec.UNSET:
        raise InputError("There is a body already.", field="input.json", hint="Send one of body and json.")
    for name, value in given.headers.items():
        field = f"input.headers.{values.printable(name, 100)}"
        if not _NAME.fullmatch(name):
            raise InputError("It cannot be the name of a header.", field=field)
        if name.lower() in _OURS:
            raise InputError("It is not yours to say: it follows from the request.", field=field)
        if not _VALUE.fullmatch(value):
            raise InputError("It has characters that a header cannot have, or too many.", field=field)


def handler(engine: Engine) -> Handler:
    async def request(job: Any, given: HttpRequest) -> dict[str, Any]:
        _check(given)
        place = _place(engine, given)
        if given.method not in _SAFE:
            await once.begin(job, "The request")
        await job.log(f"{given.method} {place}")
        answer = await once.watched(job, _send(engine, given, place))
        await job.log(f"It answered {answer.status} within {answer.seconds:.3f} s.{_more(answer)}")
        return _judged(given, answer)

    return request


async def _send(engine: Engine, given: HttpRequest, place: str) -> Answer:
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
        raise PermanentError(f"{_REFUSED}: {error.message}", url=place) from None
    except OutboundFailedError as error:
        told = f"The URL brought no answer: {error.message}"
        raise PermanentError(told, url=place, reason=error.reason) from None


def _place(engine: Engine, given: HttpRequest) -> str:
    """Where a URL leads, as it may be told: one with a password is refused, and keys are put into the query."""
    try:
        target = engine.outbound.check(given.url)
    except OutboundRefusedError as error:
        raise PermanentError(f"{_REFUSED}: {error.message}") from None
    path, mark, _ = target.path.partition("?")
    return f"{target.origin}{path}" + ("?…" if mark else "")


def _more(answer: Answer) -> str:
    told = " Redirects are not followed." if answer.status in _MOVED else ""
    return told + (f" Only the first {SIZE_MAX:,} bytes are kept." if answer.is_cut else "")


def _judged(given: HttpRequest, answer: Answer) -> dict[str, Any]:
    text = values.printable(answer.body.decode("utf-8", "replace"), SIZE_MAX)
    expected = given.expect_status
    well = _WELL if expected is None else (expected,) if isinstance(expected, int) else tuple(expected)
    if answer.status not in well:
        raise PermanentError(f"The URL answered {answer.status}.", status=answer.status, body=text[:_TOLD_MAX])
    headers = {name: values.printable(value, _HEADER_MAX) for name, value in answer.headers.items()}
    told = {"status": answer.status, "headers": dict(list(headers.items())[:_HEADERS_MAX])}
    return {**told, "body": text, "isCut": answer.is_cut, "seconds": round(answer.seconds, 3)}
