-- Limits: how many jobs run at once, and how many start per period, for each value of a key. Database: central.
-- Invariants: every leased dispatch with limits is in millpond.limit_holders under each of its keys; a ready dispatch is
-- either in millpond.ready or in millpond.limit_waits. Whoever counts the jobs under keys has locked the rows of these
-- keys, all in one statement and in order, and waits for no other lock afterwards: so no number is ever exceeded, and
-- nothing deadlocks. A job that ends locks no key. It leaves a row in millpond.limit_releases, which is not lost even
-- if its process is, and by which waiting jobs are looked at again.
--
-- The keys of a job are made when it is first claimed, so a limit also applies to jobs that were submitted before it was
-- declared.

-- function: limit_value
-- The value of a limit's key for a job. What comes from the input may be a secret: only a digest of it is kept.
create or replace function millpond.limit_value(key text[], tenant text, account text, input jsonb, tags jsonb) returns text
language sql immutable parallel safe as $$
    select coalesce(string_agg(case
        when k.part = 'tenant' then tenant
        when k.part = 'account' then tenant || '/' || account
        when k.part like 'tags.%' then coalesce(tags ->> substr(k.part, 6), '')
        else coalesce('#' || left(encode(sha256(convert_to(input #>> string_to_array(substr(k.part, 7), '.'), 'UTF8')), 'hex'), 16), '')
    end, ' ' order by k.n), '')
    from unnest(key) with ordinality as k(part, n)
$$;

-- function: limit_keys_of
-- The keys of a job in order. Null if it has no limits.
create or replace function millpond.limit_keys_of(kind text, tenant text, account text, input jsonb, tags jsonb)
returns text[]
language sql stable as $$
    select array_agg(l.name || ':' || millpond.limit_value(l.key, tenant, account, input, tags) order by l.name)
    from millpond.limits l
    where l.name = any(array(select unnest(k.limits) from millpond.kinds k where k.kind = limit_keys_of.kind))
$$;

-- function: limit_part
-- The number of the part of a period that an instant is in. A period has 60 parts; starts are counted by part, and 61
-- parts always cover a whole period.
create or replace function millpond.limit_part(instant timestamptz, per interval) returns bigint
language sql immutable parallel safe as $$
    select floor(extract(epoch from instant) * 60 / extract(epoch from per))::bigint
$$;

-- function: limit_room
-- How many jobs may start under each of these keys now, and when more may if that depends on time alone. The caller has
-- locked the keys.
create or replace function millpond.limit_room(keys text[], present timestamptz)
returns table (key text, room integer, more_at timestamptz)
language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    select k.key,
        case when c.closed then 0 else least(l.at_once - h.holders, l.starts - s.started, 1000000)::integer end,
        case
            when c.closed then k.closed_until
            when l.starts <= s.started then
                to_timestamp((k.part - s.oldest + 62) * extract(epoch from l.per) / 60)
        end
    from millpond.limit_keys k
    left join millpond.limits l on l.name = k.name
    cross join lateral (select coalesce(k.closed_until > present, false) as closed) c
    cross join lateral (
        select count(*) as holders from millpond.limit_holders h where h.key = k.key and l.at_once is not null
    ) h
    cross join lateral (
        select coalesce(sum(p.n), 0) as started, max(p.age) filter (where p.n > 0) as oldest
        from unnest(k.starts) with ordinality as p(n, age)
        where l.starts is not null and millpond.limit_part(present, l.per) - k.part + p.age <= 61
    ) s
    where k.key = any(limit_room.keys);
end $$;

-- function: lock_limits
-- Locks these keys in order, and creates those that do not exist.
create or replace function millpond.lock_limits(keys text[], present timestamptz) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    insert into millpond.limit_keys (key, name, used_at)
    select i.key, split_part(i.key, ':', 1), present from unnest(lock_limits.keys) as i(key)
    where not exists (select from millpond.limit_keys k where k.key = i.key)
    order by i.key
    on conflict do nothing;
    perform from millpond.limit_keys k where k.key = any(lock_limits.keys) order by k.key for update;
end $$;

-- function: admit_limited
-- The first `want` ready jobs of these lanes that their limits allow to start. The caller counts them (see hold_limits).
-- Jobs before them that may not start are moved to millpond.limit_waits. `has_more` is whether others may be able to
-- start: this looks at a bounded number of jobs, and waits for the locks of keys only once.
create or replace function millpond.admit_limited(
    present timestamptz, queues text[], ranks smallint[], ranks_max smallint[], turns bigint[], afters uuid[],
    want integer, remote text[], out admitted uuid[], out has_more boolean
)
language plpgsql as $$
#variable_conflict use_column
declare
    size integer := want;
    looked integer := 0;
    looked_at uuid[];
    own uuid[];
    texts text[];
    holders boolean[];
    keys text[];
    known text[] := '{}';
    rooms integer[] := '{}';
    skipped uuid[] := '{}';
    held uuid[];
    waiting uuid[];
    lacking text[];
    lack text;
begin
    admitted := '{}';
    has_more := false;
    loop
        select array_agg(c.job_id order by c.rank, c.turn, c.job_id),
            array_agg(array_to_string(c.keys, chr(31)) order by c.rank, c.turn, c.job_id),
            array_agg(c.is_holder order by c.rank, c.turn, c.job_id),
            array_agg(c.job_id) filter (where not c.is_remote)
        into looked_at, texts, holders, own
        from millpond.limit_candidates(
            present, admit_limited.queues, ranks, ranks_max, admit_limited.turns, afters, size, remote, admitted || skipped
        ) c;
        if own is not null then
            texts := array(
                select coalesce(i.keys, k.keys) from unnest(looked_at, texts) with ordinality as i(job_id, keys, n)
                left join millpond.limit_keys_of_jobs(own) k on k.job_id = i.job_id
                order by i.n
            );
        end if;
        keys := array(
            select distinct i.key from unnest(texts) as t(keys) cross join unnest(string_to_array(t.keys, chr(31))) as i(key)
            where i.key <> all(known)
        );
        if cardinality(known) = 0 then
            perform millpond.lock_limits(keys, present);
        else
            keys := array(select k.key from millpond.limit_keys k where k.key = any(keys) for update skip locked);
        end if;
        select known || coalesce(array_agg(r.key), '{}'), rooms || coalesce(array_agg(r.room), '{}') into known, rooms
        from millpond.limit_room(keys, millpond.clock()) r;

        held := '{}';
        waiting := '{}';
        lacking := '{}';
        for n in 1 .. coalesce(cardinality(looked_at), 0) loop
            exit when cardinality(admitted) = want;
            keys := string_to_array(texts[n], chr(31));
            if keys is null or holders[n] then
                admitted := admitted || looked_at[n];
            elsif not keys <@ known then
                skipped := skipped || looked_at[n];
                has_more := true;
            else
                select i.key into lack from unnest(keys) with ordinality as i(key, n)
                where rooms[array_position(known, i.key)] <= 0 order by i.n limit 1;
                if found then
                    waiting := waiting || looked_at[n];
                    lacking := lacking || lack;
                else
                    admitted := admitted || looked_at[n];
                    held := held || looked_at[n];
                    foreach lack in array keys loop
                        rooms[array_position(known, lack)] := rooms[array_position(known, lack)] - 1;
                    end loop;
                end if;
            end if;
        end loop;
        perform millpond.write_limits(held, looked_at, texts);
        perform millpond.wait_for_limits(waiting, lacking, looked_at, texts);

        looked := looked + coalesce(cardinality(looked_at), 0);
        exit when cardinality(admitted) = want or coalesce(cardinality(looked_at), 0) < size;
        has_more := looked >= 1000;
        exit when has_more;
        size := least(greatest(2 * size, 64), 1000);
    end loop;
end $$;

-- function: limit_candidates
-- Locks the first `size` ready jobs of these lanes, but for some; see lease. `keys` are null for jobs whose data is in
-- this database (see limit_keys_of_jobs). `is_holder` is whether the job has run under its keys since an earlier attempt.
create or replace function millpond.limit_candidates(
    present timestamptz, queues text[], ranks smallint[], ranks_max smallint[], turns bigint[], afters uuid[],
    size integer, remote text[], but uuid[]
) returns table (job_id uuid, rank smallint, turn bigint, keys text[], is_remote boolean, is_holder boolean)
language plpgsql as $$
#variable_conflict use_column
begin
    return query
    select c.job_id, c.rank, c.turn,
        case
            when c.is_remote then coalesce(c.limits, millpond.limit_keys_of(c.kind, c.tenant, c.account, null, null))
        end,
        c.is_remote, coalesce(c.limits is not null and h.job_id is not null, false)
    from (
        select r.* from unnest(limit_candidates.queues, ranks, ranks_max, limit_candidates.turns, afters)
            as l(queue, rank, rank_max, turn, after)
        join millpond.queues q on q.queue = l.queue and q.paused_at is null
        cross join lateral (
            select r.job_id, r.rank, r.turn, d.kind, d.tenant, d.account, d.is_remote, d.limits
            from millpond.ready r
            cross join lateral (
                select d.kind, d.tenant, d.account, d.is_remote, d.limits from millpond.dispatches d
                where d.job_id = r.job_id and d.phase = 'ready'
                    and (d.wakes_at is null or d.wakes_at > present)
                    and (not d.is_remote or d.tenant = any(remote))
                for update skip locked
            ) d
            where r.queue = l.queue
                and (r.rank, r.turn, r.job_id) > (l.rank, l.turn, l.after) and r.rank <= l.rank_max
                and r.job_id <> all(but)
            order by r.rank, r.turn, r.job_id
            limit size
            for update of r skip locked
        ) r
        order by r.rank, r.turn, r.job_id
        limit size
    ) c
    left join lateral (
        select h.job_id from millpond.limit_holders h where h.key = c.limits[1] and h.job_id = c.job_id limit 1
    ) h on c.limits is not null;
end $$;

-- function: limit_keys_of_jobs
-- The keys of jobs, as one text each. Database: tenant.
create or replace function millpond.limit_keys_of_jobs(job_ids uuid[]) returns table (job_id uuid, keys text)
language plpgsql stable as $$
#variable_conflict use_column
declare
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    return query
    select j.id, array_to_string(millpond.limit_keys_of(j.kind, j.tenant, j.account, j.input, j.tags), chr(31))
    from millpond.jobs j
    where j.id = any(job_ids) and j.id >= low and j.id <= high;
end $$;

-- function: hold_limits
-- Counts leased jobs as running and as started under their keys, which this transaction has locked. That comes after
-- their events: a start that is counted too early would leave the period before its event does. A job that has run
-- under its keys since an earlier attempt is not counted again.
create or replace function millpond.hold_limits(job_ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    keys text[];
begin
    if coalesce(cardinality(job_ids), 0) = 0 then
        return;
    end if;
    with held as (
        insert into millpond.limit_holders (key, job_id)
        select k.key, d.job_id from millpond.dispatches d cross join unnest(d.limits) as k(key)
        where d.job_id = any(hold_limits.job_ids)
        on conflict do nothing
        returning key
    ),
    started as (select h.key, count(*)::integer as n from held h group by h.key),
    counted as (
        update millpond.limit_keys k
        set used_at = present, part = case when l.per is not null then p.part else k.part end,
            starts = case when l.per is not null then array[coalesce(p.before[1], 0) + s.n] || p.before[2:61] else k.starts end
        from started s
        left join millpond.limits l on l.name = split_part(s.key, ':', 1)
        cross join lateral (
            select o.part as last, o.starts from millpond.limit_keys o where o.key = s.key limit 1
        ) b
        cross join lateral (
            select p.part, array_fill(0, array[least(p.part - b.last, 61)::integer]) || b.starts as before
            from (select greatest(millpond.limit_part(present, l.per), b.last) as part) p
        ) p
        where k.key = any(array(select key from started)) and k.key = s.key
            and (l.starts is not null or k.used_at < present - interval '1 hour')
    )
    select array_agg(s.key) into keys from started s;
    perform millpond.look_later(keys);
end $$;

-- function: look_later
-- Notes when waiting jobs may start under keys, which are locked, if that depends on time alone.
create or replace function millpond.look_later(keys text[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    update millpond.limit_keys k set look_at = r.more_at
    from millpond.limit_room(look_later.keys, millpond.clock()) r
    where k.key = any(look_later.keys) and r.key = k.key and r.more_at < coalesce(k.look_at, 'infinity')
        and exists (select from millpond.limit_waits w where w.key = k.key);
end $$;

-- function: wait_for_limits
-- Moves ready jobs to millpond.limit_waits, each under the key that lacks room. `texts` has the keys of the jobs in
-- `looked_at`.
create or replace function millpond.wait_for_limits(job_ids uuid[], lacking text[], looked_at uuid[], texts text[])
returns void
language plpgsql as $$
#variable_conflict use_column
begin
    if cardinality(job_ids) = 0 then
        return;
    end if;
    perform millpond.write_limits(job_ids, looked_at, texts);
    with gone as (
        delete from millpond.ready r
        using millpond.dispatches d
        where d.job_id = any(wait_for_limits.job_ids)
            and r.queue = d.queue and r.rank = d.rank and r.turn = d.turn and r.job_id = d.job_id
        returning r.queue, r.rank, r.turn, r.job_id
    )
    insert into millpond.limit_waits (job_id, key, queue, rank, turn, since)
    select g.job_id, i.key, g.queue, g.rank, g.turn, millpond.clock()
    from gone g join unnest(wait_for_limits.job_ids, lacking) as i(job_id, key) on i.job_id = g.job_id;
    perform millpond.look_later(lacking);
end $$;

-- function: write_limits
-- Stores the keys of jobs with their dispatches, which are locked. `texts` has the keys of the jobs in `looked_at`.
create or replace function millpond.write_limits(job_ids uuid[], looked_at uuid[], texts text[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    update millpond.dispatches d set limits = string_to_array(i.keys, chr(31))
    from unnest(looked_at, texts) as i(job_id, keys)
    where d.job_id = any(write_limits.job_ids) and i.job_id = d.job_id
        and d.limits is distinct from string_to_array(i.keys, chr(31));
end $$;

-- function: look_again
-- Makes ready those jobs that wait for a key with room: a job has stopped to run under it, or a time has come. Returns
-- the queues that have grown. Of each queue, as many jobs as may start are made ready, because only one of the queues
-- may have a free worker.
create or replace function millpond.look_again(row_limit integer) returns setof text
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz;
    keys text[];
begin
    with gone as (
        delete from millpond.limit_releases r
        where r.ctid = any(array(select r.ctid from millpond.limit_releases r limit row_limit for update skip locked))
        returning r.key
    )
    select array_agg(distinct i.key) into keys
    from (
        select g.key from gone g
        union all
        (select k.key from millpond.limit_keys k where k.look_at <= millpond.clock() order by k.look_at limit row_limit)
    ) i;
    if keys is null then
        return;
    end if;
    perform from millpond.limit_keys k where k.key = any(keys) order by k.key for update;
    present := millpond.clock();

    return query
    with room as materialized (
        select r.key, least(r.room, 1000) as room, r.more_at from millpond.limit_room(keys, present) r
    ),
    chosen as materialized (
        select o.key, w.job_id, w.queue, w.rank, w.turn
        from room o
        cross join lateral (
            with recursive line as (
                (select w.queue from millpond.limit_waits w where w.key = o.key order by w.queue limit 1)
                union all
                select n.queue from line l cross join lateral (
                    select w.queue from millpond.limit_waits w where w.key = o.key and w.queue > l.queue
                    order by w.queue limit 1
                ) n
            )
            select l.queue from line l
        ) q
        cross join lateral (
            select w.job_id, w.queue, w.rank, w.turn from millpond.limit_waits w
            cross join lateral (
                select from millpond.dispatches d where d.job_id = w.job_id for update skip locked
            ) d
            where w.key = o.key and w.queue = q.queue
            order by w.rank, w.turn, w.job_id limit o.room
        ) w
        where o.room > 0
    ),
    gone as (
        delete from millpond.limit_waits w where w.job_id = any(array(select c.job_id from chosen c))
    ),
    lined as (
        insert into millpond.ready (queue, rank, turn, job_id)
        select c.queue, c.rank, c.turn, c.job_id from chosen c
    ),
    timed as (  -- what was locked, or is too much at once, is looked at again soon
        update millpond.limit_keys k
        set look_at = case
            when o.more_at is not null then o.more_at
            when o.room > 0 and exists (
                select from millpond.limit_waits w
                where w.key = k.key and w.job_id <> all(array(select c.job_id from chosen c))
            ) then present + interval '0.25 seconds'
        end
        from room o
        where k.key = any(keys) and o.key = k.key and (k.look_at is not null or o.room > 0)
    )
    select distinct c.queue from chosen c;
end $$;

-- function: renumber_limit
-- After a change of a limit: what was counted in parts of another period counts as started just now, and waiting jobs
-- are looked at again.
create or replace function millpond.renumber_limit(name text, before interval) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    per interval := (select l.per from millpond.limits l where l.name = renumber_limit.name);
begin
    perform from millpond.limit_keys k where k.name = renumber_limit.name order by k.key for update;
    if per is distinct from before then
        update millpond.limit_keys k
        set part = coalesce(millpond.limit_part(millpond.clock(), per), 0),
            starts = array[(select coalesce(sum(s.n), 0)::integer from unnest(k.starts) as s(n))]
        where k.name = renumber_limit.name;
    end if;
    insert into millpond.limit_releases (key) select k.key from millpond.limit_keys k where k.name = renumber_limit.name;
end $$;

-- name: look_again :many
select queue from millpond.look_again($1) as queue;

-- name: list :many
-- All limits, or one, with the jobs that run and wait under all their keys.
select l.name, l.at_once, l.starts, l.per, l.key, l.changed_at is not null as is_changed, l.changed_at, l.changed_by,
    array(select k.kind from millpond.kinds k where l.name = any(k.limits) order by k.kind) as kinds,
    (select count(*) from (
        select from millpond.limit_holders h where h.key >= l.name || ':' and h.key < l.name || ';' limit $2
    ) h) as running,
    (select count(*) from (
        select from millpond.limit_waits w where w.key >= l.name || ':' and w.key < l.name || ';' limit $2
    ) w) as waiting
from millpond.limits l
where $1::text is null or l.name = $1
order by l.name;

-- name: keys :many
-- The keys of a limit in order, after a value, if there is one ($3), that are in use.
select substr(k.key, length(k.name) + 2) as value,
    (select count(*) from (select from millpond.limit_holders h where h.key = k.key limit 10000) h) as running,
    (select count(*) from (select from millpond.limit_waits w where w.key = k.key limit 10000) w) as waiting,
    case when l.starts is not null then (
        select coalesce(sum(p.n), 0) from unnest(k.starts) with ordinality as p(n, age)
        where millpond.limit_part(millpond.clock(), l.per) - k.part + p.age <= 61
    ) end as started,
    case when k.closed_until > millpond.clock() then k.closed_until end as closed_until, r.more_at
from millpond.limit_keys k
join millpond.limits l on l.name = k.name
cross join lateral (select r.more_at from millpond.limit_room(array[k.key], millpond.clock()) r) r
where k.key >= $1::text || ':' || $2 and k.key < $1 || ';' and (not $3 or k.key > $1 || ':' || $2)
order by k.key limit $4;

-- name: waits :many
-- What these jobs wait for.
select w.job_id, k.name as "limit", substr(w.key, length(k.name) + 2) as value,
    case when k.closed_until > millpond.clock() then 'closed' when r.more_at is not null then 'starts' else 'at_once' end as reason,
    w.since, r.more_at
from millpond.limit_waits w
join millpond.limit_keys k on k.key = w.key
cross join lateral (select r.more_at from millpond.limit_room(array[w.key], millpond.clock()) r) r
where w.job_id = any($1::uuid[]);

-- name: change :maybe
update millpond.limits l
set at_once = $2, starts = $3, per = $4::interval, changed_at = millpond.clock(), changed_by = $5
from millpond.limits b
where l.name = $1 and b.name = l.name
returning b.per as before;

-- name: reset :maybe
update millpond.limits l
set at_once = (l.declared ->> 'at_once')::integer, starts = (l.declared ->> 'starts')::integer,
    per = make_interval(secs => (l.declared ->> 'per_seconds')::double precision), changed_at = null, changed_by = null
from millpond.limits b
where l.name = $1 and b.name = l.name
returning b.per as before;

-- name: renumber :exec
select millpond.renumber_limit($1, $2::interval);

-- name: close :exec
-- Closes a key for a while, or opens it.
with changed as (
    insert into millpond.limit_keys as k (key, name, closed_until, used_at)
    values ($1, $2, millpond.clock() + $3::interval, millpond.clock())
    on conflict (key) do update
    set closed_until = case when $3::interval is not null then greatest(k.closed_until, excluded.closed_until) end
    returning key
)
insert into millpond.limit_releases (key) select c.key from changed c;

-- name: close_for :exec
-- Closes the key under which a job runs.
update millpond.limit_keys k
set closed_until = greatest(k.closed_until, millpond.clock() + $3::interval)
from millpond.dispatches d
where d.job_id = $1 and d.phase = 'leased' and k.key = any(d.limits) and k.name = $2;

-- name: prune :many
-- A key that is in use is locked, or is skipped because of its jobs.
delete from millpond.limit_keys k
where k.key = any(array(
    select k.key from millpond.limit_keys k
    where k.used_at < millpond.clock() - $1::interval - interval '1 day' and k.look_at is null
        and coalesce(k.closed_until < millpond.clock(), true)
        and not exists (select from millpond.limit_holders h where h.key = k.key)
        and not exists (select from millpond.limit_waits w where w.key = k.key)
    order by k.key limit $2 for update skip locked
))
returning k.key;
