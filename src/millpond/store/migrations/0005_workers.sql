-- Why: workers that come over HTTP with a token of their own, and the routes they serve.
-- Locks: queues, leases and audit for a moment; the audit is not written to while its new index is built.
-- breaking: no

alter table millpond.queues add column is_route boolean not null default false;
comment on column millpond.queues.is_route is 'Whether its jobs go to the fleet: a worker that registers may name it.';

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
comment on table millpond.workers is 'database: central. The fleet: who has registered and may ask for jobs. One that has left has no row.';
comment on column millpond.workers.id is 'As it stands in leases: each registration has its own, so that what its former self held is told apart.';
comment on column millpond.workers.digest is 'The SHA-256 of its token; the token itself is kept nowhere.';
comment on column millpond.workers.old_digest is 'Of the token before, which stays good until old_until.';
comment on column millpond.workers.fleet is 'The key it registered with.';
comment on column millpond.workers.address is 'From where it was last heard.';
comment on column millpond.workers.heard_at is 'Written every few seconds at most.';

create table millpond.worker_routes (
    route     text collate "C" not null,
    worker_id text collate "C" not null,
    primary key (route, worker_id)
);
create index worker_routes_worker on millpond.worker_routes (worker_id);
comment on table millpond.worker_routes is 'database: central. Which queues a worker of the fleet is given jobs from.';

-- What one worker of the fleet holds. Leases of workers beside the database are not in it, and cost it nothing.
create index leases_fleet on millpond.leases (worker) where worker like 'worker\_%' and length(worker) = 33;

-- What one actor did: a worker that tells an end twice is recognised by what the audit has of the first time.
create index audit_actor on millpond.audit (actor, id);
