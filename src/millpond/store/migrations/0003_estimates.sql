-- Why: how long jobs of each kind ran lately, to tell when one is likely to end.
-- Locks: none that matter; the table is new.
-- breaking: no

create table millpond.durations (
    kind     text collate "C" not null,
    slot     smallint not null,
    seconds  real not null,
    ended_at timestamptz not null,
    primary key (kind, slot)
) with (fillfactor = 50);
comment on table millpond.durations is 'database: tenant. How long some of the jobs that succeeded lately ran, a fixed number for each kind: a new one takes the place of another.';
