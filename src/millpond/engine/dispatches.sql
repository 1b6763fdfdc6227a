-- Dispatches: the queue. Home: central.
-- Invariants: one row for every job that has not ended, none for one that has. A dispatch is `ready` exactly
-- when it stands in millpond.ready, and `leased` exactly when it names a lease. Every verb locks the dispatch
-- first, so two verbs on one job never overlap. Every write of a worker names its token, and is refused once
-- the lease has run out by the database's clock.
--
-- About the planner switches see jobs.sql.

-- function: enqueue
-- Puts jobs into the queue. In a fair queue each tenant's jobs take turns that start where the line is now,
-- so a tenant with one job waits for at most one job of every other tenant.
create or replace function millpond.enqueue(
    is_fair boolean, present timestamptz, job_ids uuid[], tenants text[], accounts text[], kinds text[], queues text[],
    priorities smallint[], run_ats timestamptz[], lifetimes interval[]
) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    turns bigint[];
begin
    if is_fair then
        turns := millpond.take_turns(kinds, queues, tenants);
    end if;

    insert into millpond.dispatches (
        job_id, tenant, account, kind, queue, phase, rank, turn, run_at, expires_at, wakes_at
    )
    select i.job_id, i.tenant, i.account, i.kind, i.queue,
        case when i.run_at > present then 'waiting' else 'ready' end, -i.priority, coalesce(i.turn, 0),
        i.run_at, greatest(i.run_at, present) + i.lifetime,
        case when i.run_at > present then i.run_at else present + i.lifetime end
    from unnest(job_ids, tenants, accounts, kinds, queues, priorities, run_ats, lifetimes, turns)
        as i(job_id, tenant, account, kind, queue, priority, run_at, lifetime, turn);

    insert into millpond.ready (queue, rank, turn, job_id)
    select i.queue, -i.priority, coalesce(i.turn, 0), i.job_id
    from unnest(job_ids, queues, priorities, run_ats, turns) as i(job_id, queue, priority, run_at, turn)
    where i.run_at is null or i.run_at <= present;
end $$;

-- function: take_turns
create or replace function millpond.take_turns(kinds text[], queues text[], tenants text[]) returns bigint[]
language plpgsql as $$
#variable_conflict use_column
declare
    turns bigint[];
begin
    with item as (
        select i.queue, i.tenant, i.n, k.is_fair, row_number() over (partition by i.queue, i.tenant order by i.n) as nth
        from unnest(kinds, queues, tenants) with ordinality as i(kind, queue, tenant, n)
        join millpond.kinds k on k.kind = i.kind
    ),
    line as (  -- the turn before the one that is next, found at the head of each rank without walking the line
        select q.queue, coalesce(
            (with recursive head as (
                (select r.rank, r.turn from millpond.ready r where r.queue = q.queue order by r.rank, r.turn limit 1)
                union all
                select r.rank, r.turn from head h cross join lateral (
                    select r.rank, r.turn from millpond.ready r
                    where r.queue = q.queue and r.rank > h.rank order by r.rank, r.turn limit 1
                ) r
            ) select min(turn) - 1 from head),
            (select max(s.turn) from millpond.shares s where s.queue = q.queue),
            0
        ) as turn
        from (select distinct i.queue from item i where i.is_fair) q
    ),
    taken as (
        insert into millpond.shares as s (queue, tenant, turn)
        select i.queue, i.tenant, l.turn + count(*) from item i join line l on l.queue = i.queue
        group by i.queue, i.tenant, l.turn
        order by i.queue, i.tenant
        on conflict (queue, tenant) do update set turn = greatest(
            s.turn + excluded.turn - (select l.turn from line l where l.queue = excluded.queue), excluded.turn
        )
        returning s.queue, s.tenant, s.turn
    )
    select array_agg(coalesce(t.turn - c.jobs + i.nth, 0) order by i.n) into turns
    from item i
    left join taken t on t.queue = i.queue and t.tenant = i.tenant
    left join (select queue, tenant, count(*) as jobs from item group by queue, tenant) c
        on c.queue = i.queue and c.tenant = i.tenant;
    return turns;
end $$;

-- function: lease
-- Hands out ready jobs, oldest first within a rank. A lane is a queue with a range of ranks and the place to
-- begin (see dispatches.py). What another transaction has in hand is passed over: a claim never waits. Where no
-- queue is fair no turns are told: they are all 0.
-- One claim may be for many workers: each has a token and wants so many jobs, and they are served in their order.
-- Where there is one, its token is not told. Where origins are given, these are workers of the fleet: each gets no
-- more than it has room for, and what it gets is audited. That none has room is an error: it must not look as if there
-- were no jobs.
-- Jobs of other databases are handed out only of the tenants that are said to be away, and told as strays.
create or replace function millpond.lease(
    queues text[], ranks smallint[], ranks_max smallint[], turns bigint[], afters uuid[],
    wants integer[], tokens uuid[], workers text[], duration interval, origins text[], away text[],
    out job_ids uuid[], out epochs integer[], out turns_ bigint[], out tokens_ uuid[], out strays uuid[]
)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    want integer := wants[1];
    places uuid[];
begin
    if origins is not null then
        perform from unnest(queues, ranks, ranks_max, turns, afters) as l(queue, rank, rank_max, turn, after)
        cross join lateral (
            select from millpond.ready r
            where r.queue = l.queue
                and (r.rank, r.turn, r.job_id) > (l.rank, l.turn, l.after) and r.rank <= l.rank_max
            limit 1
        ) r
        limit 1;
        if not found then
            return;
        end if;
        select array_agg(i.token order by i.n), count(*) into places, want
        from unnest(tokens, millpond.room(workers, wants)) with ordinality as i(token, want, n)
        cross join generate_series(1, i.want);
        if want = 0 then
            raise exception 'none of the workers has room' using errcode = 'PS005';
        end if;
    end if;

    with picked as materialized (
        select r.place, r.job_id, r.is_away, coalesce(places[row_number() over ()], tokens[1]) as token
        from (
            select r.place, r.job_id, r.is_away
            from unnest(queues, ranks, ranks_max, turns, afters) as l(queue, rank, rank_max, turn, after)
            join millpond.queues q on q.queue = l.queue and q.paused_at is null
            cross join lateral (
                select r.ctid as place, r.job_id, r.rank, r.turn, d.is_away
                from millpond.ready r
                cross join lateral (
                    select d.is_away from millpond.dispatches d
                    where d.job_id = r.job_id and d.phase = 'ready'
                        and (d.wakes_at is null or d.wakes_at > present)
                        and (not d.is_away or d.tenant = any(away))
                    for update skip locked
                ) d
                where r.queue = l.queue
                    and (r.rank, r.turn, r.job_id) > (l.rank, l.turn, l.after) and r.rank <= l.rank_max
                order by r.rank, r.turn, r.job_id
                limit want
                for update of r skip locked
            ) r
            order by r.rank, r.turn, r.job_id
            limit want
        ) r
    ),
    called as (
        delete from millpond.ready r where r.ctid = any(array(select place from picked))
    ),
    granted as (
        insert into millpond.leases (token, worker, granted_at, expires_at, job_ids, is_away)
        select p.token, workers[array_position(tokens, p.token)], present, present + duration, array_agg(p.job_id),
            bool_or(p.is_away)
        from picked p group by p.token
    ),
    held as (
        update millpond.dispatches d
        set phase = 'leased', epoch = d.epoch + 1,
            lease_token = case
                when places is null then tokens[1]
                else (array(select token from picked))[array_position(array(select job_id from picked), d.job_id)]
            end
        where d.job_id = any(array(select job_id from picked))
        returning d.job_id, d.epoch, d.turn, d.lease_token, d.is_away
    )
    select array_agg(h.job_id), array_agg(h.epoch), case when max(h.turn) > 0 then array_agg(h.turn) end,
        case when places is not null then array_agg(h.lease_token) end, array_agg(h.job_id) filter (where h.is_away)
    into job_ids, epochs, turns_, tokens_, strays from held h;

    if places is not null and job_ids is not null then
        perform millpond.tell_leased(job_ids, tokens_, tokens, origins);
    end if;
end $$;

-- function: held
-- Which of these jobs the tokens still hold, and whether their cancel was asked for.
create or replace function millpond.held(job_ids uuid[], tokens uuid[])
returns table (job_id uuid, token uuid, epoch integer, is_canceling boolean)
language plpgsql as $$
#variable_conflict use_column
begin
    return query
    select distinct d.job_id, d.lease_token, d.epoch, d.cancel_at is not null
    from millpond.dispatches d
    join unnest(held.job_ids, tokens) as i(job_id, token) on i.job_id = d.job_id and i.token = d.lease_token
    join millpond.leases l on l.token = i.token
    where d.job_id = any(held.job_ids) and l.token = any(tokens) and l.expires_at > millpond.clock();
end $$;

-- function: withdraw
-- Takes jobs that their worker has ended out of the queue. A job that is left out of the answer was lost. What a
-- worker of the fleet ends, from wherever it does, is audited.
create or replace function millpond.withdraw(outcome text, job_ids uuid[], tokens uuid[], origins text[])
returns table (job_id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
begin
    if origins is not null then
        return query
        with gone as (
            delete from millpond.dispatches d
            using unnest(withdraw.job_ids, tokens, origins) as i(job_id, token, origin), millpond.leases l
            where d.job_id = any(withdraw.job_ids) and i.job_id = d.job_id and d.lease_token = i.token
                and l.token = any(tokens) and l.token = i.token and l.expires_at > present
            returning d.job_id, d.tenant, d.epoch, l.worker, l.token, i.origin
        ),
        told as (
            insert into millpond.audit (id, at, actor, action, tenant, subject, data)
            select millpond.uuid7(), present, g.worker,
                case outcome when 'succeeded' then 'job.completed' else 'job.failed' end,
                g.tenant, millpond.typeid('job', g.job_id),
                jsonb_build_object('address', g.origin, 'epoch', g.epoch, 'outcome', outcome, 'lease_token', g.token)
            from gone g where g.origin is not null
        )
        select g.job_id from gone g;
        return;
    end if;
    return query
    delete from millpond.dispatches d
    using unnest(withdraw.job_ids, tokens) as i(job_id, token), millpond.leases l
    where d.job_id = any(withdraw.job_ids) and i.job_id = d.job_id and d.lease_token = i.token
        and l.token = any(tokens) and l.token = i.token and l.expires_at > present
    returning d.job_id;
end $$;

-- function: give_back
-- Jobs that were leased and did not end, by cause: 'attempt' (its code failed), 'interruption' (its worker had
-- to go), 'lapse' (its worker fell silent). Each cause has its counter and its cap; at the cap the job fails,
-- and one whose cancel was asked for is canceled. A worker's own wish (`is_wish`) needs a lease that has not run
-- out; the callers that take jobs back hold the lease's row instead. The wish of a worker of the fleet is audited.
create or replace function millpond.give_back(
    cause text, is_wish boolean, job_ids uuid[], tokens uuid[], delays interval[], origins text[]
)
returns table (job_id uuid, fate text, phase text, attempts smallint, counted smallint)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
begin
    return query
    with locked as materialized (
        select d.*, i.delay, i.origin, l.worker from (
            select d.job_id, d.tenant, d.epoch, d.lease_token, d.kind, d.queue, d.rank, d.turn, d.expires_at, d.cancel_at,
                d.attempts + (cause = 'attempt')::int as attempts,
                d.interruptions + (cause = 'interruption')::int as interruptions,
                d.lapses + (cause = 'lapse')::int as lapses
            from millpond.dispatches d
            where d.job_id = any(give_back.job_ids) and d.phase = 'leased'
            order by d.job_id
            for update
        ) d
        join unnest(give_back.job_ids, tokens, delays, origins) as i(job_id, token, delay, origin)
            on i.job_id = d.job_id and i.token = d.lease_token
        left join millpond.leases l on l.token = any(tokens) and l.token = i.token
        where not is_wish or l.expires_at > present
    ),
    judged as materialized (
        select l.*,
            case
                when l.cancel_at is not null then 'canceled'
                when l.attempts >= k.attempts_max or l.interruptions >= k.interruptions_max or l.lapses >= k.lapses_max then 'failed'
                else 'requeued'
            end as fate,
            case when l.delay > interval '0' then 'waiting' else 'ready' end as phase
        from locked l join millpond.kinds k on k.kind = l.kind
    ),
    gone as (
        delete from millpond.dispatches d
        where d.job_id = any(array(select job_id from judged where fate <> 'requeued'))
    ),
    kept as (
        update millpond.dispatches d
        set phase = j.phase, lease_token = null,
            attempts = j.attempts, interruptions = j.interruptions, lapses = j.lapses,
            run_at = present + j.delay,
            wakes_at = case when j.phase = 'waiting' then least(present + j.delay, d.expires_at) else d.expires_at end
        from judged j
        where d.job_id = any(array(select job_id from judged where fate = 'requeued')) and j.job_id = d.job_id
    ),
    lined as (
        insert into millpond.ready (queue, rank, turn, job_id)
        select queue, rank, turn, job_id from judged where fate = 'requeued' and phase = 'ready'
    ),
    told as (
        insert into millpond.audit (id, at, actor, action, tenant, subject, data)
        select millpond.uuid7(), present, j.worker, 'job.requeued', j.tenant, millpond.typeid('job', j.job_id),
            jsonb_build_object('address', j.origin, 'epoch', j.epoch, 'cause', cause, 'fate', j.fate)
        from judged j where j.origin is not null
    )
    select job_id, fate, phase, attempts::smallint,
        (case cause when 'attempt' then attempts when 'interruption' then interruptions else lapses end)::smallint
    from judged;
end $$;

-- function: set_aside
-- Takes jobs from their worker until an answer comes; their deadline stays.
create or replace function millpond.set_aside(job_ids uuid[], tokens uuid[]) returns table (job_id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
begin
    return query
    update millpond.dispatches d
    set phase = 'parked', lease_token = null
    from unnest(set_aside.job_ids, tokens) as i(job_id, token), millpond.leases l
    where d.job_id = any(set_aside.job_ids) and i.job_id = d.job_id and d.lease_token = i.token and d.cancel_at is null
        and l.token = any(tokens) and l.token = i.token and l.expires_at > present
    returning d.job_id;
end $$;

-- function: hand_over
-- Takes from their workers the jobs whose URL has yet to take the news (`waiting`); their deadline stays, and nobody
-- cancels them any more. What a worker of the fleet hands over is audited.
create or replace function millpond.hand_over(job_ids uuid[], tokens uuid[], origins text[], waiting uuid[])
returns table (job_id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
begin
    return query
    with over as (
        update millpond.dispatches d
        set phase = 'delivering', lease_token = null, cancel_at = null, wakes_at = d.expires_at
        from unnest(hand_over.job_ids, tokens, origins) as i(job_id, token, origin), millpond.leases l
        where d.job_id = any(waiting) and i.job_id = d.job_id and d.lease_token = i.token
            and l.token = any(tokens) and l.token = i.token and l.expires_at > present
        returning d.job_id, d.tenant, d.epoch, l.worker, l.token, i.origin
    ),
    told as (
        insert into millpond.audit (id, at, actor, action, tenant, subject, data)
        select millpond.uuid7(), present, o.worker, 'job.completed', o.tenant, millpond.typeid('job', o.job_id),
            jsonb_build_object('address', o.origin, 'epoch', o.epoch, 'outcome', 'delivering', 'lease_token', o.token)
        from over o where o.origin is not null
    )
    select o.job_id from over o;
end $$;

-- function: take_out
-- Takes jobs out of the queue that are being delivered; a job that is left out of the answer is not, or is no longer.
create or replace function millpond.take_out(job_ids uuid[]) returns table (job_id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
    ids uuid[] := array(
        select d.job_id from millpond.dispatches d
        where d.job_id = any(take_out.job_ids) and d.phase = 'delivering' order by d.job_id for update
    );
begin
    perform millpond.discard(ids);
    return query select i.job_id from unnest(ids) as i(job_id);
end $$;

-- function: keep
-- Locks the jobs that these tokens still hold and that need not stop: their worker takes them on.
create or replace function millpond.keep(job_ids uuid[], tokens uuid[]) returns table (job_id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
begin
    return query
    select d.job_id from (
        select d.job_id, d.lease_token, d.cancel_at from millpond.dispatches d
        where d.job_id = any(keep.job_ids) and d.phase = 'leased' order by d.job_id for update
    ) d
    join unnest(keep.job_ids, tokens) as i(job_id, token) on i.job_id = d.job_id and i.token = d.lease_token
    join millpond.leases l on l.token = any(tokens) and l.token = i.token and l.expires_at > present
    where d.cancel_at is null;
end $$;

-- function: make_ready
-- Waiting or parked jobs join the line. The caller holds their locks.
create or replace function millpond.make_ready(job_ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    with woken as (
        update millpond.dispatches d
        set phase = 'ready',
            wakes_at = case d.phase when 'parked' then greatest(d.wakes_at, d.expires_at) else d.expires_at end
        where d.job_id = any(job_ids)
        returning d.queue, d.rank, d.turn, d.job_id
    )
    insert into millpond.ready (queue, rank, turn, job_id)
    select queue, rank, turn, job_id from woken;
end $$;

-- function: discard
-- Takes jobs out of the queue and its line. The caller holds their locks, taken in an earlier statement: only so
-- does this one see the line as it is under them.
create or replace function millpond.discard(job_ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    with gone as (
        delete from millpond.dispatches d where d.job_id = any(job_ids)
        returning d.queue, d.rank, d.turn, d.job_id
    )
    delete from millpond.ready r
    where r.ctid = any(array(
        select r.ctid from gone g cross join lateral (
            select r.ctid from millpond.ready r
            where r.queue = g.queue and r.rank = g.rank and r.turn = g.turn and r.job_id = g.job_id
            limit 1
        ) r
    ));
end $$;

-- function: cancel_dispatch
-- The queue's half of a cancel, by the verdict of the tenant's.
create or replace function millpond.cancel_dispatch(job_id uuid, verdict text, grace interval) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    if verdict = 'canceled' then
        perform millpond.discard(array[cancel_dispatch.job_id]);
    elsif verdict = 'asked' then
        update millpond.dispatches d
        set cancel_at = millpond.clock() + grace, wakes_at = least(d.wakes_at, millpond.clock() + grace)
        where d.job_id = cancel_dispatch.job_id and d.cancel_at is null;
    end if;
end $$;

-- function: prioritize_dispatch
-- The queue's half of another priority: another place in the line, if it stands there. The caller holds its lock.
create or replace function millpond.prioritize_dispatch(job_id uuid, priority smallint) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    dispatch millpond.dispatches;
begin
    select d.* into dispatch from millpond.dispatches d where d.job_id = prioritize_dispatch.job_id;
    if dispatch.rank <> -priority then
        delete from millpond.ready r
        where r.queue = dispatch.queue and r.rank = dispatch.rank and r.turn = dispatch.turn
            and r.job_id = dispatch.job_id;
        update millpond.dispatches d set rank = -priority where d.job_id = prioritize_dispatch.job_id;
        insert into millpond.ready (queue, rank, turn, job_id)
        select dispatch.queue, -priority, dispatch.turn, dispatch.job_id where dispatch.phase = 'ready';
    end if;
end $$;

-- function: shift_dispatch
-- The queue's half of an operator's move: the phase that the job has come to.
create or replace function millpond.shift_dispatch(job_id uuid, phase text, forgets boolean) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    dispatch millpond.dispatches;
begin
    if shift_dispatch.phase = 'ended' then
        perform millpond.discard(array[shift_dispatch.job_id]);
        return;
    end if;
    select d.* into dispatch from millpond.dispatches d where d.job_id = shift_dispatch.job_id;
    if dispatch.phase <> 'ready' or shift_dispatch.phase <> 'ready' then
        delete from millpond.ready r
        where r.queue = dispatch.queue and r.rank = dispatch.rank and r.turn = dispatch.turn
            and r.job_id = dispatch.job_id;
        update millpond.dispatches d
        set phase = shift_dispatch.phase, lease_token = null, wakes_at = least(d.expires_at, d.cancel_at)
        where d.job_id = shift_dispatch.job_id;
        insert into millpond.ready (queue, rank, turn, job_id)
        select dispatch.queue, dispatch.rank, dispatch.turn, dispatch.job_id where shift_dispatch.phase = 'ready';
    end if;
    if forgets then
        update millpond.dispatches d set cancel_at = null, wakes_at = d.expires_at
        where d.job_id = shift_dispatch.job_id;
    end if;
end $$;

-- name: extend :many
-- Prolongs leases. A token that is left out of the answer has run out.
update millpond.leases
set expires_at = millpond.clock() + $2::interval
where token = any($1::uuid[]) and expires_at > millpond.clock()
returning token;

-- name: canceling :many
-- Which of these jobs must stop, and which are no longer held by these tokens.
select i.job_id, coalesce(h.is_canceling, false) as is_canceling, h.job_id is null as is_lost
from unnest($1::uuid[], $2::uuid[]) as i(job_id, token)
left join millpond.held($1::uuid[], $2::uuid[]) h on h.job_id = i.job_id and h.token = i.token
where h.job_id is null or h.is_canceling;

-- name: close_leases :exec
-- Forgets leases of which nothing is held any more; one that still holds a job is left to run out.
delete from millpond.leases l
where l.token = any($1::uuid[])
    and not exists (select from millpond.dispatches d where d.job_id = any(l.job_ids) and d.lease_token = l.token);

-- name: defer :exec
-- A job that a provider is at is not expired at its deadline but so much later: by then the provider was told to stop.
update millpond.dispatches set wakes_at = expires_at + $3::interval
where job_id = $1 and epoch = $2 and phase = 'leased' and cancel_at is null;

-- name: let_go :exec
-- The provider of a parked job was told to stop: it may expire.
update millpond.dispatches set wakes_at = expires_at where job_id = $1 and phase = 'parked';
