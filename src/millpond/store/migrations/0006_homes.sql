-- Why: a tenant may live in another database, while the queue stays here.
-- Locks: dispatches and leases for a moment; no row is rewritten.
-- breaking: no

alter table millpond.dispatches add column is_away boolean not null default false;
comment on column millpond.dispatches.is_away is 'Whether its job is in another database: then its verbs are two transactions.';
create index dispatches_away on millpond.dispatches (tenant, job_id) where is_away;

alter table millpond.leases add column is_away boolean not null default false;
comment on column millpond.leases.is_away is 'Whether one of its jobs is in another database.';

create table millpond.homes (
    tenant text collate "C" primary key,
    since  timestamptz not null
);
comment on table millpond.homes is 'home: central. The tenants that live in another database. Whoever does not know where must not touch their jobs.';

create table millpond.owed (
    job_id  uuid primary key,
    owed_at timestamptz not null
);
create index owed_age on millpond.owed (owed_at);
comment on table millpond.owed is 'home: tenant. The jobs that may not have their dispatch yet, because it stands in another database. Written with the job.';
