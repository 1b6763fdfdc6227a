"""Jobs over HTTP: the source of a worker that has no database, only the address of a server and a fleet secret."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import random
import time
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

import httpx2
import msgspec

from millpond import ids, logs, wire
from millpond.client.errors import UnreadableError, retry_after
from millpond.client.ports import AwaitingPort
from millpond.client.requests import Requests, Server
from millpond.client.trust import trusted
from millpond.errors import (
    InputError,
    InvalidError,
    LeaseLostError,
    MillpondError,
    SettingsError,
    UnauthorizedError,
    UnavailableError,
)
from millpond.retry import Backoff
from millpond.work import Artifact, Lease, Pulse
from millpond.worker.notes import Notes
from millpond.worker.source import default_name
from millpond.worker.transfers import Transfers, measure

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from millpond.app import Millpond
    from millpond.wire import Assignment, Signed
    from millpond.work import End, Note, Return
    from millpond.worker.source import Ears

    Identify = Callable[[], Awaitable[Mapping[str, str] | None]]

Answer = TypeVar("Answer")

SECRET_VARIABLE: Final = "MILLPOND_FLEET_SECRET"  # noqa: S105 - its name, not itself
_TIMEOUT: Final = 10.0  # of one verb, all its tries together; what must not fail is tried again from above
_POLL: Final = 20.0
_LAST_WORDS: Final = 5.0
_PAUSE: Final = 1.0
_FRESH: Final = 0.5  # of a lease, for which a signed request is used without asking for a new one
_BACKOFF: Final = Backoff(first=timedelta(seconds=0.5), longest=timedelta(seconds=15), jitter=0.5)
_WAITED_FOR: Final = frozenset({"worker_alive", "fleet_full", "rate_limited"})
_BARRED: Final = frozenset({"worker_unapproved", "worker_revoked"})
_SERVER_ERROR: Final = 500


@dataclass(slots=True)
class _Holding:
    """A lease, and what belongs to it here."""

    lease: Lease
    notes: Notes
    downloads: dict[str, tuple[float, Signed]]


@dataclass(slots=True)
class RemoteSource:
    """Jobs from a server, over its worker protocol.

    Without ``url`` and ``secret`` they are taken from MILLPOND_URL and MILLPOND_FLEET_SECRET. Without ``routes`` it
    serves the queues of the app's kinds that run on the fleet. ``identify`` gives what an EC2 instance proves itself
    with, each time it registers.
    """

    url: str | None = None
    secret: str | None = field(default=None, repr=False)
    routes: Sequence[str] = ()
    name: str = ""
    capabilities: Mapping[str, Any] | None = None
    identify: Identify | None = field(default=None, repr=False)
    lease: timedelta = field(default=timedelta(seconds=900), init=False)
    heartbeat: timedelta = field(default=timedelta(seconds=30), init=False)
    is_patient: bool = field(default=True, init=False)
    outage: str = field(default="server.unavailable", init=False)
    queues: Sequence[str] = field(default=(), init=False)
    _requests: Requests = field(init=False, repr=False)
    _port: AwaitingPort = field(init=False, repr=False)
    _transfers: Transfers = field(init=False, repr=False)
    _ears: Ears = field(init=False, repr=False)
    _slots: int = field(default=1, init=False)
    _token: str | None = field(default=None, init=False, repr=False)
    _poll_max: float = field(default=_POLL, init=False)
    _failures: int = field(default=0, init=False)
    _was_unapproved: bool = field(default=False, init=False)
    _is_leaving: bool = field(default=False, init=False)
    _polling: asyncio.Task[list[Lease]] | None = field(default=None, init=False, repr=False)
    _anew: asyncio.Task[None] | None = field(default=None, init=False, repr=False)
    _held: dict[tuple[UUID, UUID], _Holding] = field(
        default_factory=dict["tuple[UUID, UUID]", "_Holding"], init=False, repr=False
    )

    def __post_init__(self) -> None:
        self.name = self.name or default_name()
        server = Server.find(self.url, "unused", is_in_process=False)
        self.url = server.url
        self.secret = self.secret or os.environ.get(SECRET_VARIABLE) or None
        if self.secret is None:
            raise SettingsError("There is no fleet secret.", field="secret", hint=f"Set {SECRET_VARIABLE}.")
        if not self.secret.isascii() or not self.secret.isprintable() or " " in self.secret:
            raise SettingsError(
                "The fleet secret has characters that none has.", field="secret", hint="Is a line break in it?"
            )

    # Coming and going

    async def open(self, app: Millpond, slots: int, ears: Ears) -> None:
        fleet = {kind.queue for kind in app.kinds.values() if kind.handlers and kind.runs == "fleet"}
        self.queues = list(self.routes) or sorted(fleet)
        if not self.queues:
            raise SettingsError(
                "The app has no kind that runs on the fleet.",
                field="app",
                hint='Declare one with runs="fleet", or name the routes to serve (--route).',
            )
        self._slots = min(slots, wire.SLOTS_MAX)
        self._ears = ears
        self._is_leaving = False
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=15)
        headers = {"Accept": "application/json"}
        http = httpx2.AsyncClient(base_url=str(self.url), headers=headers, limits=limits, verify=trusted())
        self._port = AwaitingPort(http)
        self._requests = Requests(self._port, Server(str(self.url), None), _TIMEOUT)
        self._transfers = Transfers.open()
        await self._register()

    async def _register(self) -> None:
        """Until the server lets us in; what cannot change by itself is raised."""
        for failures in count(1):
            try:
                await self._register_once()
                return
            except MillpondError as error:
                is_passing = error.retryable or error.code in _WAITED_FOR or error.status >= _SERVER_ERROR
                if not is_passing or isinstance(error, UnreadableError):
                    raise
                event = self.outage if isinstance(error, UnavailableError) else "worker.waiting"
                pause = _BACKOFF.delay(failures, random.random()).total_seconds()  # noqa: S311 - spreads the tries
                pause = min(retry_after(error, {}) or pause, _BACKOFF.longest.total_seconds())
                logs.emit(event, worker=self.name, error=str(error), again_in=round(pause, 1))
                await asyncio.sleep(pause)

    async def _register_once(self) -> None:
        identity = None if self.identify is None else await self.identify()
        wanted = wire.RegisterWorker(
            worker=self.name,
            routes=list(self.queues),
            slots=self._slots,
            capabilities={"python": platform.python_version()} | dict(self.capabilities or {}),
            identity=None if identity is None else wire.Identity(**identity),
        )
        answer = await self._requests.request(
            "POST",
            "/v1/worker/register",
            body=wanted,
            headers={"Authorization": f"Bearer {self.secret}"},
            type=wire.Registered,
        )
        self._token = answer.token
        self.queues = answer.routes
        self.lease = timedelta(seconds=answer.lease_seconds)
        self.heartbeat = timedelta(seconds=answer.heartbeat_seconds)
        # A lease is trusted from when it was asked for, so it must not be waited for too long.
        self._poll_max = min(answer.poll_seconds_max, _POLL, answer.lease_seconds / 4)
        logs.emit("worker.registered", worker=self.name, id=answer.id, is_approved=answer.is_approved)

    async def _register_anew(self, gone: str | None) -> None:
        """Our token is good no more, and with it all we held is somebody else's."""
        if self._token == gone and (self._anew is None or self._anew.done()):
            self._ears.lose()
            self._anew = asyncio.create_task(self._register_or_go())
        if self._anew is not None:  # whoever noticed it may be cut meanwhile; this goes on
            await asyncio.shield(self._anew)

    async def _register_or_go(self) -> None:
        try:
            await self._register()
        except MillpondError as error:
            self._ears.dismiss(error)

    def hush(self) -> None:
        self._is_leaving = True
        if self._polling is not None:
            self._polling.cancel()

    async def close(self) -> None:
        """Say goodbye: what the server gave us in a poll that we never heard the end of goes back too."""
        if not hasattr(self, "_requests"):
            return
        if self._anew is not None:
            self._anew.cancel()
        for holding in self._held.values():
            holding.notes.drop()
        self._held.clear()
        if self._token is not None:
            with contextlib.suppress(MillpondError):
                await self._send("deregister", {}, timeout=_LAST_WORDS)
            self._token = None
        await self._port.close()
        await self._transfers.close()

    # Taking jobs

    async def claim(self, want: int, *, is_waiting: bool) -> list[Lease]:
        if self._is_leaving:
            return []
        self._polling = asyncio.create_task(self._poll(want, self._poll_max if is_waiting else 0.0))
        try:
            return await self._polling
        except asyncio.CancelledError:
            if self._is_leaving and not _is_cancelled():
                return []
            raise
        finally:
            self._polling.cancel()
            self._polling = None

    async def _poll(self, want: int, wait: float) -> list[Lease]:
        began = time.monotonic()
        # After a failure we cannot know what we were given: it is told what we have, and takes the rest back.
        held = sorted({token for _, token in self._held}) if self._failures else None
        body = wire.Poll(want=min(want, wire.POLL_MAX), wait=wait, held=held)
        try:
            # Not sent twice: the first may have been given jobs.
            answer = await self._ask("poll", body, wire.Assignments, timeout=wait + _TIMEOUT, is_repeatable=False)
        except MillpondError as error:
            await self._stumble(error)
            if error.code in _BARRED:
                return []
            raise
        self._failures, self._was_unapproved = 0, False
        leases = [self._take(job) for job in answer.jobs]
        if not leases and time.monotonic() - began < wait / 2:  # it did not want us to wait: we are draining
            await asyncio.sleep(min(_PAUSE, self._poll_max))
        return leases

    async def _stumble(self, error: MillpondError) -> None:
        """Wait before the next poll: all the longer, the longer the server is away."""
        self._failures += 1
        if error.code == "worker_unapproved" and not self._was_unapproved:
            self._was_unapproved = True
            logs.emit("worker.waiting", worker=self.name, error=str(error))
        await asyncio.sleep(_BACKOFF.delay(self._failures, random.random()).total_seconds())  # noqa: S311 - jitter

    def _take(self, job: Assignment) -> Lease:
        lease = _lease(job)
        now = time.monotonic()
        notes = Notes(lambda some: self._send_notes(lease, some))
        downloads = {name: (now, signed) for name, signed in job.downloads.items()}
        self._held[lease.job_id, lease.token] = _Holding(lease, notes, downloads)
        return lease

    async def extend(self, leases: Sequence[Lease]) -> Pulse:
        body = wire.Heartbeat(jobs=[_held(lease) for lease in leases])
        # It must have failed while there still is time to stop.
        timeout = min(_TIMEOUT, self.lease.total_seconds() / 10)
        answer = await self._ask("heartbeat", body, wire.Beats, timeout=timeout)
        shortest = min((beat.lease_seconds for beat in answer.jobs if beat.is_held), default=0.0)
        if shortest > 0:
            self.lease = timedelta(seconds=shortest)
        return Pulse(
            frozenset(ids.parse("job", beat.job_id) for beat in answer.jobs if beat.cancel_requested),
            frozenset(ids.parse("job", beat.job_id) for beat in answer.jobs if not beat.is_held),
            answer.is_draining,
        )

    # About a job

    async def note(self, *notes: Note) -> bool:
        for note in notes:
            self._holding(note.lease).notes.add(_worker_note(note))
        return False  # a cancel is heard from the server's answer

    async def _send_notes(self, lease: Lease, notes: list[wire.WorkerNote]) -> None:
        body = wire.WriteNotes(**_of(lease), notes=notes)
        try:
            answer = await self._ask("note", body, wire.Noted)
        except LeaseLostError:
            self._ears.lose([lease])
            raise
        if answer.cancel_requested:
            self._ears.cancel(lease.job_id)

    async def finish(self, end: End) -> None:
        if end.outcome == "succeeded":
            body: dict[str, Any] = {
                "output": msgspec.Raw((end.output or "null").encode()),
                "artifacts": [{"id": file.id, "size": file.size, "sha256": file.sha256} for file in end.artifacts],
                "captured": end.captured,
            }
            await self._end(end.lease, "complete", body)
        else:
            await self._end(end.lease, "fail", {"error": end.error, "outcome": end.outcome})

    async def give_back(self, item: Return) -> None:
        delay = item.delay.total_seconds() if item.delay else None
        if item.cause == "attempt":
            await self._end(item.lease, "fail", {"error": item.error, "retry": True, "retry_after": delay})
            return
        if delay and not self._is_leaving:  # it would be offered to us again at once
            await asyncio.sleep(delay)
        await self._end(item.lease, "requeue", {"reason": str(item.error.get("message", ""))[:500]})

    async def park(self, lease: Lease, memo: Any) -> None:
        await self._end(lease, "park", {"memo": memo})

    async def proceed(self, lease: Lease, answer: Any, memo: Any) -> str:  # noqa: ARG002 - as all sources
        raise InvalidError("A job goes on without an answer only beside the database.", hint="Let it park.")

    async def _end(self, lease: Lease, verb: str, body: dict[str, Any]) -> None:
        """All that was said comes before it."""
        await self._holding(lease).notes.flush()
        said = {name: value for name, value in body.items() if value is not None}
        await self._send(verb, {"job_id": ids.text("job", lease.job_id), "lease_token": str(lease.token)} | said)
        self._forget(lease)

    async def close_leases(self, tokens: Iterable[UUID]) -> None:
        over = set(tokens)
        for holding in [holding for (_, token), holding in self._held.items() if token in over]:
            self._forget(holding.lease)

    def _holding(self, lease: Lease) -> _Holding:
        holding = self._held.get((lease.job_id, lease.token))
        if holding is None:
            raise LeaseLostError
        return holding

    def _forget(self, lease: Lease) -> None:
        holding = self._held.pop((lease.job_id, lease.token), None)
        if holding is not None:
            holding.notes.drop()

    # Files

    async def save(self, lease: Lease, name: str, content_type: str, data: bytes | Path) -> Artifact:
        size, sha256 = await asyncio.to_thread(measure, data)
        wanted = wire.MakeUpload(**_of(lease), name=name, content_type=content_type, size=size, sha256=sha256)
        made = await self._insist(lambda: self._ask("upload", wanted, wire.Upload))

        async def renew() -> Signed:
            fresh = await self._renew(lease, made.artifact_id)
            return fresh.uploads[made.artifact_id]

        await self._transfers.put(made.upload, data, size, renew)
        return Artifact(made.artifact_id, name, content_type, size, sha256)

    async def read(self, lease: Lease, name: str) -> AsyncGenerator[bytes]:
        holding = self._holding(lease)

        async def renew() -> Signed:
            if name in holding.downloads:
                fresh = (await self._renew(lease, name)).downloads[name]
            else:
                wanted = wire.MakeDownload(**_of(lease), artifact_id=name)
                fresh = await self._insist(lambda: self._ask("download", wanted, wire.Signed))
            holding.downloads[name] = (time.monotonic(), fresh)
            return fresh

        if name not in holding.downloads and not name.startswith("art_"):
            known = ", ".join(sorted(holding.downloads)) or "none"
            raise InputError(f"The job has no file {name[:80]!r}.", field="name", hint=f"Its files: {known}.")
        since, signed = holding.downloads.get(name, (0.0, None))
        if signed is None or time.monotonic() - since > self.lease.total_seconds() * _FRESH:
            signed = await renew()
        async with contextlib.aclosing(self._transfers.get(signed, renew)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _renew(self, lease: Lease, name: str) -> wire.Beat:
        """A new signed request for a file; the heartbeat brings it."""
        beat = wire.Heartbeat(jobs=[_held(lease, name)])
        answer = await self._insist(lambda: self._ask("heartbeat", beat, wire.Beats))
        if not answer.jobs or not answer.jobs[0].is_held:
            raise LeaseLostError
        if name not in answer.jobs[0].uploads and name not in answer.jobs[0].downloads:
            raise InputError(f"The server signs nothing for {name[:80]!r} any more.", field="name")
        return answer.jobs[0]

    # Asking

    async def _insist(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """For a handler that cannot go on without: until the worker cuts it off, because its lease has run out."""
        for failures in count(1):
            try:
                return await ask()
            except UnavailableError:
                await asyncio.sleep(_BACKOFF.delay(failures, random.random()).total_seconds())  # noqa: S311 - jitter
        raise AssertionError  # the count has no end

    async def _send(self, verb: str, body: Any, timeout: float = _TIMEOUT) -> None:  # noqa: ASYNC109 - of all tries
        await self._ask(verb, msgspec.json.encode(body), Any, timeout=timeout)

    async def _ask(
        self,
        verb: str,
        body: Any,
        type: type[Answer] | Any,
        *,
        timeout: float = _TIMEOUT,  # noqa: ASYNC109 - of all tries
        is_repeatable: bool = True,
    ) -> Any:
        """One verb of the protocol, with our token; what is wrong with us and not with the verb is seen to here."""
        token = self._token
        try:
            return await self._requests.request(
                "POST",
                f"/v1/worker/{verb}",
                body=body,
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                type=type,
                is_repeatable=is_repeatable,
                timeout=timeout,
            )
        except UnauthorizedError:
            if not self._is_leaving:
                await self._register_anew(token)
            raise (
                UnavailableError("The worker had to register anew.") if verb == "poll" else LeaseLostError()
            ) from None
        except MillpondError as error:
            if error.code == "worker_revoked":
                self._ears.dismiss(error)
            is_passing = error.retryable or error.status >= _SERVER_ERROR
            if isinstance(error, UnavailableError) or error.code in _BARRED or not is_passing:
                raise
            raise UnavailableError(str(error)) from error


def _lease(job: Assignment) -> Lease:
    return Lease(
        job_id=ids.parse("job", job.job_id),
        token=UUID(job.lease_token),
        tenant=job.tenant,
        account=job.account,
        kind=job.kind,
        queue=job.route,
        state=job.state,
        epoch=job.epoch,
        attempts=job.attempts,
        run=job.run,
        price=job.price,
        progress=job.progress,
        stage=job.stage,
        input=_text(job.input) or "null",
        memo=_text(job.memo),
        answer=_text(job.answer),
        created_at=job.created_at,
        expires_at=job.expires_at,
        stages=tuple(job.stages),
        time_limit=None if job.time_limit_seconds is None else timedelta(seconds=job.time_limit_seconds),
    )


def _worker_note(note: Note) -> wire.WorkerNote:
    said: dict[str, Any] = msgspec.json.decode(note.data) if note.type == "log" else {}
    return wire.WorkerNote(
        number=note.number,
        type=note.type,  # pyright: ignore[reportArgumentType] - a Note has checked it
        value=note.value,
        stage=note.stage,
        level=said.get("level"),
        text=said.get("text"),
    )


def _text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _of(lease: Lease) -> dict[str, Any]:
    return {"job_id": ids.text("job", lease.job_id), "lease_token": lease.token}


def _held(lease: Lease, *renew: str) -> wire.HeldJob:
    return wire.HeldJob(**_of(lease), renew=list(renew))


def _is_cancelled() -> bool:
    """Whether it is we who are to end, and not only the poll."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
