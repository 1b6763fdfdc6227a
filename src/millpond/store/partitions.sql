-- Partitions: jobs and events are partitioned by the week of creation, which the id contains. Database: tenant.
-- Retention drops whole partitions; a week is kept until all its jobs have ended.

-- function: first_id
-- The smallest id of a job created at this time.
create or replace function millpond.first_id(born timestamptz) returns uuid
language sql immutable strict parallel safe as $$
    select (lpad(to_hex(floor(extract(epoch from born) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

-- function: id_at
-- The id of something that happened at this time, to the microsecond, with the given last 16 digits. The function is
-- stable because extract is: declared as immutable, it would not be inlined.
create or replace function millpond.id_at(instant timestamptz, tail text) returns uuid
language sql stable strict parallel safe as $$
    select (
        overlay(lpad(to_hex(floor(extract(epoch from instant) * 4096000)::bigint), 15, '0') placing '7' from 13 for 0) || tail
    )::uuid
$$;

-- function: uuid7
-- An id above all previous ids of this database, unless its clock is set back (PostgreSQL has such a function only from
-- 18 on). Ordering by these ids is the order of writing: after the microsecond comes a sequence number, then random bits.
create or replace function millpond.uuid7() returns uuid
language sql volatile as $$
    select millpond.id_at(
        clock_timestamp(), to_hex(8388608 + nextval('millpond.id_order')) || right(gen_random_uuid()::text, 10)
    )
$$;

-- function: least_of
-- The smallest of these ids.
create or replace function millpond.least_of(ids uuid[]) returns uuid
language sql immutable strict parallel safe as 'select id from unnest(ids) as id order by id limit 1';

-- function: greatest_of
-- The largest of these ids.
create or replace function millpond.greatest_of(ids uuid[]) returns uuid
language sql immutable strict parallel safe as 'select id from unnest(ids) as id order by id desc limit 1';

-- function: least_id
-- The bounds of these ids. PostgreSQL does not prune partitions for `id = any(ids)` alone; with the bounds it does. The
-- planner can inline these two functions: for a single id, the usual case, they are that id, and no function is called.
create or replace function millpond.least_id(ids uuid[]) returns uuid
language sql immutable parallel safe as 'select case when cardinality(ids) = 1 then ids[1] else millpond.least_of(ids) end';

-- function: greatest_id
create or replace function millpond.greatest_id(ids uuid[]) returns uuid
language sql immutable parallel safe as 'select case when cardinality(ids) = 1 then ids[1] else millpond.greatest_of(ids) end';

-- function: week
create or replace function millpond.week(instant timestamptz) returns timestamptz
language sql immutable strict parallel safe as $$
    select date_bin(interval '7 days', instant, timestamptz '2024-01-01 00:00:00+00')
$$;

-- function: ensure_partitions
-- Creates the partitions from this week on, so far in advance that a stopped service does no harm for a month. A week
-- for which a machine with a wrong clock created jobs too early stays in the default partitions: PostgreSQL cannot
-- create a partition for rows that are there.
create or replace function millpond.ensure_partitions(weeks integer) returns integer
language plpgsql as $$
declare
    monday timestamptz := millpond.week(millpond.clock());
    made integer := 0;
    kept text;
    part text;
begin
    for n in 0..weeks - 1 loop
        continue when exists (
            select from millpond.jobs_default j
            where j.id >= millpond.first_id(monday + n * interval '7 days')
                and j.id < millpond.first_id(monday + (n + 1) * interval '7 days')
        );
        foreach kept in array array['jobs', 'events'] loop
            part := format('%s_%s', kept, to_char((monday + n * interval '7 days') at time zone 'UTC', 'YYYYMMDD'));
            if to_regclass(format('millpond.%I', part)) is null then
                execute format(
                    'create table millpond.%I partition of millpond.%I for values from (%L) to (%L) with (fillfactor = %s)',
                    part, kept,
                    millpond.first_id(monday + n * interval '7 days'), millpond.first_id(monday + (n + 1) * interval '7 days'),
                    -- A job is updated twice in its life; with free space on its page, this does not update the indexes.
                    case kept when 'jobs' then 60 else 100 end
                );
                made := made + 1;
            end if;
        end loop;
    end loop;
    return made;
end $$;

-- function: keep_partitions
-- Prevents the dropping of weeks until the end of the transaction, because ended jobs may be retried in it.
create or replace function millpond.keep_partitions() returns void
language sql as 'select pg_advisory_xact_lock_shared(1885695604)';

-- function: drop_partitions
-- Drops the weeks that ended before this age and whose jobs have all ended, with their idempotency keys, webhook
-- URLs, tracebacks, chunks, steps and budgets. Batches stay until their last job has ended, and with them their keys,
-- pages and webhook URLs.
create or replace function millpond.drop_partitions(age interval) returns setof text
language plpgsql as $$
declare
    part record;
    is_alive boolean;
begin
    perform pg_advisory_xact_lock(1885695604);  -- see keep_partitions
    for part in
        select to_timestamp(right(c.relname, 8), 'YYYYMMDD') as monday, c.oid::regclass as jobs,
            to_regclass('millpond.' || replace(c.relname, 'jobs', 'events')) as events
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'millpond.jobs'::regclass and c.relname ~ '_\d{8}$'
        order by c.relname
    loop
        continue when part.monday + interval '7 days' > millpond.clock() - age;
        execute format('select exists (select from %s where phase <> ''ended'')', part.jobs) into is_alive;
        continue when is_alive;
        delete from millpond.idempotency k
        where k.created_at < part.monday + interval '8 days' and k.job_id < millpond.first_id(part.monday + interval '7 days');
        delete from millpond.hooks h
        where h.job_id >= millpond.first_id(part.monday) and h.job_id < millpond.first_id(part.monday + interval '7 days');
        delete from millpond.tracebacks t
        where t.job_id >= millpond.first_id(part.monday) and t.job_id < millpond.first_id(part.monday + interval '7 days');
        delete from millpond.steps s
        where s.job_id >= millpond.first_id(part.monday) and s.job_id < millpond.first_id(part.monday + interval '7 days');
        delete from millpond.budgets b
        where b.job_id >= millpond.first_id(part.monday) and b.job_id < millpond.first_id(part.monday + interval '7 days');
        delete from millpond.reservations r
        where r.job_id >= millpond.first_id(part.monday) and r.job_id < millpond.first_id(part.monday + interval '7 days');
        delete from millpond.trees t
        where t.root_id >= millpond.first_id(part.monday) and t.root_id < millpond.first_id(part.monday + interval '7 days');
        delete from millpond.batches b
        where b.id < millpond.first_id(part.monday + interval '7 days') and (
            b.ended_at < part.monday + interval '7 days'
            or b.ended_at is null and b.parent_id is null and b.ended = b.submitted  -- its client has given it up
        );
        delete from millpond.batch_pages p where not exists (select from millpond.batches b where b.id = p.batch_id);
        delete from millpond.batch_keys k where not exists (select from millpond.batches b where b.id = k.batch_id);
        delete from millpond.batch_hooks h where not exists (select from millpond.batches b where b.id = h.batch_id);
        delete from millpond.chunks c
        where c.job_id >= millpond.first_id(part.monday) and c.job_id < millpond.first_id(part.monday + interval '7 days');
        return next part.jobs::text;  -- before the drop, while the table has a name
        execute format('drop table %s, %s', part.events, part.jobs);
    end loop;
end $$;

-- name: ensure :one
select millpond.ensure_partitions($1) as made;

-- name: drop :many
select name from millpond.drop_partitions($1::interval) as name;

-- name: strays :one
-- Whether the default partitions, which should be empty, contain rows.
select exists (select from millpond.jobs_default) as has_jobs, exists (select from millpond.events_default) as has_events;
