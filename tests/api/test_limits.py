"""The limit of a route: a key's own limit lowers it, and never raises it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.api.calls import Reply
from millpond.api.limits import WINDOW, Limiter
from millpond.api.product import Product
from millpond.api.routes import Route
from millpond.errors import RateLimitedError
from millpond.settings import Settings
from tests.api.sites import running_site
from tests.lifecycles import RESTARTABLE

if TYPE_CHECKING:
    from millpond.api.calls import Call
    from millpond.engine.engine import Engine

HIGH = 100_000


async def _slow(call: Call) -> Reply:
    return Reply(200, b"{}")


COSTLY = Product(
    lifecycle=RESTARTABLE,
    kinds=(),
    title="Costly",
    routes=(
        Route(method="GET", path="/slow", handle=_slow, summary="Be slow.", answers={200: None}, limit="rate_limit"),
    ),
)


async def test_a_high_limit_of_a_key_is_no_limit_of_a_route(engine: Engine) -> None:
    async with running_site(engine, settings=Settings(rate_limit=1), products=[COSTLY]) as site:
        for own, admitted in ((HIGH, WINDOW), (None, WINDOW)):
            key = await site.key(rate_limit=own)
            answers = [(await site.get("/restartable/slow", key=key)).status_code for _ in range(WINDOW + 3)]
            assert answers[:admitted] == [200] * admitted
            assert 429 in answers[admitted:]
        fast = await site.key(rate_limit=HIGH)
        assert {(await site.get("/v1/kinds", key=fast)).status_code for _ in range(WINDOW + 3)} == {200}


def test_a_key_that_was_quiet_has_its_burst_and_no_more() -> None:
    now = 0.0
    limiter = Limiter(2, clock=lambda: now)
    limiter.take("key", None)
    now = 1_000.0
    for _ in range(2 * WINDOW):
        limiter.take("key", None)
    with pytest.raises(RateLimitedError):
        limiter.take("key", None)
