"""``millpond verify``: every invariant is shown to find what breaks it. A check that cannot fail checks nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond.engine import verify
from millpond.engine.queue import leases
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End
from millpond.outbound import Outbound
from millpond.schedules import Schedule, Timing
from millpond.webhooks import Hook
from millpond.work import ChildRequest, Chunk, SpawnRequest
from tests.factories import ERROR, HOUR, MINUTE, Factory, attempt, progress
from tests.post import LOOPBACK, SECRET, VAULT

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.acceptance.processes import Shell
    from tests.clocks import Clock

pytestmark = pytest.mark.unsound

CAPTURED_BY_A_FAILURE = """
update millpond.jobs set captured = price where id = {failed};
update millpond.entries set outside = -held, available = 0 where job_id = {failed} and type = 'release'
"""
ANOTHER_EVENT_AFTER_THE_END = """
insert into millpond.events
select job_id, seq + 1, at, 'TYPE', state, tenant from millpond.events where job_id = {succeeded} and type = 'succeeded'
"""

# Each offence as an operator might commit it, by hand, with the guards off.
OFFENCES = {
    "account_equals_its_entries": [
        "update millpond.accounts set available = available + 1",
        "update millpond.accounts set held = held + 1",
        "update millpond.accounts set entries = entries + 1",
        "delete from millpond.accounts",
        "delete from millpond.entries where seq = (select max(seq) from millpond.entries)",
    ],
    "entries_form_a_chain": [
        "update millpond.entries set available_after = available_after + 1 where seq = 2",
        "update millpond.entries set held_after = held_after + 1 where seq = 2",
        "update millpond.entries set seq = 1000 where seq = 3",
        "delete from millpond.entries where seq = 2",
    ],
    "held_equals_open_holds": [
        "update millpond.accounts set held = held + 1",
        "delete from millpond.entries where type = 'hold' and job_id = {ready}",
    ],
    "active_equals_unended_jobs": [
        "update millpond.accounts set active = active + 1",
        "delete from millpond.jobs where phase = 'ready'",
        "delete from millpond.accounts",
    ],
    "ended_jobs_are_settled_once": [
        "delete from millpond.entries where type in ('capture', 'release') and job_id = {succeeded}",
        "delete from millpond.entries where type = 'hold' and job_id = {succeeded}",
        "delete from millpond.entries where type = 'hold' and job_id = {ready}",
        "delete from millpond.entries where type = 'release' and job_id = {retried} and run = 1",
        "update millpond.jobs set captured = 1 where id = {succeeded}",
        "update millpond.jobs set price = price + 1 where id = {ready}",
        "update millpond.jobs set price = 0 where id = {ready}",
        "update millpond.jobs set finished_at = finished_at + interval '1 second' where id = {succeeded}",
        "update millpond.entries set run = 2 where job_id = {succeeded} and type = 'hold'",
        CAPTURED_BY_A_FAILURE,
    ],
    "refunds_fit_what_was_captured": [
        "update millpond.entries set type = 'adjust', job_id = {succeeded} where type = 'grant'",
        "update millpond.entries set type = 'adjust', job_id = {failed} where type = 'grant'",
    ],
    "unended_jobs_have_a_dispatch": [
        "delete from millpond.dispatches where phase = 'ready'",
        "delete from millpond.jobs where phase = 'leased'",
        "update millpond.jobs set phase = 'ready' where phase = 'parked'",
    ],
    "dispatches_agree_with_their_job": [
        "update millpond.dispatches set tenant = 'globex' where phase = 'ready'",
        "update millpond.dispatches set queue = 'free' where phase = 'parked'",
        "update millpond.dispatches set epoch = epoch + 1 where phase = 'leased'",
        "update millpond.dispatches set attempts = attempts + 1 where phase = 'leased'",
        "update millpond.dispatches set expires_at = expires_at + interval '1 second' where phase = 'parked'",
    ],
    "ready_dispatches_stand_in_line": [
        "delete from millpond.ready",
        "update millpond.ready set rank = rank + 1",
        "insert into millpond.ready select queue, rank, turn, job_id from millpond.dispatches where phase = 'parked'",
    ],
    "ready_jobs_wait_once": [
        "insert into millpond.limit_waits select job_id, 'k', queue, rank, turn, now() from millpond.ready limit 1",
    ],
    "leased_jobs_count_under_their_limits": [
        "insert into millpond.limit_holders values ('k', {ready})",
        "update millpond.dispatches set limits = '{{k}}' where phase = 'leased'",
    ],
    "leased_dispatches_have_a_lease": [
        "delete from millpond.leases",
        "update millpond.leases set job_ids = '{{}}'",
        "update millpond.dispatches set lease_token = gen_random_uuid() where phase = 'leased'",
        "update millpond.leases set expires_at = expires_at - interval '1 day'",
    ],
    "nothing_outlives_its_deadline": [
        "update millpond.dispatches set expires_at = expires_at - interval '1 day' where phase = 'parked'",
    ],
    "caps_hold": [
        "update millpond.dispatches set attempts = 3 where phase = 'ready'",
        "update millpond.dispatches set interruptions = 10 where phase = 'ready'",
        "update millpond.dispatches set lapses = 3 where phase = 'ready'",
    ],
    "events_have_no_gap": [
        "delete from millpond.events where job_id = {ready}",
        "delete from millpond.events where job_id = {leased} and seq = 2",
        "update millpond.jobs set events = events + 1 where id = {leased}",
        "delete from millpond.jobs where id = {succeeded}",
    ],
    "states_follow_from_events": [
        "delete from millpond.events where job_id = {ready}",
        "update millpond.events set state = 'running' where job_id = {ready}",
        "update millpond.events set type = 'answered' where job_id = {leased} and seq = 2",
        "update millpond.jobs set state = 'parked' where id = {leased}",
        "update millpond.jobs set outcome = 'canceled' where id = {succeeded}",
    ],
    "jobs_end_once_a_run": [
        ANOTHER_EVENT_AFTER_THE_END.replace("TYPE", "succeeded"),
        "update millpond.events set type = 'log' where job_id = {succeeded} and type = 'succeeded'",
        ANOTHER_EVENT_AFTER_THE_END.replace("TYPE", "log"),
        "update millpond.jobs set run = run + 1 where id = {ready}",
    ],
    "counters_agree_with_jobs": [
        "delete from millpond.counter_changes",
        "update millpond.counter_changes set n = n + 1 where event = 'started'",
        "update millpond.counter_changes set price = price + 1 where event = 'submitted'",
        "insert into millpond.counts values ('acme', 'free', 'queued', 'ready', 1, 0)",
        "delete from millpond.jobs where phase = 'parked'",
        "update millpond.jobs set phase = 'waiting' where id = {ready}",
    ],
    "keys_name_their_job": [
        "delete from millpond.jobs where id = {ready}",
        "update millpond.idempotency set tenant = 'globex'",
    ],
    "delivering_jobs_are_delivered": [
        "delete from millpond.deliveries where decides",
        "update millpond.deliveries set decides = false",
        "update millpond.deliveries set job_id = {succeeded} where decides",
    ],
    "deliveries_go_in_order": [
        "update millpond.deliveries set fate = 'delivered', due_at = null, settled_at = now() where event = 'started'",
        "update millpond.deliveries set is_out = true where event = 'started'",
    ],
    "hooks_have_deliveries": [
        "delete from millpond.deliveries where event = 'started'",
        "update millpond.hooks set events = events || '{{noted,delivering}}'; delete from millpond.deliveries",
    ],
    "endpoints_are_subscribed": [
        "delete from millpond.subscriptions",
        "delete from millpond.endpoints",
        "update millpond.endpoints set disabled_at = now(), disabled_reason = 'x'",
        "delete from millpond.subscriptions where event = 'failed'",
        "update millpond.subscriptions set event = 'noted' where event = 'failed'",
    ],
    "deliveries_follow_their_endpoint": [
        (
            "insert into millpond.deliveries (id, tenant, endpoint_id, event, at, data, decides, due_at)"
            " values (gen_random_uuid(), 'acme', gen_random_uuid(), 'test', now(), '{{}}', false, 'infinity')"
        ),
        (
            "update millpond.endpoints set created_at = now() - interval '1 day';"
            " insert into millpond.deliveries (id, tenant, endpoint_id, event, at, data, decides, due_at)"
            " select gen_random_uuid(), 'acme', id, 'test', now(), '{{}}', false, 'infinity' from millpond.endpoints"
        ),
    ],
    "predictions_are_scheduled": [
        (
            "insert into millpond.predictions (id, tenant, job_id, run, provider, status, external_id, created_at,"
            " expires_at, over_at)"
            " values (gen_random_uuid(), 'acme', {parked}, 1, 'replicate', 'over', 'p', now(), now(), now())"
        ),
    ],
    "budgets_reserve_for_open_jobs": [
        "update millpond.budgets set reserved = reserved + 1",
        "delete from millpond.reservations where job_id = {child}",
        "update millpond.budgets set closed_at = now()",
    ],
    "batches_count_their_jobs": [
        "update millpond.batches set ended = 1, succeeded = 1",
        "update millpond.batches set submitted = submitted - 1",
        "delete from millpond.jobs where id = {child}",
        "update millpond.jobs set batch_id = null where id = {member}",
    ],
    "batches_of_clients_add_up": [
        "update millpond.batches set price = price + 1",
        "update millpond.batches set captured = captured + 1",
        "update millpond.batch_pages set jobs = jobs + 1",
        "delete from millpond.batch_pages",
        "update millpond.jobs set captured = 0 where id = {member}",
    ],
    "canceled_batches_end": [
        "update millpond.batches set canceled_at = now(), total = submitted where parent_id is null",
    ],
    "children_belong_to_a_batch": [
        "update millpond.jobs set batch_id = gen_random_uuid() where id = {child}",
        "update millpond.jobs set depth = null where id = {child}",
        "update millpond.jobs set parent_id = {ready} where id = {child}",
    ],
    "parked_parents_will_resume": [
        "update millpond.batches set is_awaited = false",
        "delete from millpond.steps",
        "update millpond.jobs set waits_for = 'question' where waits_for = 'children'",
    ],
    "children_do_not_outlive_their_parent": [
        "update millpond.batches set parent_id = {succeeded} where parent_id is not null",
        "update millpond.batches set run = 0 where parent_id is not null",
    ],
    "schedules_stay_due": [
        "update millpond.schedules set due_at = null, next_at = null",
    ],
    "fires_come_before_the_next_due_time": [
        "update millpond.fires f set cause = 'schedule', due_at = s.due_at from millpond.schedules s",
    ],
    "fires_are_settled": [
        "update millpond.fires set outcome = 'pending', tries = 0, try_at = now(), at = at - interval '1 day'",
    ],
    "fires_name_their_job": [
        "update millpond.fires set job_id = gen_random_uuid()",
        "update millpond.fires set tenant = 'globex'",
    ],
    "scheduled_jobs_have_a_fire": [
        "delete from millpond.fires",
        "update millpond.fires set job_id = {ready}",
    ],
    "chunks_have_no_gap": [
        "delete from millpond.chunks where number = 1",
        "update millpond.chunks set number = 3 where number = 2",
        "update millpond.chunks set total = total + 1",
        "update millpond.chunks set epoch = epoch + 1 where number = 2",
    ],
    "provided_jobs_have_a_prediction": [
        """update millpond.kinds set declaration = declaration || '{{"runs": "provider"}}' where kind = 'brief'""",
    ],
}
CASES = [(name, statement) for name, statements in OFFENCES.items() for statement in statements]


@pytest.fixture
async def jobs(db: Database, clock: Clock, engine: Engine) -> dict[str, str]:
    """One job in each state that an offence is committed on, by what it is."""
    from tests.product import app  # noqa: PLC0415 - the product of the other tests, beside this folder's own

    engine.app = app
    make = Factory(engine, clock)
    done = await make.leased("priced")
    await engine.note(progress(done, 1, 0.5))
    await engine.finish(End(done, "succeeded", "{}"))
    failed = await make.leased("priced")
    await engine.finish(End(failed, "failed", error=ERROR))
    await make.credits(100)
    shoe: Any = {"kind": "priced", "input": {"size": 2}}
    jobs = [shoe, shoe | {"run_at": await clock.now() + HOUR}]
    await engine.batches.create(tenant="acme", account="ann", jobs=jobs, total=3)
    (member,) = await make.claimed("priced")
    await make.finish(member)
    retried = await make.leased("restartable")
    await engine.finish(End(retried, "failed", error=ERROR))
    await make.credits(3)
    await engine.retry("acme", retried.job_id)
    await engine.claim(Lanes(["restartable"]), 1, worker="w", duration=HOUR)
    parked = await make.parked("brief")
    leased = await make.leased("priced", idempotency_key="leased")
    await engine.give_back(attempt(leased))
    (leased,) = await make.claimed("priced", duration=HOUR)
    await engine.emit([Chunk(leased, 1, "once"), Chunk(leased, 2, " upon")])
    ready = await make.submitted("priced", idempotency_key="ready")
    engine.safe.vault, engine.outbound = VAULT, Outbound(LOOPBACK)
    hook = Hook(url="http://127.0.0.1:9/", secret=SECRET, events=("submitted", "started", "delivering"))
    delivered = await make.leased("delivered", hook=hook)
    await engine.finish(End(delivered, "succeeded", "{}"))
    await engine.endpoints.make("acme", url=hook.url)
    await make.credits(100)
    parent = await make.leased("budgeted")
    await engine.spawn(SpawnRequest(parent, "shots", 1, [ChildRequest("priced", {"size": n}) for n in (2, 3)], total=2))
    await engine.suspend(parent, "shots")
    child = (await engine.children("acme", parent.job_id)).data[0]
    await engine.outbound.close()
    declared = Schedule(name="hourly", kind="free", timing=Timing(every=HOUR), tenant="acme", account="ann")
    schedule, _ = await engine.schedules.make(declared, actor="op")
    await engine.fires.run(schedule, actor="op")
    found = {
        "succeeded": done.job_id,
        "failed": failed.job_id,
        "retried": retried.job_id,
        "parked": parked.job_id,
        "leased": leased.job_id,
        "ready": ready.job_id,
        "child": child,
        "member": member.job_id,
    }
    await leases.close(
        db, [done.token, failed.token, retried.token, parked.token, delivered.token, parent.token, member.token]
    )
    return {name: f"'{job_id}'" for name, job_id in found.items()}


@pytest.mark.parametrize(("invariant", "statement"), CASES, ids=[f"{name}-{n}" for n, (name, _) in enumerate(CASES)])
async def test_each_invariant_finds_what_breaks_it(
    db: Database, jobs: dict[str, str], invariant: str, statement: str
) -> None:
    assert await verify.verify(db) == []
    await commit_by_hand(db, statement.format(**jobs))
    found = {violation.invariant for violation in await verify.verify(db)}
    assert invariant in found


def test_no_invariant_is_without_its_offence() -> None:
    assert set(OFFENCES) == set(verify.SQL)


async def test_the_command_says_that_all_is_well(engine: Engine, sh: Shell) -> None:
    command = sh.run("verify")
    assert (command.process.returncode, command.stdout, command.stderr) == (0, "verify: ok\n", "")
    command = sh.run("verify", "--json")
    assert command.process.returncode == 0
    assert msgspec.json.decode(command.stdout) == {"ok": True, "violations": []}


async def test_the_command_names_the_job_that_breaks_an_invariant(
    db: Database, jobs: dict[str, str], sh: Shell
) -> None:
    await commit_by_hand(db, "update millpond.jobs set events = events + 1 where id = {leased}".format(**jobs))
    command = sh.run("verify")
    assert command.process.returncode == 1
    line, total = command.stdout.splitlines()
    assert line.startswith("events_have_no_gap: running job_")
    assert (total, command.stderr) == ("verify: 1 violations", "")
    command = sh.run("verify", "--json", "--newest", "24h")
    assert command.process.returncode == 1
    decoded = msgspec.json.decode(command.stdout)
    assert decoded["ok"] is False
    assert decoded["violations"][0]["invariant"] == "events_have_no_gap"


async def test_the_command_may_look_at_the_newest_jobs_only(
    db: Database, jobs: dict[str, str], clock: Clock, sh: Shell
) -> None:
    await commit_by_hand(db, "update millpond.jobs set events = events + 1 where id = {succeeded}".format(**jobs))
    await clock.advance(30 * MINUTE)
    assert sh.run("verify", "--newest", "45m").process.returncode == 1
    assert sh.run("verify", "--newest", "15m").process.returncode == 0


async def commit_by_hand(db: Database, statements: str) -> None:
    """Past the guards, as a superuser can."""
    async with db.transaction() as tx:
        await tx.execute("set local session_replication_role = replica")
        await tx.execute(statements)
