"""The text of a job: each chunk once and in order, whatever happens to the connection and to the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond import WaitTimeoutError, wire
from tests.doubles.native_api import answer_with

if TYPE_CHECKING:
    from tests.doubles.native_api import FakeJob, NativeApi

WORDS = [f"word{number} " for number in range(50)]


@pytest.fixture
def story(api: NativeApi) -> FakeJob:
    """A job that has ended, with fifty chunks and progress between them."""
    job = api.add("story")
    for number, word in enumerate(WORDS):
        job.emit(word)
        if number % 10 == 9:
            job.happen("progress", progress=number / 50)
    job.happen("succeeded")
    return job


async def numbers(client: Any, job: FakeJob, **options: Any) -> list[int]:
    return [chunk.number async for chunk in client.chunks(job.id, **options)]


async def text(client: Any, job: FakeJob, **options: Any) -> str:
    return "".join([piece async for piece in client.stream_text(job.id, **options)])


ALL = list(range(1, 51))


async def test_a_text_ends_with_the_job(client: Any, api: NativeApi, story: FakeJob) -> None:
    assert await numbers(client, story) == ALL
    assert await text(client, story) == "".join(WORDS)
    assert len(api.asked) == 2


async def test_events_and_chunks_come_in_one_stream(client: Any, story: FakeJob) -> None:
    items = [item async for item in client.watch(story.id)]
    assert [item.seq for item in items if isinstance(item, wire.Event)] == list(range(1, 9))
    assert [item.number for item in items if isinstance(item, wire.Chunk)] == ALL
    assert isinstance(items[12], wire.Event)
    assert items[12].type == "progress"


async def test_those_who_read_events_get_no_text(client: Any, story: FakeJob) -> None:
    assert [event.seq async for event in client.events(story.id)] == list(range(1, 9))


async def test_text_comes_as_it_is_emitted(client: Any, api: NativeApi) -> None:
    job = api.add("story")
    job.emit("a")
    seen: list[str] = []
    async for piece in client.stream_text(job.id):
        seen.append(piece)
        if following := {"a": "b", "b": "c"}.get(piece):
            job.emit(following)
        else:
            job.happen("succeeded")
    assert seen == ["a", "b", "c"]


@pytest.mark.parametrize("cut", [0, 1, 2, 7])
async def test_a_stream_that_is_cut_again_and_again_loses_and_repeats_no_text(
    client: Any, api: NativeApi, story: FakeJob, cut: int
) -> None:
    api.streams_cut_after = cut
    assert await text(client, story) == "".join(WORDS)


async def test_where_streams_do_not_come_through_it_asks_for_the_text(client: Any, api: NativeApi) -> None:
    api.streams_come_through = False
    job = api.add("story")
    job.emit("Once ")
    reader = client.chunks(job.id)
    first = await anext(reader)
    assert (first.number, first.text) == (1, "Once ")
    job.emit("upon ", "a ")
    second = await anext(reader)
    assert (second.number, second.text) == (3, "upon a ")
    job.emit("There ", restart=True)
    third = await anext(reader)
    assert (third.number, third.text) == (1, "There ")
    job.emit("was")
    job.happen("succeeded")
    assert [chunk.text async for chunk in reader] == ["was"]


async def test_a_chunk_that_is_missing_is_made_up_for(client: Any, api: NativeApi, story: FakeJob) -> None:
    gappy = b"".join(
        b"id: 2.%d\nevent: chunk\ndata: %s\n\n" % (index + 1, msgspec.json.encode(story.chunks[index]))
        for index in (0, 1, 5)
    )
    api.faults.append(answer_with(200, gappy, content_type="text/event-stream"))
    assert await text(client, story) == "".join(WORDS)


async def test_a_chunk_that_is_repeated_is_reported_once(client: Any, api: NativeApi, story: FakeJob) -> None:
    repeated = b"".join(
        b"id: 2.%d\nevent: chunk\ndata: %s\n\n" % (index + 1, msgspec.json.encode(story.chunks[index]))
        for index in (0, 1, 1, 2)
    )
    api.faults.append(answer_with(200, repeated, content_type="text/event-stream"))
    assert await text(client, story) == "".join(WORDS)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_stream_that_is_refused_for_now_is_asked_for_again(
    client: Any, api: NativeApi, story: FakeJob, status: int
) -> None:
    api.faults.append(answer_with(status))
    assert await text(client, story) == "".join(WORDS)


async def test_a_text_that_is_restarted_follows_the_one_before(client: Any, api: NativeApi) -> None:
    job = api.add("story")
    job.emit("Once ", "upon ")
    reader = client.stream_text(job.id)
    assert [await anext(reader) for _ in range(2)] == ["Once ", "upon "]
    job.emit("There ", "was", restart=True)
    job.happen("succeeded")
    assert [piece async for piece in reader] == ["There ", "was"]


async def test_a_caller_learns_that_a_text_is_restarted(client: Any, api: NativeApi) -> None:
    job = api.add("story")
    job.emit("Once ", "upon ")
    pieces: list[str] = []
    async for piece in client.stream_text(job.id, on_restart=pieces.clear):
        pieces.append(piece)
        if pieces == ["Once ", "upon "]:
            job.emit("There ", "was", restart=True)
            job.happen("succeeded")
    assert pieces == ["There ", "was"]


async def test_a_handle_streams_its_text(client: Any, story: FakeJob) -> None:
    handle = client.job(story.id)
    assert "".join([piece async for piece in handle.stream_text()]) == "".join(WORDS)
    assert [chunk.number async for chunk in handle.chunks()] == ALL


async def test_patience_with_a_text_has_an_end(client: Any, api: NativeApi) -> None:
    job = api.add("story")
    job.emit("Once ")
    reader = client.stream_text(job.id, timeout=0.2)
    assert await anext(reader) == "Once "
    with pytest.raises(WaitTimeoutError):
        await anext(reader)


async def test_a_job_without_text_has_none(client: Any, api: NativeApi) -> None:
    job = api.add("ad")
    job.happen("succeeded")
    assert await text(client, job) == ""
