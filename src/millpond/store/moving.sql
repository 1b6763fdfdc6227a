-- Moving: moves a tenant's rows from one database to another. Database: tenant.

-- function: let_through
-- Disables the guards of tables in this transaction, or enables them again. They check changes of jobs, and a move only
-- copies jobs. No other session writes to the tables meanwhile.
create or replace function millpond.let_through(tables text[], is_open boolean) returns void
language plpgsql as $$
declare
    name text;
begin
    foreach name in array tables loop
        execute format('alter table millpond.%I %s trigger user', name, case when is_open then 'disable' else 'enable' end);
    end loop;
end $$;

-- function: remove_tenant
create or replace function millpond.remove_tenant(name text, tenant text) returns void
language plpgsql as $$
begin
    execute format('delete from millpond.%I where tenant = $1', name) using tenant;
end $$;

-- function: has_tenant
create or replace function millpond.has_tenant(name text, tenant text) returns boolean
language plpgsql as $$
declare
    found_one boolean;
begin
    execute format('select exists (select from millpond.%I where tenant = $1)', name) into found_one using tenant;
    return found_one;
end $$;

-- function: make_weeks
-- Creates the partitions of past weeks.
create or replace function millpond.make_weeks(mondays timestamptz[]) returns void
language plpgsql as $$
declare
    monday timestamptz;
    kept text;
begin
    foreach monday in array mondays loop
        foreach kept in array array['jobs', 'events'] loop
            execute format(
                'create table if not exists millpond.%I partition of millpond.%I for values from (%L) to (%L) with (fillfactor = %s)',
                format('%s_%s', kept, to_char(monday at time zone 'UTC', 'YYYYMMDD')), kept,
                millpond.first_id(monday), millpond.first_id(monday + interval '7 days'),
                case kept when 'jobs' then 60 else 100 end
            );
        end loop;
    end loop;
end $$;

-- name: moved :maybe
select since from millpond.tenant_databases where tenant = $1;

-- name: unended :one
select count(*) as jobs from millpond.jobs where tenant = $1 and phase <> 'ended';

-- name: tables :many
-- The tenant tables whose rows name a tenant.
select c.relname as name
from pg_class c
where c.relnamespace = 'millpond'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    and obj_description(c.oid, 'pg_class') like 'database: tenant.%'
    and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant' and not a.attisdropped)
order by c.relname;

-- name: used :many
-- Which of these tables have rows of a tenant.
select i.name from unnest($1::text[]) as i(name) where millpond.has_tenant(i.name, $2) order by i.name;

-- name: mondays :one
-- The weeks in which a tenant's jobs were created.
select coalesce(array_agg(distinct millpond.week(
    to_timestamp(('x' || substr(replace(j.id::text, '-', ''), 1, 12))::bit(48)::bigint / 1000.0)
)), '{}') as mondays
from millpond.jobs j where j.tenant = $1;

-- name: make_weeks :exec
select millpond.make_weeks($1::timestamptz[]);

-- name: open :exec
select millpond.let_through($1::text[], true);

-- name: close :exec
select millpond.let_through($1::text[], false);

-- name: remove :exec
select millpond.remove_tenant($1, $2);

-- name: part_failures :exec
-- Subtracts a tenant's failures from the totals of all tenants: they are counted in the tenant's database.
update millpond.failure_flows f set n = f.n - o.n, released = f.released - o.released
from millpond.failure_flows o
where o.tenant = $1 and f.tenant = '' and f.step = o.step and f.at = o.at and f.fingerprint = o.fingerprint;

-- name: join_failures :exec
-- Updates the totals of the tenant's database. They are computed anew, so that repeating the move counts nothing twice.
insert into millpond.failure_flows as f (step, tenant, fingerprint, at, n, released)
select f.step, '', f.fingerprint, f.at, sum(f.n), sum(f.released)
from millpond.failure_flows o
join millpond.failure_flows f on f.step = o.step and f.at = o.at and f.fingerprint = o.fingerprint and f.tenant <> ''
where o.tenant = $1
group by f.step, f.fingerprint, f.at
on conflict (step, tenant, at, fingerprint) do update set n = excluded.n, released = excluded.released;

-- name: settle :exec
insert into millpond.tenant_databases (tenant, since) values ($1, millpond.clock()) on conflict (tenant) do nothing;
