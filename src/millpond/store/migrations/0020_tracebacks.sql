-- Why: operators see where the code of a job raised its error; in a table of its own, which clients cannot read.
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
-- Without a policy and without a grant: the role for clients' reads can read no row.
alter table millpond.tracebacks enable row level security;
comment on table millpond.tracebacks is 'database: tenant. Where the code of a job raised the error of an attempt: for operators only, the role of clients cannot read it. Without secrets, at most 16,000 characters.';
comment on column millpond.tracebacks.epoch is 'Which lease of the job the attempt had.';
