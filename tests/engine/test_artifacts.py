"""Artifacts: files that are announced, put in storage, confirmed, given out, and swept when nobody needs them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from millpond import ids
from millpond.api.jobs.jobs import export_line
from millpond.engine.engine import Engine
from millpond.engine.jobs.artifacts import SQL, ArtifactRecord, folder
from millpond.engine.queue.dispatches import Lanes
from millpond.errors import (
    ArtifactMismatchError,
    ArtifactMissingError,
    ConflictError,
    InvalidError,
    NotFoundError,
    StorageUnavailableError,
    TooLargeError,
)
from millpond.services import all_services
from millpond.services.sweeper import sweeper
from millpond.settings import Settings
from millpond.storage.local import Local
from millpond.store import partitions
from millpond.store.db import CLIENT_ROLE, Database
from millpond.work import End
from tests.databases import Between
from tests.factories import ACCOUNT, HOUR, MINUTE, STRANGER, TENANT, interruption
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.engine.queue.leases import Lease
    from millpond.lifecycle import Outcome
    from tests.clocks import Clock
    from tests.factories import Factory

BODY = b"some bytes"
SHA256 = hashlib.sha256(BODY).hexdigest()
LONG = timedelta(days=400)


async def announced(engine: Engine, **options: Any) -> ArtifactRecord:
    given = {"name": "cat.png", "content_type": "image/png", "size": len(BODY)} | options
    owner = given.pop("tenant", TENANT), given.pop("account", ACCOUNT)
    return (await engine.artifacts.upload(*owner, **given))[0]


async def uploaded(engine: Engine, **options: Any) -> ArtifactRecord:
    """Announced and put in storage, as by its signed URL, but not confirmed."""
    record = await announced(engine, **options)
    await engine.artifacts.store.write(record.path, BODY, content_type=record.content_type)
    return record


async def saved(engine: Engine, lease: Lease | None = None, **options: Any) -> ArtifactRecord:
    of = {} if lease is None else {"job_id": lease.job_id, "epoch": lease.epoch}
    given = {"name": "out.png", "content_type": "image/png", "data": BODY} | of | options
    return await engine.artifacts.save(given.pop("tenant", TENANT), given.pop("account", ACCOUNT), **given)


async def is_there(engine: Engine, record: ArtifactRecord) -> tuple[bool, bool]:
    """Whether its row is seen, and whether its file is there."""
    try:
        await engine.artifacts.read(record.tenant, record.artifact_id)
        has_row = True
    except NotFoundError:
        has_row = False
    return has_row, await engine.artifacts.store.head(record.path) is not None


KEPT, GONE = (True, True), (False, False)


# In and out


async def test_an_announced_file_counts_once_it_is_seen_in_storage(engine: Engine) -> None:
    record, upload = await engine.artifacts.upload(
        TENANT, ACCOUNT, name="cat.png", content_type="image/png", size=len(BODY), sha256=SHA256
    )
    assert upload.method == "PUT"
    assert upload.headers == {"Content-Type": "image/png"}
    assert record.id.startswith("art_")
    assert record.stored_at is None
    assert record.expires_at - record.created_at == timedelta(minutes=15)
    with pytest.raises(ArtifactMissingError) as raised:
        await engine.artifacts.confirm(TENANT, record.id)
    assert raised.value.details == {"artifact_id": record.id}
    await engine.artifacts.store.write(record.path, BODY, content_type="image/png")
    confirmed = await engine.artifacts.confirm(TENANT, record.id)
    assert confirmed.stored_at is not None
    assert await engine.artifacts.confirm(TENANT, record.id, size=len(BODY), sha256=SHA256) == confirmed
    assert await engine.artifacts.read(TENANT, record.id, ACCOUNT) == confirmed
    assert await engine.artifacts.fetch(confirmed) == BODY
    assert b"".join([piece async for piece in engine.artifacts.stream(confirmed)]) == BODY


async def test_a_file_that_is_not_as_announced_does_not_count(engine: Engine) -> None:
    record = await announced(engine, size=11)
    await engine.artifacts.store.write(record.path, BODY)
    with pytest.raises(ArtifactMismatchError) as raised:
        await engine.artifacts.confirm(TENANT, record.id)
    assert raised.value.details == {"artifact_id": record.id, "expected": 11, "found": 10}
    assert (await engine.artifacts.read(TENANT, record.id)).stored_at is None


async def test_a_file_that_is_not_as_its_maker_says_does_not_count(engine: Engine) -> None:
    record = await uploaded(engine)
    with pytest.raises(ArtifactMismatchError, match="size"):
        await engine.artifacts.confirm(TENANT, record.id, size=9)
    with pytest.raises(ArtifactMismatchError, match="sha256"):
        await engine.artifacts.confirm(TENANT, record.id, sha256="0" * 64)
    assert (await engine.artifacts.confirm(TENANT, record.id, sha256=SHA256)).sha256 == SHA256
    with pytest.raises(ArtifactMismatchError, match="sha256"):  # it counts now, and is still held to what it is
        await engine.artifacts.confirm(TENANT, record.id, sha256="0" * 64)


async def test_a_file_can_be_saved_from_here(engine: Engine) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield BODY

    record = await saved(engine, data=pieces())
    assert (record.size, record.sha256) == (30, hashlib.sha256(BODY * 3).hexdigest())
    assert record.stored_at is not None
    assert await engine.artifacts.fetch(record) == BODY * 3


async def test_each_attempt_has_paths_of_its_own(engine: Engine, make: Factory) -> None:
    lease = await make.leased()
    first, again = await saved(engine, lease), await saved(engine, lease)
    assert first.path != again.path
    assert first.path.startswith(f"tenants/{TENANT}/jobs/{ids.text('job', lease.job_id)}/{lease.epoch}-")
    assert first.path.endswith("/out.png")


async def test_any_name_makes_a_sane_path(engine: Engine) -> None:
    names = {
        "../../etc/passwd": "/_.._etc_passwd",
        ".bashrc": "/bashrc",
        "...": "/file",
        "a\\b:c*?.png": "/a_b_c__.png",
        "Grüße 漢.png": "/Grüße 漢.png",
        "x" * 250 + ".png": "/" + "x" * 120 + ".png",
    }
    for name, end in names.items():
        record = await saved(engine, name=name)
        assert record.path.endswith(end)
        assert record.name == name
        assert (await engine.artifacts.read(TENANT, record.id)).name == name


async def test_any_tenant_has_a_folder_of_its_own(engine: Engine) -> None:
    for tenant in ("acme/eu", "..", ".", "a:b@c+d", "x" * 128):
        record = await saved(engine, tenant=tenant)
        assert record.path.startswith(folder(tenant))
        assert len(folder(tenant).split("/")) == 3
        assert await engine.artifacts.fetch(record) == BODY


async def test_what_makes_no_sense_is_refused(engine: Engine) -> None:
    nonsense: list[dict[str, Any]] = [
        {"name": ""},
        {"name": "x" * 256},
        {"name": "a\nb"},
        {"content_type": "png"},
        {"size": -1},
        {"sha256": "ABC"},
        {"path": "tenants/other/x"},
        {"path": "shared/x"},
        {"path": "tenants/acme/../other/x"},
        {"tenant": "no spaces"},
    ]
    for given in nonsense:
        with pytest.raises(InvalidError) as raised:
            await announced(engine, **given)
        assert raised.value.field == next(iter(given))


async def test_a_file_larger_than_the_limit_is_not_announced(engine: Engine) -> None:
    engine.artifacts.store.size_max = 100
    with pytest.raises(TooLargeError):
        await announced(engine, size=101)
    assert (await announced(engine, size=100)).size == 100


async def test_a_path_is_taken_once(engine: Engine) -> None:
    path = "tenants/acme/ai-jobs/1/output.png"
    assert (await announced(engine, path=path)).path == path
    with pytest.raises(ConflictError):
        await announced(engine, path=path)


async def test_without_storage_it_is_said_so(db: Database) -> None:
    bare = Engine(db, app)
    with pytest.raises(StorageUnavailableError, match="without storage"):
        await announced(bare)
    assert await sweeper(bare).run_once() == 0


async def test_what_is_not_below_tenants_is_nobodys_business(engine: Engine) -> None:
    """A product keeps its own files in storage, without a row."""
    store = engine.artifacts.store
    await store.write("effects/workflows/invert.json", b"{}", content_type="application/json")
    assert store.sign_get("effects/workflows/invert.json", lifetime=HOUR).method == "GET"
    await engine.artifacts.sweep(stray_age=timedelta(seconds=-10))
    assert await store.read("effects/workflows/invert.json") == b"{}"


# Whose they are


async def test_another_tenant_or_account_finds_nothing(engine: Engine) -> None:
    record = await saved(engine)
    for whose in ((STRANGER, None), (STRANGER, ACCOUNT), (TENANT, "bob")):
        with pytest.raises(NotFoundError):
            await engine.artifacts.read(whose[0], record.id, whose[1])
    with pytest.raises(NotFoundError):
        await engine.artifacts.confirm(STRANGER, record.id)
    for wrong in ("nonsense", ids.text("job", record.artifact_id), ids.text("art", UUID(int=0))):
        with pytest.raises(NotFoundError):
            await engine.artifacts.read(TENANT, wrong)


async def test_what_a_job_made_is_found_by_the_job_whoever_pays(engine: Engine, make: Factory) -> None:
    lease = await make.leased()
    made, other = await saved(engine, lease, account="bob"), await saved(engine, account="bob")
    wanted = [made.artifact_id, other.artifact_id]
    assert await engine.artifacts.find(TENANT, wanted, ACCOUNT) == []
    assert await engine.artifacts.find(TENANT, wanted, ACCOUNT, lease.job_id) == [made]
    assert await engine.artifacts.find(STRANGER, wanted, None, lease.job_id) == []


async def test_the_second_wall_stands_without_the_first(engine: Engine, db: Database, dsn: str) -> None:
    mine, theirs = await saved(engine), await saved(engine, tenant=STRANGER)
    client = await Database.open(dsn, size=1, role=CLIENT_ROLE)
    try:
        async with client.transaction() as tx:
            assert await tx.fetchval("select count(*) from millpond.artifacts") == 0
            await tx.execute("select set_config('millpond.callers', $1, true)", TENANT)
            assert [row["id"] for row in await tx.fetch("select id from millpond.artifacts")] == [mine.artifact_id]
        assert await client.run(SQL["view"], TENANT, None, [theirs.artifact_id], None) == []
    finally:
        await client.close()


async def test_a_job_has_what_it_was_given_and_what_its_last_attempt_made(engine: Engine, make: Factory) -> None:
    lease = await make.leased()
    given = await saved(engine, job_id=lease.job_id, name="in.png")
    early = await saved(engine, lease)
    assert await engine.artifacts.of_job(TENANT, lease.job_id) == [given, early]
    await engine.give_back(interruption(lease))
    (lease,) = await make.claimed("free")
    late, unseen = await saved(engine, lease), await announced(engine, job_id=lease.job_id, epoch=lease.epoch)
    assert await engine.artifacts.of_job(TENANT, lease.job_id) == [given, late]
    assert await engine.artifacts.of_job(STRANGER, lease.job_id) == []
    assert await engine.artifacts.of_job(TENANT, lease.job_id, "bob") == []
    assert unseen.stored_at is None


# Sweeping


async def test_an_upload_that_was_never_confirmed_is_swept_after_its_deadline(engine: Engine, clock: Clock) -> None:
    record, empty = await uploaded(engine), await announced(engine)
    await clock.advance(timedelta(minutes=16))
    await engine.artifacts.sweep()
    assert await is_there(engine, record) == KEPT
    await clock.advance(HOUR)
    assert await engine.artifacts.sweep() == 2
    assert await is_there(engine, record) == GONE
    assert await is_there(engine, empty) == GONE


async def test_an_upload_that_a_job_was_given_counts_without_being_confirmed(
    engine: Engine, make: Factory, clock: Clock
) -> None:
    by_id, by_path, tied = await uploaded(engine), await uploaded(engine, name='"q" ü.png'), await make.submitted()
    given = await uploaded(engine, job_id=tied.job_id)
    gone = await announced(engine)
    await make.submitted("free", {"image": {"deep": [by_id.id]}, "file": by_path.path, "x": gone.id})
    await clock.advance(2 * HOUR)
    assert await engine.artifacts.sweep() == 1
    for record in (by_id, by_path, given):
        assert await is_there(engine, record) == KEPT
        assert (await engine.artifacts.read(TENANT, record.id)).stored_at is not None
    assert await is_there(engine, gone) == GONE


async def test_a_job_of_somebody_else_keeps_nothing(engine: Engine, make: Factory, clock: Clock) -> None:
    record = await uploaded(engine)
    await make.submitted("free", {"image": record.id}, account="bob")
    await make.submitted("free", {"image": record.id}, tenant=STRANGER)
    await clock.advance(2 * HOUR)
    await engine.artifacts.sweep()
    assert await is_there(engine, record) == GONE


async def test_what_the_winner_made_is_kept_and_what_others_made_is_swept(
    engine: Engine, make: Factory, clock: Clock
) -> None:
    lease = await make.leased()
    given, lost = await saved(engine, job_id=lease.job_id), await saved(engine, lease)
    await engine.give_back(interruption(lease))
    (lease,) = await make.claimed("free", duration=timedelta(days=1))
    won, unseen = await saved(engine, lease), await uploaded(engine, job_id=lease.job_id, epoch=lease.epoch)
    await clock.advance(2 * HOUR)
    assert await engine.artifacts.sweep() == 0  # it has not ended
    await make.finish(lease)
    assert await engine.artifacts.sweep() == 0  # only just
    await clock.advance(2 * HOUR)
    assert await engine.artifacts.sweep() == 2
    assert [await is_there(engine, each) for each in (given, lost, won, unseen)] == [KEPT, GONE, KEPT, GONE]
    await clock.advance(30 * 24 * HOUR)
    assert await engine.artifacts.sweep() == 0
    assert await is_there(engine, won) == KEPT


async def test_what_a_job_made_that_did_not_succeed_is_swept(engine: Engine, make: Factory, clock: Clock) -> None:
    outcomes: tuple[Outcome, ...] = ("failed", "canceled", "blocked")
    for outcome in outcomes:
        lease = await make.leased("priced")
        record, given = await saved(engine, lease), await saved(engine, job_id=lease.job_id)
        await make.finish(lease, outcome)
        await clock.advance(2 * HOUR)
        assert await engine.artifacts.sweep() == 1
        assert await is_there(engine, record) == GONE
        assert await is_there(engine, given) == KEPT


async def test_artifacts_go_with_the_history_of_their_job(engine: Engine, make: Factory, clock: Clock) -> None:
    lease = await make.leased()
    won, given = await saved(engine, lease), await saved(engine, job_id=lease.job_id)
    await make.finish(lease)
    loose = await saved(engine)
    await clock.advance(89 * 24 * HOUR)
    await engine.artifacts.sweep()
    assert [await is_there(engine, each) for each in (won, given, loose)] == [KEPT, KEPT, KEPT]
    await clock.advance(20 * 24 * HOUR)
    await engine.artifacts.sweep()
    assert [await is_there(engine, each) for each in (won, given, loose)] == [KEPT, KEPT, GONE]
    assert await partitions.drop(engine.db, timedelta(days=90))
    await engine.artifacts.sweep()
    assert [await is_there(engine, each) for each in (won, given)] == [GONE, GONE]


async def test_the_input_of_a_job_that_has_not_ended_outlives_every_age(
    engine: Engine, make: Factory, clock: Clock
) -> None:
    record, other = await saved(engine), await saved(engine)
    job = await make.submitted("free", {"image": record.id}, expires_in="3000d")
    ended = await make.submitted("free", {"image": other.id})
    await engine.cancel(TENANT, ended.job_id)
    await clock.advance(LONG)
    await engine.artifacts.sweep()
    assert await is_there(engine, record) == KEPT
    assert await is_there(engine, other) == GONE
    await engine.cancel(TENANT, job.job_id)
    await engine.artifacts.sweep()
    assert await is_there(engine, record) == GONE


async def test_a_file_without_a_row_is_swept_when_it_is_old(engine: Engine, files: Local) -> None:
    known = await saved(engine)
    for path in ("tenants/acme/uploads/1/x", "tenants/acme%2Feu/uploads/2/y", "tenants/new/uploads/3/z"):
        await files.write(path, BODY)
    for path in ("tenants/acme/uploads/1/x", "tenants/acme%2Feu/uploads/2/y", known.path):
        old = time.time() - 25 * 3600
        os.utime(files.root / path, (old, old))
    assert await engine.artifacts.sweep() == 2
    assert [each.path for each in await files.list()] == sorted([known.path, "tenants/new/uploads/3/z"])


async def test_each_sweep_is_bounded_and_goes_on_where_the_last_one_stopped(
    engine: Engine, make: Factory, clock: Clock
) -> None:
    """Files that must stay do not keep the sweeper from those behind them."""
    kept = [await make.leased() for _ in range(5)]
    for lease in kept:
        await saved(engine, lease)
    for _ in range(5):
        await saved(engine, await _ended(engine, make))
    await engine.extend(kept, timedelta(days=1))
    await clock.advance(2 * HOUR)
    swept = [await engine.artifacts.sweep(2) for _ in range(8)]
    assert sum(swept) == 5
    assert max(swept) <= 2
    assert len(await engine.artifacts.store.list()) == 5


async def _ended(engine: Engine, make: Factory) -> Lease:
    """A lease whose job has failed."""
    lease = await make.leased()
    await make.finish(lease, "failed")
    return lease


async def test_a_sweep_that_was_killed_at_any_step_is_finished_by_the_next(
    engine: Engine, make: Factory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th call to the database or to storage never comes back, for every n until none is left."""

    class KilledError(BaseException):
        pass

    store, db = engine.artifacts.store, engine.db
    for calls in range(40):
        lost, won = await saved(engine, await _ended(engine, make)), await make.leased()
        kept = await saved(engine, won)
        await make.finish(won)
        stray = await uploaded(engine)
        await clock.advance(3 * HOUR)
        left = calls

        def cut(call: Any) -> Any:
            async def cut_call(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left == -1:
                    raise KilledError
                return await call(*arguments, **options)

            return cut_call

        with monkeypatch.context() as patched:
            patched.setattr(engine.artifacts, "_databases", [Between(db, run=cut(db.run))].copy)
            patched.setattr(store, "delete", cut(store.delete))
            with suppress(KilledError):
                await engine.artifacts.sweep()
        for record in (lost, stray):  # nobody sees a row whose file is gone
            assert await is_there(engine, record) != (True, False)
        assert await is_there(engine, kept) == KEPT
        await engine.artifacts.sweep()
        await engine.artifacts.sweep()
        assert [await is_there(engine, each) for each in (lost, stray, kept)] == [GONE, GONE, KEPT]
        if left >= 0:
            assert calls > 8
            return
    raise AssertionError("It never came to an end.")


async def test_what_cannot_be_removed_now_is_removed_later(engine: Engine, clock: Clock) -> None:
    records = [await uploaded(engine) for _ in range(2)]
    await clock.advance(2 * HOUR)
    store: Any = engine.artifacts.store
    place = (store.root / records[0].path).parent
    (store.root / records[0].path).unlink()
    (place / "cat.png").mkdir()  # what is there now is no file
    (place / "cat.png" / "x").touch()
    assert await engine.artifacts.sweep() in (1, 2)
    assert await is_there(engine, records[1]) == GONE


async def test_sweepers_may_run_side_by_side(engine: Engine, clock: Clock) -> None:
    records = [await uploaded(engine) for _ in range(20)]
    await clock.advance(2 * HOUR)
    await asyncio.gather(*(engine.artifacts.sweep() for _ in range(4)))
    assert {await is_there(engine, record) for record in records} == {GONE}


async def test_a_confirmed_upload_is_never_taken_for_a_lost_one(engine: Engine, clock: Clock) -> None:
    """The sweeper has seen it unconfirmed; by the time it acts, somebody has confirmed it."""
    record = await uploaded(engine)
    await clock.advance(2 * HOUR)
    rows = await engine.db.run(SQL["unstored"], UUID(int=0), HOUR, 10)
    assert [row["id"] for row in rows] == [record.artifact_id]
    await engine.artifacts.confirm(TENANT, record.id)
    assert await engine.db.run(SQL["mark_unstored"], [record.artifact_id]) == []


async def test_who_confirms_what_is_being_removed_learns_that_it_is_gone(engine: Engine) -> None:
    record = await uploaded(engine)
    await engine.db.run(SQL["mark"], [record.artifact_id])
    with pytest.raises(NotFoundError):
        await engine.artifacts.confirm(TENANT, record.id)
    with pytest.raises(ArtifactMissingError):
        await engine.artifacts._stored(record, 10, None)


async def test_an_artifact_can_be_deleted(engine: Engine) -> None:
    record = await saved(engine)
    await engine.artifacts.delete(record)
    assert await is_there(engine, record) == GONE
    await engine.artifacts.delete(record)


async def test_the_sweeper_is_one_of_the_services(engine: Engine) -> None:
    assert "sweeper" in {service.name for service in all_services(engine, Settings(), export_line)}
    assert await sweeper(engine).run_once() == 0


async def test_what_a_job_saved_before_it_parked_stays_with_the_output_that_names_it(
    engine: Engine, clock: Clock
) -> None:
    await engine.grant(TENANT, ACCOUNT, 5)
    submitted = await engine.submit("brief", tenant=TENANT, account=ACCOUNT)
    (lease,) = await engine.claim(Lanes(("brief",)), 1, worker="w", duration=MINUTE)
    draft = await engine.source().save(lease, "draft.png", "image/png", b"draft")
    await engine.park(lease, {"draft": draft.id})
    await engine.answer(TENANT, submitted.job_id, {})
    (lease,) = await engine.claim(Lanes(("brief",)), 1, worker="w", duration=MINUTE)
    await engine.finish(End(lease, "succeeded", f'{{"file": "{draft.id}"}}'))
    assert [file.id for file in await engine.artifacts.of_job(TENANT, submitted.job_id)] == [draft.id]
    await clock.advance(HOUR * 3)
    await engine.artifacts.sweep()
    assert await engine.artifacts.fetch(await engine.artifacts.read(TENANT, draft.id)) == b"draft"
