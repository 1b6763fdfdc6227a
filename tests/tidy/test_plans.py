"""Plans: what is asked all the time is answered from an index, however much history there is.

The verbs are functions: the plans of the statements inside them are heard through `auto_explain`, with what each
node of a plan really touched.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, uuid4

import pytest

from millpond import ids
from millpond.engine.bulk import operations
from millpond.engine.credits import holds, ledger
from millpond.engine.credits.ledger import Bill
from millpond.engine.jobs import chunks, events, idempotency, jobs
from millpond.engine.providers import callbacks, predictions
from millpond.engine.queue import dispatches, fires, leases, schedules
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.reads import board, details, fleet, search, streams, summaries, views
from millpond.engine.webhooks import deliveries, endpoints
from millpond.store.db import CLIENT_ROLE, connect, fetch
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from millpond.store.db import Connection
    from millpond.store.queries import NamedQuery
    from tests.databases import DatabaseServer

HOT = (
    "accounts",
    "chunks",
    "deliveries",
    "dispatches",
    "endpoints",
    "entries",
    "events",
    "fires",
    "hooks",
    "idempotency",
    "jobs",
    "ready",
    "predictions",
    "schedules",
    "subscriptions",
)
"""The tables that grow; leases, queues and kinds are few."""

TOUCHED_MAX = 2_000
"""How many rows a verb for ten jobs may touch in one node of its plan: a bound, and not a measure."""

MINUTE = timedelta(minutes=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FLEET = [f"worker_{n:026}" for n in range(1, 11)]
FIRST = UUID(int=0)
LAST = UUID(int=2**128 - 1)

# A hundred thousand ended jobs, and forty thousand others in every phase. One in a hundred is due.
FILL = """
set session_replication_role = replica;

insert into millpond.accounts (tenant, account, available)
select 'acme', 'account-' || n, 1000000 from generate_series(1, 200) n;

create temporary table made as
select n, millpond.uuid7() as id, 'account-' || (n % 200 + 1) as account,
    case when n < 100000 then 'ended' when n < 120000 then 'ready' when n < 130000 then 'leased'
        when n < 138000 then 'waiting' else 'parked' end as phase,
    ('00000000-0000-0000-0000-' || lpad((greatest(n - 120000, 0) / 20)::text, 12, '0'))::uuid as token,
    clock_timestamp() + case when n % 100 = 0 then interval '-1 minute' else interval '1 day' end as due
from generate_series(0, 139999) n;

insert into millpond.jobs (
    id, tenant, account, kind, lifecycle, queue, state, phase, outcome, priority, events, price, captured,
    created_at, started_at, finished_at, epoch, input
)
select id, 'acme', account, 'brief', 'standard', 'brief',
    case phase when 'ended' then 'succeeded' when 'leased' then 'running' when 'parked' then 'parked' else 'queued' end,
    phase, case phase when 'ended' then 'succeeded' end, 0, 2, 5, case phase when 'ended' then 5 end,
    clock_timestamp(), clock_timestamp(), case phase when 'ended' then clock_timestamp() end, 1, '{}'
from made;

insert into millpond.events (job_id, seq, at, type, state, tenant)
select id, seq, clock_timestamp(), 'log', 'queued', 'acme' from made, generate_series(1, 2) seq;

-- Those that run emit text, and those that have ended a short while ago have.
insert into millpond.chunks (job_id, after, number, epoch, tenant, at, total, text)
select id, 2, number, 1, 'acme', clock_timestamp(), number * 5, 'word '
from made, generate_series(1, 10) number where n between 98000 and 99999 or phase = 'leased';

insert into millpond.entries (
    tenant, account, seq, at, type, available, held, outside, available_after, held_after, job_id, run
)
select 'acme', account, n, clock_timestamp(), 'hold', -5, 5, 0, 0, 0, id, 1 from made;

insert into millpond.idempotency (tenant, scope, key, job_id, created_at)
select 'acme', account, 'k' || n, id, clock_timestamp() from made;

insert into millpond.workers (id, worker, digest, hint, slots, fleet, registered_at, heard_at, approved_at)
select 'worker_' || lpad(n::text, 26, '0'), 'w' || n, sha256(n::text::bytea), '', 5, 'key', clock_timestamp(),
    clock_timestamp(), clock_timestamp()
from generate_series(1, 50) n;

insert into millpond.leases (token, worker, granted_at, expires_at, job_ids)
select token, 'w', clock_timestamp(),
    clock_timestamp() + interval '1 day' * case when min(n) = 120000 then -1 else 1 end,
    array_agg(id)
from made where phase = 'leased' group by token;

insert into millpond.dispatches (
    job_id, tenant, account, kind, queue, phase, rank, epoch, lease_token, run_at, expires_at, cancel_at, wakes_at
)
select id, 'acme', account, 'brief', 'brief', phase, 0, 1, case phase when 'leased' then token end,
    case phase when 'waiting' then due end,
    case when phase in ('ready', 'parked') then due else due + interval '2 days' end,
    case phase when 'leased' then due end, due
from made where phase <> 'ended';

insert into millpond.ready (queue, rank, turn, job_id) select 'brief', 0, 0, id from made where phase = 'ready';

insert into millpond.hooks (job_id, tenant, url, receiver, secret, events, decides)
select id, 'acme', 'http://receiver', 'r' || n % 100, '', '{succeeded,failed}', false from made where n % 2 = 0;

insert into millpond.deliveries (
    id, tenant, job_id, seq, event, receiver, at, data, decides, fate, is_out, settled_at, due_at
)
select id, 'acme', id, 1, 'started', 'r' || n % 100, clock_timestamp(), '{}', false,
    case phase when 'ended' then 'delivered' else 'pending' end, phase = 'leased',
    case phase when 'ended' then clock_timestamp() end, case when phase <> 'ended' then due end
from made where n % 2 = 0;

-- Endpoints of accounts that have nothing to do with these jobs.
insert into millpond.endpoints (id, tenant, url, events, kinds, description, secret, account, created_at)
select millpond.uuid7(), 'acme', 'http://receiver', '{succeeded,canceled}', '{}', '', '', 'other-' || n % 5000,
    clock_timestamp()
from generate_series(1, 50000) n;

insert into millpond.subscriptions (event, tenant, account, endpoint_id, kinds, receiver)
select m, tenant, account, id, kinds, id::text from millpond.endpoints, unnest(events) m;

insert into millpond.predictions (
    id, tenant, job_id, run, provider, status, external_id, created_at, expires_at, due_at, over_at
)
select millpond.uuid7(), 'acme', id, 1, 'replicate', case phase when 'ended' then 'over' else 'running' end, n::text,
    clock_timestamp(), clock_timestamp() + interval '1 day', case when phase <> 'ended' then due end,
    case phase when 'ended' then clock_timestamp() end
from made where phase in ('leased', 'parked') or n < 30000;

-- Those of a provider that nobody asks are due before all others.
insert into millpond.predictions (id, tenant, job_id, run, provider, status, created_at, expires_at, due_at)
select millpond.uuid7(), 'acme', id, 1, 'another', 'unwanted', clock_timestamp(), clock_timestamp(),
    clock_timestamp() - interval '1 day'
from made where n between 30000 and 39999;

-- Schedules of several kinds, of which one in a hundred is due, each with some fires.
insert into millpond.schedules (
    id, tenant, account, name, kind, input, every, zone, jitter, since, overlap, catch_up, catch_up_max, tags, source,
    due_at, next_at, created_at, updated_at
)
select millpond.uuid7(), 'tenant-' || n % 100, account, 's' || n, case when n % 2 = 0 then 'brief' else 'other' end,
    '{}', interval '1 hour', 'UTC', interval '0', due, 'queue', 'last', 100, '{}', 'api', due, due, due, due
from made where n < 20000;

insert into millpond.fires (id, schedule_id, tenant, due_at, cause, outcome, job_id, tries, try_at, at)
select millpond.uuid7(), s.id, s.tenant, s.due_at - n * interval '1 hour', 'schedule',
    case when p.is_pending then 'pending' else 'submitted' end, gen_random_uuid(), case when p.is_pending then 1 end,
    case when p.is_pending then s.due_at end, s.due_at
from millpond.schedules s cross join generate_series(1, 5) n
cross join lateral (select n = 1 and s.due_at < clock_timestamp() as is_pending) p;

update millpond.accounts set held = 1000000, active = 100000, entries = 1000000;
reset session_replication_role;
"""


@dataclass(slots=True)
class Ear:
    """A connection that hears the plan of every statement it is made to run, inside functions too."""

    connection: Connection
    samples: dict[str, list[Any]]
    fires: list[Any]
    """Some schedules, each with one of its fires."""
    idle: set[str]
    """The partitions of other weeks: they are empty, and may be looked at as a whole."""
    heard: list[dict[str, Any]] = field(default_factory=list)

    async def plans(self, query: NamedQuery, *arguments: Any) -> list[dict[str, Any]]:
        """Every node of every plan in a query; nothing that it wrote remains."""
        self.heard.clear()
        transaction = self.connection.transaction()
        await transaction.start()
        try:
            await fetch(self.connection, query, *arguments)
        finally:
            await transaction.rollback()
        return [node for plan in self.heard for node in _nodes(plan["Plan"])]

    def hear(self, _connection: object, message: Any) -> None:
        _, _, plan = str(message.message).partition("plan:\n")
        if plan:
            self.heard.append(json.loads(plan))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


@asynccontextmanager
async def listening(server: DatabaseServer, template: str, fill: str) -> AsyncIterator[Ear]:
    """A database of its own, filled, and a connection that hears its plans."""
    async with server.database(template) as dsn:
        connection = await connect(dsn)
        try:
            if not await connection.fetchval("select rolsuper from pg_roles where rolname = current_user"):
                pytest.skip("only a superuser can load auto_explain")
            await connection.execute(fill)
            await connection.execute("vacuum analyze")
            samples = {phase: await _sample(connection, phase) for phase in ("leased", "ready", "ended")}
            pairs = "select schedule_id, id from millpond.fires where outcome = 'submitted' limit 10"
            fires_of = [tuple(row) for row in await connection.fetch(pairs)]
            ear = Ear(connection, samples, fires_of, await _idle(connection))
            await connection.execute(
                "load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_analyze = on;"
                "set auto_explain.log_nested_statements = on; set auto_explain.log_format = 'json';"
                "set auto_explain.log_level = 'notice'; set auto_explain.log_timing = off;"
                "set client_min_messages = 'notice'"
            )
            connection.add_log_listener(ear.hear)
            yield ear
        finally:
            await connection.close()


async def _sample(connection: Connection, phase: str) -> list[Any]:
    """Ten jobs of a phase, or made-up ones where there are none."""
    found = await connection.fetch(
        "select j.id, coalesce(d.lease_token, gen_random_uuid()) as token from millpond.jobs j"
        " left join millpond.dispatches d on d.job_id = j.id where j.phase = $1 order by j.id desc limit 10",
        phase,
    )
    return [(row["id"], row["token"]) for row in found] or [(ids.new(), uuid4()) for _ in range(10)]


async def _idle(connection: Connection) -> set[str]:
    found = await connection.fetch(
        "select relname from pg_class where relispartition and relkind = 'r' and reltuples <= 0"
    )
    return {row[0] for row in found}


@pytest.fixture(scope="module")
async def full(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Ear]:
    async with listening(server, template, FILL) as ear:
        yield ear


@pytest.fixture(scope="module")
async def empty(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Ear]:
    """Where statistics say that every table has one page, and a plan is made that stays."""
    account = "insert into millpond.accounts (tenant, account, available) values ('acme', 'account-7', 1000)"
    async with listening(server, template, account) as ear:
        yield ear


def held(ear: Ear) -> tuple[list[UUID], list[UUID]]:
    return [job_id for job_id, _ in ear.samples["leased"]], [token for _, token in ear.samples["leased"]]


def one(ear: Ear, phase: str) -> UUID:
    return ear.samples[phase][0][0]


def submit_arguments() -> tuple[Any, ...]:
    items = taken_in()
    bill = Bill((item.tenant, item.account, item.price) for item in items)
    return (False, False, *jobs._columns(items), *bill.columns(), None, None, None)


def summary_arguments(
    tenant: str | None = None,
    account: str | None = None,
    job_ids: Any = None,
    prints_from: UUID | None = None,
    fingerprint: str | None = None,
) -> tuple[Any, ...]:
    """Nothing fits, and so much is walked over."""
    return (tenant, account, LAST, FIRST, job_ids, prints_from, *[None] * 6, fingerprint, "x", 50, 50, 100, None)


def settle_arguments(ear: Ear) -> tuple[Any, ...]:
    job_ids, _ = held(ear)
    row = ["acme", None, None, "", "r", NOW, "", False, 0, NOW, None, None, None, None, False, False]
    settled = [
        deliveries.Settlement(deliveries.Claimed(job_id, *row), deliveries.TryResult(200), "delivered", MINUTE)
        for job_id in job_ids
    ]
    return (*deliveries._columns(settled), MINUTE)


def taken_in() -> list[jobs.Submission]:
    return [
        jobs.prepare(app.kinds, "priced", tenant="acme", account="account-7", idempotency_key=f"new-{n}")
        for n in range(10)
    ]


Call: TypeAlias = "Callable[[Ear], tuple[Any, ...]]"

VERBS: dict[str, tuple[NamedQuery, Call, set[str]]] = {
    "claim": (
        leases.SQL["claim"],
        lambda _: (*Lanes(["brief"]).columns()[1], [10], [uuid4()], ["w"], MINUTE, None),
        {"ready_pkey", "dispatches_pkey"},
    ),
    "claim for the fleet": (
        leases.SQL["claim"],
        lambda _: (*Lanes(["brief"]).columns()[1], [1] * 10, [uuid4() for _ in FLEET], FLEET, MINUTE, ["x"] * 10),
        {"ready_pkey", "dispatches_pkey", "leases_fleet"},
    ),
    "finish": (
        leases.SQL["finish"],
        lambda ear: ("succeeded", *held(ear), ["{}"] * 10, None, None, None),
        {"dispatches_pkey", "accounts_pkey", "subscriptions_account"},
    ),
    "requeue": (
        leases.SQL["requeue"],
        lambda ear: ("attempt", *held(ear), [None] * 10, ["{}"] * 10, None),
        {"dispatches_pkey"},
    ),
    "note": (
        leases.SQL["note"],
        lambda ear: (*held(ear), [1] * 10, ["log"] * 10, [None] * 10, [None] * 10, ["{}"] * 10),
        {"dispatches_pkey"},
    ),
    "emit": (
        chunks.SQL["emit"],
        lambda ear: (*held(ear), [11] * 10, ["word "] * 10, 1024 * 1024),
        {"dispatches_pkey", "chunks_pkey"},
    ),
    "begin to emit": (
        chunks.SQL["emit"],
        lambda ear: (*held(ear), [1] * 10, ["word "] * 10, 1024 * 1024),
        {"dispatches_pkey", "chunks_pkey"},
    ),
    "park": (leases.SQL["park"], lambda ear: (*held(ear), ["{}"] * 10), {"dispatches_pkey"}),
    "lapse": (leases.SQL["lapse"], lambda _: (10,), {"dispatches_pkey"}),
    "abandon": (leases.SQL["abandon"], lambda ear: (held(ear)[1][0],), {"dispatches_pkey"}),
    "expire": (jobs.SQL["apply_due"], lambda _: ("expired", 10), {"dispatches_wakes", "dispatches_pkey"}),
    "force_cancel": (jobs.SQL["apply_due"], lambda _: ("canceled", 10), {"dispatches_wakes", "dispatches_pkey"}),
    "promote": (jobs.SQL["apply_due"], lambda _: ("queued", 10), {"dispatches_wakes", "dispatches_pkey"}),
    "cancel": (
        jobs.SQL["cancel"],
        lambda ear: ("acme", one(ear, "ready"), MINUTE),
        {"dispatches_pkey", "subscriptions_account"},
    ),
    "prioritize": (
        jobs.SQL["prioritize"],
        lambda ear: ("acme", one(ear, "ready"), 5),
        {"dispatches_pkey", "ready_pkey"},
    ),
    "refund": (
        ledger.SQL["refund"],
        lambda ear: ("acme", one(ear, "ended"), None, None, "why", "op", None),
        {"entries_settlement", "entries_reference"},
    ),
    "submit": (jobs.SQL["submit"], lambda _: submit_arguments(), {"accounts_pkey"}),
    "begin a prediction": (
        predictions.SQL["begin"],
        lambda ear: ("acme", one(ear, "leased"), 1, uuid4(), "replicate", "", MINUTE),
        {"predictions_job"},
    ),
    "hear a callback": (
        callbacks.SQL["hear"],
        lambda _: ("acme", uuid4(), "replicate", "m", "p", "succeeded"),
        {"predictions_pkey"},
    ),
    "claim deliveries": (
        deliveries.SQL["claim"],
        lambda _: (["r0", "r2"], [5, 1], 10, MINUTE),
        {"deliveries_due", "deliveries_pkey", "deliveries_job"},
    ),
    "settle deliveries": (deliveries.SQL["settle"], lambda ear: settle_arguments(ear), {"deliveries_pkey"}),  # noqa: PLW0108 - below
    "conclude": (deliveries.SQL["conclude"], lambda ear: ("succeeded", held(ear)[0]), {"dispatches_pkey"}),
}
"""Each verb with its arguments and the indexes it must use."""

READS: dict[str, tuple[NamedQuery, Call, set[str]]] = {
    "read": (jobs.SQL["read"], lambda ear: (one(ear, "ended"), "acme"), set()),
    "list": (
        jobs.SQL["list"],
        lambda _: ("acme", "account-7", LAST, None, None, None, 50),
        {"*_tenant_account_id_idx"},
    ),
    "lines of all": (summaries.SQL["summaries"], lambda _: summary_arguments(), set()),
    "lines of a tenant": (summaries.SQL["summaries"], lambda _: summary_arguments(tenant="acme"), {"*_tenant_id_idx"}),
    "lines of an account": (
        summaries.SQL["summaries"],
        lambda _: summary_arguments(tenant="acme", account="account-7"),
        {"*_tenant_account_id_idx"},
    ),
    "lines of failures": (summaries.SQL["summaries"], lambda _: summary_arguments(prints_from=FIRST), set()),
    "lines of a tenant's failures": (
        summaries.SQL["summaries"],
        lambda _: summary_arguments(tenant="acme", prints_from=FIRST),
        {"*_tenant_id_fingerprint_idx"},
    ),
    "lines of a fingerprint": (
        summaries.SQL["summaries"],
        lambda _: summary_arguments(fingerprint="0"),
        {"*_fingerprint_id_idx"},
    ),
    "lines of a tenant's fingerprint": (
        summaries.SQL["summaries"],
        lambda _: summary_arguments(tenant="acme", fingerprint="0"),
        {"*_tenant_id_fingerprint_idx"},
    ),
    "jobs with a tag": (
        views.SQL["tagged"],
        lambda _: ("acme", '{"team": "ads"}', LAST, FIRST, 100),
        {"*_tags_idx"},
    ),
    "lines that are named": (summaries.SQL["summaries"], lambda ear: summary_arguments(job_ids=held(ear)[0]), set()),
    "jobs that have not ended": (
        summaries.SQL["live"],
        lambda _: (LAST, FIRST, None, None, None, 100),
        {"dispatches_pkey"},
    ),
    "present": (jobs.SQL["present"], lambda ear: (held(ear)[0],), {"entries_hold"}),
    "after": (events.SQL["after"], lambda ear: (one(ear, "ended"), "acme", 0, 500), {"events_*_pkey"}),
    "changes of watched jobs": (
        streams.SQL["look"],
        lambda ear: (held(ear)[0], ["acme"] * 10, [1] * 10),
        {"chunks_pkey"},
    ),
    "stream of watched jobs": (
        streams.SQL["after"],
        lambda ear: (held(ear)[0], ["acme"] * 10, [2] * 10, [7] * 10, [True] * 10, 8),
        {"chunks_pkey", "events_*_pkey"},
    ),
    "text of jobs that have ended": (chunks.SQL["prune"], lambda _: (MINUTE, FIRST, 200), {"chunks_pkey"}),
    "entries": (ledger.SQL["entries"], lambda _: ("acme", "account-7", 2**62, 50), {"entries_pkey"}),
    "post": (ledger.SQL["post"], lambda _: ("grant", "acme", "account-7", 5, "order", None), {"entries_reference"}),
    "answers": (
        idempotency.SQL["answers"],
        lambda _: (
            ["acme"] * 3,
            ["account-7"] * 3,
            ["k6", "k206", "none"],
            ["brief"] * 3,
            *[[text] * 3 for text in ("{}", None, None)],
        ),
        {"idempotency_pkey"},
    ),
    "due receivers": (deliveries.SQL["due"], lambda _: ("", 50), {"deliveries_due"}),
    "follow endpoints": (endpoints.SQL["follow"], lambda _: (None, 50), {"deliveries_pulled"}),
    "deliveries": (deliveries.SQL["list"], lambda _: ("acme", LAST, None, 50), set()),
    "deliveries that failed": (
        deliveries.SQL["list_undelivered"],
        lambda _: ("acme", LAST, "failed", 50),
        {"deliveries_undelivered"},
    ),
    "deliveries that wait": (deliveries.SQL["waiting"], lambda _: (50,), {"deliveries_pending"}),
    "endpoints": (endpoints.SQL["list"], lambda _: ("acme", UUID(int=0), 100), set()),
    "endpoints of an account": (
        endpoints.SQL["list_of_account"],
        lambda _: ("acme", "other-7", UUID(int=0), 100),
        {"endpoints_account"},
    ),
    "number of a tenant's endpoints": (endpoints.SQL["count"], lambda _: ("acme",), {"endpoints_account"}),
    "number of an account's endpoints": (
        endpoints.SQL["count_of_account"],
        lambda _: ("acme", "other-7"),
        {"endpoints_account"},
    ),
    "stats of an endpoint": (endpoints.SQL["stats"], lambda _: (LAST, NOW), {"deliveries_endpoint_at"}),
    "deliveries of a job": (
        deliveries.SQL["list_of_job"],
        lambda ear: ("acme", LAST, None, 50, one(ear, "ended"), None),
        {"deliveries_job"},
    ),
    "deliveries of every tenant": (
        deliveries.SQL["list_all"],
        lambda _: (LAST, "failed", 500, 50),
        {"deliveries_pkey"},
    ),
    "deliveries of every tenant that failed": (
        deliveries.SQL["list_all_undelivered"],
        lambda _: (LAST, "failed", 100, 50),
        {"deliveries_undelivered"},
    ),
    "endpoints of every tenant": (endpoints.SQL["list_all"], lambda _: (UUID(int=0), 100), {"endpoints_pkey"}),
    "both ends of a job's events": (
        details.SQL["events"],
        lambda ear: (one(ear, "ended"), "acme", 2, 1_000),
        {"events_*_pkey"},
    ),
    "money of a job": (
        details.SQL["entries"],
        lambda ear: (one(ear, "ended"), "acme", 100, "account-7", "refund:job_x"),
        {"entries_hold", "entries_settlement", "entries_reference"},
    ),
    "where a bulk operation begins": (operations.SQL["newest"], lambda _: (), {"*_pkey"}),
    "runs of jobs": (operations.SQL["runs"], lambda ear: ([one(ear, "ended")],), {"*_pkey"}),
    "retried by a bulk operation": (
        operations.SQL["retried"],
        lambda _: ("acme", "account-7", "bulk:retry:job_x:1", "bulk_x"),
        {"idempotency_pkey"},
    ),
    "refunded by a bulk operation": (
        operations.SQL["refunded"],
        lambda ear: ("acme", "account-7", "refund:job_x:1:bulk_x", one(ear, "ended")),
        {"entries_reference"},
    ),
    "predictions of a job": (
        details.SQL["predictions"],
        lambda ear: (one(ear, "leased"), "acme", 100),
        {"predictions_job"},
    ),
    "jobs made from a job": (
        details.SQL["retries"],
        lambda ear: (one(ear, "ended"), "acme", "account-7", 1_000),
        {"*_tenant_account_id_idx"},
    ),
    "who holds a job": (details.SQL["holder"], lambda ear: (one(ear, "leased"),), {"dispatches_pkey"}),
    "find a job": (search.SQL["jobs"], lambda ear: (one(ear, "ended"), LAST, "globex", 1_000, 5), set()),
    "find a file": (search.SQL["artifacts"], lambda _: (UUID(int=0), LAST, None, 1_000, 5), set()),
    "find a delivery": (
        search.SQL["deliveries"],
        lambda _: (UUID(int=0), LAST, "globex", 1_000, 5),
        {"deliveries_pkey"},
    ),
    "find a prediction": (search.SQL["by_external_id"], lambda _: ("77", None, 1_000, 5), {"predictions_external_id"}),
    "find a key": (search.SQL["keyed"], lambda _: ("k77", None, 1_000, 5), {"idempotency_pkey"}),
    "find a schedule": (
        search.SQL["schedules"],
        lambda _: (UUID(int=0), LAST, "tenant-7", 1_000, 5),
        {"schedules_pkey"},
    ),
    "find a schedule by name": (
        search.SQL["named_schedules"],
        lambda _: ("s7", None, 1_000, 5),
        {"schedules_tenant_name_key"},
    ),
    "find an account": (search.SQL["accounts"], lambda _: ("account-7", None, 1_000, 5), {"accounts_pkey"}),
    "find an account of a tenant": (search.SQL["accounts"], lambda _: ("a", "acme", 1_000, 5), {"accounts_pkey"}),
    "jobs that hold credits": (holds.SQL["live"], lambda _: (UUID(int=0), "globex", 1_000), {"dispatches_pkey"}),
    "how old holds are": (holds.SQL["aged"], lambda ear: (held(ear)[0], [60.0, 600.0]), set()),
    "what is held for jobs": (holds.SQL["priced"], lambda ear: (held(ear)[0], 51), set()),
    "wallets": (
        holds.SQL["wallets"],
        lambda _: ("acme", "a", "acme", "b", "acme", "account-1", 50),
        {"accounts_pkey"},
    ),
    "what workers hold": (fleet.SQL["held"], lambda _: (1_000,), {"dispatches_pkey"}),
    "how far jobs are": (fleet.SQL["doing"], lambda ear: (held(ear)[0],), set()),
    "undecided": (deliveries.SQL["undecided"], lambda _: (100,), {"deliveries_undecided"}),
    "canceling": (dispatches.SQL["canceling"], held, {"dispatches_pkey"}),
    "take predictions": (
        predictions.SQL["take"],
        lambda _: ("replicate", 10, MINUTE),
        {"predictions_due", "predictions_pkey"},
    ),
    "poll a prediction now": (predictions.SQL["poll_now"], lambda ear: (one(ear, "leased"),), {"predictions_job"}),
    "poll what is over now": (
        predictions.SQL["poll_finished_now"],
        lambda ear: (one(ear, "leased"),),
        {"predictions_job"},
    ),
    "keep a part": (predictions.SQL["keep"], lambda _: (uuid4(), "{}"), {"predictions_pkey"}),
    "due schedules": (fires.SQL["due"], lambda _: (["brief"], 100), {"schedules_next"}),
    "move schedules": (
        fires.SQL["move"],
        lambda ear: ([schedule for schedule, _ in ear.fires], [NOW] * 10, [NOW] * 10),
        {"schedules_pkey"},
    ),
    "decide on fires": (
        fires.SQL["decide"],
        lambda ear: (
            [schedule for schedule, _ in ear.fires],
            *[["acme"] * 10, [NOW] * 10, [uuid4() for _ in range(10)], *[[None] * 10] * 3, [1] * 10, list(range(10))],
            *["schedule", None, MINUTE, None],
        ),
        set(),
    ),
    "pending fires": (fires.SQL["take"], lambda _: (["brief"], 100, MINUTE), {"fires_pending", "schedules_pkey"}),
    "previous fires": (
        fires.SQL["previous"],
        lambda ear: ([fire for _, fire in ear.fires], [schedule for schedule, _ in ear.fires]),
        {"fires_schedule"},
    ),
    "settle fires": (
        fires.SQL["settle"],
        lambda ear: (
            [fire for _, fire in ear.fires],
            *[["submitted"] * 10, [uuid4() for _ in range(10)], [None] * 10, [None] * 10],
        ),
        {"fires_pkey"},
    ),
    "fires of a schedule": (
        fires.SQL["list"],
        lambda ear: (ear.fires[0][0], LAST, None, 50),
        {"fires_schedule"},
    ),
    "last fires": (fires.SQL["last"], lambda ear: ([schedule for schedule, _ in ear.fires],), {"fires_schedule"}),
    "old fires": (fires.SQL["prune"], lambda _: (MINUTE * 60 * 24 * 90, 1_000), {"fires_pkey"}),
    "schedules of a tenant": (
        schedules.SQL["list"],
        lambda _: (FIRST, "tenant-7", None, None, None, None, None, 50),
        {"schedules_tenant"},
    ),
    "count schedules": (schedules.SQL["count"], lambda _: ("tenant-7",), set()),
    "overdue schedules": (schedules.SQL["overdue"], lambda _: (MINUTE,), {"schedules_next"}),
    "alarms of overdue schedules": (board.SQL["overdue"], lambda _: (None, MINUTE, 10), {"schedules_next"}),
    "alarms of schedules without jobs": (
        board.SQL["fruitless"],
        lambda _: (None, 1_000, 2, 10),
        {"schedules_pkey", "fires_schedule"},
    ),
    "alarms of a tenant's schedules": (
        board.SQL["fruitless"],
        lambda _: ("tenant-7", 1_000, 2, 10),
        {"schedules_tenant", "fires_schedule"},
    ),
    "due times without a job": (
        fires.SQL["missing"],
        lambda ear: (ear.fires[0][0], [NOW - n * MINUTE for n in range(1_000)]),
        {"fires_once"},
    ),
    "ended": (leases.SQL["ended"], lambda ear: (held(ear)[0], [1] * 10, ["succeeded"] * 10), set()),
}


def parent(relation: str) -> str:
    """The table a partition is a part of."""
    name, _, week = relation.rpartition("_")
    return name if week.isdigit() or week == "default" else relation


def check(nodes: list[dict[str, Any]], idle: set[str], *, touched_max: int = TOUCHED_MAX) -> None:
    """No node reads a table that grows as a whole, nor more of it than the verb is about."""
    for node in nodes:
        relation = node.get("Relation Name", "")
        if parent(relation) in HOT:
            assert node["Node Type"] != "Seq Scan" or relation in idle, node
            removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            assert (node["Actual Rows"] + removed) * node["Actual Loops"] <= touched_max, node


def indexes(nodes: list[dict[str, Any]]) -> set[str]:
    """The indexes in use; the week in the name of a partition's is a star."""
    names = {str(node["Index Name"]) for node in nodes if "Index Name" in node}
    return (
        names
        | {"_".join("*" if part.isdigit() else part for part in name.split("_")) for name in names}
        | {f"*_{name.partition('_')[2].partition('_')[2]}" for name in names}
    )


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_uses_its_index_and_walks_over_nothing_else(full: Ear, verb: str) -> None:
    query, arguments, expected = VERBS[verb]
    nodes = await full.plans(query, *arguments(full))
    check(nodes, full.idle)
    assert indexes(nodes) >= expected


@pytest.mark.parametrize("verb", VERBS)
async def test_a_plan_made_on_an_empty_database_is_one_for_a_crowded_one(empty: Ear, verb: str) -> None:
    """The plans of functions are made once: what is chosen for one page must be good for a million."""
    query, arguments, _ = VERBS[verb]
    check(await empty.plans(query, *arguments(empty)), set())


@pytest.mark.parametrize("read", READS)
async def test_a_read_uses_its_index_and_walks_over_nothing_else(full: Ear, read: str) -> None:
    query, arguments, expected = READS[read]
    nodes = await full.plans(query, *arguments(full))
    check(nodes, full.idle)
    assert indexes(nodes) >= expected


# Views: the plans of the role that reads for clients


@asynccontextmanager
async def as_client(ear: Ear) -> AsyncIterator[Ear]:
    await ear.connection.execute(f"set role {CLIENT_ROLE}")
    yield ear
    await ear.connection.execute("reset role")


@pytest.fixture
async def full_as_client(full: Ear) -> AsyncIterator[Ear]:
    async with as_client(full) as ear:
        yield ear


@pytest.fixture
async def empty_as_client(empty: Ear) -> AsyncIterator[Ear]:
    async with as_client(empty) as ear:
        yield ear


VIEWS: dict[str, tuple[str, Call, str]] = {
    "jobs": ("jobs", lambda ear: (["acme", "globex"], [job for job, _ in ear.samples["ended"]]), "jobs_*_pkey"),
    "one job": ("jobs", lambda ear: (["acme"], [one(ear, "ended")]), "jobs_*_pkey"),
    "page of an account": (
        "page",
        lambda _: ("acme", "account-7", LAST, None, None, None, 51, 1000, None, None),
        "*_tenant_account_id_idx",
    ),
    "page of a tenant": (
        "page",
        lambda _: ("acme", None, LAST, None, None, None, 51, 1000, None, None),
        "*_tenant_id_idx",
    ),
    "page of what is rare": (
        "page",
        lambda _: ("acme", None, LAST, "rare", None, None, 51, 1000, '{"team": "ads"}', None),
        "*_tenant_id_idx",
    ),
    "page of what is named": (
        "page",
        lambda ear: ("acme", None, LAST, None, None, None, 51, 1000, None, [one(ear, "ended")]),
        "jobs_*_pkey",
    ),
    "events": ("events", lambda ear: ("acme", None, one(ear, "ended"), 0, None, 501), "events_*_pkey"),
    "logs": ("events", lambda ear: ("acme", None, one(ear, "ended"), 0, "log", 501), "events_*_pkey"),
    "text": ("text", lambda ear: ("acme", None, one(ear, "leased")), "chunks_pkey"),
    "last chunk": ("last_chunk", lambda ear: ("acme", "account-7", one(ear, "leased")), "chunks_pkey"),
    "wallet": ("wallet", lambda _: ("acme", "account-7"), "accounts_pkey"),
    "entries": ("entries", lambda _: ("acme", "account-7", 2**62, 51), "entries_pkey"),
}


@pytest.mark.parametrize("read", VIEWS)
async def test_a_view_uses_its_index_and_walks_over_nothing_else(full_as_client: Ear, read: str) -> None:
    name, arguments, expected = VIEWS[read]
    nodes = await full_as_client.plans(views.SQL[name], *arguments(full_as_client))
    check(nodes, full_as_client.idle)
    assert expected in indexes(nodes)


@pytest.mark.parametrize("read", VIEWS)
async def test_a_views_plan_made_on_an_empty_database_is_one_for_a_crowded_one(empty_as_client: Ear, read: str) -> None:
    name, arguments, _ = VIEWS[read]
    check(await empty_as_client.plans(views.SQL[name], *arguments(empty_as_client)), set())


async def test_an_operators_page_of_everything_goes_by_the_newest_ids(full: Ear) -> None:
    nodes = await full.plans(views.SQL["page"], None, None, LAST, None, None, None, 51, 1000, None, None)
    check(nodes, full.idle)
    assert "jobs_*_pkey" in indexes(nodes)
