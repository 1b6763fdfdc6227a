"""The tree of a job, for ``millpond jobs tree``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from millpond import wire
from millpond.cli.follow import path

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from millpond.cli.reach import ApiConnection

_PAGE: Final = 200


class TreeLine(msgspec.Struct, kw_only=True):
    """A job of a tree."""

    depth: int
    id: str
    kind: str
    state: str
    waits_for: str | None
    price: int
    captured: int | None


async def walk(api: ApiConnection, job_id: str) -> AsyncGenerator[TreeLine]:
    """The job, then each child with its own children."""
    yield _line(await api.get(path(job_id), wire.Job), 0)
    async for line in _below(api, job_id, 1):
        yield line


async def _below(api: ApiConnection, job_id: str, depth: int) -> AsyncGenerator[TreeLine]:
    cursor: str | None = None
    while True:
        page: wire.Children = await api.get(path(job_id, "children"), wire.Children, cursor=cursor, limit=_PAGE)
        for child in page.data:
            yield _line(child, depth)
            if child.id in page.parents:
                async for line in _below(api, child.id, depth + 1):
                    yield line
        cursor = page.next_cursor
        if cursor is None:
            return


def _line(job: wire.Job, depth: int) -> TreeLine:
    return TreeLine(
        depth=depth,
        id=job.id,
        kind=job.kind,
        state=job.state,
        waits_for=job.waits_for,
        price=job.price,
        captured=job.captured,
    )
