-- Why: schedules submit jobs at their due times; a fire records what was done at a due time.
-- Locks: none that matter; the tables are new.
-- breaking: no

create table millpond.schedules (
    id           uuid primary key,
    tenant       text collate "C" not null,
    account      text collate "C" not null,
    name         text collate "C" not null,
    kind         text collate "C" not null,
    input        jsonb not null,
    due_field    text collate "C",
    cron         text collate "C",
    every        interval,
    at           timestamptz,
    zone         text collate "C" not null,
    jitter       interval not null,
    since        timestamptz not null,
    overlap      text collate "C" not null check (overlap in ('skip', 'queue', 'cancel_previous')),
    catch_up     text collate "C" not null check (catch_up in ('none', 'last', 'all')),
    catch_up_max integer not null check (catch_up_max between 1 and 1000),
    priority     smallint,
    expires_in   interval,
    tags         jsonb not null,
    source       text collate "C" not null check (source in ('code', 'api')),
    app          text collate "C",
    app_kinds    text[] collate "C",
    actor        text collate "C",
    key          text collate "C",
    digest       bytea,
    due_at       timestamptz,
    next_at      timestamptz,
    paused_at    timestamptz,
    orphaned_at  timestamptz,
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    unique (tenant, name),
    check (num_nonnulls(cron, every, at) = 1),
    check ((source = 'code') = (app_kinds is not null)),
    check ((due_at is null) = (next_at is null) and next_at >= due_at),
    check (due_at is null or (paused_at is null and orphaned_at is null))
) with (fillfactor = 70);
create index schedules_next on millpond.schedules (next_at) where next_at is not null;
create index schedules_tenant on millpond.schedules (tenant, id);
create unique index schedules_key on millpond.schedules (actor, key) where key is not null;
comment on table millpond.schedules is 'database: central. What submits jobs at due times.';
comment on column millpond.schedules.due_field is 'The member of the input that is set to the due time.';
comment on column millpond.schedules.since is 'From when the intervals are counted.';
comment on column millpond.schedules.catch_up_max is 'How many of the missed due times catch_up = all makes up for.';
comment on column millpond.schedules.source is 'Whether the code of an app declares it, or it was created through the API.';
comment on column millpond.schedules.app is 'The name of the app that declares it. Null: the app has no name.';
comment on column millpond.schedules.app_kinds is 'The kinds of the app when it declared the schedule last. They identify an app without a name.';
comment on column millpond.schedules.key is 'The idempotency key of the request that created it.';
comment on column millpond.schedules.due_at is 'The next due time. Null: it is paused, or never due again.';
comment on column millpond.schedules.next_at is 'When it fires: the next due time with its jitter.';
comment on column millpond.schedules.paused_at is 'Since when an operator has paused it.';
comment on column millpond.schedules.orphaned_at is 'Since when its app no longer declares it. It does not fire.';

create table millpond.fires (
    id          uuid primary key,
    schedule_id uuid not null,
    tenant      text collate "C" not null,
    due_at      timestamptz not null,
    cause       text collate "C" not null check (cause in ('schedule', 'manual', 'backfill')),
    outcome     text collate "C" not null check (outcome in ('pending', 'submitted', 'skipped', 'failed')),
    job_id      uuid,
    reason      text collate "C",
    message     text,
    until       timestamptz,
    times       integer not null default 1,
    actor       text collate "C",
    key         text collate "C",
    tries       smallint,
    try_at      timestamptz,
    at          timestamptz not null,
    check ((outcome = 'pending') = (try_at is not null) and (try_at is null) = (tries is null)),
    check ((outcome in ('skipped', 'failed')) = (reason is not null)),
    check ((outcome in ('pending', 'submitted')) = (job_id is not null)),
    check (until is null or (outcome = 'skipped' and until > due_at))
) with (fillfactor = 70);
-- At most one job for each due time.
create unique index fires_once on millpond.fires (schedule_id, due_at) where outcome in ('pending', 'submitted');
create unique index fires_key on millpond.fires (schedule_id, key) where key is not null and outcome in ('pending', 'submitted');
create index fires_schedule on millpond.fires (schedule_id, id);
create index fires_pending on millpond.fires (try_at) where try_at is not null;
comment on table millpond.fires is 'database: central. What schedules did at their due times.';
comment on column millpond.fires.cause is 'Why it was due: by its schedule, because an operator ran it, or because an operator made up for a period.';
comment on column millpond.fires.outcome is 'Pending: the job is being submitted, by the process that decided to or by the next one after try_at.';
comment on column millpond.fires.job_id is 'The job. Its id is made before it is submitted, so a job with it exists for certain only if the outcome is submitted.';
comment on column millpond.fires.reason is 'Why nothing was submitted: overlap, catch_up, or the code of an error.';
comment on column millpond.fires.until is 'The last one of several due times that were skipped together; due_at is the first one.';
comment on column millpond.fires.times is 'The number of due times; counted up to 1,000.';
comment on column millpond.fires.tries is 'How many processes have taken the pending fire.';
comment on column millpond.fires.key is 'The idempotency key of the request to run the schedule.';
