"""Events: each once and in order, whatever happens to the connection."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from millpond import AsyncClient, Client, WaitTimeoutError, wire
from millpond.client import sse
from millpond.errors import NotFoundError, UnavailableError
from millpond.retry import Backoff
from tests.checks import until
from tests.client.both import begun
from tests.doubles.native_api import KEY, FakeJob, NativeApi, Server, answer_with


def progress(job: FakeJob, count: int) -> FakeJob:
    for number in range(count):
        job.happen("progress", progress=number / count)
    return job


async def read(client: Any, job: FakeJob, **options: Any) -> list[int]:
    return [event.seq async for event in client.events(job.id, **options)]


@pytest.fixture
def ended(api: NativeApi) -> FakeJob:
    """A job with 100 events."""
    job = progress(api.add("ad"), 98)
    job.happen("succeeded")
    return job


ALL = list(range(1, 101))


async def test_a_stream_ends_with_the_job(client: Any, api: NativeApi, ended: FakeJob) -> None:
    assert await read(client, ended) == ALL
    assert len(api.asked) == 1


async def test_a_stream_begins_after_the_last_event_that_was_seen(client: Any, api: NativeApi, ended: FakeJob) -> None:
    assert await read(client, ended, after=97) == [98, 99, 100]
    assert api.asked[-1].headers["last-event-id"] == "97"
    assert await read(client, ended, after=100) == []


async def test_events_come_as_they_happen(client: Any, api: NativeApi) -> None:
    job = api.add("ad")
    seen: list[str] = []
    async for event in client.events(job.id):
        seen.append(event.type)
        if following := {"submitted": "started", "started": "succeeded"}.get(event.type):
            job.happen(following)
    assert seen == ["submitted", "started", "succeeded"]


@pytest.mark.parametrize("cut", [0, 1, 7])
async def test_a_stream_that_is_cut_again_and_again_loses_and_repeats_nothing(
    client: Any, api: NativeApi, ended: FakeJob, cut: int
) -> None:
    api.streams_cut_after = cut
    assert await read(client, ended) == ALL


async def test_a_job_that_was_retried_in_place_is_read_past_its_first_end(client: Any, api: NativeApi) -> None:
    job = api.add("ad")
    for type in ("failed", "retried", "started", "succeeded"):
        job.happen(type)
    assert await read(client, job) == [1, 2, 3, 4, 5]


async def test_where_streams_do_not_come_through_it_asks_for_pages(client: Any, api: NativeApi, ended: FakeJob) -> None:
    api.streams_come_through, api.page_size = False, 7
    assert await read(client, ended) == ALL


async def test_after_two_streams_that_brought_nothing_it_asks_for_pages(client: Any, api: NativeApi) -> None:
    api.streams_come_through = False
    job = progress(api.add("ad"), 3)
    reader = client.events(job.id)
    assert [(await anext(reader)).seq for _ in range(4)] == [1, 2, 3, 4]
    job.happen("started")
    assert (await anext(reader)).type == "started"
    job.happen("succeeded")
    assert [event.type async for event in reader] == ["succeeded"]
    assert len(api.asked_for("GET", "/stream")) <= 2


async def test_a_stream_with_a_gap_is_mended_from_the_pages(client: Any, api: NativeApi, ended: FakeJob) -> None:
    gappy = b"".join(b"data: %s\n\n" % msgspec.json.encode(ended.events[index]) for index in (0, 1, 5))
    api.faults.append(answer_with(200, gappy, content_type="text/event-stream"))
    assert await read(client, ended) == ALL


async def test_an_event_that_a_stream_repeats_is_reported_once(client: Any, api: NativeApi, ended: FakeJob) -> None:
    repeated = b"".join(b"data: %s\n\n" % msgspec.json.encode(ended.events[index]) for index in (0, 1, 0, 1, 2))
    api.faults.append(answer_with(200, repeated, content_type="text/event-stream"))
    assert await read(client, ended) == ALL


async def test_a_job_whose_events_are_gone_is_over_all_the_same(client: Any, api: NativeApi, ended: FakeJob) -> None:
    """Old events are pruned; their job may be kept for longer."""
    api.streams_come_through = False
    pruned = answer_with(200, msgspec.json.encode(wire.Events(data=[], next=None)))
    api.faults.extend([answer_with(406), answer_with(200, msgspec.json.encode(ended.record())), pruned])
    assert await read(client, ended) == []


@pytest.mark.parametrize("junk", [b"data: {\n\n", b"data: [1]\n\n", b"\xff\xfe\n\n", b": ping\n\n", b"data: 7"])
async def test_junk_in_a_stream_is_a_stream_that_broke(
    client: Any, api: NativeApi, ended: FakeJob, junk: bytes
) -> None:
    api.faults.append(answer_with(200, junk, content_type="text/event-stream"))
    assert await read(client, ended) == ALL


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_stream_that_is_refused_for_now_is_asked_for_again(
    client: Any, api: NativeApi, ended: FakeJob, status: int
) -> None:
    api.faults.append(answer_with(status))
    assert await read(client, ended) == ALL


async def test_a_stream_of_no_job_is_not_found(client: Any) -> None:
    with pytest.raises(NotFoundError):
        await anext(client.events("job_x"))


async def test_a_reader_stays_through_a_restart_of_the_server(client: Any, api: NativeApi, double: Server) -> None:
    job = progress(api.add("ad"), 9)
    seen: list[int] = []
    async for event in client.events(job.id):
        seen.append(event.seq)
        if event.seq == 10:
            await anyio.to_thread.run_sync(double.stop)
            progress(job, 5)
            await anyio.to_thread.run_sync(double.start)
            job.happen("succeeded")
    assert seen == list(range(1, 17))


async def test_a_reader_gives_up_when_the_server_stays_away(
    client: Any, api: NativeApi, double: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second try would come when nobody waits any more, so there is none.
    pauses = Backoff(first=timedelta(days=1), longest=timedelta(days=1), jitter=0)
    monkeypatch.setattr("millpond.client.requests._BACKOFF", pauses)
    reader = client.events(api.add("ad").id)
    await anext(reader)
    await anyio.to_thread.run_sync(double.stop)
    try:
        with pytest.raises(UnavailableError):
            await anext(reader)
    finally:
        double.start()


@pytest.mark.parametrize("ping", [0.3, 3600.0], ids=["with a stream", "with pages"])
async def test_reading_ends_with_the_callers_patience(
    client: Any, api: NativeApi, ping: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long deadline begins with a stream; the last of it, and a short one, is left to pages."""
    monkeypatch.setattr("millpond.client.watching._PING", ping)
    job = api.add("ad")
    first, reader = await begun(lambda seconds: client.events(job.id, timeout=seconds))
    assert first.seq == 1
    with pytest.raises(WaitTimeoutError, match="It continues to run"):
        await anext(reader)
    assert bool(api.asked_for("GET", "/stream")) == (ping < 1)


async def test_a_silent_stream_is_given_up(
    client: Any, api: NativeApi, ended: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that keeps a stream to itself sends not even its head."""
    monkeypatch.setattr("millpond.client.watching.SILENCE_MAX", 0.2)

    async def keep_silent(app: Any, scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(60)

    api.faults.append(keep_silent)
    assert await read(client, ended) == ALL


async def test_a_slow_consumer_of_a_huge_stream_keeps_it_waiting(api: NativeApi, double: Server) -> None:
    """What the consumer has not asked for stays in the sockets and in the server, not in the client."""
    job = api.add("ad")
    for _ in range(2_000):
        job.happen("log", text="x" * 20_000)
    job.happen("succeeded")
    sent = 0
    frames = api._frames

    async def counted(job: FakeJob, *after: int) -> Any:
        nonlocal sent
        async for frame in frames(job, *after):
            sent += len(frame)
            yield frame

    api._frames = counted  # type: ignore[method-assign]
    async with AsyncClient(double.url, KEY) as client:
        reader = client.events(job.id)
        assert (await anext(reader)).seq == 1
        before = -1
        while before < sent:  # until the server is held up
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 20_000_000
        assert [event.seq async for event in reader] == list(range(2, 2_003))


async def test_a_reader_that_leaves_early_closes_its_stream(client: Any, api: NativeApi) -> None:
    job = api.add("ad")
    async for event in client.events(job.id):
        assert event.seq == 1
        break
    job.happen("succeeded")
    assert (await client.get(job.id)).is_ended


async def test_a_canceled_task_leaves_a_client_that_works(api: NativeApi, double: Server) -> None:
    job = api.add("ad")
    async with AsyncClient(double.url, KEY) as client:

        async def follow() -> None:
            async for _ in client.events(job.id):
                pass

        for work in (follow(), client.wait(job.id), client.run("ad")):
            asked = len(api.asked)
            task = asyncio.create_task(work)
            await until(lambda asked=asked: asyncio.sleep(0, len(api.asked) > asked))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await client.get(job.id)).id == job.id


def test_streams_of_a_blocking_client_can_be_read_side_by_side(api: NativeApi, double: Server) -> None:
    first, second = api.add("a"), api.add("b")
    with Client(double.url, KEY) as client:
        left, right = client.events(first.id), client.events(second.id)
        assert (next(left).seq, next(right).seq) == (1, 1)
        first.happen("succeeded")
        second.happen("failed")
        assert [event.type for pair in zip(left, right, strict=True) for event in pair] == ["succeeded", "failed"]


# The parser


def frames(*chunks: bytes) -> list[tuple[str, bytes, str]]:
    parser = sse.Parser()
    return [tuple(frame) for chunk in chunks for frame in parser.feed(chunk)]  # type: ignore[misc]


STREAM = b': ping\n\nretry: 100\n\nid: 1\nevent: a\ndata: {"x":\ndata: 1}\n\nevent:b\r\ndata:2\r\n\r\ndata: never ended'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_frames_are_the_same_however_the_bytes_fall(size: int) -> None:
    chunks = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert frames(*chunks) == [("a", b'{"x":\n1}', "1"), ("b", b"2", "")]


def test_a_frame_without_an_end_is_not_collected_for_ever() -> None:
    with pytest.raises(ValueError, match="a frame of more than"):
        frames(*[b"data: " + b"x" * 100_000] * 50)
