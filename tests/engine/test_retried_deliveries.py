"""A webhook that is sent again much later, as a receiver checks it: with its own clock and a library of its own."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks import Webhook

from millpond import webhooks
from millpond.engine.webhooks import deliveries
from millpond.errors import WebhookInvalidError
from tests.post import SECRET

if TYPE_CHECKING:
    from tests.post import Post

LATER = timedelta(minutes=6)
"""More than the five minutes for which receivers accept a timestamp."""


class SenderClock:
    """The clock of the sender, which can be moved on."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def time(self) -> float:
        return time.time() + self.ahead.total_seconds()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


async def test_a_retried_webhook_is_signed_again_at_the_time_of_the_retry(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SenderClock()
    monkeypatch.setattr(deliveries, "time", clock)
    await post.make.submitted("free", hook=post.hook("flaky", times=1))
    await post.make.serve("free")
    assert await post.deliver() == 1
    clock.ahead = LATER
    assert await post.pass_time(LATER) == 1
    (received,) = post.there.of("one")
    now = datetime.now(UTC) + LATER
    assert webhooks.verify(received.body, received.headers, SECRET, now=now)["type"] == "job.succeeded"
    sent = datetime.fromtimestamp(int(received.headers["webhook-timestamp"]), UTC)
    assert abs(now - sent) < timedelta(minutes=5)
    expected = Webhook(SECRET).sign(received.id, sent, received.body.decode())
    assert expected in received.headers["webhook-signature"].split()


async def test_the_first_try_of_a_webhook_is_too_old_for_a_receiver_that_gets_it_later(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why it must be signed again: the request of the first try, kept and sent on by another."""
    clock = SenderClock()
    monkeypatch.setattr(deliveries, "time", clock)
    await post.make.submitted("free", hook=post.hook())
    await post.make.serve("free")
    assert await post.deliver() == 1
    (received,) = post.there.of("one")
    with pytest.raises(WebhookInvalidError, match="outside the allowed window"):
        webhooks.verify(received.body, received.headers, SECRET, now=datetime.now(UTC) + LATER)
    changed = received.headers | {"webhook-timestamp": str(int(time.time() + LATER.total_seconds()))}
    with pytest.raises(WebhookInvalidError, match="No signature matches"):
        webhooks.verify(received.body, changed, SECRET, now=datetime.now(UTC) + LATER)
