"""Assets: the files that jobs make. What is told of them never changes, so it is a path here, and not a signed URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.api import principals
from millpond.api.calls import Reply
from millpond.errors import NotFoundError

if TYPE_CHECKING:
    from millpond.api.calls import Call


async def read(call: Call) -> Reply:
    """To where the file can be had for a while."""
    given = call.params["assetId"]
    try:
        tenant, account = principals.owner(call)
        record = await call.engine.artifacts.read(tenant, given, account)
    except NotFoundError:
        record = None
    if record is None or record.stored_at is None:
        raise NotFoundError(f"There is no asset {given[:60]!r}.", field="assetId", hint="It may have reached its age.")
    url = call.engine.artifacts.sign_get(record, call.desk.settings.download_lifetime).url
    return Reply(302, headers=[(b"location", url.encode()), (b"cache-control", b"no-store")])
