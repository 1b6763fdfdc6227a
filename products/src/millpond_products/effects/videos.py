"""Videos: uploaded files and their results. The status of a video is read from its newest job."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from millpond import ids
from millpond.errors import NotFoundError
from millpond.product import Reply, cursor, owner, queries, reply
from millpond_products.effects import effects, files, outcomes, wire

if TYPE_CHECKING:
    from datetime import datetime

    from millpond.product import Call, Engine, JobView

SQL: Final = queries("millpond_products.effects", "videos")

_LAST: Final = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class Video:
    """A video as stored."""

    video_id: UUID
    tenant: str
    account: str
    original_file_id: UUID
    title: str | None
    job_ids: list[UUID]
    created_at: datetime

    @property
    def id(self) -> str:
        return ids.text("video", self.video_id)


async def find(engine: Engine, tenant: str, account: str, given: str, *, field: str = "video_id") -> Video:
    """Return a video, if it belongs to the user."""
    try:
        video_id = ids.parse("video", given)
    except NotFoundError:
        raise _absent(given, field) from None
    row = await engine.database(tenant).read(SQL["read"], tenant, account, video_id)
    if row is None:
        raise _absent(given, field)
    return Video(*row)


async def link(engine: Engine, video: Video, job_id: UUID) -> None:
    """Add a job's id before the job is created, so that the video shows the job in any case, once it exists."""
    await engine.database(video.tenant).run(SQL["link"], video.tenant, video.video_id, job_id)


async def unlink(engine: Engine, video: Video, job_id: UUID) -> None:
    await engine.database(video.tenant).run(SQL["unlink"], video.tenant, video.video_id, job_id)


# Over HTTP


async def make(call: Call) -> Reply:
    """Create a video from an uploaded file, which must be in storage."""
    tenant, account = owner(call)
    body: wire.MakeVideo = call.body
    await files.own(call.engine, tenant, account, body.original_file_id, field="original_file_id")
    record = await call.engine.artifacts.confirm(tenant, body.original_file_id)
    row = await call.engine.database(tenant).run(
        SQL["make"], ids.new(), tenant, account, record.artifact_id, body.title
    )
    return reply(await to_wire(call, Video(*row)), 201)


async def read(call: Call) -> Reply:
    tenant, account = owner(call)
    return reply(await to_wire(call, await find(call.engine, tenant, account, call.params["video_id"])))


async def list_videos(call: Call) -> Reply:
    tenant, account = owner(call)
    query = call.query
    before = cursor("video", query.cursor) or _LAST
    rows = await call.engine.database(tenant).read(SQL["list"], tenant, account, before, query.limit + 1)
    found = [Video(*row) for row in rows[: query.limit]]
    data = await asyncio.gather(*(to_wire(call, video) for video in found))
    return reply(wire.Videos(data=list(data), next_cursor=found[-1].id if len(rows) > query.limit else None))


async def to_wire(call: Call, video: Video) -> wire.Video:
    view = await _newest(call.engine, video)
    made = wire.Video(
        id=video.id,
        title=video.title,
        status="pending",
        original_file_id=ids.text("art", video.original_file_id),
        processed_file_id=None,
        processed_file_url=None,
        processed_mime_type=None,
        error=None,
        progress=0.0,
        estimated_seconds=None,
        effect_id=None,
        ai_job_id=None,
        created_at=video.created_at,
        started_at=None,
        completed_at=None,
    )
    if view is not None:
        await _add_job(call, view, made)
    return made


async def _add_job(call: Call, view: JobView, made: wire.Video) -> None:
    part = outcomes.part_of(view)
    made.status = cast("wire.VideoStatus", view.state)
    made.error = outcomes.error_of(view)
    made.progress = view.progress
    made.effect_id, made.ai_job_id = part.id, view.id
    made.started_at, made.completed_at = view.started_at, view.finished_at
    made.estimated_seconds = await outcomes.estimate(call.engine, part.id)
    output = await outcomes.output_of(call.engine, view)
    if output is not None:
        made.processed_file_id, made.processed_mime_type = output.id, output.content_type
        made.processed_file_url = files.url(call.engine, output, call.state.settings.download_lifetime)
        effects.learn_from(call.engine, view, part.id)


async def _newest(engine: Engine, video: Video) -> JobView | None:
    """The newest of its jobs that exists."""
    for job_id in reversed(video.job_ids):
        try:
            return await engine.views.job(video.tenant, video.account, job_id)
        except NotFoundError:
            continue
    return None


def _absent(given: str, field: str) -> NotFoundError:
    return NotFoundError(f"There is no video {given[:60]!r}.", field=field)
