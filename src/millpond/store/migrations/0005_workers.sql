-- Why: workers that connect over HTTP with tokens of their own, and the routes they serve.
-- Locks: queues, leases and audit for a moment; writes to audit wait while its new index is built.
-- breaking: no

alter table millpond.queues add column is_route boolean not null default false;
comment on column millpond.queues.is_route is 'Whether the jobs of the queue run on the fleet: workers that register may name it.';

create table millpond.workers (
    id            text collate "C" primary key,
    worker        text collate "C" not null unique,
    digest        bytea not null unique,
    hint          text collate "C" not null,
    old_digest    bytea unique,
    old_until     timestamptz,
    slots         smallint not null check (slots > 0),
    capabilities  jsonb,
    fleet         text collate "C" not null,
    address       text collate "C",
    registered_at timestamptz not null,
    heard_at      timestamptz not null,
    approved_at   timestamptz,
    draining_at   timestamptz,
    revoked_at    timestamptz,
    check (id like 'worker\_%' and length(id) = 33 and (old_digest is null) = (old_until is null))
) with (fillfactor = 50);
comment on table millpond.workers is 'database: central. The registered workers of the fleet. A worker that has left has no row.';
comment on column millpond.workers.id is 'The name of the worker in leases. Each registration has its own, so the leases of an earlier registration can be told apart.';
comment on column millpond.workers.digest is 'The SHA-256 of the token; the token itself is not stored.';
comment on column millpond.workers.old_digest is 'The SHA-256 of the previous token, which is valid until old_until.';
comment on column millpond.workers.fleet is 'The key with which the worker registered.';
comment on column millpond.workers.address is 'The address from which its last request came.';
comment on column millpond.workers.heard_at is 'When its last request came. Updated every few seconds at most.';

create table millpond.worker_routes (
    route     text collate "C" not null,
    worker_id text collate "C" not null,
    primary key (route, worker_id)
);
create index worker_routes_worker on millpond.worker_routes (worker_id);
comment on table millpond.worker_routes is 'database: central. The queues from which each fleet worker is given jobs.';

-- The leases of a fleet worker. Leases of direct workers are not in this index, so writing them costs nothing more.
create index leases_fleet on millpond.leases (worker) where worker like 'worker\_%' and length(worker) = 33;

-- The actions of one actor: if a worker reports an end twice, the record of its first report shows that.
create index audit_actor on millpond.audit (actor, id);
