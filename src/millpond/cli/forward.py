"""Forwarding webhooks to this machine: what is due at an endpoint without a URL is pulled, and sent on from here."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx2
import msgspec

from millpond import wire
from millpond.cli.output import UsageError, say
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
    """An event that was sent on, and what came of it."""

    at: wire.Time
    delivery_id: str
    event: str | None
    job_id: str | None
    status: int | None
    error: str | None
    seconds: float


class Forwarder:
    """One run of ``millpond webhooks listen``. What one pull gives is independent: it is sent side by side."""

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
        self._is_away = False
        self._stop = asyncio.Event()

    async def run(self) -> AsyncGenerator[Forwarded]:
        """Until the first signal; the endpoint is gone afterwards."""
        self._stop = stop_on_signals()
        await self._make()
        say(f"Events go to {self._url}, signed with {self._asked['secret']}. Ctrl-C ends it.")
        async with httpx2.AsyncClient(timeout=SECONDS, trust_env=False) as http:
            try:
                while not self._stop.is_set():
                    parcels = await self._pull()
                    for sent in asyncio.as_completed([self._forward(http, parcel) for parcel in parcels]):
                        yield await sent
                    if not parcels:
                        await self._unless_stopped(asyncio.sleep(_POLL))
            finally:
                await self._remove()

    async def _make(self) -> None:
        self._endpoint = (await self._client.make_endpoint(description=_ABOUT, **self._asked)).id

    async def _remove(self) -> None:
        with contextlib.suppress(NotFoundError, UnavailableError):  # what is silent for an hour is removed anyway
            await self._client.delete_endpoint(self._endpoint or "", tenant=self._tenant)

    async def _pull(self) -> list[wire.Parcel]:
        """What is due; nothing while the server is away, for it will come back."""
        try:
            pulled = await self._unless_stopped(self._pulling())
        except NotFoundError:
            await self._make()
            say("The endpoint was gone; there is a new one with the same secret.")
            return []
        except MillpondError as error:
            if not error.retryable:
                raise
            self._note(error)
            return []
        self._note(None)
        return [] if pulled is None else pulled.data

    def _pulling(self) -> Coroutine[Any, Any, wire.Parcels]:
        """With little patience, so that a server that has gone is soon told of."""
        path, body = f"/v1/endpoints/{self._endpoint}/pull", wire.PullDeliveries(most=_AT_ONCE)
        params = {"tenant": self._tenant}
        return self._client.request(
            "POST", path, body=body, params=params, type=wire.Parcels, is_repeatable=True, timeout=_PATIENCE
        )

    def _note(self, error: MillpondError | None) -> None:
        """Say once that the server has gone, and once that it is back."""
        if error is not None and not self._is_away:
            say(f"{error.message} Trying again.")
        if error is None and self._is_away:
            say("The server is back.")
        self._is_away = error is not None

    async def _forward(self, http: httpx2.AsyncClient, parcel: wire.Parcel) -> Forwarded:
        began, at = time.perf_counter(), datetime.now(UTC)
        answer: dict[str, Any] = {"status": None, "error": None}
        try:
            async with asyncio.timeout(SECONDS):
                answer |= await self._send(http, parcel)
        except TimeoutError:
            answer["error"] = f"no answer within {SECONDS:.0f} s"
        except httpx2.HTTPError as error:
            answer["error"] = str(error)[:200] or type(error).__name__
        seconds = time.perf_counter() - began
        try:
            await self._client.report(parcel.id, seconds=seconds, tenant=self._tenant, **answer)
        except MillpondError as error:  # it will be given out again
            say(f"{parcel.id} could not be reported: {error.message}")
        return Forwarded(
            at=at,
            delivery_id=parcel.id,
            **_named(parcel.body),
            status=answer["status"],
            error=answer["error"],
            seconds=round(seconds, 4),
        )

    async def _send(self, http: httpx2.AsyncClient, parcel: wire.Parcel) -> dict[str, Any]:
        """The status, the head and the beginning of the body: no more of it is read."""
        async with http.stream("POST", self._url, headers=parcel.headers, content=parcel.body.encode()) as answer:
            begun = b""
            async for chunk in answer.aiter_raw():
                begun += chunk
                if len(begun) >= _BODY_MAX:
                    break
            text = begun[:_BODY_MAX].decode("utf-8", "replace").replace("\0", "\ufffd")
            return {"status": answer.status_code, "headers": dict(answer.headers), "body": text}

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What comes of the work; nothing, where it is to stop before that."""
        doing, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            doing.cancel()
            stopped.cancel()


def local_url(given: str) -> str:
    """A URL as people write it: localhost:3000/hooks will do."""
    try:
        url = httpx2.URL(given if "://" in given else f"http://{given}")
    except httpx2.InvalidURL as error:
        raise UsageError(f"It is not a URL: {error}.", field="--forward-to") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise UsageError(
            f"{given[:200]!r} is not a URL.", field="--forward-to", hint="E.g. http://localhost:3000/hooks."
        )
    return str(url)


def _named(body: str) -> dict[str, str | None]:
    """Which event of which job a body tells of."""
    told = msgspec.json.decode(body, type=_Told)
    return {"event": told.type, "job_id": told.data.id if told.data.id.startswith("job_") else None}


class _Subject(msgspec.Struct, frozen=True):
    id: str = ""


class _Told(msgspec.Struct, frozen=True):
    type: str | None = None
    data: _Subject = _Subject()
