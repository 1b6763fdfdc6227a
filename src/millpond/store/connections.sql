-- Connections: sets and reads what a session of PostgreSQL is, whatever began it (see connections.py).

-- name: apply :exec
-- Applies these settings, and the built-in value of every planner method: versions of PostgreSQL differ in their number.
-- A setting that this version does not have is skipped; those of PL/pgSQL exist once it is used. Everything is qualified,
-- because the search path is not ours yet.
select pg_catalog.set_config(s.name, s.value, false)
from (
    select given.name, given.value
    from rows from (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) as given(name, value)
    where pg_catalog.strpos(given.name, '.') > 0 or pg_catalog.current_setting(given.name, true) is not null
    union all
    select known.name, known.boot_val
    from pg_catalog.pg_settings known
    where known.context = 'user' and pg_catalog.starts_with(known.name, 'enable_')
) as s;

-- name: shed_role :exec
set role none;

-- name: observe :one
-- The session as it is: the server's process, the role, and whether triggers run, which only a superuser can set.
select pg_catalog.pg_backend_pid() as pid, current_user::text as role,
    pg_catalog.current_setting('session_replication_role') as replication;

-- name: pid :one
select pg_catalog.pg_backend_pid() as pid;

-- name: writable :one
select not pg_catalog.current_setting('transaction_read_only')::boolean as is_writable;
