"""Forwarding webhooks to this machine: pulls the deliveries of an endpoint without a URL, and sends them on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx2
import msgspec

from millpond import wire
from millpond.cli.output import UsageError, report
from millpond.cli.processes import stop_on_signals
from millpond.errors import MillpondError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Sequence

    from millpond.client import AsyncClient

T = TypeVar("T")

SECONDS: Final = 15.0
_POLL: Final = 0.5
_PATIENCE: Final = 3.0
_AT_ONCE: Final = 10
_BODY_MAX: Final = 1_024
_ABOUT: Final = "millpond webhooks listen"


class Forwarded(wire.Answer):
    """A forwarded event, and its result."""

    at: wire.Time
    delivery_id: str
    event: str | None
    job_id: str | None
    status: int | None
    error: str | None
    seconds: float


class Forwarder:
    """One run of ``millpond webhooks listen``. The requests of one pull are independent, and are sent concurrently."""

    def __init__(
        self,
        client: AsyncClient,
        url: str,
        *,
        events: Sequence[str] | None,
        kinds: Sequence[str],
        secret: str,
        tenant: str | None,
    ) -> None:
        self._client = client
        self._url = local_url(url)
        self._asked: dict[str, Any] = {"events": events, "kinds": kinds, "secret": secret, "tenant": tenant}
        self._tenant = tenant
        self._endpoint: str | None = None
        self._is_unreachable = False
        self._stop = asyncio.Event()

    async def run(self) -> AsyncGenerator[Forwarded]:
        """Forward events until the first signal, then delete the endpoint."""
        self._stop = stop_on_signals()
        await self._make()
        report(f"Forwarding events to {self._url}, signed with {self._asked['secret']}. Press Ctrl-C to stop.")
        async with httpx2.AsyncClient(timeout=SECONDS, trust_env=False) as http:
            try:
                while not self._stop.is_set():
                    requests = await self._pull()
                    for sent in asyncio.as_completed([self._forward(http, request) for request in requests]):
                        yield await sent
                    if not requests:
                        await self._unless_stopped(asyncio.sleep(_POLL))
            finally:
                await self._remove()

    async def _make(self) -> None:
        self._endpoint = (await self._client.make_endpoint(description=_ABOUT, **self._asked)).id

    async def _remove(self) -> None:
        with contextlib.suppress(NotFoundError, UnavailableError):  # the server removes it after an hour without a pull
            await self._client.delete_endpoint(self._endpoint or "", tenant=self._tenant)

    async def _pull(self) -> list[wire.SignedRequest]:
        """The due requests; none while the server is unreachable, which is reported and retried."""
        try:
            pulled = await self._unless_stopped(self._pulling())
        except NotFoundError:
            await self._make()
            report("The endpoint was deleted. A new one with the same secret was created.")
            return []
        except MillpondError as error:
            if not error.retryable:
                raise
            self._note(error)
            return []
        self._note(None)
        return [] if pulled is None else pulled.data

    def _pulling(self) -> Coroutine[Any, Any, wire.SignedRequests]:
        """Pull with a short timeout, so that an unreachable server is reported soon."""
        path, body = f"/v1/endpoints/{self._endpoint}/pull", wire.PullDeliveries(limit=_AT_ONCE)
        params = {"tenant": self._tenant}
        return self._client.request(
            "POST", path, body=body, params=params, type=wire.SignedRequests, is_repeatable=True, timeout=_PATIENCE
        )

    def _note(self, error: MillpondError | None) -> None:
        """Report once that the server is unreachable, and once that it is reachable again."""
        if error is not None and not self._is_unreachable:
            report(f"{error.message} Retrying.")
        if error is None and self._is_unreachable:
            report("The server is reachable again.")
        self._is_unreachable = error is not None

    async def _forward(self, http: httpx2.AsyncClient, request: wire.SignedRequest) -> Forwarded:
        began, at = time.perf_counter(), datetime.now(UTC)
        answer: dict[str, Any] = {"status": None, "error": None}
        try:
            async with asyncio.timeout(SECONDS):
                answer |= await self._send(http, request)
        except TimeoutError:
            answer["error"] = f"no response within {SECONDS:.0f} s"
        except httpx2.HTTPError as error:
            answer["error"] = str(error)[:200] or type(error).__name__
        seconds = time.perf_counter() - began
        try:
            await self._client.report(request.id, seconds=seconds, tenant=self._tenant, **answer)
        except MillpondError as error:  # a later pull returns it again
            report(f"{request.id} could not be reported: {error.message}")
        return Forwarded(
            at=at,
            delivery_id=request.id,
            **_named(request.body),
            status=answer["status"],
            error=answer["error"],
            seconds=round(seconds, 4),
        )

    async def _send(self, http: httpx2.AsyncClient, request: wire.SignedRequest) -> dict[str, Any]:
        """The status, the headers and the beginning of the body; the rest is not read."""
        async with http.stream("POST", self._url, headers=request.headers, content=request.body.encode()) as answer:
            begun = b""
            async for chunk in answer.aiter_raw():
                begun += chunk
                if len(begun) >= _BODY_MAX:
                    break
            text = begun[:_BODY_MAX].decode("utf-8", "replace").replace("\0", "\ufffd")
            return {"status": answer.status_code, "headers": dict(answer.headers), "body": text}

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of the work; None if the command is stopped before."""
        doing, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            doing.cancel()
            stopped.cancel()


def local_url(given: str) -> str:
    """A URL; the scheme may be omitted, as in localhost:3000/hooks."""
    try:
        url = httpx2.URL(given if "://" in given else f"http://{given}")
    except httpx2.InvalidURL as error:
        raise UsageError(f"The URL is not valid: {error}.", field="--forward-to") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise UsageError(
            f"{given[:200]!r} is not a URL.", field="--forward-to", hint="Example: http://localhost:3000/hooks."
        )
    return str(url)


def _named(body: str) -> dict[str, str | None]:
    """The event and the job that a body names."""
    content = msgspec.json.decode(body, type=_Content)
    return {"event": content.type, "job_id": content.data.id if content.data.id.startswith("job_") else None}


class _Subject(msgspec.Struct, frozen=True):
    id: str = ""


class _Content(msgspec.Struct, frozen=True):
    type: str | None = None
    data: _Subject = _Subject()
