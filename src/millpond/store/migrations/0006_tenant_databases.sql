-- Why: a tenant may live in another database, while the queue stays here.
-- Locks: dispatches and leases for a moment; no row is rewritten.
-- breaking: no

alter table millpond.dispatches add column is_remote boolean not null default false;
comment on column millpond.dispatches.is_remote is 'Whether its job is in another database: then its verbs are two transactions.';
create index dispatches_remote on millpond.dispatches (tenant, job_id) where is_remote;

alter table millpond.leases add column is_remote boolean not null default false;
comment on column millpond.leases.is_remote is 'Whether one of its jobs is in another database.';

create table millpond.tenant_databases (
    tenant text collate "C" primary key,
    since  timestamptz not null
);
comment on table millpond.tenant_databases is 'database: central. The tenants that live in another database. Whoever does not know where must not touch their jobs.';

create table millpond.owed (
    job_id  uuid primary key,
    owed_at timestamptz not null
);
create index owed_age on millpond.owed (owed_at);
comment on table millpond.owed is 'database: tenant. The jobs that may not have their dispatch yet, because it stands in another database. Written with the job.';
