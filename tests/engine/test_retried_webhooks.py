"""A webhook that is sent again: its receiver, which refuses old timestamps, accepts it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from millpond import webhooks
from millpond.errors import WebhookInvalidError
from tests.post import SECRET

if TYPE_CHECKING:
    from tests.post import Post

LATER = timedelta(minutes=6)


async def test_a_retry_after_five_minutes_has_a_timestamp_and_a_signature_of_its_own(post: Post) -> None:
    """The event is older than a receiver tolerates; the request is not."""
    await post.make.clock.advance(-2 * LATER)
    lease = await post.make.leased("free", hook=post.hook("flaky", times=1))
    await post.make.finish(lease)
    assert await post.deliver() == 1
    assert post.there.of("one") == []  # the first try has failed
    await post.make.clock.advance(2 * LATER)
    assert await post.deliver() == 1

    (taken,) = post.there.of("one")
    told = webhooks.verify(taken.body, taken.headers, SECRET)
    happened = datetime.fromisoformat(told["timestamp"])
    sent = datetime.fromtimestamp(int(taken.headers["webhook-timestamp"]), UTC)
    assert sent - happened > webhooks.TOLERANCE
    old = taken.headers | {"webhook-timestamp": str(int(happened.timestamp()))}
    with pytest.raises(WebhookInvalidError, match="No signature matches"):
        webhooks.verify(taken.body, old, SECRET)
    with pytest.raises(WebhookInvalidError, match="outside the allowed window"):
        webhooks.verify(taken.body, taken.headers, SECRET, now=sent + LATER)
