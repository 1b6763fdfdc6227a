-- Why: a tenant may live in another database, while the queue stays here.
-- Locks: dispatches and leases for a moment; no row is rewritten.
-- breaking: no

alter table penstock.dispatches add column is_away boolean not null default false;
comment on column penstock.dispatches.is_away is 'Whether its job is in another database: then its verbs are two transactions.';
create index dispatches_away on penstock.dispatches (tenant, job_id) where is_away;

alter table penstock.leases add column is_away boolean not null default false;
comment on column penstock.leases.is_away is 'Whether one of its jobs is in another database.';

create table penstock.homes (
    tenant text collate "C" primary key,
    since  timestamptz not null
);
comment on table penstock.homes is 'home: central. The tenants that live in another database. Whoever does not know where must not touch their jobs.';

create table penstock.owed (
    job_id  uuid primary key,
    owed_at timestamptz not null
);
create index owed_age on penstock.owed (owed_at);
comment on table penstock.owed is 'home: tenant. The jobs that may not have their dispatch yet, because it stands in another database. Written with the job.';
