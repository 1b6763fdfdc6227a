-- Why: how long recent jobs of each kind ran, to estimate when a job will end.
-- Locks: none that matter; the table is new.
-- breaking: no

create table millpond.durations (
    kind     text collate "C" not null,
    slot     smallint not null,
    seconds  real not null,
    ended_at timestamptz not null,
    primary key (kind, slot)
) with (fillfactor = 50);
comment on table millpond.durations is 'database: tenant. How long some recent jobs that succeeded ran. The number of rows for a kind is fixed: a new one replaces another.';
