"""Who plays the provider, by the settings; what is kept, and for how long; which queues rest."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from millpond.api.jobs.jobs import export_line
from millpond.cli.providers import provide, providers
from millpond.engine.queue.dispatches import Lanes
from millpond.services import all_services
from millpond.services.pruner import pruner
from millpond.settings import Settings
from tests.doubles.replicate import TOKEN, Replicate
from tests.providers.deployments import kind, make_app, running_deployment

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.storage.local import Local
    from tests.clocks import Clock

FIRST = UUID(int=1)


def test_replicate_is_asked_where_there_is_a_token() -> None:
    (found,) = providers(Settings(replicate_api_token=TOKEN))
    assert (found.name, found.origin) == ("replicate", "https://api.replicate.com:443")
    (found,) = providers(Settings(replicate_api_token=TOKEN, replicate_url="http://127.0.0.1:9"))
    assert (found.name, found.origin) == ("replicate", "http://127.0.0.1:9")
    assert providers(Settings(replicate_url="http://127.0.0.1:9")) == []
    assert providers(Settings()) == []


async def test_callbacks_go_to_the_public_url_or_to_a_provider_beside_us(engine: Engine) -> None:
    own = "http://127.0.0.1:8686"
    cases = [
        (Settings(replicate_url="http://127.0.0.1:9", replicate_api_token="t"), f"{own}/v1/callbacks"),
        (Settings(replicate_api_token=TOKEN), None),
        (Settings(replicate_api_token=TOKEN, public_url="https://jobs.test"), "https://jobs.test/v1/callbacks"),
    ]
    for settings, expected in cases:
        provide(engine, settings, own)
        assert engine.providers.callbacks_url == expected
    services = all_services(engine, Settings(), export_line)
    assert [service.name for service in services if "reconciler" in service.name] == ["reconciler replicate"]
    await engine.providers.close()


def test_resting_queues_are_passed_over() -> None:
    lanes = Lanes(["a", "b"])
    lanes.resting = frozenset({"a"})
    assert lanes.columns()[1][0] == ["b"]
    lanes.marks = {("a", 0): (0, FIRST), ("b", 0): (0, FIRST)}
    assert lanes.columns()[1][0] == ["b"]
    lanes.resting = frozenset({"a", "b"})
    assert lanes.columns()[1] == []


async def test_a_queue_that_others_use_too_does_not_rest(dsn: str, files: Local, double: Replicate) -> None:
    app = make_app(kind(), kind("shared", queue="plain"))
    async with running_deployment(
        dsn, files, double, app, with_site=False, with_worker=False, with_services=False
    ) as here:
        here.engine.providers.client("replicate").breaker.failed(timedelta(seconds=60))
        assert here.engine.providers.resting() == {"paint"}


async def test_what_is_done_is_forgotten_after_a_while(dsn: str, files: Local, double: Replicate, clock: Clock) -> None:
    async with running_deployment(dsn, files, double) as here:
        await here.ended(await here.submit())
        await here.settled()
        waiting = await here.submit(seconds=3600)
        await here.until(waiting, lambda job: job.phase == "parked")
    async with running_deployment(dsn, files, double, with_site=False, with_worker=False, with_services=False) as here:
        prune = pruner(here.engine, retention=timedelta(days=30))
        await prune.run_once()
        assert len(await here.rows("predictions")) == 2
        await clock.advance(timedelta(days=8))
        await prune.run_once()
        assert (len(await here.rows("predictions")), await here.rows("callbacks")) == (2, [])
        await clock.advance(timedelta(days=30))
        await prune.run_once()
        assert [row["job_id"] for row in await here.rows("predictions")] == [waiting]
        await clock.advance(-timedelta(days=38))
