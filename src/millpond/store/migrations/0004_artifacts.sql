-- Why: files that clients upload and jobs make: who owns them, and whether they are in storage.
-- Locks: none that matter; the table is new.
-- breaking: no

create table millpond.artifacts (
    id           uuid primary key,
    tenant       text collate "C" not null,
    account      text collate "C" not null,
    job_id       uuid,
    epoch        integer,
    name         text not null,
    content_type text collate "C" not null,
    size         bigint not null,
    sha256       text collate "C",
    path         text collate "C" not null unique,
    created_at   timestamptz not null,
    expires_at   timestamptz not null,
    stored_at    timestamptz,
    kept_at      timestamptz,
    deleted_at   timestamptz,
    check (size >= 0 and (epoch is null or job_id is not null) and (kept_at is null or stored_at is not null))
);
create index artifacts_job on millpond.artifacts (job_id, id) where job_id is not null;
create index artifacts_unstored on millpond.artifacts (id) where stored_at is null and epoch is null;
create index artifacts_undecided on millpond.artifacts (id) where epoch is not null and kept_at is null;
create index artifacts_deleted on millpond.artifacts (id) where deleted_at is not null;
comment on table millpond.artifacts is 'database: tenant. Files in storage, uploaded by clients or made by attempts of jobs. A row is written before its file and deleted after it.';
comment on column millpond.artifacts.epoch is 'The epoch of the attempt that makes the file. Null: the file is an input of a job, or belongs to no job yet.';
comment on column millpond.artifacts.size is 'The announced size until the file is stored, then the actual size.';
comment on column millpond.artifacts.expires_at is 'By when the upload must be complete.';
comment on column millpond.artifacts.stored_at is 'When the complete file was found in storage.';
comment on column millpond.artifacts.kept_at is 'When the file was found to be part of the result of its job.';
comment on column millpond.artifacts.deleted_at is 'From when the file is no longer shown. The file is deleted next, then this row.';

select millpond.raise_wall();
