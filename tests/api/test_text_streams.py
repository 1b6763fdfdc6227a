"""The text of a job in its stream: every chunk once and in order, between the events, to all who read."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.api.jobs import streams
from millpond.api.jobs.streams import Form, Hub, MissedEvents
from millpond.engine.engine import Engine
from millpond.engine.jobs import chunks
from millpond.engine.reads.streams import Position
from tests.api.test_streams import (
    Message,
    connected,
    counting,
    hub,
    messages,
    names,
    other_engine,
    read,
    running,
    settled,
    until,
    whole,
)
from tests.engine.test_chunks import emit, pieces
from tests.factories import ACCOUNT, HOUR, STRANGER, TENANT, Factory, attempt, progress
from tests.product import app
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from millpond.api.jobs.streams import Stream
    from millpond.work import Lease
    from tests.api.sites import Site

__all__ = ["hub", "other_engine"]  # fixtures


def text(found: list[Message]) -> str:
    return "".join(message.data["text"] for message in found if message.event == "chunk")


def numbers(found: list[Message]) -> list[int]:
    return [message.data["number"] for message in found if message.event == "chunk"]


def ids(found: list[Message]) -> list[str | None]:
    return [message.id for message in found]


async def read_text(stream: Stream, wanted: str) -> list[Message]:
    """What a stream gives, until this much text has come."""
    found: list[Message] = []
    async with asyncio.timeout(PATIENCE):
        while len(text(found)) < len(wanted):
            found += messages(await anext(stream))
    assert text(found) == wanted
    return found


async def talkative(make: Factory) -> Lease:
    """A job that has emitted two chunks before its progress, and one after it."""
    lease = await make.leased()
    await emit(make.engine, lease, "Once ", "upon ")
    await make.engine.note(progress(lease, 1, 0.5))
    await emit(make.engine, lease, "a time", first=3)
    return lease


# What is sent


async def test_a_stream_has_the_text_between_the_events(hub: Hub, make: Factory) -> None:
    lease = await talkative(make)
    await make.finish(lease)
    received = await whole(hub, lease.job_id)
    assert ids(received) == ["1", "2", "3", "3.1", "3.2", "4", "4.3", "5", None]
    assert names(received) == [
        "submitted",
        "started",
        "text_started",
        *("chunk", "chunk", "progress", "chunk", "succeeded", "end"),
    ]
    assert text(received) == "Once upon a time"
    chunk = received[3].data
    assert (chunk["seq"], chunk["number"], chunk["text"]) == (3, 1, "Once ")
    assert chunk["at"] == received[2].data["at"]


async def test_text_comes_while_it_is_emitted(hub: Hub, make: Factory) -> None:
    lease = await make.leased()
    async with aclosing(hub.stream(TENANT, lease.job_id)) as stream:
        await read(stream, "started")
        for number, word in enumerate(["Once ", "upon ", "a time"], 1):
            await emit(make.engine, lease, word, first=number)
            await read_text(stream, word)
        await make.finish(lease)
        assert names(await read(stream)) == ["succeeded", "end"]


async def test_text_that_is_written_in_this_process_does_not_wait_for_the_rhythm(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LOOK_EVERY", 3600.0)
    lease = await make.leased()
    async with running(make.engine) as hub, aclosing(hub.stream(TENANT, lease.job_id)) as stream:
        await read(stream, "started")
        await settled(hub)
        for number, word in enumerate(["Once ", "upon ", "a time"], 1):
            await emit(make.engine, lease, word, first=number)
            await read_text(stream, word)


async def test_text_and_events_that_are_written_at_once_all_come(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is looked at for the event, and its text is read nevertheless."""
    monkeypatch.setattr(streams, "LOOK_EVERY", 3600.0)
    lease = await make.leased()
    await emit(make.engine, lease, "0")
    async with running(make.engine) as hub, aclosing(hub.stream(TENANT, lease.job_id)) as stream:
        await read_text(stream, "0")
        for number in range(1, 20):
            await asyncio.gather(
                emit(make.engine, lease, str(number % 10), first=number + 1),
                make.engine.note(progress(lease, number, number / 20)),
            )
            found: list[Message] = []
            async with asyncio.timeout(PATIENCE):
                while sorted(names(found)) != ["chunk", "progress"]:
                    found += messages(await anext(stream))


async def test_text_is_read_although_the_job_is_looked_at_for_an_event(make: Factory) -> None:
    """The event was read with earlier text already, so that the stream is not behind."""
    hub = Hub(make.engine)
    lease = await make.leased()
    await emit(make.engine, lease, "a")
    async with aclosing(hub.stream(TENANT, lease.job_id)) as stream:
        await anext(stream)
        reading = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        (watch,) = hub._all()
        await hub._poll(is_due=True)
        await make.engine.note(progress(lease, 1, 0.5))
        hub._touched.clear()  # that is not known yet
        await emit(make.engine, lease, "b", first=2)
        await hub._poll(is_due=False)
        assert watch.last == Position(4, 2)
        hub.touch([lease.job_id])
        await emit(make.engine, lease, "c", first=3)
        await hub._poll(is_due=False)
        assert watch.last == Position(4, 3)
        await reading


async def test_a_stream_has_the_text_that_another_process_wrote(hub: Hub, make: Factory, other_engine: Engine) -> None:
    lease = await make.leased()
    async with aclosing(hub.stream(TENANT, lease.job_id)) as stream:
        await read(stream, "started")
        for number, word in enumerate(["Once ", "upon ", "a time"], 1):
            await emit(other_engine, lease, word, first=number)
            await read_text(stream, word)


async def test_all_text_comes_before_the_end(hub: Hub, make: Factory, other_engine: Engine) -> None:
    """Also to a reader that learns of the text and of the end at the same time."""
    for engine in (make.engine, other_engine):
        lease = await make.leased()
        async with aclosing(hub.stream(TENANT, lease.job_id)) as stream:
            await read(stream, "started")
            await emit(engine, lease, *"abc")
            await make.finish(lease)
            received = await read(stream)
        assert names(received) == ["text_started", "chunk", "chunk", "chunk", "succeeded", "end"]


async def test_all_who_read_a_text_send_the_same_bytes(hub: Hub, make: Factory) -> None:
    lease = await make.leased()
    reading = [hub.stream(TENANT, lease.job_id) for _ in range(50)]
    await emit(make.engine, lease, "a")
    for stream in reading:
        await read_text(stream, "a")
    await emit(make.engine, lease, "b", first=2)
    async with asyncio.timeout(PATIENCE):
        frames = {id(await anext(stream)) for stream in reading}
    assert len(frames) == 1
    await make.finish(lease)
    for stream in reading:
        assert names(await read(stream)) == ["succeeded", "end"]


# Coming back


async def test_a_stream_goes_on_exactly_after_any_event_or_chunk(hub: Hub, make: Factory) -> None:
    lease = await talkative(make)
    await make.finish(lease)
    everything = await whole(hub, lease.job_id)
    for index, message in enumerate(everything[:-1]):
        seq, _, number = str(message.id).partition(".")
        seen = Position(int(seq), int(number or 0))
        async with aclosing(hub.stream(TENANT, lease.job_id, seen)) as stream:
            assert await read(stream) == everything[index + 1 :]


async def test_the_position_of_the_text_so_far_is_where_a_stream_goes_on(hub: Hub, make: Factory) -> None:
    lease = await talkative(make)
    await make.engine.note(progress(lease, 2, 0.7))
    so_far = await make.engine.views.text(TENANT, ACCOUNT, lease.job_id)
    await emit(make.engine, lease, ", there", first=4)
    async with aclosing(hub.stream(TENANT, lease.job_id, Position(so_far.seq, so_far.number))) as stream:
        received = await read_text(stream, ", there")
    assert (ids(received), numbers(received)) == (["5.4"], [4])


async def test_a_reader_that_falls_behind_misses_no_text(hub: Hub, make: Factory) -> None:
    lease = await make.leased()
    async with aclosing(hub.stream(TENANT, lease.job_id)) as slow, aclosing(hub.stream(TENANT, lease.job_id)) as quick:
        await read(slow, "started")
        for first in range(1, 601, 100):
            await emit(make.engine, lease, *(f"{number} " for number in range(first, first + 100)), first=first)
        await make.finish(lease)
        received = [await read(slow), await read(quick)]
    for found in received:
        assert numbers(found) == list(range(1, 601))
        assert text(found).split() == [str(number) for number in range(1, 601)]


async def test_what_is_kept_of_a_text_is_bounded(hub: Hub, make: Factory) -> None:
    lease = await make.leased()
    async with aclosing(hub.stream(TENANT, lease.job_id)) as slow:
        await read(slow, "started")
        (watch,) = hub._all()
        for number in range(1, 16):
            await emit(make.engine, lease, "x" * 60_000, first=number)
            await until_read(watch, Position(3, number))
            assert watch._size <= streams._BYTES_MAX
        await make.finish(lease)
        assert numbers(await read(slow)) == list(range(1, 16))


async def until_read(watch: Any, position: Position) -> None:
    async with asyncio.timeout(PATIENCE):
        while watch.last < position:
            await asyncio.sleep(0.01)


# Another attempt


async def test_a_later_attempt_restarts_the_text(hub: Hub, make: Factory) -> None:
    lease = await make.leased()
    async with aclosing(hub.stream(TENANT, lease.job_id)) as stream:
        await read(stream, "started")
        await emit(make.engine, lease, "Once ", "upon ")
        await read_text(stream, "Once upon ")
        await make.engine.give_back(attempt(lease))
        (again,) = await make.claimed("free")
        await emit(make.engine, again, "There ", "was")
        received = await read_text(stream, "There was")
        assert names(received) == ["requeued", "started", "text_started", "chunk", "chunk"]
        assert numbers(received) == [1, 2]
        await make.finish(again)
        assert names(await read(stream)) == ["succeeded", "end"]
    late = await whole(hub, lease.job_id)
    assert text(late) == "There was"  # the text of the first attempt is void


async def test_a_reader_of_an_earlier_attempt_goes_on_with_the_later_one(hub: Hub, make: Factory) -> None:
    lease = await make.leased()
    await emit(make.engine, lease, *"abcdef")
    await make.engine.give_back(attempt(lease))
    (again,) = await make.claimed("free")
    await emit(make.engine, again, "x")
    await make.finish(again)
    async with aclosing(hub.stream(TENANT, lease.job_id, Position(3, 4))) as stream:
        received = await read(stream)
    assert ids(received) == ["4", "5", "6", "6.1", "7", None]


async def test_after_the_text_is_deleted_there_are_only_the_events(hub: Hub, make: Factory) -> None:
    lease = await talkative(make)
    await make.finish(lease)
    await make.clock.advance(chunks.KEPT + timedelta(seconds=1))
    await chunks.prune(make.engine.db, 10)
    assert ids(await whole(hub, lease.job_id)) == ["1", "2", "3", "4", "5", None]
    async with aclosing(hub.stream(TENANT, lease.job_id, Position(3, 1))) as stream:
        assert ids(await read(stream)) == ["4", "5", None]


# Not for everybody


async def test_a_foreign_watcher_gets_no_text(hub: Hub, make: Factory) -> None:
    lease = await talkative(make)
    await make.finish(lease)
    assert await whole(hub, lease.job_id, tenant=STRANGER) == []
    assert text(await whole(hub, lease.job_id, tenant=None)) == "Once upon a time"


async def test_a_foreign_chunk_is_not_read(hub: Hub, make: Factory) -> None:
    lease = await talkative(make)
    start = Position(0)
    owner, stranger = await hub._read(
        [MissedEvents(lease.job_id, tenant, start, streams.NATIVE) for tenant in (TENANT, STRANGER)]
    )
    assert [str(frame.position) for frame in owner] == ["1", "2", "3", "3.1", "3.2", "4", "4.3"]
    assert stranger == []


async def test_a_form_without_text_omits_it(hub: Hub, make: Factory) -> None:
    plain = Form(streams.NATIVE.frame, streams.NATIVE.end)
    lease = await make.leased()
    async with aclosing(hub.stream(TENANT, lease.job_id, form=plain)) as stream:
        await read(stream, "started")
        await emit(make.engine, lease, "a")
        await make.finish(lease)
        assert names(await read(stream)) == ["text_started", "succeeded", "end"]


async def test_after_a_job_was_blocked_nobody_gets_its_text(hub: Hub, make: Factory) -> None:
    lease = await talkative(make)
    async with aclosing(hub.stream(TENANT, lease.job_id)) as early:
        await read_text(early, "Once upon a time")
        await make.finish(lease, "blocked")
        assert names(await read(early)) == ["blocked", "end"]
    assert text(await whole(hub, lease.job_id)) == ""
    assert (await make.engine.views.text(TENANT, ACCOUNT, lease.job_id)).text == ""


# What it costs


async def test_text_is_read_by_one_statement_for_all_jobs(
    dsn: str, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the jobs themselves are not looked at again."""
    monkeypatch.setattr(streams, "LOOK_EVERY", 3600.0)
    asked, counted = await counting(dsn)
    for _ in range(20):
        await make.submitted()
    leases = await make.claimed("free", want=20, duration=HOUR)
    engine = Engine(counted, app)
    async with running(engine) as hub:
        reading = [hub.stream(TENANT, lease.job_id) for lease in leases]
        for stream in reading:
            await read(stream, "started")
        await engine.emit(*(pieces(lease, "a") for lease in leases))
        for stream in reading:
            await read_text(stream, "a")
        await settled(hub)
        asked.clear()
        await engine.emit(*(pieces(lease, "b", first=2) for lease in leases))
        for stream in reading:
            await read_text(stream, "b")
        assert "streams.look" not in asked
        assert asked.count("streams.after") <= 3
        for stream in reading:
            await stream.aclose()
    await counted.close()


# Over a socket


async def test_a_stream_over_a_socket_goes_on_after_a_chunk(site: Site, make: Factory) -> None:
    lease = await talkative(make)
    await make.finish(lease)
    job = await make.read(lease.job_id)
    async with connected(site, job.id, "Last-Event-ID: 3.1") as reader:
        received = await until(reader, b"\r\n0\r\n\r\n")
    assert b"id: 3.1\n" not in received
    assert b'id: 3.2\nevent: chunk\ndata: {"seq":3,"number":2,' in received
    assert b"id: 4.3\n" in received


@pytest.mark.parametrize("given", ["4.4", "5.1", "4.999999999"])
async def test_a_chunk_that_there_is_not_yet_cannot_have_been_seen(site: Site, make: Factory, given: str) -> None:
    lease = await talkative(make)
    job = await make.read(lease.job_id)
    answer = await site.get(f"/v1/jobs/{job.id}/stream", headers={"Last-Event-ID": given})
    assert answer.status_code == 409
    assert answer.json()["field"] == "Last-Event-ID"


async def test_the_text_so_far_is_read(site: Site, make: Factory) -> None:
    lease = await talkative(make)
    job = await make.read(lease.job_id)
    answer = await site.get(f"/v1/jobs/{job.id}/text")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    assert body.pop("at") is not None
    assert body == {"text": "Once upon a time", "number": 3, "epoch": 1, "last_event_id": "4.3"}
    foreign = await site.key(tenant=STRANGER, account=ACCOUNT)
    assert (await site.get(f"/v1/jobs/{job.id}/text", key=foreign)).status_code == 404
