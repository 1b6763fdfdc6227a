"""Measuring: wraps a handler that makes files, and adds their measurements to its output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.product import measure

if TYPE_CHECKING:
    from millpond.kinds import Handler


def measured(handler: Handler) -> Handler:
    async def run(job: Any, given: Any) -> Any:
        output = await handler(job, given)
        for file in output["files"]:
            file.update(await measure(job, file["id"], file["content_type"], file["size"]))
        return output

    return run
