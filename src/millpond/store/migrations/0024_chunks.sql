-- Why: a running job emits text, which its readers receive while it is made.
-- Locks: none that matter; the table is new.
-- breaking: no

-- The rows are read by position and deleted soon after their job has ended. Few are dead at any time, if they are
-- vacuumed as they are deleted.
create table millpond.chunks (
    job_id uuid not null,
    after  integer not null,
    number integer not null,
    epoch  integer not null,
    tenant text collate "C" not null,
    at     timestamptz not null,
    total  integer not null,
    text   text not null,
    primary key (job_id, after, number)
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
comment on table millpond.chunks is 'database: tenant. The text that running jobs have emitted, in pieces. Rows are never updated. They are deleted when a later attempt emits text, or soon after the job has ended.';
comment on column millpond.chunks.after is 'The number of the job''s last event when the chunk was written: its place between the events.';
comment on column millpond.chunks.number is 'Counts the chunks of an attempt from 1 without gaps.';
comment on column millpond.chunks.epoch is 'The epoch of the attempt.';
comment on column millpond.chunks.total is 'The bytes of text of the attempt up to and including this chunk.';
select millpond.wall('chunks');
