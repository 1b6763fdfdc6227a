-- Why: operators apply an action to many jobs at once, as a background operation that any process can continue.
-- Locks: writes to jobs wait while three indexes are built; each build scans all jobs, but next to none has an entry.
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
-- Failed jobs in order: of all tenants, by fingerprint, and by tenant. The last index includes the fingerprint, so that
-- reading it needs no access to the table.
create index jobs_failed on millpond.jobs (id) where fingerprint is not null;
create index jobs_fingerprint on millpond.jobs (fingerprint, id) where fingerprint is not null;
create index jobs_tenant_failed on millpond.jobs (tenant, id, fingerprint) where fingerprint is not null;
comment on table millpond.bulk_operations is 'database: central. Bulk operations, with their progress and result.';
comment on column millpond.bulk_operations.tenant is 'The tenant whose jobs are selected. Null: all tenants.';
comment on column millpond.bulk_operations.key is 'The idempotency key of the request. A repeated request with the same key starts no other operation.';
comment on column millpond.bulk_operations.digest is 'The digest of the request. A repeated key must come with the same request.';
comment on column millpond.bulk_operations.place is 'The job that the walk has reached; it continues with lower ids. The zero id: the walk is complete.';
comment on column millpond.bulk_operations.in_hand is 'The jobs of the current batch. A process that takes over acts on those that still match, so nothing is done twice.';
comment on column millpond.bulk_operations.ends is 'For each job of in_hand, the number of the run whose end was seen; 0 if the job had not ended.';
comment on column millpond.bulk_operations.refusals is 'Why jobs were refused: each reason once, with the number of jobs and one of them.';
comment on column millpond.bulk_operations.has_file is 'Whether storage may contain a file of this operation. Set before the file is written.';
comment on column millpond.bulk_operations.lease_token is 'The claim of the process that runs it. After lease_until any process may claim it.';
comment on column millpond.bulk_operations.touched_at is 'When it was last claimed: waiting operations take turns.';
