-- Doctor: what makes a queue on PostgreSQL ill, before it hurts.

-- name: server :one
select current_setting('server_version') as version, current_setting('server_version_num')::int as number;

-- name: durability :one
select current_setting('fsync') as fsync, current_setting('synchronous_commit') as synchronous_commit,
    current_setting('full_page_writes') as full_page_writes;

-- name: oldest_snapshot :maybe
-- A transaction that stays open keeps dead rows alive, and every claim walks over them.
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
select count(*) as used, current_setting('max_connections')::int as most
from pg_stat_activity where backend_type = 'client backend';

-- name: overdue :one
-- What the services should have seen to by now.
select
    (select count(*) from (select from millpond.leases where expires_at < millpond.clock() - interval '30 seconds' limit 1000) l) as leases,
    (select count(*) from (select from millpond.dispatches where wakes_at < millpond.clock() - interval '30 seconds' limit 1000) d) as dispatches;

-- name: tallies :one
-- How many are not folded yet, up to so many.
select count(*) as tallies from (select from millpond.tallies limit $1) t;

-- name: wall :one
-- Whether the role that reads for clients is there, can be taken, and is held to the rows of its callers.
select current_user as owner, to_regrole('millpond_client') is not null as has_role,
    coalesce(pg_has_role(to_regrole('millpond_client'), case when current_setting('server_version_num')::int < 160000 then 'member' else 'set' end), false) as has_grant,
    coalesce((
        select bool_and(c.relrowsecurity) from pg_class c
        where c.relnamespace = 'millpond'::regnamespace and c.relname in ('jobs', 'events', 'entries', 'accounts', 'idempotency')
    ), false) as is_raised;
