-- Why: files that clients upload and jobs make, with who owns them and whether they are really there.
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
comment on table millpond.artifacts is 'database: tenant. Files in storage: what clients upload, and what each attempt at a job makes. A row is written before its file and removed after it.';
comment on column millpond.artifacts.epoch is 'The attempt that makes it; none for what is given to a job, or to none yet.';
comment on column millpond.artifacts.size is 'As it was announced, and once it is stored, as it is.';
comment on column millpond.artifacts.expires_at is 'Until when the upload was to be done.';
comment on column millpond.artifacts.stored_at is 'When the file was seen in storage, whole.';
comment on column millpond.artifacts.kept_at is 'When it was found to be of the attempt that won.';
comment on column millpond.artifacts.deleted_at is 'From then on nobody sees it: its file is removed, then this row.';

select millpond.raise_wall();
