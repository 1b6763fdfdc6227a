"""The edge of a stream's buffer: whoever reads on from there gets every event once."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from millpond.api.jobs import streams
from millpond.api.jobs.streams import NATIVE, StreamFrame, WatchedJob
from millpond.engine.reads.streams import Position
from tests.api.test_streams import chat, hub, names, read, whole
from tests.checks import until

if TYPE_CHECKING:
    from millpond.api.jobs.streams import Hub
    from tests.factories import Factory

__all__ = ["hub"]  # a fixture

KEPT = 4


def test_what_comes_after_an_event_does_not_include_it() -> None:
    """A stream that met its last event again would never come to rest."""
    places = [Position(1), Position(1, 1), Position(1, 2), Position(2)]
    watch = WatchedJob(None, UUID(int=1), Position(0), NATIVE)
    watch.add(StreamFrame(place, b"x") for place in places)
    for index, seen in enumerate([Position(0), *places]):
        assert [frame.position for frame in watch.after(seen)] == places[index:]


@pytest.mark.parametrize("behind", [-2, -1, 0, 1, 2])
async def test_a_reader_at_the_edge_of_the_buffer_gets_every_event_once(
    hub: Hub, make: Factory, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    monkeypatch.setattr(streams, "_FRAMES_MAX", KEPT)
    lease = await make.leased()
    async with aclosing(hub.stream(lease.tenant, lease.job_id)) as quick:
        await read(quick, "started")
        await chat(make.engine, lease, 1, 10)
        (watch,) = hub._all()

        async def is_known() -> bool:
            return watch.last == Position(12)

        await until(is_known)
        assert (watch.floor, len(watch._frames)) == (Position(12 - KEPT), KEPT)
        after = watch.floor.seq + behind
        await make.finish(lease)
        received = await whole(hub, lease.job_id, after)
        assert [message.id for message in received] == [*map(str, range(after + 1, 14)), None]
        assert names(await read(quick))[-2:] == ["succeeded", "end"]


async def test_a_buffer_that_was_full_once_keeps_what_comes_later(hub: Hub, make: Factory) -> None:
    lease = await make.leased()
    async with aclosing(hub.stream(lease.tenant, lease.job_id)) as stream:
        await read(stream, "started")
        (watch,) = hub._all()
        for n in range(1, 12):
            await chat(make.engine, lease, n, n, size=50_000)

        async def is_known() -> bool:
            return watch.last == Position(13)

        await until(is_known)
        assert watch._size == sum(len(frame.text) for frame in watch._frames) > 0
        await make.finish(lease)
        await read(stream)
