-- System: the database, from its own statistics.

-- function: slow_statements
-- The statements of this database that took the most time in total. No rows if pg_stat_statements is not installed, was
-- not loaded when the server started, or may not be read. DDL is left out, because it may contain passwords.
create or replace function millpond.slow_statements(row_limit integer)
returns table (query text, calls bigint, mean_ms float8, total_ms float8)
language plpgsql as $$
declare
    place text := (
        select quote_ident(n.nspname) from pg_extension e join pg_namespace n on n.oid = e.extnamespace
        where e.extname = 'pg_stat_statements'
    );
begin
    if place is null then
        return;
    end if;
    return query execute format(
        'select left(s.query, 2000), s.calls, s.mean_exec_time, s.total_exec_time from %s.pg_stat_statements s'
        ' where s.dbid = (select oid from pg_database where datname = current_database())'
        ' and s.query ~* ''^\s*(--[^\n]*\n\s*)*\(*(select|insert|update|delete|with|merge|call)\M'''
        ' order by s.total_exec_time desc limit $1', place
    ) using row_limit;
exception
    when object_not_in_prerequisite_state or undefined_column or insufficient_privilege then
        return;
end $$;

-- name: slow :many
select query, calls, mean_ms, total_ms from millpond.slow_statements($1);

-- name: counting :one
-- Whether pg_stat_statements is installed, and whether it can be.
select exists (select from pg_extension where extname = 'pg_stat_statements') as is_there,
    exists (select from pg_available_extensions where name = 'pg_stat_statements') as is_available;

-- name: database :one
select current_setting('server_version') as version, pg_database_size(current_database()) as size,
    pg_postmaster_start_time() as started_at, millpond.clock() as present,
    (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
    current_setting('max_connections')::int as connections_max,
    round(d.blks_hit::numeric / nullif(d.blks_hit + d.blks_read, 0), 4)::float8 as cache_hit,
    d.xact_commit as commits, d.xact_rollback as rollbacks, d.deadlocks, d.temp_bytes as temporary_bytes
from pg_stat_database d where d.datname = current_database();

-- name: tables :many
-- The largest tables, with their indexes. The partitions of a table are added up. Row counts are estimates.
select coalesce(p.relname, c.relname)::text as table, sum(pg_total_relation_size(c.oid))::bigint as bytes,
    sum(greatest(c.reltuples, 0))::bigint as rows, coalesce(sum(s.n_dead_tup), 0)::bigint as dead,
    max(greatest(s.last_vacuum, s.last_autovacuum)) as vacuumed_at
from pg_class c
left join pg_inherits i on i.inhrelid = c.oid
left join pg_class p on p.oid = i.inhparent
left join pg_stat_user_tables s on s.relid = c.oid
where c.relnamespace = 'millpond'::regnamespace and c.relkind = 'r'
group by coalesce(p.relname, c.relname)
order by bytes desc
limit $1;

-- name: migrations :many
select m.number, m.name, m.applied_at from millpond.migrations m where m.number > 0 order by m.number;

-- name: running :many
-- Sessions that are not idle and whose last statement began more than $1 seconds ago, the oldest first. PostgreSQL may
-- hide the statements of other roles.
select a.pid, extract(epoch from millpond.clock() - a.query_start)::float8 as seconds, coalesce(a.state, '') as state,
    left(coalesce(a.query, ''), 2000) as query
from pg_stat_activity a
where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
    and a.state <> 'idle' and a.query_start < millpond.clock() - make_interval(secs => $1)
order by a.query_start
limit $2;
