-- Hosts: what the watchdog asks a server that does not answer (see hosts.py). Everything is qualified, because the search
-- path is not ours.

-- name: sessions :many
-- The sessions of this database, each with the time since which it has waited for its client; null if it is at work.
select a.pid, case a.state when 'idle' then a.state_change end as idle_since
from pg_catalog.pg_stat_activity a
where a.datname = pg_catalog.current_database();

-- name: cancel :many
-- Cancels the statement of a session.
select pg_catalog.pg_cancel_backend(a.pid)
from pg_catalog.pg_stat_activity a
where a.pid = $1 and a.datname = pg_catalog.current_database() and a.state = 'active';
