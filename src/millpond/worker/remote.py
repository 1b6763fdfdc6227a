"""The source of a fleet worker, which has no database, only the URL of a server and a fleet secret."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import random
import time
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import version
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

import httpx2
import msgspec

from millpond import ids, logs, wire
from millpond.client.errors import UnreadableError, from_problem, retry_after
from millpond.client.ports import AwaitingPort
from millpond.client.requests import Requests, ServerAddress
from millpond.client.trust import trusted
from millpond.errors import (
    InputError,
    InvalidError,
    LeaseLostError,
    MillpondError,
    NotFoundError,
    SettingsError,
    UnauthorizedError,
    UnavailableError,
)
from millpond.retry import Backoff
from millpond.work import Artifact, BatchResults, ChildResult, HeartbeatAnswer, Lease, Step
from millpond.worker.notes import Notes
from millpond.worker.source import default_name
from millpond.worker.transfers import Transfers, measure

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from millpond.app import Millpond
    from millpond.wire import Assignment, Signed
    from millpond.work import Chunk, End, Note, Return, SpawnRequest, StepRequest
    from millpond.worker.source import SourceListener

    Identify = Callable[[], Awaitable[Mapping[str, str] | None]]
    FindObstacle = Callable[[], Awaitable[str | None]]

Answer = TypeVar("Answer")

SECRET_VARIABLE: Final = "MILLPOND_FLEET_SECRET"  # noqa: S105 - the name of a variable
_TIMEOUT: Final = 10.0  # seconds for one verb with its retries; callers that must succeed retry it
_POLL: Final = 20.0
_DEREGISTER_TIMEOUT: Final = 5.0
_PAUSE: Final = 1.0
_LOOK_AGAIN: Final = 2.0
"""Seconds between two checks of a worker that cannot run jobs."""
_FRESH: Final = 0.5  # the share of a lease for which a signed request is used before it is renewed
_BACKOFF: Final = Backoff(first=timedelta(seconds=0.5), longest=timedelta(seconds=15), jitter=0.5)
_OUTAGE: Final = Backoff(first=timedelta(seconds=0.5), longest=timedelta(seconds=4), jitter=0.5)
"""While the server cannot serve: the worker continues within seconds after an outage, however long that was."""
_WAITED_FOR: Final = frozenset({"worker_alive", "fleet_full", "rate_limited"})
_BARRED: Final = frozenset({"worker_unapproved", "worker_revoked"})
_SERVER_ERROR: Final = 500


@dataclass(slots=True)
class _Holding:
    """A lease with its unsent notes and its signed downloads."""

    lease: Lease
    notes: Notes
    downloads: dict[str, tuple[float, Signed]]


@dataclass(slots=True)
class RemoteSource:
    """Jobs from a server, over its worker protocol.

    ``url`` and ``secret`` default to MILLPOND_URL and MILLPOND_FLEET_SECRET, ``routes`` to the queues of the app's
    kinds that run on the fleet. ``identify`` returns the proof of identity of an EC2 instance; it is called for each
    registration. ``find_obstacle`` returns why jobs cannot run at present, or None if they can. It is called before
    each claim, and before the claimed jobs begin. While there is an obstacle, no jobs are taken, and the server shows
    the worker as unready.
    """

    url: str | None = None
    secret: str | None = field(default=None, repr=False)
    routes: Sequence[str] = ()
    name: str = ""
    capabilities: Mapping[str, Any] | None = None
    identify: Identify | None = field(default=None, repr=False)
    find_obstacle: FindObstacle | None = field(default=None, repr=False)
    lease: timedelta = field(default=timedelta(seconds=900), init=False)
    heartbeat: timedelta = field(default=timedelta(seconds=30), init=False)
    is_patient: bool = field(default=True, init=False)
    outage: str = field(default="server.unavailable", init=False)
    queues: Sequence[str] = field(default=(), init=False)
    _requests: Requests = field(init=False, repr=False)
    _port: AwaitingPort = field(init=False, repr=False)
    _transfers: Transfers = field(init=False, repr=False)
    _ears: SourceListener = field(init=False, repr=False)
    _slots: int = field(default=1, init=False)
    _token: str | None = field(default=None, init=False, repr=False)
    _poll_max: float = field(default=_POLL, init=False)
    _failures: int = field(default=0, init=False)
    _unready_reason: str | None = field(default=None, init=False)
    """Why the server may believe that this worker is unready."""
    _readiness_at: float = field(default=0.0, init=False)
    """When the readiness was last reported."""
    _loaded: Sequence[str] = field(default=(), init=False)
    _reporting: asyncio.Task[None] | None = field(default=None, init=False, repr=False)
    _was_unapproved: bool = field(default=False, init=False)
    _is_leaving: bool = field(default=False, init=False)
    _polling: asyncio.Task[list[Lease]] | None = field(default=None, init=False, repr=False)
    _registering_again: asyncio.Task[None] | None = field(default=None, init=False, repr=False)
    _held: dict[tuple[UUID, UUID], _Holding] = field(
        default_factory=dict["tuple[UUID, UUID]", "_Holding"], init=False, repr=False
    )

    def __post_init__(self) -> None:
        self.name = self.name or default_name()
        server = ServerAddress.find(self.url, "unused", is_in_process=False)
        self.url = server.url
        self.secret = self.secret or os.environ.get(SECRET_VARIABLE) or None
        if self.secret is None:
            raise SettingsError("The fleet secret is missing.", field="secret", hint=f"Set {SECRET_VARIABLE}.")
        if not self.secret.isascii() or not self.secret.isprintable() or " " in self.secret:
            raise SettingsError(
                "The fleet secret contains invalid characters.",
                field="secret",
                hint="Check the secret for line breaks.",
            )

    # Registration

    async def open(self, app: Millpond, slots: int, ears: SourceListener) -> None:
        fleet = {kind.queue for kind in app.kinds.values() if kind.handlers and kind.runs == "fleet"}
        self.queues = list(self.routes) or sorted(fleet)
        if not self.queues:
            raise SettingsError(
                "The app has no kind that runs on the fleet.",
                field="app",
                hint='Declare one with runs="fleet", or pass the routes to serve (--route).',
            )
        self._slots = min(slots, wire.SLOTS_MAX)
        self._ears = ears
        self._is_leaving = False
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=15)
        headers = {"Accept": "application/json"}
        http = httpx2.AsyncClient(base_url=str(self.url), headers=headers, limits=limits, verify=trusted())
        self._port = AwaitingPort(http)
        self._requests = Requests(self._port, ServerAddress(str(self.url), None), _TIMEOUT)
        self._transfers = Transfers.open()
        await self._register()

    async def _register(self) -> None:
        """Register, and retry until the server accepts. An error that will not pass by itself is raised."""
        for failures in count(1):
            try:
                await self._register_once()
                return
            except MillpondError as error:
                is_passing = error.retryable or error.code in _WAITED_FOR or error.status >= _SERVER_ERROR
                if not is_passing or isinstance(error, UnreadableError):
                    raise
                event = self.outage if isinstance(error, UnavailableError) else "worker.waiting"
                pause = _pause_after(error, failures)
                pause = min(retry_after(error, {}) or pause, _BACKOFF.longest.total_seconds())
                logs.emit(event, worker=self.name, error=str(error), again_in=round(pause, 1))
                await asyncio.sleep(pause)

    async def _register_once(self) -> None:
        identity = None if self.identify is None else await self.identify()
        own: dict[str, Any] = {"millpond": version("millpond"), "python": platform.python_version()}
        if self._loaded:
            own["resources"] = list(self._loaded)
        wanted = wire.RegisterWorker(
            worker=self.name,
            routes=list(self.queues),
            slots=self._slots,
            capabilities=own | dict(self.capabilities or {}),
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
        self._unready_reason = None
        self.queues = answer.routes
        self.lease = timedelta(seconds=answer.lease_seconds)
        self.heartbeat = timedelta(seconds=answer.heartbeat_seconds)
        # A lease is trusted from the start of its poll, so a poll must not wait too long.
        self._poll_max = min(answer.poll_seconds_max, _POLL, answer.lease_seconds / 4)
        logs.emit("worker.registered", worker=self.name, id=answer.id, is_approved=answer.is_approved)

    async def _register_again(self, rejected: str | None) -> None:
        """Register again after the token was rejected. The leases taken with it are lost."""
        if self._token == rejected and (self._registering_again is None or self._registering_again.done()):
            self._ears.lose()
            self._registering_again = asyncio.create_task(self._register_or_dismiss())
        if self._registering_again is not None:  # a caller may be canceled; the registration continues
            await asyncio.shield(self._registering_again)

    async def _register_or_dismiss(self) -> None:
        try:
            await self._register()
        except MillpondError as error:
            self._ears.dismiss(error)

    def stop_polling(self) -> None:
        self._is_leaving = True
        if self._polling is not None:
            self._polling.cancel()

    async def close(self) -> None:
        """Deregister. The server then also requeues jobs from a poll whose response was never received."""
        if not hasattr(self, "_requests"):
            return
        if self._registering_again is not None:
            self._registering_again.cancel()
        if self._reporting is not None:
            self._reporting.cancel()
        for holding in self._held.values():
            holding.notes.drop()
        self._held.clear()
        if self._token is not None:
            with contextlib.suppress(MillpondError):
                await self._send("deregister", {}, timeout=_DEREGISTER_TIMEOUT)
            self._token = None
        await self._port.close()
        await self._transfers.close()

    # Claiming jobs

    async def claim(self, want: int, *, is_waiting: bool) -> list[Lease]:
        if self._is_leaving:
            return []
        self._polling = asyncio.create_task(self._poll_if_ready(want, self._poll_max if is_waiting else 0.0))
        try:
            return await self._polling
        except asyncio.CancelledError:
            if self._is_leaving and not _is_cancelled():
                return []
            raise
        finally:
            self._polling.cancel()
            self._polling = None

    async def _poll_if_ready(self, want: int, wait: float) -> list[Lease]:
        """Poll, unless jobs cannot run at present: then check again, for as long as the poll would wait.

        A poll that does not wait is of a worker that ends when no job is ready. It checks until jobs can run.
        """
        until = time.monotonic() + wait
        while (obstacle := await self._find_obstacle()) is not None:
            if wait and time.monotonic() > until:
                return []
            await asyncio.sleep(min(_LOOK_AGAIN, self._poll_max))
        leases = await self._poll(want, wait)
        if leases and (obstacle := await self._find_obstacle()) is not None:  # the poll may have waited long
            await self._refuse(leases, obstacle)
            return []
        return leases

    async def _find_obstacle(self) -> str | None:
        """Why jobs cannot run at present; it is reported to the server."""
        if self.find_obstacle is None:
            return None
        obstacle = await self.find_obstacle()
        now = time.monotonic()
        is_known = obstacle == self._unready_reason
        if not is_known:
            event = "worker.ready" if obstacle is None else "worker.unready"
            logs.emit(event, worker=self.name, reason=obstacle)
        if not is_known or (obstacle is not None and now - self._readiness_at > self.heartbeat.total_seconds() / 2):
            self._readiness_at = now
            self._unready_reason = obstacle or self._unready_reason
            await self._report_readiness(obstacle)
        return obstacle

    async def _report_readiness(self, reason: str | None) -> None:
        """Report why the worker takes no jobs, or that it takes them again. A failure is made up for later."""
        try:
            await self._send("readiness", {"unready_reason": reason})
        except NotFoundError:
            pass  # an older server
        except MillpondError:
            return
        self._unready_reason = reason

    def report_loaded(self, resources: Sequence[str]) -> None:
        self._loaded = resources
        if self._token is not None and (self._reporting is None or self._reporting.done()):
            self._reporting = asyncio.create_task(self._report_loaded())

    async def _report_loaded(self) -> None:
        """Report what is loaded, until that is known. An older server, which refuses it, shows nothing of it."""
        known: Sequence[str] | None = None
        while known != self._loaded and self._token is not None:
            known = self._loaded
            body = {"unready_reason": self._unready_reason, "resources": list(known)[: wire.RESOURCES_MAX]}
            try:
                await self._send("readiness", body)
            except UnavailableError:
                known = None
                await asyncio.sleep(_PAUSE)
            except MillpondError:
                return

    async def _refuse(self, leases: Iterable[Lease], reason: str) -> None:
        """Give back jobs that cannot run, before they begin."""
        for lease in leases:
            try:
                await self._end(lease, "requeue", {"reason": reason})
            except MillpondError:
                self._forget(lease)
                self._failures += 1  # the next poll lists the held leases, and the server releases this one

    async def _poll(self, want: int, wait: float) -> list[Lease]:
        began = time.monotonic()
        # A failed poll may have leased jobs unseen: list the held leases, and the server releases the others.
        held = sorted({token for _, token in self._held}) if self._failures else None
        body = wire.Poll(want=min(want, wire.POLL_MAX), wait=wait, held=held)
        try:
            # Not retried: the first request may have leased jobs.
            answer = await self._ask("poll", body, wire.Assignments, timeout=wait + _TIMEOUT, is_repeatable=False)
        except MillpondError as error:
            await self._back_off(error)
            if error.code in _BARRED:
                return []
            raise
        self._failures, self._was_unapproved = 0, False
        leases = [self._take(job) for job in answer.jobs]
        if not leases and time.monotonic() - began < wait / 2:  # the server did not wait: this worker is draining
            await asyncio.sleep(min(_PAUSE, self._poll_max))
        return leases

    async def _back_off(self, error: MillpondError) -> None:
        """Wait before the next poll, longer after each failure."""
        self._failures += 1
        if error.code == "worker_unapproved" and not self._was_unapproved:
            self._was_unapproved = True
            logs.emit("worker.waiting", worker=self.name, error=str(error))
        await asyncio.sleep(_pause_after(error, self._failures))

    def _take(self, job: Assignment) -> Lease:
        lease = _lease(job)
        now = time.monotonic()
        notes = Notes(lambda some: self._send_notes(lease, some))
        downloads = {name: (now, signed) for name, signed in job.downloads.items()}
        self._held[lease.job_id, lease.token] = _Holding(lease, notes, downloads)
        return lease

    async def extend(self, leases: Sequence[Lease]) -> HeartbeatAnswer:
        body = wire.Heartbeat(jobs=[_held(lease) for lease in leases])
        # A failure must be known while there is still time to stop the jobs.
        timeout = min(_TIMEOUT, self.lease.total_seconds() / 10)
        answer = await self._ask("heartbeat", body, wire.HeartbeatResult, timeout=timeout)
        shortest = min((beat.lease_seconds for beat in answer.jobs if beat.is_held), default=0.0)
        if shortest > 0:
            self.lease = timedelta(seconds=shortest)
        return HeartbeatAnswer(
            frozenset(ids.parse("job", beat.job_id) for beat in answer.jobs if beat.cancel_requested),
            frozenset(ids.parse("job", beat.job_id) for beat in answer.jobs if not beat.is_held),
            answer.is_draining,
        )

    async def beat(self) -> None:
        """The server hears from the worker with every poll and every :meth:`extend`."""

    # About a job

    async def note(self, *notes: Note) -> bool:
        for note in notes:
            self._holding(note.lease).notes.add(_worker_note(note))
        return False  # a cancel is reported by the response, later

    async def _send_notes(self, lease: Lease, notes: list[wire.WorkerNote]) -> None:
        body = wire.WriteNotes(**_lease_fields(lease), notes=notes)
        try:
            answer = await self._ask("note", body, wire.Noted)
        except LeaseLostError:
            self._ears.lose([lease])
            raise
        if answer.cancel_requested:
            self._ears.cancel(lease.job_id)

    async def emit(self, *groups: Sequence[Chunk]) -> list[bool | Exception]:
        leases = [group[0].lease for group in groups]
        held = [group for group in groups if (group[0].lease.job_id, group[0].lease.token) in self._held]
        found: dict[tuple[str, UUID], bool | Exception] = {}
        if held:
            body = wire.EmitText(jobs=[_job_text(group) for group in held])
            answer = await self._ask("emit", body, wire.Emitted)
            found = {(job.job_id, job.lease_token): _emitted(job) for job in answer.jobs}
        results = [found.get((ids.text("job", lease.job_id), lease.token), LeaseLostError()) for lease in leases]
        for lease, result in zip(leases, results, strict=True):
            if isinstance(result, LeaseLostError):
                self._ears.lose([lease])
            elif result is True:
                self._ears.cancel(lease.job_id)
        return results

    async def keep_traceback(self, lease: Lease, text: str) -> None:
        await self._ask("traceback", wire.KeepTraceback(**_lease_fields(lease), text=text), None)

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
        if delay and not self._is_leaving:  # otherwise this worker could get it again at once
            await asyncio.sleep(delay)
        await self._end(item.lease, "requeue", {"reason": str(item.error.get("message", ""))[:500]})

    async def park(self, lease: Lease, memo: Any) -> None:
        await self._end(lease, "park", {"memo": memo})

    async def proceed(self, lease: Lease, answer: Any, memo: Any) -> str:  # noqa: ARG002 - the interface of all sources
        raise InvalidError("Only direct workers can continue a job without parking it.", hint="Park the job.")

    async def _end(self, lease: Lease, verb: str, body: dict[str, Any]) -> None:
        """End the lease of a job, after sending its notes."""
        await self._holding(lease).notes.flush()
        fields = {name: value for name, value in body.items() if value is not None}
        await self._send(verb, {"job_id": ids.text("job", lease.job_id), "lease_token": str(lease.token)} | fields)
        self._forget(lease)

    async def recall(self, lease: Lease, after: str) -> list[Step]:
        found = await self._ask("recall", wire.RecallSteps(**_lease_fields(lease), after=after), wire.RecalledSteps)
        return [_step(step) for step in found.steps]

    async def record(self, item: StepRequest) -> Step:
        question = None if item.details is None else msgspec.json.decode(item.details, type=wire.NewQuestion)
        body = {
            **_lease_fields(item.lease),
            "name": item.name,
            "position": item.position,
            "result": None if item.result is None else msgspec.Raw(item.result.encode()),
            "seconds": None if item.wait is None else item.wait.total_seconds(),
            "question": question,
        }
        return _step(await self._ask("record", msgspec.json.encode(body), wire.RecordedStep))

    async def spawn(self, request: SpawnRequest) -> Step:
        body = wire.SpawnChildren(
            **_lease_fields(request.lease),
            name=request.name,
            position=request.position,
            children=[wire.NewChild(**msgspec.structs.asdict(child)) for child in request.children],
            total=request.total,
            first=request.first,
            is_detached=request.is_detached,
            fails_fast=request.fails_fast,
        )
        return _step(await self._ask("spawn", body, wire.RecordedStep))

    async def results(self, lease: Lease, batch_id: UUID, after: UUID | None) -> BatchResults:
        last = None if after is None else ids.text("job", after)
        body = wire.ReadResults(**_lease_fields(lease), batch_id=ids.text("batch", batch_id), after=last)
        found = await self._ask("results", body, wire.ChildOutcomes)
        children = [
            ChildResult(child.id, child.kind, child.outcome, child.output, child.error) for child in found.children
        ]
        return BatchResults(found.is_over, found.total, children)

    async def suspend(self, lease: Lease, name: str) -> None:
        await self._end(lease, "suspend", {"name": name})

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
        wanted = wire.MakeUpload(**_lease_fields(lease), name=name, content_type=content_type, size=size, sha256=sha256)
        made = await self._retry(lambda: self._ask("upload", wanted, wire.Upload))

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
                wanted = wire.MakeDownload(**_lease_fields(lease), artifact_id=name)
                fresh = await self._retry(lambda: self._ask("download", wanted, wire.Signed))
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

    async def _renew(self, lease: Lease, name: str) -> wire.JobHeartbeat:
        """A new signed request for a file, which a heartbeat returns."""
        beat = wire.Heartbeat(jobs=[_held(lease, name)])
        answer = await self._retry(lambda: self._ask("heartbeat", beat, wire.HeartbeatResult))
        if not answer.jobs or not answer.jobs[0].is_held:
            raise LeaseLostError
        if name not in answer.jobs[0].uploads and name not in answer.jobs[0].downloads:
            raise InputError(f"The server no longer signs requests for {name[:80]!r}.", field="name")
        return answer.jobs[0]

    # Requests

    async def _retry(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Retry for a handler that needs the result, until the worker interrupts it because its lease expires."""
        for failures in count(1):
            try:
                return await ask()
            except UnavailableError as error:
                await asyncio.sleep(_pause_after(error, failures))
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
        """Send one verb of the protocol with the token. Errors about the worker, not the verb, are handled here."""
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
                await self._register_again(token)
            raise (
                UnavailableError("The worker had to register again.") if verb == "poll" else LeaseLostError()
            ) from None
        except MillpondError as error:
            if error.code == "worker_revoked":
                self._ears.dismiss(error)
            is_passing = error.retryable or error.status >= _SERVER_ERROR
            if isinstance(error, UnavailableError) or error.code in _BARRED or not is_passing:
                raise
            raise UnavailableError(str(error)) from error


def _pause_after(error: MillpondError, failures: int) -> float:
    backoff = _OUTAGE if isinstance(error, UnavailableError) else _BACKOFF
    return backoff.delay(failures, random.random()).total_seconds()  # noqa: S311 - jitter


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
        has_steps=job.has_steps,
    )


def _worker_note(note: Note) -> wire.WorkerNote:
    line: dict[str, Any] = msgspec.json.decode(note.data) if note.type == "log" else {}
    return wire.WorkerNote(
        number=note.number,
        type=note.type,  # pyright: ignore[reportArgumentType] - checked by Note
        value=note.value,
        stage=note.stage,
        level=line.get("level"),
        text=line.get("text"),
    )


def _step(step: wire.RecordedStep) -> Step:
    return Step(
        step.name,
        step.position,
        step.type,
        None if step.batch_id is None else ids.parse("batch", step.batch_id),
        step.due_at,
        step.is_done,
        step.is_due,
        msgspec.json.encode(step.result).decode() if step.is_done else None,
        step.submitted,
    )


def _job_text(group: Sequence[Chunk]) -> wire.EmittedText:
    chunks = [wire.EmittedChunk(number=chunk.number, text=chunk.text) for chunk in group]
    return wire.EmittedText(**_lease_fields(group[0].lease), chunks=chunks)


def _emitted(job: wire.EmittedResult) -> bool | Exception:
    """The result of a request for one job, as a source returns it."""
    if not job.is_held:
        return LeaseLostError()
    return job.cancel_requested if job.error is None else from_problem(job.error, InvalidError.status)


def _text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _lease_fields(lease: Lease) -> dict[str, Any]:
    return {"job_id": ids.text("job", lease.job_id), "lease_token": lease.token}


def _held(lease: Lease, *renew: str) -> wire.HeldJob:
    return wire.HeldJob(**_lease_fields(lease), renew=list(renew))


def _is_cancelled() -> bool:
    """Whether the current task is canceled, and not only its poll."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
