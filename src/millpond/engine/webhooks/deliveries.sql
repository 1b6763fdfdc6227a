-- Deliveries: the webhooks to be sent. Database: tenant.
-- Invariants: a delivery is written in the transaction of its lifecycle event. Deliveries of one job to one URL are
-- sent in the order of the job's events: none is claimed while an earlier one is pending. A claim looks for earlier
-- ones while it holds the lock of the later one, in a statement of its own; settling the earlier one updates the later
-- one in the same transaction. So one of the two always sees the other.

-- function: announce
-- Writes the deliveries of a lifecycle event of jobs, with the jobs as they are now. If the event ends a job, a
-- delivery that was to decide the end of the job is withdrawn or, if it is settled, decides nothing any more. The event
-- is the job's last one, unless its number is given.
create or replace function millpond.announce(event text, job_ids uuid[], seq integer, ends boolean) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    if ends then
        update millpond.deliveries d
        set decides = false, is_out = false,
            fate = case when d.due_at is null then d.fate else 'withdrawn' end,
            settled_at = coalesce(d.settled_at, millpond.clock()), due_at = null
        where d.job_id = any(job_ids) and d.decides;
    end if;
    insert into millpond.deliveries (id, tenant, endpoint_id, job_id, seq, event, receiver, at, data, decides, due_at)
    select millpond.uuid7(), j.tenant, t.endpoint_id, j.id, e.seq, announce.event, t.receiver, e.at,
        jsonb_build_object(
            'tenant', j.tenant, 'account', j.account, 'kind', j.kind, 'state', e.state, 'phase', j.phase,
            'outcome', j.outcome, 'progress', j.progress, 'stage', j.stage, 'run', j.run, 'attempts', j.attempts,
            'price', j.price, 'captured', j.captured, 'created_at', j.created_at, 'started_at', j.started_at,
            'finished_at', j.finished_at, 'expires_at', j.expires_at, 'retry_of', j.retry_of, 'input', j.input,
            'memo', j.memo, 'answer', j.answer, 'output', j.output, 'error', j.error, 'tags', coalesce(j.tags, '{}')
        ), t.decides, e.at
    from millpond.jobs j
    cross join lateral (
        select e.seq, e.at, e.state from millpond.events e
        where e.job_id = j.id and e.seq = coalesce(announce.seq, j.events) and e.type = announce.event limit 1
    ) e
    cross join lateral (
        select s.endpoint_id, s.receiver, false as decides from millpond.subscriptions s
        where s.event = announce.event and s.tenant = j.tenant and s.account is null
            and (s.kinds = '{}' or j.kind = any(s.kinds))
        union all  -- separate, so that subscriptions of other accounts, which may be very many, are not read
        select s.endpoint_id, s.receiver, false from millpond.subscriptions s
        where s.event = announce.event and s.tenant = j.tenant and s.account = j.account
            and (s.kinds = '{}' or j.kind = any(s.kinds))
        union all
        select null, h.receiver, h.decides and announce.event = 'delivering' from millpond.hooks h
        where h.job_id = j.id and announce.event = any(h.events)
        offset 0  -- so that they are looked up for each job, not joined as a whole
    ) t
    where j.id = any(job_ids) and j.id >= low and j.id <= high;
end $$;

-- function: due_receivers
-- The next `row_limit` receivers with due deliveries, by name, after this one. It goes from one receiver to the next,
-- however many deliveries each has.
create or replace function millpond.due_receivers(after text, row_limit integer) returns setof text
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
begin
    return query
    with recursive head as (
        (
            select d.receiver, d.due_at from millpond.deliveries d
            where d.due_at is not null and d.receiver > due_receivers.after order by d.receiver, d.due_at limit 1
        )
        union all
        select n.receiver, n.due_at from head h cross join lateral (
            select d.receiver, d.due_at from millpond.deliveries d
            where d.due_at is not null and d.receiver > h.receiver order by d.receiver, d.due_at limit 1
        ) n
    )
    select h.receiver from head h where h.due_at <= present limit row_limit;
end $$;

-- function: claim_deliveries
-- Claims due deliveries of these receivers, in this order: for each as many as it has room for, so that a slow or
-- unreachable receiver delays no other, and no more than `row_limit`.
create or replace function millpond.claim_deliveries(receivers text[], rooms integer[], row_limit integer, lease interval)
returns table (
    delivery_id uuid, tenant text, endpoint_id uuid, job_id uuid, event text, receiver text, at timestamptz, data jsonb,
    decides boolean, tries smallint, due_at timestamptz, url text, secret bytea, old_secret bytea, in_flight_max integer,
    has_failed boolean, is_native boolean, batch_id uuid
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    ids uuid[];
begin
    select array_agg(c.id) into ids from (
        select c.id from unnest(receivers, rooms) as i(receiver, room)
        cross join lateral (
            select d.id from millpond.deliveries d
            where d.receiver = i.receiver and d.due_at <= present
            order by d.due_at limit i.room for update skip locked
        ) c
        limit row_limit
    ) c;
    if ids is not null then
        return query select t.* from millpond.take_deliveries(ids, lease) t;
    end if;
end $$;

-- function: pull_deliveries
-- Claims due deliveries of a pull endpoint for its listener, up to the one with which their JSON, as text within the
-- JSON of a response, has reached 4 MiB.
create or replace function millpond.pull_deliveries(of_tenant text, endpoint uuid, row_limit integer, lease interval)
returns table (
    delivery_id uuid, tenant text, endpoint_id uuid, job_id uuid, event text, receiver text, at timestamptz, data jsonb,
    decides boolean, tries smallint, due_at timestamptz, url text, secret bytea, old_secret bytea, in_flight_max integer,
    has_failed boolean, is_native boolean, batch_id uuid
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    ids uuid[];
begin
    update millpond.endpoints e set pulled_at = present
    where e.id = endpoint and e.tenant = of_tenant and e.url is null;
    if not found then
        return;
    end if;
    ids := array(
        select d.id
        from (
            select d.id, sum(octet_length(to_json(d.data::text)::text)) over (
                order by d.due_at, d.id rows between unbounded preceding and 1 preceding
            ) as bytes_before
            from (
                select d.id, d.due_at, d.data from millpond.deliveries d
                where d.endpoint_id = endpoint and d.due_at <= present
                order by d.due_at limit row_limit for update skip locked
            ) d
        ) d
        where coalesce(d.bytes_before, 0) < 4 * 1024 * 1024
    );
    if ids <> '{}' then
        return query select t.* from millpond.take_deliveries(ids, lease) t;
    end if;
end $$;

-- function: take_deliveries
-- Claims those of the locked deliveries that have no earlier one pending. The others are postponed until after the
-- earlier one, and settling that makes them due. Those of an endpoint that was just disabled wait until it is enabled.
create or replace function millpond.take_deliveries(ids uuid[], lease interval)
returns table (
    delivery_id uuid, tenant text, endpoint_id uuid, job_id uuid, event text, receiver text, at timestamptz, data jsonb,
    decides boolean, tries smallint, due_at timestamptz, url text, secret bytea, old_secret bytea, in_flight_max integer,
    has_failed boolean, is_native boolean, batch_id uuid
)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
begin
    return query
    with item as materialized (
        select d.id, case when e.disabled_at is not null then timestamptz 'infinity' else b.due_at end as behind,
            coalesce(e.url, h.url) as url, coalesce(e.secret, h.secret) as secret,
            case when e.old_until > present then e.old_secret end as old_secret, e.in_flight_max,
            e.failing_since is not null as has_failed, coalesce(e.is_native, false) as is_native
        from millpond.deliveries d
        left join lateral (
            select b.due_at from millpond.deliveries b
            where b.job_id = d.job_id and b.seq < d.seq and b.endpoint_id is not distinct from d.endpoint_id
                and b.due_at is not null
            order by b.seq limit 1
        ) b on true
        left join lateral (select e.* from millpond.endpoints e where e.id = d.endpoint_id limit 1) e on true
        left join lateral (
            select h.url, h.secret from millpond.hooks h where d.endpoint_id is null and h.job_id = d.job_id
            union all
            select h.url, h.secret from millpond.batch_hooks h where d.endpoint_id is null and h.batch_id = d.batch_id
            limit 1
        ) h on true
        where d.id = any(ids)
    ),
    taken as (
        update millpond.deliveries d
        set is_out = i.behind is null,
            due_at = case when i.behind is null then present + lease else greatest(i.behind, present + interval '1 second') end
        from item i
        where d.id = any(ids) and i.id = d.id
        returning d.*, i.url, i.secret, i.old_secret, i.in_flight_max, i.has_failed, i.is_native
    )
    select t.id, t.tenant, t.endpoint_id, t.job_id, t.event, t.receiver, t.at, t.data, t.decides,
        (t.tries - t.tries_before)::smallint, t.due_at, t.url, t.secret, t.old_secret, t.in_flight_max, t.has_failed,
        t.is_native, t.batch_id
    from taken t where t.is_out order by t.at, t.seq;
end $$;

-- function: settle_deliveries
-- Stores the outcomes of tries: 'delivered'; 'again', after a pause; 'failed', for good. Each is fenced by the time at
-- which its claim expires: a late or repeated report changes nothing, unless it says that a pending delivery was
-- delivered. Returns the state of each. The next delivery in order becomes due at once.
create or replace function millpond.settle_deliveries(
    ids uuid[], fences timestamptz[], outcomes text[], pauses interval[], seconds real[], statuses smallint[],
    errors text[], urls text[], requests jsonb[], responses jsonb[], bodies text[], patience interval
) returns table (
    delivery_id uuid, tenant text, endpoint_id uuid, job_id uuid, state text, decides boolean, disabled_reason text
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    done uuid[];
    well uuid[];
    ill uuid[];
    gone uuid[];
    disabled uuid[];
    reasons text[];
begin
    perform from millpond.deliveries d where d.id = any(ids) order by d.id for update;

    with item as materialized (
        select i.*, d.endpoint_id, i.outcome = 'again' as is_open, e.disabled_at is not null as is_disabled
        from unnest(ids, fences, outcomes, pauses, settle_deliveries.seconds, statuses, errors, urls, requests, responses, bodies)
            as i(id, fence, outcome, pause, seconds, status, error, url, request, response, body)
        join millpond.deliveries d on d.id = any(ids) and d.id = i.id
        left join lateral (select e.disabled_at from millpond.endpoints e where e.id = d.endpoint_id limit 1) e on true
        where (d.due_at = i.fence and d.is_out) or (d.due_at is not null and i.outcome = 'delivered')
    ),
    settled as (
        update millpond.deliveries d
        set tries = d.tries + 1, is_out = false,
            fate = case when i.is_open then 'pending' else i.outcome end,
            settled_at = case when i.is_open then null else present end,
            due_at = case when not i.is_open then null when i.is_disabled then timestamptz 'infinity' else present + i.pause end
        from item i
        where d.id = any(ids) and i.id = d.id
        returning d.id, d.tenant, d.tries, d.due_at
    ),
    logged as (
        insert into millpond.delivery_tries (
            delivery_id, number, tenant, at, seconds, status, error, url, request_headers, response_headers, response_body
        )
        select s.id, s.tries, s.tenant, present - i.seconds * interval '1 second', i.seconds, i.status, i.error, i.url, i.request, i.response, i.body
        from settled s join item i on i.id = s.id
    )
    select array_agg(s.id) filter (where s.due_at is null),
        array_agg(i.endpoint_id) filter (where i.outcome = 'delivered'),
        array_agg(i.endpoint_id) filter (where i.outcome <> 'delivered'),
        array_agg(i.endpoint_id) filter (where i.status = 410)
    into done, well, ill, gone
    from settled s join item i on i.id = s.id;

    if done is not null then
        perform millpond.wake_next(done);
    end if;
    if array_remove(well || ill, null) <> '{}' then
        select array_agg(j.endpoint_id), array_agg(j.reason) into disabled, reasons
        from millpond.judge_endpoints(coalesce(well, '{}'), coalesce(ill, '{}'), coalesce(gone, '{}'), patience) j;
    end if;

    return query
    select d.id, d.tenant, d.endpoint_id, d.job_id, d.fate, d.decides, reasons[array_position(disabled, d.endpoint_id)]
    from millpond.deliveries d where d.id = any(ids);
end $$;

-- function: wake_next
-- Makes the deliveries due that waited for settled ones. They are updated even if they are due already, so that a
-- concurrent claim sees the change.
create or replace function millpond.wake_next(ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    update millpond.deliveries d
    set due_at = case when d.due_at = 'infinity' then d.due_at else least(d.due_at, millpond.clock()) end
    where d.due_at is not null and not d.is_out and d.id = any(array(
        select n.id from millpond.deliveries s
        cross join lateral (
            select n.id from millpond.deliveries n
            where n.job_id = s.job_id and n.seq > s.seq and n.endpoint_id is not distinct from s.endpoint_id
                and n.due_at is not null
            order by n.seq limit 1
        ) n
        where s.id = any(wake_next.ids)
    ));
end $$;

-- function: deliver
-- Ends jobs that their workers have completed: those whose end depends on a delivery to their URL are now delivering,
-- the others have succeeded.
create or replace function millpond.deliver(
    job_ids uuid[], tokens uuid[], outputs jsonb[], captures integer[], origins text[]
) returns table (
    job_id uuid, tenant text, kind text, from_state text, state text, is_ended boolean, price integer, captured integer
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    waiting uuid[] := millpond.deciding(deliver.job_ids);
    ids uuid[];
    outputs_ jsonb[];
    captures_ integer[];
    tokens_ uuid[];
    origins_ text[];
begin
    select array_agg(i.job_id), array_agg(i.output), array_agg(i.captured) into ids, outputs_, captures_
    from millpond.start_delivery(deliver.job_ids, tokens, origins, waiting) w
    join unnest(deliver.job_ids, outputs, captures) as i(job_id, output, captured) on i.job_id = w.job_id;
    if ids is not null then
        return query
        select d.job_id, d.tenant, d.kind, d.from_state, d.state, false, d.price, d.captured
        from millpond.deliver_jobs(ids, outputs_, captures_) d;
    end if;

    select array_agg(i.job_id), array_agg(i.token), array_agg(i.output), array_agg(i.captured),
        case when deliver.origins is not null then array_agg(i.origin) end
    into ids, tokens_, outputs_, captures_, origins_
    from unnest(deliver.job_ids, tokens, outputs, captures, origins) as i(job_id, token, output, captured, origin)
    where i.job_id <> all(waiting);
    if ids is not null then
        return query
        select f.job_id, f.tenant, f.kind, f.from_state, f.state, true, f.price, f.captured
        from millpond.finish('succeeded', ids, tokens_, outputs_, null, captures_, origins_) f;
    end if;
end $$;

-- function: deciding
-- Which of these jobs have succeeded only when a delivery to their URL has succeeded.
create or replace function millpond.deciding(job_ids uuid[]) returns uuid[]
language sql stable as $$
    select array(select h.job_id from millpond.hooks h where h.job_id = any(job_ids) and h.decides)
$$;

-- function: deliver_jobs
-- The tenant's half of millpond.deliver, for jobs that their workers held. It is too late to cancel them.
create or replace function millpond.deliver_jobs(job_ids uuid[], outputs jsonb[], captures integer[])
returns table (job_id uuid, tenant text, kind text, from_state text, state text, price integer, captured integer)
language plpgsql as $$
#variable_conflict use_column
begin
    update millpond.hooks h set captured = i.captured
    from unnest(deliver_jobs.job_ids, captures) as i(job_id, captured)
    where h.job_id = any(deliver_jobs.job_ids) and i.job_id = h.job_id;
    update millpond.jobs j set cancel_requested_at = null
    where j.id = any(deliver_jobs.job_ids) and j.cancel_requested_at is not null;
    return query
    select m.job_id, m.tenant, m.kind, m.from_state, m.state, m.price, m.captured
    from millpond.transition('delivering', 'delivering', deliver_jobs.job_ids, outputs => outputs) m;
end $$;

-- function: conclude
-- Ends jobs by the outcome of the delivery that decides it: 'succeeded' or 'failed'. Jobs that have ended meanwhile, or
-- were concluded before, are not returned.
create or replace function millpond.conclude(outcome text, job_ids uuid[])
returns table (job_id uuid, tenant text, kind text, from_state text, state text, price integer, captured integer)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    ids uuid[] := array(select d.job_id from millpond.end_delivery(conclude.job_ids) d);
begin
    if ids <> '{}' then
        return query
        select c.job_id, c.tenant, c.kind, c.from_state, c.state, c.price, c.captured
        from millpond.conclude_jobs(conclude.outcome, ids) c;
    end if;
end $$;

-- function: conclude_jobs
-- The tenant's half of millpond.conclude.
create or replace function millpond.conclude_jobs(outcome text, job_ids uuid[])
returns table (job_id uuid, tenant text, kind text, from_state text, state text, price integer, captured integer)
language plpgsql as $$
#variable_conflict use_column
declare
    captures integer[];
begin
    if conclude_jobs.outcome = 'succeeded' then
        select array_agg(h.captured order by i.n) into captures
        from unnest(conclude_jobs.job_ids) with ordinality as i(job_id, n)
        left join millpond.hooks h on h.job_id = any(conclude_jobs.job_ids) and h.job_id = i.job_id;
    end if;
    return query
    select m.job_id, m.tenant, m.kind, m.from_state, m.state, m.price, m.captured
    from millpond.transition(
        conclude_jobs.outcome, 'ended', conclude_jobs.job_ids,
        errors => case when conclude_jobs.outcome = 'failed' then array_fill(
            '{"code": "delivery_failed", "message": "The delivery to the job''s webhook URL failed."}'::jsonb,
            array[cardinality(conclude_jobs.job_ids)]
        ) end,
        captures => captures
    ) m;
end $$;

-- name: due :many
select r.receiver from millpond.due_receivers($1, $2) as r(receiver);

-- name: claim :many
select delivery_id, tenant, endpoint_id, job_id, event, receiver, at, data, decides, tries, due_at, url, secret, old_secret,
    in_flight_max, has_failed, is_native, batch_id
from millpond.claim_deliveries($1::text[], $2::integer[], $3, $4::interval);

-- name: pull :many
select delivery_id, tenant, endpoint_id, job_id, event, receiver, at, data, decides, tries, due_at, url, secret, old_secret,
    in_flight_max, has_failed, is_native, batch_id
from millpond.pull_deliveries($1, $2, $3, $4::interval);

-- name: settle :many
select delivery_id, tenant, endpoint_id, job_id, state, decides, disabled_reason
from millpond.settle_deliveries(
    $1::uuid[], $2::timestamptz[], $3::text[], $4::interval[], $5::real[], $6::smallint[], $7::text[], $8::text[],
    $9::jsonb[], $10::jsonb[], $11::text[], $12::interval
);

-- name: out :maybe
-- A delivery that a listener has claimed.
select d.id as delivery_id, d.tenant, d.endpoint_id, d.job_id, d.event, d.receiver, d.at, d.data, d.decides,
    (d.tries - d.tries_before)::smallint as tries, d.due_at, null::text as url, null::bytea as secret, null::bytea as old_secret,
    null::integer as in_flight_max, false as has_failed, true as is_native,
    d.batch_id
from millpond.deliveries d where d.id = $2 and d.tenant = $1 and d.receiver is null and d.is_out;

-- name: undecided :many
-- Settled deliveries that have yet to decide the end of their job.
select id as delivery_id, job_id, tenant, fate as state from millpond.deliveries
where decides and due_at is null order by id limit $1;

-- name: deliver :many
select job_id, tenant, kind, from_state, state, is_ended, price, captured
from millpond.deliver($1::uuid[], $2::uuid[], $3::jsonb[], $4::integer[], $5::text[]);

-- name: delivering :many
-- Which of these jobs became delivering or succeeded, with this epoch, although the response was lost.
select j.id as job_id, j.state, j.phase = 'ended' as is_ended
from millpond.jobs j
join unnest($1::uuid[], $2::integer[]) as i(job_id, epoch) on i.job_id = j.id and i.epoch = j.epoch
where j.id = any($1::uuid[]) and exists (
    select from millpond.events e
    where e.job_id = j.id and e.seq > j.events - 2 and e.type in ('delivering', 'succeeded')
);

-- name: conclude :many
select job_id, tenant, kind, from_state, state, price, captured from millpond.conclude($1, $2::uuid[]);

-- name: hook :maybe
-- The URL that a job was submitted with.
select url, secret, events, decides from millpond.hooks where job_id = $1 and tenant = $2;

-- name: read :maybe
select d.id as delivery_id, d.tenant, d.endpoint_id, d.job_id, d.seq, d.event, d.at, d.fate as state, d.tries,
    nullif(d.due_at, 'infinity') as due_at, d.settled_at, coalesce(e.url, h.url, b.url) as url, d.data,
    coalesce(e.is_native, d.endpoint_id is not null or d.batch_id is not null) as is_native, d.batch_id
from millpond.deliveries d
left join millpond.endpoints e on e.id = d.endpoint_id
left join millpond.hooks h on h.job_id = d.job_id and d.endpoint_id is null
left join millpond.batch_hooks b on b.batch_id = d.batch_id and d.endpoint_id is null
where d.id = $2 and d.tenant = $1;

-- name: owner :maybe
-- The tenant of a delivery.
select tenant from millpond.deliveries where id = $1;

-- name: tries :many
select number, at, seconds, status, error, url, request_headers, response_headers, response_body
from millpond.delivery_tries where delivery_id = $1 order by number;

-- name: list :many
-- The newest first, below an id; the filter is optional.
select id as delivery_id, tenant, endpoint_id, job_id, seq, event, at, fate as state, tries,
    nullif(due_at, 'infinity') as due_at, settled_at, null::text as url, batch_id
from millpond.deliveries
where tenant = $1 and id < $2 and ($3::text is null or fate = $3)
order by id desc limit $4;

-- name: list_undelivered :many
-- The same for states that few deliveries are in, which have an index of their own.
select id as delivery_id, tenant, endpoint_id, job_id, seq, event, at, fate as state, tries,
    nullif(due_at, 'infinity') as due_at, settled_at, null::text as url, batch_id
from millpond.deliveries
where tenant = $1 and id < $2 and fate = $3 and fate <> 'delivered'
order by id desc limit $4;

-- name: list_all :many
-- The newest of all tenants, below an id; those in one state are searched among the next $3. The last one of these is
-- always returned: the next page continues there.
select d.id as delivery_id, d.tenant, d.endpoint_id, d.job_id, d.seq, d.event, d.at, d.fate as state, d.tries,
    nullif(d.due_at, 'infinity') as due_at, d.settled_at, null::text as url, d.batch_id, d.is_stop
from (
    select d.*, row_number() over (order by d.id desc) = $3 as is_stop
    from (
        select d.id, d.tenant, d.endpoint_id, d.job_id, d.seq, d.event, d.at, d.fate, d.tries, d.due_at, d.settled_at, d.batch_id
        from millpond.deliveries d where d.id < $1 order by d.id desc limit $3
    ) d
) d
where $2::text is null or d.fate = $2 or d.is_stop
order by d.id desc limit $4;

-- name: list_all_undelivered :many
-- The same for states that few deliveries are in: the newest of each of the first $3 tenants that have some.
with recursive owner as (
    (select d.tenant, 1 as n from millpond.deliveries d where d.fate <> 'delivered' order by d.tenant limit 1)
    union all
    select d.tenant, o.n + 1 from owner o cross join lateral (
        select d.tenant from millpond.deliveries d
        where d.fate <> 'delivered' and d.tenant > o.tenant order by d.tenant limit 1
    ) d
    where o.n < $3
)
select d.id as delivery_id, d.tenant, d.endpoint_id, d.job_id, d.seq, d.event, d.at, d.fate as state, d.tries,
    nullif(d.due_at, 'infinity') as due_at, d.settled_at, null::text as url, d.batch_id, false as is_stop
from owner o cross join lateral (
    select d.* from millpond.deliveries d
    where d.tenant = o.tenant and d.fate = $2 and d.fate <> 'delivered' and d.id < $1 order by d.id desc limit $4
) d
order by d.id desc limit $4;

-- name: list_of_endpoint :many
-- The deliveries of an endpoint, of a given tenant or of any.
select id as delivery_id, tenant, endpoint_id, job_id, seq, event, at, fate as state, tries,
    nullif(due_at, 'infinity') as due_at, settled_at, null::text as url, batch_id
from millpond.deliveries
where ($1::text is null or tenant = $1) and id < $2 and ($3::text is null or fate = $3) and endpoint_id = $5
order by id desc limit $4;

-- name: list_of_job :many
select id as delivery_id, tenant, endpoint_id, job_id, seq, event, at, fate as state, tries,
    nullif(due_at, 'infinity') as due_at, settled_at, null::text as url, batch_id
from millpond.deliveries
where ($1::text is null or tenant = $1) and id < $2 and ($3::text is null or fate = $3) and job_id = $5 and ($6::uuid is null or endpoint_id = $6)
order by id desc limit $4;

-- name: resend :many
-- Makes deliveries due again, with a new schedule of tries. Claimed and withdrawn ones stay as they are.
update millpond.deliveries d
set fate = 'pending', due_at = millpond.clock(), settled_at = null, tries_before = d.tries
where d.id = any($1::uuid[]) and d.tenant = $2 and d.fate <> 'withdrawn' and not d.is_out
returning d.id as delivery_id;

-- name: since :many
-- A page of the failed deliveries of an endpoint since $4 or, without $5, also of the delivered ones.
select id as delivery_id from millpond.deliveries
where endpoint_id = $1 and tenant = $2 and id > $3 and at >= $4 and fate in ('delivered', 'failed') and (fate = 'failed' or not $5)
order by id limit $6;

-- name: prune :many
-- Deletes deliveries that were settled longer than $1 ago, with their tries; at most $2 at a time.
with old as (
    delete from millpond.deliveries d
    where d.id = any(array(
        select d.id from millpond.deliveries d
        where d.settled_at < millpond.clock() - $1::interval and not d.decides order by d.settled_at limit $2
    ))
    returning d.id
),
tried as (
    delete from millpond.delivery_tries t where t.delivery_id = any(array(select id from old))
)
select id as delivery_id from old;

-- name: waiting :many
-- How many deliveries are pending, and how many of those have failed before. Counts no more than $1.
select count(*) as pending, count(*) filter (where d.tries > d.tries_before) as failing
from (select d.tries, d.tries_before from millpond.deliveries d where d.due_at is not null order by d.due_at limit $1) d;
