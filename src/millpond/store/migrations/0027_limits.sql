-- Why: limits on how many jobs run at once, and how many start per period, for each value of a key.
-- Locks: dispatches, kinds and queues, for a moment: columns and a trigger are added. The other tables are new.
-- breaking: no

create table millpond.limits (
    name       text collate "C" primary key,
    at_once    integer,
    starts     integer,
    per        interval,
    key        text[] collate "C" not null,
    declared   jsonb not null,
    changed_at timestamptz,
    changed_by text collate "C",
    check (num_nonnulls(at_once, starts) > 0 and at_once > 0 and starts > 0 and (starts is null) = (per is null))
);
comment on table millpond.limits is 'database: both. How many jobs may run at once, and how many may start per period, for each value of a key.';
comment on column millpond.limits.key is 'What a job''s key is made of: tenant, account, tags.NAME or input.PATH. Empty: all jobs have the same key.';
comment on column millpond.limits.declared is 'The numbers that the app declares; an operator may have changed those that apply.';

alter table millpond.kinds
    add column limits text[] collate "C" not null default '{}',
    add column keeps_limits boolean not null default false;
comment on column millpond.kinds.limits is 'The limits of its jobs.';
comment on column millpond.kinds.keeps_limits is 'Whether its jobs count as running while they are parked, because a provider works on them.';

alter table millpond.queues add column is_limited boolean not null default false;
comment on column millpond.queues.is_limited is 'Whether jobs in it may have limits.';

alter table millpond.dispatches add column limits text[] collate "C";
comment on column millpond.dispatches.limits is 'The keys of its limits, each the name of a limit, a colon and a value. Null: none, or it was not claimed yet.';

create table millpond.limit_keys (
    key          text collate "C" primary key,
    name         text collate "C" not null,
    starts       integer[] not null default '{}',
    part         bigint not null default 0,
    closed_until timestamptz,
    look_at      timestamptz,
    used_at      timestamptz not null
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
create index limit_keys_look on millpond.limit_keys (look_at) where look_at is not null;
comment on table millpond.limit_keys is 'database: central. One row for each key of a limit. Whoever lets jobs start under keys locks their rows first, in order.';
comment on column millpond.limit_keys.starts is 'How many jobs have started in the last parts of the period, the newest first. A part is a sixtieth of the period.';
comment on column millpond.limit_keys.part is 'The number of the newest part, counted from 1970.';
comment on column millpond.limit_keys.closed_until is 'Until when no job may start.';
comment on column millpond.limit_keys.look_at is 'When waiting jobs may start although no job has ended. Null: none waits for a time.';
comment on column millpond.limit_keys.used_at is 'When it was last locked to start a job. Rows that were not used for long are deleted.';

create table millpond.limit_holders (
    key    text collate "C" not null,
    job_id uuid not null,
    primary key (key, job_id)
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
comment on table millpond.limit_holders is 'database: central. The jobs that run under a key.';

create table millpond.limit_waits (
    job_id uuid primary key,
    key    text collate "C" not null,
    queue  text collate "C" not null,
    rank   smallint not null,
    turn   bigint not null,
    since  timestamptz not null
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
create index limit_waits_key on millpond.limit_waits (key, queue, rank, turn, job_id);
create index limit_waits_queue on millpond.limit_waits (queue);
comment on table millpond.limit_waits is 'database: central. The ready dispatches that a limit does not allow to start: they are here instead of in millpond.ready, so that a claim does not pass them.';
comment on column millpond.limit_waits.key is 'The first of its keys that had no room.';

create table millpond.limit_releases (
    key text collate "C" not null
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
comment on table millpond.limit_releases is 'database: central. The keys under which a job has stopped to run: jobs that wait for one may be able to start.';

create trigger dispatches_limits after delete or update of phase on millpond.dispatches
    for each row when (old.limits is not null) execute function millpond.leave_limits();
