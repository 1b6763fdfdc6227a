"""Jobs whose code has a provider make several parts: each is asked for once, and kept, whatever happens in between."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest

from millpond.engine.providers import predictions
from millpond.errors import InvalidError, LifecycleError, ProviderMissingError
from millpond.kinds import Kind
from millpond.providers import Ask, PartResult
from tests.doubles.replicate import Refusal, Replicate
from tests.factories import TENANT
from tests.providers.deployments import ALBUM, PAGES, PRICE, Deployment, running_deployment

if TYPE_CHECKING:
    from millpond.storage.local import Local
    from tests.clocks import Clock

FOREVER = 3600.0
PARTS = (*PAGES, "cover")


async def album(
    here: Deployment, *, stumbles: bool = False, script: dict[str, Any] | None = None, **scripts: Any
) -> UUID:
    """A job that is paid for; ``page_1`` and so on say what becomes of a part."""
    await here.engine.grant(TENANT, here.account, PRICE)
    named = {part.replace("_", "-"): each for part, each in scripts.items()}
    return await here.give("album", {"script": script or {}, "scripts": named, "stumbles": stumbles})


def asked(double: Replicate) -> list[str]:
    return [made["input"]["part"] for made in double.predictions.values()]


def of(double: Replicate, part: str) -> dict[str, Any]:
    (made,) = [made for made in double.predictions.values() if made["input"]["part"] == part]
    return made


async def test_all_parts_are_in_storage_when_the_job_has_succeeded(here: Deployment, double: Replicate) -> None:
    job_id = await album(here)
    job = await here.ended(job_id)
    assert (job.state, job.captured, job.attempts) == ("succeeded", PRICE, 0)
    assert asked(double) == list(PARTS)
    found = {file.id: file for file in await here.engine.artifacts.of_job(TENANT, job_id)}
    assert [found[id].name for id in job.output["files"]] == ["page-1.png", "page-2.png", "cover.png"]
    assert len({file.epoch for file in found.values()}) > 1  # they were made by several attempts
    for file in found.values():
        assert await here.engine.artifacts.fetch(file) == double.picture
    assert job.output["said"] == [job.output["files"][2]]  # where it was is of no use to anybody
    assert job.output["saved"] == 3
    await here.settled()
    assert {row["part"]: row["status"] for row in await here.rows("predictions")} == dict.fromkeys(PARTS, "over")
    assert double.canceled == []


async def test_parts_of_one_question_are_made_at_the_same_time_and_hold_no_slot(
    here: Deployment, double: Replicate
) -> None:
    job_id = await album(here, page_1={"seconds": FOREVER}, page_2={"seconds": FOREVER})
    await here.until(job_id, lambda job: job.phase == "parked")
    assert asked(double) == list(PAGES)
    double.end(of(double, "page-2"), "succeeded")
    await here.poll_now()
    async with here.engine.db.connection() as connection:  # the one that is done is brought in, and not waited with
        kept = "select count(*) from millpond.predictions where job_id = $1 and kept is not null"
        while await connection.fetchval(kept, job_id) == 0:
            await here.poll_now()
    await here.until(job_id, lambda job: job.phase == "parked")
    double.end(of(double, "page-1"), "succeeded")
    assert (await here.ended_soon(job_id)).state == "succeeded"
    assert sorted(asked(double)) == sorted(PARTS)


async def test_an_attempt_that_fails_between_two_parts_asks_for_none_again(here: Deployment, double: Replicate) -> None:
    job = await here.ended(await album(here, stumbles=True))
    assert (job.state, job.attempts, job.captured) == ("succeeded", 1, PRICE)
    assert asked(double) == list(PARTS)


async def test_only_the_part_whose_answer_was_lost_is_asked_for_again(here: Deployment, double: Replicate) -> None:
    lost = iter([True])
    plan = double.plan

    def losing(given: dict[str, Any]) -> Any:
        script = plan(given)
        script.is_lost = given["part"] == "page-2" and next(lost, False)
        script.callbacks = 0 if script.is_lost else 1
        return script

    double.plan = losing
    job = await here.ended(await album(here))
    assert (job.state, job.attempts) == ("succeeded", 1)
    assert sorted(asked(double)) == sorted([*PARTS, "page-2"])


async def test_a_provider_that_rests_between_two_parts_burns_no_attempt(here: Deployment, double: Replicate) -> None:
    job_id = await album(here, page_1={"seconds": FOREVER})
    await here.until(job_id, lambda job: job.phase == "parked")
    double.refusals.extend([Refusal(429, headers={"Retry-After": "1"})] * 2)
    double.end(of(double, "page-1"), "succeeded")
    job = await here.ended_soon(job_id)
    assert (job.state, job.attempts) == ("succeeded", 0)
    assert asked(double) == list(PARTS)


async def test_the_queue_of_a_kind_that_needs_a_resting_provider_stays_in_line(
    here: Deployment, double: Replicate
) -> None:
    double.refusals.append(Refusal(429, headers={"Retry-After": "60"}))
    first = await album(here)
    await here.until(first, lambda job: job.phase == "parked")
    assert here.engine.providers.resting() == {"paint", "album"}
    later = await album(here)
    assert (await here.ended((await here.engine.submit("plain", **here.owner)).job_id)).state == "succeeded"
    assert (await here.read(later)).phase == "ready"
    for job_id in (first, later):
        await here.engine.cancel(TENANT, job_id)


async def test_a_cancel_stops_every_part_that_is_open(here: Deployment, double: Replicate) -> None:
    job_id = await album(here, script={"seconds": FOREVER})
    await here.until(job_id, lambda job: job.phase == "parked")
    await here.engine.cancel(TENANT, job_id)
    await here.settled()
    assert (await here.read(job_id)).state == "canceled"
    assert {made["status"] for made in double.predictions.values()} == {"canceled"}
    assert asked(double) == list(PAGES)
    assert await here.balance() == (PRICE, 0)


async def test_where_one_part_fails_the_others_are_stopped(here: Deployment, double: Replicate) -> None:
    job_id = await album(here, page_1={"status": "failed", "error": "No paint."}, page_2={"seconds": FOREVER})
    job = await here.ended(job_id)
    assert (job.state, job.error["message"], job.captured) == ("failed", "No paint.", 0)
    await here.settled()
    assert of(double, "page-2")["status"] == "canceled"
    assert await here.balance() == (PRICE, 0)


async def test_a_part_that_the_provider_has_lost_fails_the_job(here: Deployment, double: Replicate) -> None:
    job_id = await album(here, script={"seconds": FOREVER})
    await here.until(job_id, lambda job: job.phase == "parked")
    del double.predictions[of(double, "page-1")["id"]]
    job = await here.ended_soon(job_id)
    assert job.state == "failed"
    await here.settled()
    assert of(double, "page-2")["status"] == "canceled"


async def test_at_the_deadline_every_open_part_is_stopped(
    dsn: str, files: Local, double: Replicate, clock: Clock
) -> None:
    async with running_deployment(dsn, files, double) as here:
        job_id = await album(here, page_2={"seconds": FOREVER})
        await here.until(job_id, lambda job: job.phase == "parked" and job.epoch > 1)
        await clock.advance(timedelta(hours=1))
        assert (await here.ended(job_id)).state == "expired"
        await here.settled()
        assert [of(double, part)["status"] for part in PAGES] == ["succeeded", "canceled"]
        assert await here.balance() == (PRICE, 0)


async def test_the_sweeper_takes_what_no_attempt_counts_on_and_nothing_else(
    dsn: str, files: Local, double: Replicate, clock: Clock
) -> None:
    async with running_deployment(dsn, files, double) as here:
        job_id = await album(here, cover={"seconds": FOREVER})
        await here.until(job_id, lambda job: job.phase == "parked" and len(double.predictions) == 3)
        spare = await here.engine.artifacts.save(  # of an attempt that was replaced before it could keep it
            TENANT, here.account, name="spare.png", content_type="image/png", data=b"x", job_id=job_id, epoch=1
        )
        await clock.advance(timedelta(minutes=50))
        assert await here.engine.artifacts.sweep() == 0
        double.end(of(double, "cover"), "succeeded")
        job = await here.ended_soon(job_id)
        assert job.state == "succeeded"
        await clock.advance(timedelta(hours=2))
        assert await here.engine.artifacts.sweep() == 1
        found = await here.engine.artifacts.of_job(TENANT, job_id)
        assert sorted(file.id for file in found) == sorted(job.output["files"])
        assert spare.id not in job.output["files"]


async def test_what_was_kept_first_counts(here: Deployment) -> None:
    job_id = await album(here, script={"seconds": FOREVER})
    await here.until(job_id, lambda job: job.phase == "parked")
    row = (await here.rows("predictions", part="page-1"))[0]
    first, second = (msgspec.json.encode(PartResult(n, [])).decode() for n in (1, 2))
    db = here.engine.database(TENANT)
    for given in (first, second):
        kept = msgspec.json.decode(await predictions.keep(db, row["id"], given), type=PartResult)
        assert kept.output == 1
    await here.engine.cancel(TENANT, job_id)


async def test_a_kind_that_needs_a_missing_provider_is_refused_before_it_costs_anything(
    dsn: str, files: Local, double: Replicate
) -> None:
    async with running_deployment(dsn, files, double, with_provider=False) as here:
        with pytest.raises(ProviderMissingError):
            await album(here)
        assert await here.balance() == (PRICE, 0)
        async with here.engine.db.connection() as connection:
            assert await connection.fetchval("select count(*) from millpond.jobs") == 0


async def test_a_part_has_a_name(here: Deployment) -> None:
    with pytest.raises(InvalidError, match="part"):
        await here.engine.providers.ask(None, "replicate", Ask("acme/painter", {}), "")  # type: ignore[arg-type]


def test_a_kind_that_needs_a_provider_has_a_deadline() -> None:
    with pytest.raises(LifecycleError, match="expires_in"):
        Kind(name="album", needs=("replicate",))
    assert ALBUM.needs == ("replicate",)
