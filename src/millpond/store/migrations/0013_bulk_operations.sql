-- Why: an operator has something done to many jobs at once, as work in the background that any process may go on with.
-- Locks: jobs, against writing, while three indexes are made; each looks at every job, and next to none has an entry.
-- breaking: no

create table millpond.bulk_operations (
    id uuid primary key,
    tenant text collate "C",
    actor text collate "C" not null,
    key text collate "C",
    digest bytea not null,
    action text collate "C" not null check (action in ('retry', 'cancel', 'refund', 'priority', 'export', 'verify')),
    filter jsonb not null,
    arguments jsonb not null,
    status text collate "C" not null default 'waiting' check (status in ('waiting', 'running', 'done', 'aborted', 'failed')),
    place uuid,
    in_hand uuid[],
    ends integer[],
    looked bigint not null default 0,
    matched bigint not null default 0,
    done bigint not null default 0,
    refused bigint not null default 0,
    refusals jsonb not null default '[]',
    estimate bigint,
    has_file boolean not null default false,
    result jsonb,
    error jsonb,
    lease_token uuid,
    touched_at timestamptz not null,
    lease_until timestamptz,
    abort_asked_at timestamptz,
    created_at timestamptz not null,
    started_at timestamptz,
    finished_at timestamptz,
    check ((finished_at is not null) = (status in ('done', 'aborted', 'failed')))
) with (fillfactor = 50);
create index bulk_operations_open on millpond.bulk_operations (touched_at) where finished_at is null;
create index bulk_operations_tenant on millpond.bulk_operations (tenant, id);
create unique index bulk_operations_key on millpond.bulk_operations (actor, key) where key is not null;
create index bulk_operations_file on millpond.bulk_operations (finished_at) where has_file;
-- Those that failed, in order: of all tenants, of each way to fail, and of each tenant; there, how they failed is seen without a look at them.
create index jobs_failed on millpond.jobs (id) where fingerprint is not null;
create index jobs_fingerprint on millpond.jobs (fingerprint, id) where fingerprint is not null;
create index jobs_tenant_failed on millpond.jobs (tenant, id, fingerprint) where fingerprint is not null;
comment on table millpond.bulk_operations is 'database: central. What operators have done to many jobs at once, how far it has come, and what came of it.';
comment on column millpond.bulk_operations.tenant is 'Whose jobs it is about; none: those of every tenant.';
comment on column millpond.bulk_operations.key is 'The idempotency key it was ordered with; the same one orders it once.';
comment on column millpond.bulk_operations.digest is 'Of all that was ordered: a key that comes again must come with the same.';
comment on column millpond.bulk_operations.place is 'The job that its walk has come to; it goes on below. The zero id: it is through.';
comment on column millpond.bulk_operations.in_hand is 'The jobs of the batch that is under way: whoever takes over acts on those of them that still fit, which changes nothing twice.';
comment on column millpond.bulk_operations.ends is 'Which end of each of these was seen, by the number of the run that ended so; 0: it had not ended.';
comment on column millpond.bulk_operations.refusals is 'Why jobs were refused, each reason once, with how many and one of them.';
comment on column millpond.bulk_operations.has_file is 'Whether there may be a file of it in storage. Written before the file is.';
comment on column millpond.bulk_operations.lease_token is 'Who is at it, until lease_until; after that anybody may go on.';
comment on column millpond.bulk_operations.touched_at is 'When it was last taken up: those that wait take turns.';
