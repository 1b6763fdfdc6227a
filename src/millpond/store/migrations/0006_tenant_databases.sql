-- Why: a tenant may have a database of its own, while the queue stays in the central one.
-- Locks: dispatches and leases for a moment; no row is rewritten.
-- breaking: no

alter table millpond.dispatches add column is_remote boolean not null default false;
comment on column millpond.dispatches.is_remote is 'Whether the job is in another database: its verbs are then two transactions.';
create index dispatches_remote on millpond.dispatches (tenant, job_id) where is_remote;

alter table millpond.leases add column is_remote boolean not null default false;
comment on column millpond.leases.is_remote is 'Whether one of its jobs is in another database.';

create table millpond.tenant_databases (
    tenant text collate "C" primary key,
    since  timestamptz not null
);
comment on table millpond.tenant_databases is 'database: central. The tenants that have a database of their own. A process without the URL of that database must not change their jobs.';

create table millpond.owed (
    job_id  uuid primary key,
    owed_at timestamptz not null
);
create index owed_age on millpond.owed (owed_at);
comment on table millpond.owed is 'database: tenant. The jobs whose dispatch may not exist yet, because it is written to another database. A row is written together with its job.';
