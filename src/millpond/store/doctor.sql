-- Doctor: finds conditions that slow down a queue on PostgreSQL, before they do harm.

-- name: server :one
select current_setting('server_version') as version, current_setting('server_version_num')::int as number;

-- name: durability :one
select current_setting('fsync') as fsync, current_setting('synchronous_commit') as synchronous_commit,
    current_setting('full_page_writes') as full_page_writes;

-- name: oldest_snapshot :maybe
-- A transaction that stays open keeps vacuum from removing dead rows, and every claim reads them.
select pid, coalesce(application_name, '') as application, state,
    extract(epoch from clock_timestamp() - xact_start)::float8 as seconds
from pg_stat_activity
where backend_xmin is not null and pid <> pg_backend_pid() and xact_start is not null
order by xact_start
limit 1;

-- name: dead_rows :many
select relname as relation, n_live_tup as live, n_dead_tup as dead
from pg_stat_user_tables
where schemaname = 'millpond' and relname in ('dispatches', 'ready', 'leases', 'accounts');

-- name: connections :one
select count(*) as used, current_setting('max_connections')::int as maximum
from pg_stat_activity where backend_type = 'client backend';

-- name: overdue :one
-- What the services should have processed by now.
select
    (select count(*) from (select from millpond.leases where expires_at < millpond.clock() - interval '30 seconds' limit 1000) l) as leases,
    (select count(*) from (select from millpond.dispatches where wakes_at < millpond.clock() - interval '30 seconds' limit 1000) d) as dispatches,
    (select count(*) from (select from millpond.schedules where next_at < millpond.clock() - interval '2 minutes' limit 1000) s) as schedules;

-- name: counters :one
-- The number of changes that are not merged yet, up to a limit.
select count(*) as changes from (select from millpond.counter_changes limit $1) t;
