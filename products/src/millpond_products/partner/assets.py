"""Assets: the files that jobs make. A result must never change, so it links to this route, and not to a signed URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.errors import NotFoundError
from millpond.product import Reply, principals

if TYPE_CHECKING:
    from millpond.product import Call


async def read(call: Call) -> Reply:
    """Redirect to a temporary URL of the file."""
    given = call.params["assetId"]
    try:
        tenant, account = principals.owner(call)
        record = await call.engine.artifacts.read(tenant, given, account)
    except NotFoundError:
        record = None
    if record is None or record.stored_at is None:
        raise NotFoundError(
            f"There is no asset {given[:60]!r}.",
            field="assetId",
            hint="Assets are deleted at the end of their retention period.",
        )
    url = call.engine.artifacts.sign_get(record, call.state.settings.download_lifetime).url
    return Reply(302, headers=[(b"location", url.encode()), (b"cache-control", b"no-store")])
