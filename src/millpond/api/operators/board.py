"""The board over HTTP: the current state of the system, once or as a stream of changes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

from millpond import ids, logs, wire
from millpond.api import parameters
from millpond.api.calls import EVENT_STREAM, Reply, copied, encode, reply
from millpond.api.jobs.jobs import STREAM
from millpond.api.jobs.streams import PING_EVERY, RETRY
from millpond.api.principals import tenant_for_all_accounts
from millpond.api.routes import Route
from millpond.api.scopes import READERS
from millpond.engine.reads import board, counters
from millpond.errors import MillpondError, NotFoundError, RateLimitedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Hashable

    from millpond.api.calls import AppState, Call
    from millpond.engine.reads.board import Board
    from millpond.engine.reads.counters import Failure

READERS_MAX: Final = 20
"""The limit of open streams per key and process: each is a connection, and each tenant requires its own query."""
READERS_PAUSE: Final = 5
RECHECK_SECONDS: Final = 1.0
"""After how many seconds a failed read of the board is repeated."""
PING: Final = b"event: ping\ndata:\n\n"
"""A heartbeat as an event, because pages cannot observe SSE comments: nothing has changed."""
_SHARES: Final = {"p50": 0.5, "p90": 0.9}


async def show(call: Call) -> Reply:
    return reply(await _look(call.state, tenant_for_all_accounts(call, call.query.tenant)))


async def series(call: Call) -> Reply:
    query = call.query
    found = await call.engine.counters.flows(
        query.span, tenant=tenant_for_all_accounts(call, query.tenant), kind=query.kind
    )
    quantiles: dict[str, Any] = {
        f"{name}_{mark}": [counters.quantile(getattr(flow, f"{name}s"), share) for flow in found.data]
        for name in ("wait", "run")
        for mark, share in _SHARES.items()
    }
    return reply(
        wire.Series(
            span=query.span,
            step_seconds=int(found.stretch.point.total_seconds()),
            at=[int(flow.at.timestamp()) for flow in found.data],
            **{name: [getattr(flow, name) for flow in found.data] for name in counters.FLOWS},
            **quantiles,
        )
    )


async def kinds(call: Call) -> Reply:
    found: dict[str, wire.KindCount] = {}
    for count in await call.engine.counters.counts(tenant_for_all_accounts(call, call.query.tenant)):
        kind = found.setdefault(count.kind, wire.KindCount(kind=count.kind, states={}, held=0))
        kind.states[count.state] = kind.states.get(count.state, 0) + count.n
        kind.held += count.held
    return reply(wire.KindCounts(data=list(found.values())))


async def failures(call: Call) -> Reply:
    query = call.query
    found = await call.engine.counters.failures(
        query.since, tenant=tenant_for_all_accounts(call, query.tenant), kind=query.kind
    )
    return reply(
        wire.Failures(
            step_seconds=int(found.stretch.point.total_seconds()),
            since=found.since,
            data=[_failure(failure) for failure in found.data],
        )
    )


async def stream(call: Call) -> Reply:
    tenant, who = tenant_for_all_accounts(call, call.query.tenant), call.principal
    if tenant != who.tenant:
        await call.engine.access.check_tenant(tenant or "")
    reader = who.actor, who.tenant
    if call.state.readers[reader] >= READERS_MAX:
        raise RateLimitedError(
            f"The key has {READERS_MAX} open streams of the board already.",
            hint="Close one of them, or share one stream.",
            retry_after=READERS_PAUSE,
            limit=READERS_MAX,
        )
    return Reply(200, headers=STREAM.copy(), frames=_frames(call.state, tenant, reader))


async def _look(state: AppState, tenant: str | None) -> wire.Board:
    return _to_wire(await board.look(state.engine, tenant), state.settings.refresh.total_seconds())


def _to_wire(seen: Board, refresh: float) -> wire.Board:
    hour = seen.hour
    return wire.Board(
        at=seen.at,
        refresh=refresh,
        ready=seen.phases["ready"],
        waiting=seen.phases["waiting"],
        leased=seen.phases["leased"],
        parked=seen.phases["parked"],
        delivering=seen.phases["delivering"],
        slots=seen.capacity.slots,
        slots_used=seen.capacity.slots_used,
        oldest_wait_seconds=seen.oldest_wait_seconds,
        succeeded_1h=hour.succeeded,
        failed_1h=hour.lost,
        ended_1h=hour.ended,
        captured_1h=hour.captured,
        held=seen.held,
        webhooks_pending=seen.webhooks_pending,
        webhooks_failing=seen.webhooks_failing,
        queues=[copied(wire.QueueInfo, queue) for queue in seen.queues],
        workers=copied(wire.BoardWorkers, seen.crew),
        failures=[_failure(failure) for failure in seen.failures],
        tenants=[copied(wire.Spender, spender) for spender in seen.spenders],
        alarms=[
            wire.Alarm(level=alarm.level, text=alarm.text, subject=copied(wire.Subject, alarm)) for alarm in seen.alarms
        ],
    )


def _failure(failure: Failure) -> wire.Failure:
    return copied(wire.Failure, failure, sample=ids.text("job", failure.sample))


# Watching


class Watched:
    """A board with open streams: one read serves all of them, and reading stops with the last stream."""

    def __init__(self, state: AppState, tenant: str | None) -> None:
        self._state = state
        self._tenant = tenant
        self._body = b""
        self._ticked = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.readers = 0
        self.changes = 0
        """How often the board has changed."""
        self.frame = b""
        """The last read board as a frame; empty before the first read."""

    def start(self) -> None:
        self._task = self._task or asyncio.create_task(self._run(), name="board")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def tick(self, seen: int) -> None:
        """Wait for the next read or heartbeat; return at once if the board has changed since ``seen``."""
        async with self._ticked:
            if self.changes == seen and not self._state.hub.closed.is_set():
                await self._ticked.wait()

    async def _run(self) -> None:
        refresh = self._state.settings.refresh.total_seconds()
        closed = self._state.hub.closed
        due = time.monotonic()
        while not closed.is_set():
            if time.monotonic() >= due:
                is_seen = await self._renew()
                due = time.monotonic() + (refresh or (float("inf") if is_seen else RECHECK_SECONDS))
            async with self._ticked:
                self._ticked.notify_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(0.0, due - time.monotonic()), PING_EVERY)):
                    await closed.wait()
        async with self._ticked:
            self._ticked.notify_all()

    async def _renew(self) -> bool:
        """Read the board, and return whether that succeeded."""
        try:
            seen = await _look(self._state, self._tenant)
        except MillpondError as error:
            logs.emit("db.unavailable", service="board", error=str(error))
        except Exception as error:  # noqa: BLE001 - all streams of the board depend on it
            logs.emit("service.failed", service="board", error=f"{type(error).__name__}: {error}")
        else:
            at, seen.at = seen.at, seen.at.min.replace(tzinfo=seen.at.tzinfo)
            body = encode(seen)
            if body != self._body:
                self._body, seen.at = body, at
                self.frame = b"event: board\ndata: " + encode(seen) + b"\n\n"
                self.changes += 1
            return True
        return False


async def _frames(state: AppState, tenant: str | None, reader: Hashable) -> AsyncGenerator[bytes]:
    """The board, immediately and after every change; heartbeats in between."""
    key = state.engine, tenant
    watched = state.watched.setdefault(key, Watched(state, tenant))
    watched.readers += 1
    state.readers[reader] += 1
    try:
        yield RETRY
        watched.start()
        seen = 0
        while not state.hub.closed.is_set():
            await watched.tick(seen)
            if watched.changes != seen:
                seen = watched.changes
                yield watched.frame
            else:
                yield PING
    finally:
        watched.readers -= 1
        if not watched.readers:
            watched.stop()
            state.watched.pop(key, None)
        state.readers[reader] -= 1
        if not state.readers[reader]:
            del state.readers[reader]


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/board",
        handle=show,
        summary="Get the current state of the system and its problems.",
        description="All numbers come from counters that are updated with every job, or cover only active jobs. "
        "No table is scanned.",
        who=READERS,
        query=parameters.OfTenant,
        answers={200: wire.Board},
    ),
    Route(
        method="GET",
        path="/v1/board/series",
        handle=series,
        summary="Get the throughput over time.",
        description="Minutes are kept for 25 hours, hours for 90 days. p50 and p90 are computed from histograms "
        "and are accurate to a few percent.",
        who=READERS,
        query=parameters.ReadSeries,
        answers={200: wire.Series},
    ),
    Route(
        method="GET",
        path="/v1/board/kinds",
        handle=kinds,
        summary="Get the number of jobs per kind and state.",
        description="For terminal states, the number of jobs that entered the state since counting began.",
        who=READERS,
        query=parameters.OfTenant,
        answers={200: wire.KindCounts},
    ),
    Route(
        method="GET",
        path="/v1/board/stream",
        handle=stream,
        summary="Stream the board as server-sent events.",
        description="An event `board` contains the response of GET /v1/board; it is sent immediately and after "
        f"every change. An event `ping` without data is a heartbeat. A key can have {READERS_MAX} "
        "open streams. They end within 5 seconds after the key is revoked or expires.",
        who=READERS,
        query=parameters.OfTenant,
        offers=(EVENT_STREAM,),
        answers={200: None},
        errors=(NotFoundError,),
    ),
    Route(
        method="GET",
        path="/v1/failures",
        handle=failures,
        summary="List failures grouped by cause, most frequent first.",
        description="Failures of one kind and code whose messages differ only in numbers, ids, quoted text, "
        "paths and similar parts have one fingerprint. Per tenant, kind and code, 200 new "
        "fingerprints a day are distinguished; further ones are combined.",
        who=READERS,
        query=parameters.ReadFailures,
        answers={200: wire.Failures},
    ),
)
