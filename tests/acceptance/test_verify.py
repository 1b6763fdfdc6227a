"""``penstock verify``: every invariant is shown to find what breaks it. A check that cannot fail checks nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from penstock.engine import leases, verify
from penstock.engine.dispatches import Lanes
from penstock.engine.leases import End
from penstock.outbound import Outbound
from penstock.webhooks import Hook
from tests.factories import ERROR, HOUR, MINUTE, Factory, attempt, progress
from tests.post import LOOPBACK, SECRET, VAULT

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.store.db import Database
    from tests.acceptance.processes import Shell
    from tests.clocks import Clock

pytestmark = pytest.mark.unsound

CAPTURED_BY_A_FAILURE = """
update penstock.jobs set captured = price where id = {failed};
update penstock.entries set outside = -held, available = 0 where job_id = {failed} and type = 'release'
"""
ANOTHER_EVENT_AFTER_THE_END = """
insert into penstock.events
select job_id, seq + 1, at, 'TYPE', state, tenant from penstock.events where job_id = {succeeded} and type = 'succeeded'
"""

# Each offence as an operator might commit it, by hand, with the guards off.
OFFENCES = {
    "account_equals_its_entries": [
        "update penstock.accounts set available = available + 1",
        "update penstock.accounts set held = held + 1",
        "update penstock.accounts set entries = entries + 1",
        "delete from penstock.accounts",
        "delete from penstock.entries where seq = (select max(seq) from penstock.entries)",
    ],
    "entries_form_a_chain": [
        "update penstock.entries set available_after = available_after + 1 where seq = 2",
        "update penstock.entries set held_after = held_after + 1 where seq = 2",
        "update penstock.entries set seq = 1000 where seq = 3",
        "delete from penstock.entries where seq = 2",
    ],
    "held_equals_open_holds": [
        "update penstock.accounts set held = held + 1",
        "delete from penstock.entries where type = 'hold' and job_id = {ready}",
    ],
    "active_equals_unended_jobs": [
        "update penstock.accounts set active = active + 1",
        "delete from penstock.jobs where phase = 'ready'",
        "delete from penstock.accounts",
    ],
    "ended_jobs_are_settled_once": [
        "delete from penstock.entries where type in ('capture', 'release') and job_id = {succeeded}",
        "delete from penstock.entries where type = 'hold' and job_id = {succeeded}",
        "delete from penstock.entries where type = 'hold' and job_id = {ready}",
        "delete from penstock.entries where type = 'release' and job_id = {retried} and run = 1",
        "update penstock.jobs set captured = 1 where id = {succeeded}",
        "update penstock.jobs set price = price + 1 where id = {ready}",
        "update penstock.jobs set price = 0 where id = {ready}",
        "update penstock.jobs set finished_at = finished_at + interval '1 second' where id = {succeeded}",
        "update penstock.entries set run = 2 where job_id = {succeeded} and type = 'hold'",
        CAPTURED_BY_A_FAILURE,
    ],
    "refunds_fit_what_was_captured": [
        "update penstock.entries set type = 'adjust', job_id = {succeeded} where type = 'grant'",
        "update penstock.entries set type = 'adjust', job_id = {failed} where type = 'grant'",
    ],
    "unended_jobs_have_a_dispatch": [
        "delete from penstock.dispatches where phase = 'ready'",
        "delete from penstock.jobs where phase = 'leased'",
        "update penstock.jobs set phase = 'ready' where phase = 'parked'",
    ],
    "dispatches_agree_with_their_job": [
        "update penstock.dispatches set tenant = 'globex' where phase = 'ready'",
        "update penstock.dispatches set queue = 'free' where phase = 'parked'",
        "update penstock.dispatches set epoch = epoch + 1 where phase = 'leased'",
        "update penstock.dispatches set attempts = attempts + 1 where phase = 'leased'",
        "update penstock.dispatches set expires_at = expires_at + interval '1 second' where phase = 'parked'",
    ],
    "ready_dispatches_stand_in_line": [
        "delete from penstock.ready",
        "update penstock.ready set rank = rank + 1",
        "insert into penstock.ready select queue, rank, turn, job_id from penstock.dispatches where phase = 'parked'",
    ],
    "leased_dispatches_have_a_lease": [
        "delete from penstock.leases",
        "update penstock.leases set job_ids = '{{}}'",
        "update penstock.dispatches set lease_token = gen_random_uuid() where phase = 'leased'",
        "update penstock.leases set expires_at = expires_at - interval '1 day'",
    ],
    "nothing_outlives_its_deadline": [
        "update penstock.dispatches set expires_at = expires_at - interval '1 day' where phase = 'parked'",
    ],
    "caps_hold": [
        "update penstock.dispatches set attempts = 3 where phase = 'ready'",
        "update penstock.dispatches set interruptions = 10 where phase = 'ready'",
        "update penstock.dispatches set lapses = 3 where phase = 'ready'",
    ],
    "events_have_no_gap": [
        "delete from penstock.events where job_id = {ready}",
        "delete from penstock.events where job_id = {leased} and seq = 2",
        "update penstock.jobs set events = events + 1 where id = {leased}",
        "delete from penstock.jobs where id = {succeeded}",
    ],
    "states_follow_from_events": [
        "delete from penstock.events where job_id = {ready}",
        "update penstock.events set state = 'running' where job_id = {ready}",
        "update penstock.events set type = 'answered' where job_id = {leased} and seq = 2",
        "update penstock.jobs set state = 'parked' where id = {leased}",
        "update penstock.jobs set outcome = 'canceled' where id = {succeeded}",
    ],
    "jobs_end_once_a_run": [
        ANOTHER_EVENT_AFTER_THE_END.replace("TYPE", "succeeded"),
        "update penstock.events set type = 'log' where job_id = {succeeded} and type = 'succeeded'",
        ANOTHER_EVENT_AFTER_THE_END.replace("TYPE", "log"),
        "update penstock.jobs set run = run + 1 where id = {ready}",
    ],
    "counts_are_those_of_jobs": [
        "delete from penstock.tallies",
        "update penstock.tallies set n = n + 1 where moment = 'started'",
        "update penstock.tallies set price = price + 1 where moment = 'submitted'",
        "insert into penstock.counts values ('acme', 'free', 'queued', 'ready', 1, 0)",
        "delete from penstock.jobs where phase = 'parked'",
        "update penstock.jobs set phase = 'waiting' where id = {ready}",
    ],
    "keys_name_their_job": [
        "delete from penstock.jobs where id = {ready}",
        "update penstock.idempotency set tenant = 'globex'",
    ],
    "delivering_jobs_are_delivered": [
        "delete from penstock.deliveries where decides",
        "update penstock.deliveries set decides = false",
        "update penstock.deliveries set job_id = {succeeded} where decides",
    ],
    "deliveries_go_in_order": [
        "update penstock.deliveries set fate = 'delivered', due_at = null, settled_at = now() where moment = 'started'",
        "update penstock.deliveries set is_out = true where moment = 'started'",
    ],
    "hooks_are_told": [
        "delete from penstock.deliveries where moment = 'started'",
        "update penstock.hooks set moments = moments || '{{noted,delivering}}'; delete from penstock.deliveries",
    ],
    "endpoints_are_subscribed": [
        "delete from penstock.subscriptions",
        "delete from penstock.endpoints",
        "update penstock.endpoints set disabled_at = now(), disabled_reason = 'x'",
        "delete from penstock.subscriptions where moment = 'failed'",
        "update penstock.subscriptions set moment = 'noted' where moment = 'failed'",
    ],
    "deliveries_follow_their_endpoint": [
        (
            "insert into penstock.deliveries (id, tenant, endpoint_id, moment, at, data, decides, due_at)"
            " values (gen_random_uuid(), 'acme', gen_random_uuid(), 'test', now(), '{{}}', false, 'infinity')"
        ),
        (
            "update penstock.endpoints set created_at = now() - interval '1 day';"
            " insert into penstock.deliveries (id, tenant, endpoint_id, moment, at, data, decides, due_at)"
            " select gen_random_uuid(), 'acme', id, 'test', now(), '{{}}', false, 'infinity' from penstock.endpoints"
        ),
    ],
    "submissions_are_looked_after": [
        (
            "insert into penstock.submissions (id, tenant, job_id, run, provider, status, prediction_id, created_at,"
            " expires_at, over_at)"
            " values (gen_random_uuid(), 'acme', {parked}, 1, 'replicate', 'over', 'p', now(), now(), now())"
        ),
    ],
    "provided_jobs_have_a_submission": [
        """update penstock.kinds set declaration = declaration || '{{"runs": "provider"}}' where kind = 'brief'""",
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
    retried = await make.leased("studio")
    await engine.finish(End(retried, "failed", error=ERROR))
    await make.credits(3)
    await engine.retry("acme", retried.job_id)
    await engine.claim(Lanes(["studio"]), 1, worker="w", duration=HOUR)
    parked = await make.parked("brief")
    leased = await make.leased("priced", idempotency_key="leased")
    await engine.give_back(attempt(leased))
    (leased,) = await make.claimed("priced", duration=HOUR)
    ready = await make.submitted("priced", idempotency_key="ready")
    engine.safe.vault, engine.outbound = VAULT, Outbound(LOOPBACK)
    hook = Hook(url="http://127.0.0.1:9/", secret=SECRET, moments=("submitted", "started", "delivering"))
    told = await make.leased("told", hook=hook)
    await engine.finish(End(told, "succeeded", "{}"))
    await engine.endpoints.make("acme", url=hook.url)
    await engine.outbound.close()
    found = {
        "succeeded": done.job_id,
        "failed": failed.job_id,
        "retried": retried.job_id,
        "parked": parked.job_id,
        "leased": leased.job_id,
        "ready": ready.job_id,
    }
    await leases.close(db, [done.token, failed.token, retried.token, parked.token, told.token])
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
    assert (command.process.returncode, command.stdout, command.stderr) == (0, "", "verify: ok\n")
    command = sh.run("verify", "--json")
    assert command.process.returncode == 0
    assert msgspec.json.decode(command.stdout) == {"ok": True, "violations": []}


async def test_the_command_names_the_job_that_breaks_an_invariant(
    db: Database, jobs: dict[str, str], sh: Shell
) -> None:
    await commit_by_hand(db, "update penstock.jobs set events = events + 1 where id = {leased}".format(**jobs))
    command = sh.run("verify")
    assert command.process.returncode == 1
    (line,) = command.stdout.splitlines()
    assert line.startswith("events_have_no_gap: running job_")
    assert command.stderr == "verify: 1 violations\n"
    command = sh.run("verify", "--json", "--newest", "24h")
    assert command.process.returncode == 1
    told = msgspec.json.decode(command.stdout)
    assert told["ok"] is False
    assert told["violations"][0]["invariant"] == "events_have_no_gap"


async def test_the_command_may_look_at_the_newest_jobs_only(
    db: Database, jobs: dict[str, str], clock: Clock, sh: Shell
) -> None:
    await commit_by_hand(db, "update penstock.jobs set events = events + 1 where id = {succeeded}".format(**jobs))
    await clock.advance(30 * MINUTE)
    assert sh.run("verify", "--newest", "45m").process.returncode == 1
    assert sh.run("verify", "--newest", "15m").process.returncode == 0


async def commit_by_hand(db: Database, statements: str) -> None:
    """Past the guards, as a superuser can."""
    async with db.transaction() as tx:
        await tx.execute("set local session_replication_role = replica")
        await tx.execute(statements)
