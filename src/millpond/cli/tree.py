"""The tree of a job, for ``millpond jobs tree``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from millpond import wire
from millpond.cli.follow import path

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from millpond.cli.reach import ApiConnection

CHILDREN_MAX: Final = 200


class TreeLine(msgspec.Struct, kw_only=True):
    """A job of a tree."""

    depth: int
    id: str
    kind: str
    state: str
    price: int
    captured: int | None


async def walk(api: ApiConnection, job_id: str, depth: int = 0) -> AsyncGenerator[TreeLine]:
    """The job, then each child with its own children."""
    job: wire.Job = await api.get(path(job_id), wire.Job)
    yield _line(job, depth)
    async for line in _below(api, job_id, depth + 1):
        yield line


async def _below(api: ApiConnection, job_id: str, depth: int) -> AsyncGenerator[TreeLine]:
    page: wire.Children = await api.get(path(job_id, "children"), wire.Children, limit=CHILDREN_MAX)
    for child in page.data:
        yield _line(child, depth)
        async for line in _below(api, child.id, depth + 1):
            yield line


def _line(job: wire.Job, depth: int) -> TreeLine:
    return TreeLine(depth=depth, id=job.id, kind=job.kind, state=job.state, price=job.price, captured=job.captured)
