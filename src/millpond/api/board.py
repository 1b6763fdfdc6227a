"""The board: is anything on fire? What is maintained while jobs move, told at once and as it changes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

from millpond import ids, logs, wire
from millpond.api import parameters
from millpond.api.calls import EVENT_STREAM, Reply, copied, encode, reply
from millpond.api.jobs import STREAM
from millpond.api.principals import LOOK_AGAIN as LOOK_AT_READER
from millpond.api.principals import while_known, whole_tenant
from millpond.api.routes import READERS, Route
from millpond.api.streams import PING_EVERY, RETRY
from millpond.engine import board, tallies
from millpond.errors import MillpondError, NotFoundError, RateLimitedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Hashable

    from millpond.api.calls import Call, Desk
    from millpond.engine.board import Board
    from millpond.engine.tallies import Failure

READERS_MAX: Final = 20
"""How many streams a key may have open in a process: each is a connection, and of each tenant a look every time."""
READERS_PAUSE: Final = 5
LOOK_AGAIN: Final = 1.0
"""After how many seconds a board that could not be looked at is looked at again, if not by then anyway."""
PING: Final = b"event: ping\ndata:\n\n"
"""A sign of life that a page can hear, which it cannot with a comment: all is as it was."""
_SHARES: Final = {"p50": 0.5, "p90": 0.9}


async def show(call: Call) -> Reply:
    return reply(await _look(call.desk, whole_tenant(call, call.query.tenant)))


async def series(call: Call) -> Reply:
    query = call.query
    found = await call.engine.tallies.flows(query.span, tenant=whole_tenant(call, query.tenant), kind=query.kind)
    quantiles: dict[str, Any] = {
        f"{name}_{mark}": [tallies.quantile(getattr(flow, f"{name}s"), share) for flow in found.data]
        for name in ("wait", "run")
        for mark, share in _SHARES.items()
    }
    return reply(
        wire.Series(
            span=query.span,
            step_seconds=int(found.stretch.point.total_seconds()),
            at=[int(flow.at.timestamp()) for flow in found.data],
            **{name: [getattr(flow, name) for flow in found.data] for name in tallies.FLOWS},
            **quantiles,
        )
    )


async def kinds(call: Call) -> Reply:
    found: dict[str, wire.KindCount] = {}
    for count in await call.engine.tallies.counts(whole_tenant(call, call.query.tenant)):
        kind = found.setdefault(count.kind, wire.KindCount(kind=count.kind, states={}, held=0))
        kind.states[count.state] = kind.states.get(count.state, 0) + count.n
        kind.held += count.held
    return reply(wire.KindCounts(data=list(found.values())))


async def failures(call: Call) -> Reply:
    query = call.query
    found = await call.engine.tallies.failures(query.since, tenant=whole_tenant(call, query.tenant), kind=query.kind)
    return reply(
        wire.Failures(
            step_seconds=int(found.stretch.point.total_seconds()),
            since=found.since,
            data=[_failure(failure) for failure in found.data],
        )
    )


async def stream(call: Call) -> Reply:
    tenant, who = whole_tenant(call, call.query.tenant), call.principal
    if tenant != who.tenant:
        await call.engine.access.check_tenant(tenant or "")
    reader = who.actor, who.tenant
    if call.desk.readers[reader] >= READERS_MAX:
        raise RateLimitedError(
            f"The key watches the board {READERS_MAX} times already.",
            hint="Close some, or share what one of them tells.",
            retry_after=READERS_PAUSE,
            limit=READERS_MAX,
        )
    frames = _frames(call.desk, tenant, reader)
    if call.desk.admit is None:  # a door that admits by itself looks again by itself
        frames = while_known(call, frames, LOOK_AT_READER)
    return Reply(200, headers=STREAM.copy(), frames=frames)


async def _look(desk: Desk, tenant: str | None) -> wire.Board:
    return _told(await board.look(desk.engine, tenant), desk.settings.refresh.total_seconds())


def _told(seen: Board, refresh: float) -> wire.Board:
    hour = seen.hour
    return wire.Board(
        at=seen.at,
        refresh=refresh,
        ready=seen.phases["ready"],
        waiting=seen.phases["waiting"],
        leased=seen.phases["leased"],
        parked=seen.phases["parked"],
        delivering=seen.phases["delivering"],
        slots=seen.slots,
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
    """A board that somebody watches: one look serves all who do, and nobody looks when they have gone."""

    def __init__(self, desk: Desk, tenant: str | None) -> None:
        self._desk = desk
        self._tenant = tenant
        self._told = b""
        self._ticked = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.readers = 0
        self.changes = 0
        """How often it was seen to be another."""
        self.frame = b""
        """As it was last seen; nothing, as long as it was not."""

    def start(self) -> None:
        self._task = self._task or asyncio.create_task(self._run(), name="board")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def tick(self, seen: int) -> None:
        """Until it was looked at once more, or a sign of life is due; not, where it is another than was seen."""
        async with self._ticked:
            if self.changes == seen and not self._desk.hub.closed.is_set():
                await self._ticked.wait()

    async def _run(self) -> None:
        refresh = self._desk.settings.refresh.total_seconds()
        closed = self._desk.hub.closed
        due = time.monotonic()
        while not closed.is_set():
            if time.monotonic() >= due:
                is_seen = await self._renew()
                due = time.monotonic() + (refresh or (float("inf") if is_seen else LOOK_AGAIN))
            async with self._ticked:
                self._ticked.notify_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(0.0, due - time.monotonic()), PING_EVERY)):
                    await closed.wait()
        async with self._ticked:
            self._ticked.notify_all()

    async def _renew(self) -> bool:
        """Look; whether that went well."""
        try:
            seen = await _look(self._desk, self._tenant)
        except MillpondError as error:
            logs.emit("db.unavailable", service="board", error=str(error))
        except Exception as error:  # noqa: BLE001 - all who watch depend on it
            logs.emit("service.failed", service="board", error=f"{type(error).__name__}: {error}")
        else:
            at, seen.at = seen.at, seen.at.min.replace(tzinfo=seen.at.tzinfo)
            told = encode(seen)
            if told != self._told:
                self._told, seen.at = told, at
                self.frame = b"event: board\ndata: " + encode(seen) + b"\n\n"
                self.changes += 1
            return True
        return False


async def _frames(desk: Desk, tenant: str | None, reader: Hashable) -> AsyncGenerator[bytes]:
    """The board at once and whenever it has changed; in between, signs of life."""
    key = desk.engine, tenant
    watched = desk.watched.setdefault(key, Watched(desk, tenant))
    watched.readers += 1
    desk.readers[reader] += 1
    try:
        yield RETRY
        watched.start()
        seen = 0
        while not desk.hub.closed.is_set():
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
            desk.watched.pop(key, None)
        desk.readers[reader] -= 1
        if not desk.readers[reader]:
            del desk.readers[reader]


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/board",
        handle=show,
        summary="Read where everything stands, and what is amiss.",
        told="Every number is kept while jobs move, or is about the few that are under way. None is counted.",
        who=READERS,
        query=parameters.OfTenant,
        answers={200: wire.Board},
    ),
    Route(
        method="GET",
        path="/v1/board/series",
        handle=series,
        summary="Read what went through, over time.",
        told="Minutes are kept for 25 hours, hours for 90 days. p50 and p90 are read from histograms, to some percent.",
        who=READERS,
        query=parameters.ReadSeries,
        answers={200: wire.Series},
    ),
    Route(
        method="GET",
        path="/v1/board/kinds",
        handle=kinds,
        summary="Read how many jobs of each kind are in each state.",
        told="Of states in which a job has ended, how many have come there since this is counted.",
        who=READERS,
        query=parameters.OfTenant,
        answers={200: wire.KindCounts},
    ),
    Route(
        method="GET",
        path="/v1/board/stream",
        handle=stream,
        summary="Watch the board as server-sent events.",
        told="An event `board` has what GET /v1/board answers: at once, and then whenever it has changed."
        " An event `ping` without data tells that it is as it was."
        f" A key may have {READERS_MAX} such streams open at a time; they end within 15 seconds of its own end.",
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
        summary="List the ways in which jobs fail, the most frequent first.",
        told="Failures of one kind and code whose messages differ only in numbers, ids, quoted text, paths and the"
        " like have one fingerprint. Of a tenant, a kind and a code, 200 new ones a day are told apart; the others are"
        " one.",
        who=READERS,
        query=parameters.ReadFailures,
        answers={200: wire.Failures},
    ),
)
