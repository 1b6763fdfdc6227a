-- Why: operators see where a handler raised its error; in a table of its own, which clients cannot read.
-- Locks: none that matter; the table is new.
-- breaking: no

create table millpond.tracebacks (
    job_id uuid not null,
    epoch  integer not null,
    tenant text collate "C" not null,
    at     timestamptz not null,
    text   text not null,
    primary key (job_id, epoch)
);
-- There is no policy and no grant, so the role for clients' reads can read no row.
alter table millpond.tracebacks enable row level security;
comment on table millpond.tracebacks is 'database: tenant. Where a handler raised the error of an attempt, without secrets and with at most 16,000 characters. For operators only: the role for clients'' reads cannot read it.';
comment on column millpond.tracebacks.epoch is 'The epoch of the attempt.';
