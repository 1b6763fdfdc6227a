"""Live streams: every event once and in order, to all who watch, and nothing left behind when they go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import pytest

from millpond import wire
from millpond.api import app as applications
from millpond.api.jobs import streams
from millpond.api.jobs.streams import NATIVE, Form, Hub, MissedEvents, Stream
from millpond.engine.engine import Engine
from millpond.engine.queue.leases import Lease, Note
from millpond.engine.reads.streams import Position
from millpond.services.notifier import Notifier
from millpond.store.db import Database
from tests.api.sites import Site, running_site
from tests.factories import ACCOUNT, STRANGER, TENANT, Factory, attempt, progress
from tests.product import app
from tests.waiting import PATIENCE


@asynccontextmanager
async def running(engine: Engine, notifier: Notifier | None = None) -> AsyncIterator[Hub]:
    """A hub at work; in the end nobody may be left in it."""
    hub = Hub(engine, notifier)
    stop = asyncio.Event()
    task = asyncio.create_task(hub.run(stop))
    try:
        yield hub
        assert hub.streams == 0
        assert not hub._watches
    finally:
        stop.set()
        await task


@pytest.fixture
async def hub(engine: Engine) -> AsyncIterator[Hub]:
    async with running(engine) as made:
        yield made


@pytest.fixture
async def other_engine(dsn: str) -> AsyncIterator[Engine]:
    """The engine of another process, as far as the hub can tell."""
    opened = await Database.open(dsn, size=2)
    yield Engine(opened, app)
    await opened.close()


@dataclass(frozen=True, slots=True)
class Message:
    """What a browser makes of a frame."""

    id: str | None
    event: str
    data: Any


def messages(text: bytes) -> list[Message]:
    """Read frames as a browser does; comments and hints are left out."""
    found: list[Message] = []
    for frame in text.decode().split("\n\n"):
        fields: dict[str, str] = {}
        for line in frame.splitlines():
            name, _, value = line.partition(": ")
            fields[name] = value
        if "data" in fields:
            found.append(Message(fields.get("id"), fields["event"], msgspec.json.decode(fields["data"])))
    return found


async def read(stream: Stream, until: str = "end") -> list[Message]:
    """What a stream gives, up to a message of this name or to its end."""
    found: list[Message] = []
    async with asyncio.timeout(PATIENCE):
        while until not in names(found):
            try:
                found += messages(await anext(stream))
            except StopAsyncIteration:
                break
    return found


async def whole(hub: Hub, job_id: UUID, after: int = 0, tenant: str | None = TENANT) -> list[Message]:
    async with aclosing(hub.stream(tenant, job_id, after)) as stream:
        return await read(stream)


def names(found: list[Message]) -> list[str]:
    return [message.event for message in found]


async def chat(engine: Engine, lease: Lease, first: int, last: int, size: int = 1) -> None:
    """So many lines of log, each of this size."""
    lines = (Note(lease, n, "log", f'{{"text": "{"x" * size}", "n": {n}}}') for n in range(first, last + 1))
    await asyncio.gather(*(engine.note(line) for line in lines))


# What is told


async def test_a_stream_of_an_ended_job_reports_all_that_happened_and_ends(hub: Hub, make: Factory) -> None:
    job = await make.ended()
    received = await whole(hub, job.job_id)
    events = await make.engine.events(TENANT, job.job_id)
    assert [message.id for message in received] == [str(event.seq) for event in events] + [None]
    assert names(received) == [*(event.type for event in events), "end"]
    assert received[-1].data == {"state": "succeeded", "outcome": "succeeded"}
    for message, event in zip(received, events, strict=False):
        read = msgspec.convert(message.data, wire.Event)
        assert (read.seq, read.at, read.type, read.state, read.data) == (
            event.seq,
            event.at,
            event.type,
            event.state,
            event.data,
        )


async def test_a_stream_begins_with_how_soon_to_come_back(hub: Hub, make: Factory) -> None:
    job = await make.submitted()
    async with aclosing(hub.stream(TENANT, job.job_id)) as stream:
        assert await anext(stream) == b"retry: 2000\n\n"


async def test_a_stream_reports_what_happens_as_it_happens(hub: Hub, make: Factory) -> None:
    job = await make.submitted("staged")
    async with aclosing(hub.stream(TENANT, job.job_id)) as stream:
        assert names(await read(stream, "submitted")) == ["submitted"]
        (lease,) = await make.claimed("staged")
        assert names(await read(stream, "started")) == ["started"]
        await make.engine.note(progress(lease, 1, 0.5))
        (received,) = await read(stream, "progress")
        assert received.data["data"] == {"progress": 0.5}
        await make.finish(lease)
        assert names(await read(stream)) == ["succeeded", "end"]


async def test_a_stream_has_what_another_process_did(hub: Hub, make: Factory, other_engine: Engine) -> None:
    job = await make.submitted()
    async with aclosing(hub.stream(TENANT, job.job_id)) as stream:
        await read(stream, "submitted")
        await other_engine.cancel(TENANT, job.job_id)
        assert names(await read(stream)) == ["canceled", "end"]


@pytest.mark.parametrize("verb", ["claim", "cancel", "answer", "park", "give_back", "note", "finish"])
async def test_what_is_written_in_this_process_is_reported_without_waiting_for_the_rhythm(
    make: Factory, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(streams, "LOOK_EVERY", 3600.0)
    lease = await (make.parked() if verb == "answer" else make.leased("brief"))
    job_id = lease.job_id if verb != "claim" else (await make.submitted("brief")).job_id
    acts: dict[str, Any] = {
        "claim": lambda: make.claimed("brief"),
        "cancel": lambda: make.engine.cancel(TENANT, job_id),
        "answer": lambda: make.engine.answer(TENANT, job_id, 7),
        "park": lambda: make.engine.park(lease),
        "give_back": lambda: make.engine.give_back(attempt(lease)),
        "note": lambda: make.engine.note(progress(lease, 1, 0.1)),
        "finish": lambda: make.finish(lease),
    }
    seen = (await make.read(job_id)).events
    async with running(make.engine) as hub, aclosing(hub.stream(TENANT, job_id, seen)) as stream:
        await anext(stream)
        pending = asyncio.create_task(anext(stream))
        await settled(hub)
        await acts[verb]()
        async with asyncio.timeout(PATIENCE):
            (received, *_) = messages(await pending)
        assert received.id == str(seen + 1)


async def settled(hub: Hub) -> None:
    """When the hub has looked at all that was there when somebody joined."""
    async with asyncio.timeout(PATIENCE):
        while not hub._watches or hub._touched or hub._wake.is_set() or any(each.known < 0 for each in hub._all()):
            await asyncio.sleep(0.01)


async def test_a_cancel_notified_elsewhere_is_heard(
    make: Factory, other_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LOOK_EVERY", 3600.0)
    job = await make.submitted()
    stop = asyncio.Event()
    notifier = Notifier(make.engine)
    Notifier(other_engine)
    listening = asyncio.create_task(notifier.run(stop))
    async with running(make.engine, notifier) as hub, aclosing(hub.stream(TENANT, job.job_id)) as stream:
        await read(stream, "submitted")
        await settled(hub)
        await other_engine.cancel(TENANT, job.job_id)
        assert names(await read(stream)) == ["canceled", "end"]
    stop.set()
    await listening


# Coming back


async def test_a_stream_goes_on_exactly_after_the_last_event_that_was_seen(hub: Hub, make: Factory) -> None:
    job = await make.ended()
    everything = await whole(hub, job.job_id)
    for seen in range(job.events + 1):
        assert await whole(hub, job.job_id, seen) == everything[seen:]


async def test_a_stream_goes_on_with_another_hub_where_the_first_one_stopped(make: Factory) -> None:
    lease = await make.leased()
    async with running(make.engine) as first, aclosing(first.stream(TENANT, lease.job_id)) as stream:
        before = await read(stream, "started")
    assert names(before) == ["submitted", "started"]
    await chat(make.engine, lease, 1, 3)
    await make.finish(lease)
    async with running(make.engine) as second:
        after = await whole(second, lease.job_id, int(before[-1].id or 0))
    assert names(after) == ["log", "log", "log", "succeeded", "end"]


async def test_a_job_that_is_retried_in_place_may_be_watched_again(hub: Hub, make: Factory) -> None:
    lease = await make.leased("restartable")
    await make.finish(lease, "failed")
    first = await whole(hub, lease.job_id)
    assert first[-1].data["outcome"] == "failed"
    await make.credits(10)
    await make.engine.retry(TENANT, lease.job_id)
    async with aclosing(hub.stream(TENANT, lease.job_id, len(first) - 1)) as again:
        (received, *_) = await read(again, "retried")
    assert (received.event, received.id) == ("retried", str(len(first)))


async def test_a_reader_that_did_not_hear_of_the_end_hears_of_the_retry(hub: Hub, make: Factory) -> None:
    lease = await make.leased("restartable")
    async with aclosing(hub.stream(TENANT, lease.job_id)) as slow:
        await read(slow, "started")
        await make.finish(lease, "failed")
        await whole(hub, lease.job_id)
        await make.credits(10)
        retried = await make.engine.retry(TENANT, lease.job_id)
        assert retried.job_id == lease.job_id
        (watch,) = hub._all()
        async with asyncio.timeout(PATIENCE):
            while watch.end is not None:
                await asyncio.sleep(0.01)
        assert "end" not in names(await read(slow, "retried"))
        await make.engine.cancel(TENANT, lease.job_id)
        assert (await read(slow))[-1].data["outcome"] == "canceled"


async def test_a_reader_that_falls_behind_misses_nothing(hub: Hub, make: Factory) -> None:
    lease = await make.leased()
    async with aclosing(hub.stream(TENANT, lease.job_id)) as slow, aclosing(hub.stream(TENANT, lease.job_id)) as quick:
        await read(slow, "started")
        for start in range(1, 600, 100):
            await chat(make.engine, lease, start, start + 99)
        await make.finish(lease)
        received = [await read(slow), await read(quick)]
    assert [message.id for message in received[0]] == [*map(str, range(3, 604)), None]
    assert [message.id for message in received[1]] == [*map(str, range(1, 604)), None]


async def test_what_is_kept_of_a_talkative_job_is_bounded(hub: Hub, make: Factory) -> None:
    lease = await make.leased()
    async with aclosing(hub.stream(TENANT, lease.job_id)) as slow:
        await read(slow, "started")
        (watch,) = hub._all()
        for n in range(1, 40):
            await chat(make.engine, lease, n, n, size=50_000)
            assert watch._size <= streams._BYTES_MAX
            assert len(watch._frames) <= streams._FRAMES_MAX
        await make.finish(lease)
        assert len(await read(slow)) == 39 + 2


async def test_where_many_jobs_are_watched_less_is_kept_of_each(
    hub: Hub, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_BYTES_ALL", 60_000)
    for _ in range(2):
        await make.submitted()
    one, two = await make.claimed("free", want=2)
    async with aclosing(hub.stream(TENANT, one.job_id)) as stream, aclosing(hub.stream(TENANT, two.job_id)) as other:
        await read(stream, "started")
        await read(other, "started")
        await chat(make.engine, one, 1, 5, size=10_000)
        await settled(hub)
        assert max(watch._size for watch in hub._all()) <= 30_000
        await make.finish(one)
        assert len(await read(stream)) == 5 + 2
        await make.finish(two)
        await read(other)


# Many


async def counting(dsn: str) -> tuple[list[str], Database]:
    """A database that writes down what it is asked."""
    asked: list[str] = []

    class Counted(Database):
        async def run(self, query: Any, *arguments: Any) -> Any:
            asked.append(query.name)
            return await super().run(query, *arguments)

    return asked, await Counted.open(dsn, size=2)


async def test_all_who_watch_a_job_send_the_same_bytes(hub: Hub, make: Factory) -> None:
    lease = await make.leased()
    watching = [hub.stream(TENANT, lease.job_id) for _ in range(200)]
    for stream in watching:
        await read(stream, "started")
    assert hub.streams == 200
    await make.engine.note(progress(lease, 1, 0.5))
    async with asyncio.timeout(PATIENCE):
        frames = {id(await anext(stream)) for stream in watching}
    assert len(frames) == 1
    await make.finish(lease)
    for stream in watching:
        assert names(await read(stream)) == ["succeeded", "end"]


async def test_many_jobs_are_looked_at_together(dsn: str, make: Factory) -> None:
    asked, counted = await counting(dsn)
    jobs = [await make.submitted() for _ in range(100)]
    async with running(Engine(counted, app)) as hub:
        reading = [asyncio.create_task(whole(hub, job.job_id)) for job in jobs]
        await settled(hub)
        assert len(asked) < 20
        for lease in await make.claimed("free", want=100):
            await make.finish(lease)
        received = await asyncio.gather(*reading)
    await counted.close()
    assert {tuple(names(one)) for one in received} == {("submitted", "started", "succeeded", "end")}
    assert set(asked) == {"streams.look", "streams.after"}


# Not for everybody


async def test_a_foreign_job_reports_nothing(hub: Hub, make: Factory) -> None:
    job = await make.ended()
    assert await whole(hub, job.job_id, tenant=STRANGER) == []


async def test_a_foreign_watcher_does_not_disturb_the_owner(hub: Hub, make: Factory) -> None:
    job = await make.submitted()
    async with aclosing(hub.stream(TENANT, job.job_id)) as stream:
        await read(stream, "submitted")
        assert await whole(hub, job.job_id, tenant=STRANGER) == []
        await make.engine.cancel(TENANT, job.job_id)
        assert names(await read(stream)) == ["canceled", "end"]


async def test_a_foreign_event_is_not_read(hub: Hub, make: Factory) -> None:
    job = await make.ended()
    owner, stranger = await hub._read(
        [MissedEvents(job.job_id, tenant, Position(0), NATIVE) for tenant in (TENANT, STRANGER)]
    )
    assert len(owner) == job.events
    assert stranger == []


async def test_an_operator_without_a_tenant_may_watch_any_job(hub: Hub, make: Factory) -> None:
    job = await make.engine.submit("free", tenant=STRANGER, account=ACCOUNT)
    await make.engine.cancel(STRANGER, job.job_id)
    assert names(await whole(hub, job.job_id, tenant=None)) == ["submitted", "canceled", "end"]


# Staying and leaving


async def test_a_silent_job_is_heard_to_live(hub: Hub, make: Factory) -> None:
    job = await make.submitted()
    async with aclosing(hub.stream(TENANT, job.job_id)) as stream:
        await read(stream, "submitted")
        pending = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        hub.ping()
        async with asyncio.timeout(PATIENCE):
            assert await pending == b": ping\n\n"


async def test_a_reader_that_leaves_while_it_waits_leaves_nothing_behind(hub: Hub, make: Factory) -> None:
    job = await make.submitted()
    reading = asyncio.create_task(whole(hub, job.job_id))
    await settled(hub)
    assert hub.streams == 1
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert hub.streams == 0


async def test_a_stream_that_is_closed_gives_no_more(hub: Hub, make: Factory) -> None:
    job = await make.ended()
    stream = hub.stream(TENANT, job.job_id)
    await anext(stream)
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_all_streams_end_when_the_hub_does(make: Factory) -> None:
    job = await make.submitted()
    hub = Hub(make.engine)
    stop = asyncio.Event()
    assert not hub.is_alive
    task = asyncio.create_task(hub.run(stop))
    reading = [asyncio.create_task(whole(hub, job.job_id)) for _ in range(3)]
    waiting = asyncio.create_task(hub.wait(TENANT, job.job_id, seen=1, seconds=3600))
    await settled(hub)
    assert hub.is_alive
    stop.set()
    async with asyncio.timeout(PATIENCE):
        assert [names(await one) for one in reading] == [["submitted"]] * 3
        await waiting
        await task
    assert not hub.is_alive
    assert await whole(hub, job.job_id) == []


async def test_streams_outlast_a_cut_from_the_database(hub: Hub, make: Factory, other_engine: Engine) -> None:
    lease = await make.leased()
    async with aclosing(hub.stream(TENANT, lease.job_id)) as stream:
        await read(stream, "started")
        async with other_engine.db.transaction() as tx:
            await tx.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
        await make.finish(lease)
        assert names(await read(stream)) == ["succeeded", "end"]


# Waiting


async def test_waiting_ends_with_the_job(hub: Hub, make: Factory) -> None:
    lease = await make.leased()
    waiting = asyncio.create_task(hub.wait(TENANT, lease.job_id, seen=2, seconds=3600))
    await settled(hub)
    await make.engine.note(progress(lease, 1, 0.5))
    await settled(hub)
    assert not waiting.done()
    await make.finish(lease)
    async with asyncio.timeout(PATIENCE):
        await waiting


async def test_waiting_for_anything_ends_with_the_next_event(hub: Hub, make: Factory) -> None:
    lease = await make.leased()
    waiting = asyncio.create_task(hub.wait(TENANT, lease.job_id, seen=2, seconds=3600, until_ended=False))
    await settled(hub)
    assert not waiting.done()
    await make.engine.note(progress(lease, 1, 0.5))
    async with asyncio.timeout(PATIENCE):
        await waiting


async def test_nobody_waits_for_a_job_that_has_ended(hub: Hub, make: Factory) -> None:
    job = await make.ended()
    async with asyncio.timeout(PATIENCE):
        await hub.wait(TENANT, job.job_id, seen=0, seconds=3600)


async def test_waiting_ends_when_the_time_is_up(hub: Hub, make: Factory) -> None:
    job = await make.submitted()
    async with asyncio.timeout(PATIENCE):
        await hub.wait(TENANT, job.job_id, seen=1, seconds=0.05)


async def test_those_who_only_wait_read_no_events(dsn: str, make: Factory) -> None:
    asked, counted = await counting(dsn)
    lease = await make.leased()
    async with running(Engine(counted, app)) as hub:
        waiting = asyncio.create_task(hub.wait(TENANT, lease.job_id, seen=0, seconds=3600))
        await settled(hub)
        await make.finish(lease)
        async with asyncio.timeout(PATIENCE):
            await waiting
    await counted.close()
    assert set(asked) == {"streams.look"}


# Over a socket


@asynccontextmanager
async def connected(site: Site, job_id: str, *headers: str) -> AsyncIterator[asyncio.StreamReader]:
    """A reader that has got the head of its answer, with little room for what it does not read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=4096)
    try:
        lines = [f"GET /v1/jobs/{job_id}/stream HTTP/1.1", "Host: test", f"Authorization: Bearer {site.client_key}"]
        writer.write("\r\n".join([*lines, *headers, "", ""]).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"content-type: text/event-stream" in head
        yield reader
    finally:
        writer.close()


async def until(reader: asyncio.StreamReader, text: bytes) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await reader.readuntil(text)


async def test_a_stream_is_an_answer_that_goes_on_until_the_job_ends(site: Site, make: Factory) -> None:
    lease = await make.leased()
    async with connected(site, (await make.read(lease.job_id)).id) as reader:
        await until(reader, b"event: started\n")
        await make.finish(lease)
        await until(reader, b"event: succeeded\n")
        await until(reader, b"event: end\n")
        await until(reader, b"\r\n0\r\n\r\n")
    await left(site.hub)


async def test_a_stream_over_a_socket_goes_on_after_the_last_event_that_was_seen(site: Site, make: Factory) -> None:
    job = await make.ended()
    async with connected(site, job.id, "Last-Event-ID: 2") as reader:
        text = await until(reader, b"\r\n0\r\n\r\n")
    assert b"id: 3\n" in text
    assert b"id: 2\n" not in text


async def test_a_reader_that_hangs_up_leaves_nothing_behind(site: Site, make: Factory) -> None:
    job = await make.submitted()
    async with connected(site, job.id) as reader:
        await until(reader, b"event: submitted\n")
        assert site.hub.streams == 1
    await left(site.hub)


async def test_a_reader_that_stops_reading_is_dropped(
    site: Site, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applications, "WRITE_SECONDS", 0.1)
    lease = await make.leased()
    async with connected(site, (await make.read(lease.job_id)).id):
        async with asyncio.timeout(PATIENCE):
            number = 0
            while site.hub.streams or not number:
                number += 1
                await chat(make.engine, lease, number, number, size=200_000)
        assert number < 200  # what the two ends of the connection keep, and no more
    await make.finish(lease)


async def test_streams_over_sockets_end_properly_when_the_server_stops(engine: Engine, make: Factory) -> None:
    job = await make.submitted()
    async with running_site(engine) as site, connected(site, job.id) as reader:
        await until(reader, b"event: submitted\n")
        site.stop.set()
        rest = await until(reader, b"\r\n0\r\n\r\n")
        assert b"event: end" not in rest


@pytest.mark.parametrize("given", ["2", "1.5", "-1", "one", "1.", ".5", "1.2.3", "9" * 5000, "²"])
@pytest.mark.parametrize("field", ["last_event_id", "Last-Event-ID"])
async def test_an_event_that_there_is_not_yet_cannot_have_been_seen(
    site: Site, make: Factory, field: str, given: str
) -> None:
    job = await make.submitted()
    asked: dict[str, Any] = (
        {"params": {field: given}} if field == "last_event_id" else {"headers": {field: given.encode()}}
    )
    answer = await site.get(f"/v1/jobs/{job.id}/stream", **asked)
    assert answer.status_code == (409 if given in {"2", "1.5"} else 422)
    assert answer.json()["field"] == field


async def test_a_stream_cannot_begin_after_an_event_that_there_is_not_yet(site: Site, make: Factory) -> None:
    job = await make.submitted()
    answer = await site.get(f"/v1/jobs/{job.id}/stream", params={"after": 2})
    assert (answer.status_code, answer.json()["field"]) == (409, "after")


async def left(hub: Hub) -> None:
    """When all have gone."""
    async with asyncio.timeout(PATIENCE):
        while hub.streams:
            await asyncio.sleep(0.01)


# In other words

LINES = Form(
    lambda row: (
        b"id: %d\nevent: log\ndata: %s\n\n" % (row["seq"], row["data"].encode()) if row["type"] == "log" else None
    ),
    lambda row: b"event: over\ndata: %s\n\n" % (row["output"] or "null").encode(),
    needs_output=True,
)


async def test_a_form_reports_some_events_alone_and_counts_the_others(hub: Hub, make: Factory) -> None:
    """Many that it does not tell of stand between two lines: more than a page, and more than are at hand."""
    await make.submitted("staged")
    (lease,) = await make.claimed("staged")
    async with aclosing(hub.stream(TENANT, lease.job_id, form=LINES)) as stream:
        await chat(make.engine, lease, 1, 1)
        (first,) = await read(stream, "log")
        await asyncio.gather(*(make.engine.note(Note(lease, n, "stage", "{}")) for n in range(2, 400)))
        await chat(make.engine, lease, 400, 400)
        await make.finish(lease)
        assert names(await read(stream, "over")) == ["log", "over"]
    async with aclosing(hub.stream(TENANT, lease.job_id, form=LINES)) as stream:
        again = await read(stream, "over")
    assert (names(again), again[0], again[-1].data) == (["log", "log", "over"], first, None)
    async with aclosing(hub.stream(TENANT, lease.job_id, int(first.id or 0), form=LINES)) as stream:
        assert await read(stream, "over") == again[1:]


async def test_forms_of_one_job_do_not_disturb_each_other(hub: Hub, make: Factory) -> None:
    await make.submitted("staged")
    (lease,) = await make.claimed("staged")
    async with (
        aclosing(hub.stream(TENANT, lease.job_id)) as native,
        aclosing(hub.stream(TENANT, lease.job_id, form=LINES)) as lines,
    ):
        received = asyncio.gather(read(native), read(lines, "over"))
        await chat(make.engine, lease, 1, 3)
        await make.finish(lease)
        of_native, of_lines = await received
    assert names(of_native) == ["submitted", "started", "log", "log", "log", "succeeded", "end"]
    assert names(of_lines) == ["log", "log", "log", "over"]
    assert hub.streams == 0
