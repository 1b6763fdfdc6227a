-- Dispatches: the queue. Database: central.
-- Invariants: one row for every job that has not ended, none for one that has. A dispatch is `ready` exactly when it
-- has a row in millpond.ready or, while a limit holds it back, in millpond.limit_waits, and `leased` exactly when it has a lease token. Every verb locks the dispatch first, so
-- two verbs on one job never overlap. Every write of a worker contains its lease token, and is refused once the lease
-- has expired by the database's clock.
--
-- For the planner settings see jobs.sql.

-- function: enqueue
-- Adds jobs to the queue. In a fair queue the jobs of each tenant take turns, which start at the current turn of the
-- queue, so a tenant with one job waits for at most one job of every other tenant.
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
    line as (  -- the turn before the next one, found at the head of each rank without scanning the queue
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
-- Leases ready jobs, oldest first within a rank. A lane is a queue with a range of ranks and a start position (see
-- dispatches.py). Rows that another transaction has locked are skipped: a claim never waits. `turns_` is null if no
-- queue is fair: all turns are 0.
-- One claim can be for several workers: each has a token and wants a number of jobs, and they are served in order.
-- Without `origins` there is one worker, which gets no jobs while it is draining, and `tokens_` is null. With `origins` they are workers of the fleet: each gets
-- no more jobs than it has room for. If none has room, that is an error, because it must
-- not look like an empty queue.
-- Jobs in other databases are leased only for the tenants in `remote`, and are also returned in `strays`.
-- Where jobs have limits, those that may start are found first (see limits.sql); `limited` are those of them that have
-- limits, and `has_more` is whether others may be able to start.
create or replace function millpond.lease(
    queues text[], ranks smallint[], ranks_max smallint[], turns bigint[], afters uuid[],
    wants integer[], tokens uuid[], workers text[], duration interval, origins text[], remote text[],
    out job_ids uuid[], out epochs integer[], out turns_ bigint[], out tokens_ uuid[], out strays uuid[],
    out limited uuid[], out has_more boolean
)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    want integer := wants[1];
    places uuid[];
    admitted uuid[];
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

    if exists (select from millpond.queues q where q.queue = any(lease.queues) and q.is_limited)
        and (origins is not null or not exists (
            select from millpond.workers w where w.id = workers[1] and w.draining_at is not null
        ))
    then
        select a.admitted, a.has_more into admitted, has_more
        from millpond.admit_limited(present, lease.queues, ranks, ranks_max, lease.turns, afters, want, remote) a;
        want := cardinality(admitted);
        if want = 0 then
            return;
        end if;
    end if;

    with picked as materialized (
        select r.place, r.job_id, r.is_remote, coalesce(places[row_number() over ()], tokens[1]) as token
        from (
            select r.place, r.job_id, r.is_remote
            from unnest(queues, ranks, ranks_max, turns, afters) as l(queue, rank, rank_max, turn, after)
            join millpond.queues q on q.queue = l.queue and q.paused_at is null
            cross join lateral (
                select r.ctid as place, r.job_id, r.rank, r.turn, d.is_remote
                from millpond.ready r
                cross join lateral (
                    select d.is_remote from millpond.dispatches d
                    where d.job_id = r.job_id and d.phase = 'ready'
                        and (d.wakes_at is null or d.wakes_at > present)
                        and (not d.is_remote or d.tenant = any(remote))
                    for update skip locked
                ) d
                where r.queue = l.queue
                    and (r.rank, r.turn, r.job_id) > (l.rank, l.turn, l.after) and r.rank <= l.rank_max
                    and (admitted is null or r.job_id = any(admitted))
                order by r.rank, r.turn, r.job_id
                limit want
                for update of r skip locked
            ) r
            where origins is not null
                or not exists (select from millpond.workers w where w.id = workers[1] and w.draining_at is not null)
            order by r.rank, r.turn, r.job_id
            limit want
        ) r
    ),
    called as (
        delete from millpond.ready r where r.ctid = any(array(select place from picked))
    ),
    granted as (
        insert into millpond.leases (token, worker, granted_at, expires_at, job_ids, is_remote)
        select p.token, workers[array_position(tokens, p.token)], present, present + duration, array_agg(p.job_id),
            bool_or(p.is_remote)
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
        returning d.job_id, d.epoch, d.turn, d.lease_token, d.is_remote, d.limits is not null as is_limited
    )
    select array_agg(h.job_id), array_agg(h.epoch), case when max(h.turn) > 0 then array_agg(h.turn) end,
        case when places is not null then array_agg(h.lease_token) end, array_agg(h.job_id) filter (where h.is_remote),
        array_agg(h.job_id) filter (where h.is_limited)
    into job_ids, epochs, turns_, tokens_, strays, limited from held h;
    if cardinality(admitted) <> coalesce(cardinality(job_ids), 0) then
        raise exception 'of % jobs that their limits admit, % were leased', cardinality(admitted), cardinality(job_ids);
    end if;
end $$;

-- function: held
-- Which of these jobs the tokens still hold, and whether their cancel was requested.
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
-- Removes jobs from the queue that their worker has ended. A job that is missing in the result was lost. If a worker of
-- the fleet has ended the job, that is audited with its address.
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
        audited as (
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

-- function: is_due
-- Whether a lifecycle event is due for the job of a dispatch: 'expired' once the deadline has passed, in any phase;
-- 'canceled' once the grace of a cancel is over; 'queued' once the start time has come, 'resumed' once the time has come
-- until which it is parked.
create or replace function millpond.is_due(event text, dispatch millpond.dispatches, present timestamptz) returns boolean
language sql immutable as $$
    select case event
        when 'expired' then dispatch.expires_at <= present
        when 'canceled' then dispatch.cancel_at <= present
        else dispatch.phase = case event when 'resumed' then 'parked' else 'waiting' end and dispatch.run_at <= present
            and (dispatch.expires_at is null or dispatch.expires_at > present)
    end
$$;

-- function: give_back
-- Returns jobs that were leased and did not end, by cause: 'attempt' (the job's code failed), 'interruption' (the
-- worker stopped), 'lapse' (the worker stopped responding). Each cause has a counter and a limit; at the limit the job
-- fails. A job whose cancel was requested is canceled. If the worker itself returns jobs (`is_by_worker`), its lease must
-- not have expired; callers that take jobs back hold the lease's row instead. What a worker of the fleet returns is
-- audited.
create or replace function millpond.give_back(
    cause text, is_by_worker boolean, job_ids uuid[], tokens uuid[], delays interval[], origins text[],
    errors jsonb[] default null
)
returns table (job_id uuid, fate text, phase text, attempts smallint, counted smallint)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
begin
    return query
    with locked as materialized (
        select d.*, i.delay, i.origin, i.error, l.worker from (
            select d.job_id, d.tenant, d.epoch, d.lease_token, d.kind, d.queue, d.rank, d.turn, d.expires_at, d.cancel_at,
                d.attempts + (cause = 'attempt')::int as attempts,
                d.interruptions + (cause = 'interruption')::int as interruptions,
                d.lapses + (cause = 'lapse')::int as lapses
            from millpond.dispatches d
            where d.job_id = any(give_back.job_ids) and d.phase = 'leased'
            order by d.job_id
            for update
        ) d
        join unnest(give_back.job_ids, tokens, delays, origins, errors) as i(job_id, token, delay, origin, error)
            on i.job_id = d.job_id and i.token = d.lease_token
        left join millpond.leases l on l.token = any(tokens) and l.token = i.token
        where not is_by_worker or l.expires_at > present
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
    audited as (
        insert into millpond.audit (id, at, actor, action, tenant, subject, data)
        select millpond.uuid7(), present, j.worker, 'job.requeued', j.tenant, millpond.typeid('job', j.job_id),
            jsonb_build_object('address', j.origin, 'epoch', j.epoch, 'cause', cause, 'fate', j.fate)
                || jsonb_strip_nulls(jsonb_build_object('reason', j.error ->> 'message'))
        from judged j where j.origin is not null
    )
    select job_id, fate, phase, attempts::smallint,
        (case cause when 'attempt' then attempts when 'interruption' then interruptions else lapses end)::smallint
    from judged;
end $$;

-- function: park_dispatches
-- Parks jobs: takes them from their worker until they are answered or resumed, with `untils` at the latest until a time.
-- Their deadline stays.
create or replace function millpond.park_dispatches(job_ids uuid[], tokens uuid[], untils timestamptz[] default null)
returns table (job_id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
begin
    return query
    update millpond.dispatches d
    set phase = 'parked', lease_token = null, run_at = i.until, wakes_at = least(i.until, d.wakes_at)
    from unnest(park_dispatches.job_ids, tokens, untils) as i(job_id, token, until), millpond.leases l
    where d.job_id = any(park_dispatches.job_ids) and i.job_id = d.job_id and d.lease_token = i.token and d.cancel_at is null
        and l.token = any(tokens) and l.token = i.token and l.expires_at > present
    returning d.job_id;
end $$;

-- function: start_delivery
-- Takes the jobs whose webhook must be delivered before they end (`waiting`) from their workers. Their deadline stays;
-- a requested cancel is dropped. What a worker of the fleet hands over is audited.
create or replace function millpond.start_delivery(job_ids uuid[], tokens uuid[], origins text[], waiting uuid[])
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
        from unnest(start_delivery.job_ids, tokens, origins) as i(job_id, token, origin), millpond.leases l
        where d.job_id = any(waiting) and i.job_id = d.job_id and d.lease_token = i.token
            and l.token = any(tokens) and l.token = i.token and l.expires_at > present
        returning d.job_id, d.tenant, d.epoch, l.worker, l.token, i.origin
    ),
    audited as (
        insert into millpond.audit (id, at, actor, action, tenant, subject, data)
        select millpond.uuid7(), present, o.worker, 'job.completed', o.tenant, millpond.typeid('job', o.job_id),
            jsonb_build_object('address', o.origin, 'epoch', o.epoch, 'outcome', 'delivering', 'lease_token', o.token)
        from over o where o.origin is not null
    )
    select o.job_id from over o;
end $$;

-- function: end_delivery
-- Removes jobs from the queue that are being delivered. A job that is missing in the result is not, or no longer, being
-- delivered.
create or replace function millpond.end_delivery(job_ids uuid[]) returns table (job_id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
    ids uuid[] := array(
        select d.job_id from millpond.dispatches d
        where d.job_id = any(end_delivery.job_ids) and d.phase = 'delivering' order by d.job_id for update
    );
begin
    perform millpond.discard(ids);
    return query select i.job_id from unnest(ids) as i(job_id);
end $$;

-- function: keep
-- Locks the jobs that these tokens still hold and whose cancel was not requested: their worker continues them.
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
-- Makes waiting or parked jobs ready. The caller holds their locks.
create or replace function millpond.make_ready(job_ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    with woken as (
        update millpond.dispatches d
        set phase = 'ready',
            wakes_at = case when d.phase = 'parked' and d.wakes_at > d.expires_at then d.wakes_at else d.expires_at end
        where d.job_id = any(job_ids)
        returning d.queue, d.rank, d.turn, d.job_id
    )
    insert into millpond.ready (queue, rank, turn, job_id)
    select queue, rank, turn, job_id from woken;
end $$;

-- function: discard
-- Deletes jobs from millpond.dispatches and millpond.ready. The caller holds their locks, taken in an earlier
-- statement: only then does the snapshot of this one show the current rows of millpond.ready.
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
-- The central database's half of a cancel, by the verdict of the tenant database's half.
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
-- The central database's half of a change of priority: changes the rank of the dispatch, and of its row in
-- millpond.ready, if there is one. The caller holds the lock of the dispatch.
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
        delete from millpond.limit_waits w where w.job_id = dispatch.job_id;
        update millpond.dispatches d set rank = -priority where d.job_id = prioritize_dispatch.job_id;
        insert into millpond.ready (queue, rank, turn, job_id)
        select dispatch.queue, -priority, dispatch.turn, dispatch.job_id where dispatch.phase = 'ready';
    end if;
end $$;

-- function: transition_dispatch_to
-- The central database's half of an operator's transition: sets the phase that the job has come to.
create or replace function millpond.transition_dispatch_to(job_id uuid, phase text, forgets boolean) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    dispatch millpond.dispatches;
begin
    if transition_dispatch_to.phase = 'ended' then
        perform millpond.discard(array[transition_dispatch_to.job_id]);
        return;
    end if;
    select d.* into dispatch from millpond.dispatches d where d.job_id = transition_dispatch_to.job_id;
    if dispatch.phase <> 'ready' or transition_dispatch_to.phase <> 'ready' then
        delete from millpond.ready r
        where r.queue = dispatch.queue and r.rank = dispatch.rank and r.turn = dispatch.turn
            and r.job_id = dispatch.job_id;
        update millpond.dispatches d
        set phase = transition_dispatch_to.phase, lease_token = null, wakes_at = least(d.expires_at, d.cancel_at)
        where d.job_id = transition_dispatch_to.job_id;
        insert into millpond.ready (queue, rank, turn, job_id)
        select dispatch.queue, dispatch.rank, dispatch.turn, dispatch.job_id where transition_dispatch_to.phase = 'ready';
    end if;
    if forgets then
        update millpond.dispatches d set cancel_at = null, wakes_at = d.expires_at
        where d.job_id = transition_dispatch_to.job_id;
    end if;
end $$;

-- name: extend :many
-- Extends leases. A token that is missing in the result has expired.
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
-- Deletes leases that no longer hold a job; a lease that still holds one is left to expire.
delete from millpond.leases l
where l.token = any($1::uuid[])
    and not exists (select from millpond.dispatches d where d.job_id = any(l.job_ids) and d.lease_token = l.token);

-- name: defer :exec
-- Lets a job that runs at a provider expire this much later than its deadline: by then the provider was asked to stop.
update millpond.dispatches set wakes_at = expires_at + $3::interval
where job_id = $1 and epoch = $2 and phase = 'leased' and cancel_at is null;

-- name: let_go :exec
-- Lets a parked job expire at its deadline: its provider was asked to stop.
update millpond.dispatches set wakes_at = expires_at where job_id = $1 and phase = 'parked';
