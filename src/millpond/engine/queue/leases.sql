-- Leases: what a worker can do with a job that it holds. Each function is a whole verb: the queue's half (central)
-- first, then the job's half (tenant), for exactly the jobs that were still held. A job that is missing in a result was
-- no longer held: its worker must discard its work on it.

-- function: claim
-- Jobs of tenants in other databases are leased only if the caller names those tenants (`remote`), and are returned
-- without the columns of the tenant's database, where they have not started yet.
-- What fleet workers get is audited, and ends with the job with which its JSON has reached 4 MiB, the limit that
-- leases.py calls BYTES_MAX: a poll is answered in one response.
-- A row of nulls says that the limits of jobs may admit more jobs than those that were looked at.
create or replace function millpond.claim(
    queues text[], ranks smallint[], ranks_max smallint[], turns bigint[], afters uuid[],
    wants integer[], tokens uuid[], workers text[], duration interval, origins text[], remote text[]
) returns table (
    job_id uuid, token uuid, tenant text, account text, kind text, queue text, rank smallint, turn bigint, from_state text,
    state text, epoch integer, attempts smallint, run smallint, seq integer, price integer, progress real, stage text,
    input jsonb, memo jsonb, answer jsonb, created_at timestamptz, expires_at timestamptz, parent_id uuid, depth smallint
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    ids uuid[];
    limited uuid[];
    epochs integer[];
    turns_ bigint[];
    tokens_ uuid[];
    strays uuid[];
    own uuid[];
    fitting uuid[];
    has_more boolean;
begin
    select l.job_ids, l.epochs, l.turns_, l.tokens_, l.strays, l.limited, l.has_more
    into ids, epochs, turns_, tokens_, strays, limited, has_more
    from millpond.lease(
        claim.queues, ranks, ranks_max, claim.turns, afters, wants, tokens, workers, duration, origins, remote
    ) l;
    if has_more then
        return next;
    end if;
    if ids is null then
        return;
    end if;
    own := ids;
    if strays is not null then
        return query
        select d.job_id, d.lease_token, d.tenant, d.account, d.kind, d.queue, d.rank, d.turn, null::text, null::text, d.epoch,
            d.attempts, null::smallint, null::integer, null::integer, null::real, null::text, null::jsonb, null::jsonb,
            null::jsonb, null::timestamptz, d.expires_at, null::uuid, null::smallint
        from millpond.dispatches d where d.job_id = any(strays);
        select array_agg(i.job_id), array_agg(i.epoch) into own, epochs
        from unnest(ids, epochs) as i(job_id, epoch) where i.job_id <> all(strays);
        if own is null then
            perform millpond.hold_limits(limited);
            return;
        end if;
    end if;
    if origins is not null then
        fitting := millpond.fitting_jobs(ids, turns_, 4 * 1024 * 1024);
        if cardinality(fitting) < cardinality(own) then
            perform millpond.unlease(array(select i.job_id from unnest(own) as i(job_id) where i.job_id <> all(fitting)));
            select array_agg(i.job_id), array_agg(i.epoch) into own, epochs
            from unnest(own, epochs) as i(job_id, epoch) where i.job_id = any(fitting);
            limited := array(select i.job_id from unnest(limited) as i(job_id) where i.job_id = any(own || strays));
        end if;
        perform millpond.audit_leased(own, tokens, origins);
    end if;
    return query
    select m.job_id, case when tokens_ is null then tokens[1] else tokens_[array_position(ids, m.job_id)] end,
        m.tenant, m.account, m.kind, m.queue, -m.priority,
        case when turns_ is null then 0 else turns_[array_position(ids, m.job_id)] end,
        m.from_state, m.state, m.epoch, m.attempts_, m.run, m.seq, m.price, m.progress, m.stage, m.input, m.memo, m.answer,
        m.created_at, m.expires_at, m.parent_id, m.depth
    from millpond.transition('started', 'leased', own, epochs => epochs, was => 'ready') m;
    perform millpond.hold_limits(limited);
end $$;

-- function: fitting_jobs
-- Of jobs in the order of their queue: those up to the one with which their JSON reaches this size. Database: tenant.
create or replace function millpond.fitting_jobs(job_ids uuid[], turns bigint[], room bigint) returns uuid[]
language plpgsql set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off as $$
#variable_conflict use_column
declare
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    return array(
        select j.id
        from (
            select j.id, sum(
                octet_length(j.input::text) + coalesce(octet_length(j.memo::text), 0)
                + coalesce(octet_length(j.answer::text), 0)
            ) over (order by -j.priority, i.turn, j.id rows between unbounded preceding and 1 preceding) as bytes_before
            from unnest(job_ids, turns) as i(job_id, turn)
            join millpond.jobs j on j.id = any(job_ids) and j.id >= low and j.id <= high and j.id = i.job_id
        ) j
        where coalesce(j.bytes_before, 0) < room
    );
end $$;

-- function: finish
-- Ends jobs with the outcome that their worker reports: 'succeeded', 'failed', 'canceled' or 'blocked'.
create or replace function millpond.finish(
    outcome text, job_ids uuid[], tokens uuid[], outputs jsonb[], errors jsonb[], captures integer[], origins text[]
) returns table (job_id uuid, tenant text, kind text, from_state text, state text, price integer, captured integer)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    ids uuid[];
    outputs_ jsonb[];
    errors_ jsonb[];
    captures_ integer[];
begin
    select array_agg(i.job_id), array_agg(i.output), array_agg(i.error), array_agg(i.captured)
    into ids, outputs_, errors_, captures_
    from millpond.withdraw(finish.outcome, job_ids, tokens, origins) w
    join unnest(job_ids, outputs, errors, captures) as i(job_id, output, error, captured) on i.job_id = w.job_id;
    if ids is null then
        return;
    end if;
    return query
    select m.job_id, m.tenant, m.kind, m.from_state, m.state, m.price, m.captured
    from millpond.transition(
        finish.outcome, 'ended', ids, outputs => outputs_, errors => errors_, captures => captures_, was => 'leased'
    ) m;
end $$;

-- function: requeue
-- Returns jobs that did not end to the queue, or ends them if their counter has reached its limit. The cause is
-- 'attempt', 'interruption' or 'lapse' (see give_back); the error is stored on the job.
create or replace function millpond.requeue(
    cause text, is_by_worker boolean, job_ids uuid[], tokens uuid[], delays interval[], errors jsonb[],
    origins text[] default null
) returns table (
    job_id uuid, tenant text, kind text, queue text, from_state text, state text, fate text, price integer, captured integer
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    fates record;
begin
    for fates in
        select g.fate, g.phase, array_agg(g.job_id) as ids, array_agg(g.attempts) as attempts, array_agg(i.error) as errors,
            array_agg(millpond.requeue_note(cause, g.counted, i.error)) as notes
        from millpond.give_back(requeue.cause, is_by_worker, job_ids, tokens, delays, origins, requeue.errors) g
        join unnest(job_ids, errors) as i(job_id, error) on i.job_id = g.job_id
        group by g.fate, g.phase
    loop
        return query
        select m.job_id, m.tenant, m.kind, m.queue, m.from_state, m.state, fates.fate, m.price, m.captured
        from millpond.transition(
            fates.fate, case when fates.fate = 'requeued' then fates.phase else 'ended' end, fates.ids,
            attempts => fates.attempts, errors => fates.errors, notes => fates.notes, was => 'leased'
        ) m;
    end loop;
end $$;

-- function: requeue_note
-- The data of the event of a job that was returned to the queue: the cause, and how often it has occurred.
create or replace function millpond.requeue_note(cause text, counted smallint, error jsonb) returns jsonb
language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object('cause', cause, 'count', counted, 'error', error))
$$;

-- function: lapse
-- Takes back the jobs of expired leases, up to `row_limit` leases at a time. It starts from the lease itself and also
-- takes jobs at their limit, so no job is held for ever. All jobs are locked before the first account is.
create or replace function millpond.lapse(row_limit integer)
returns table (
    job_id uuid, tenant text, kind text, queue text, from_state text, state text, fate text, price integer, captured integer, worker text
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    ids uuid[];
    tokens uuid[];
    workers text[];
begin
    with gone as (
        delete from millpond.leases l
        where l.token = any(array(
            select l.token from millpond.leases l where l.expires_at <= millpond.clock() and not l.is_remote
            order by l.expires_at limit row_limit for update skip locked
        ))
        returning l.token, l.worker, l.job_ids
    )
    select array_agg(i.job_id), array_agg(g.token), array_agg(g.worker) into ids, tokens, workers
    from gone g
    cross join unnest(g.job_ids) as i(job_id)
    cross join lateral (  -- still under this lease: a requeued job may be in a later one as well
        select from millpond.dispatches d where d.job_id = i.job_id and d.lease_token = g.token limit 1
    ) d;
    if ids is null then
        return;
    end if;
    return query
    select r.*, w.worker
    from millpond.requeue(
        'lapse', false, ids, tokens, null,
        array_fill('{"code": "lease_lost", "message": "The worker stopped sending heartbeats."}'::jsonb, array[cardinality(ids)])
    ) r
    join unnest(ids, workers) as w(job_id, worker) on w.job_id = r.job_id;
end $$;

-- function: park
create or replace function millpond.park(job_ids uuid[], tokens uuid[], memos jsonb[])
returns table (job_id uuid, tenant text, kind text, from_state text, state text)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    ids uuid[];
    memos_ jsonb[];
begin
    select array_agg(i.job_id), array_agg(i.memo) into ids, memos_
    from millpond.park_dispatches(job_ids, tokens) p
    join unnest(job_ids, memos) as i(job_id, memo) on i.job_id = p.job_id;
    if ids is null then
        return;
    end if;
    return query
    select m.job_id, m.tenant, m.kind, m.from_state, m.state
    from millpond.transition('parked', 'parked', ids, memos => memos_, was => 'leased') m;
end $$;

-- function: proceed
-- Applies the event `answered` to jobs that stay with their worker: the answer that they would wait for is already
-- there.
create or replace function millpond.proceed(job_ids uuid[], tokens uuid[], memos jsonb[], answers jsonb[])
returns table (job_id uuid, tenant text, kind text, from_state text, state text)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    ids uuid[] := array(select k.job_id from millpond.keep(proceed.job_ids, tokens) k);
begin
    return query
    select p.job_id, p.tenant, p.kind, p.from_state, p.state
    from millpond.proceed_jobs(ids, proceed.job_ids, memos, answers) p;
end $$;

-- function: proceed_jobs
-- The tenant database's half, for those of the jobs that are held. For a job that already has this answer, returns its
-- current state.
create or replace function millpond.proceed_jobs(held uuid[], job_ids uuid[], memos jsonb[], answers jsonb[])
returns table (job_id uuid, tenant text, kind text, from_state text, state text)
language plpgsql as $$
#variable_conflict use_column
declare
    ids uuid[];
    memos_ jsonb[];
    answers_ jsonb[];
begin
    return query
    select j.id, j.tenant, j.kind, j.state, j.state
    from millpond.jobs j
    join unnest(job_ids, answers) as i(job_id, answer) on i.job_id = j.id and i.answer = j.answer
    where j.id = any(held);
    select array_agg(i.job_id), array_agg(i.memo), array_agg(i.answer) into ids, memos_, answers_
    from unnest(job_ids, memos, answers) as i(job_id, memo, answer)
    join (select j.id, j.answer from millpond.jobs j where j.id = any(held)) j
        on j.id = i.job_id and j.answer is distinct from i.answer;
    if ids is not null then
        return query
        select m.job_id, m.tenant, m.kind, m.from_state, m.state
        from millpond.transition('answered', 'leased', ids, memos => memos_, answers => answers_, was => 'leased') m;
    end if;
end $$;

-- function: note
-- Writes progress, stages and log lines of running jobs. The notes of a lease are numbered and arrive in order, so a
-- repeated one is written once; one that never arrived leaves no gap in the job's events. Progress and stage never go
-- back. `is_canceling` is whether the job's cancel was requested; such a job does not enter a firm stage.
create or replace function millpond.note(
    job_ids uuid[], tokens uuid[], numbers integer[], types text[], values_ real[], stages text[], data jsonb[]
) returns table (job_id uuid, token uuid, is_canceling boolean, seq integer)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    epochs integer[];
begin
    select array_agg(h.epoch order by i.n) into epochs
    from unnest(note.job_ids, tokens) with ordinality as i(job_id, token, n)
    left join millpond.held(note.job_ids, tokens) h on h.job_id = i.job_id and h.token = i.token;
    return query
    select n.job_id, n.token, n.is_canceling, n.seq
    from millpond.note_jobs(note.job_ids, tokens, epochs, numbers, types, values_, stages, data) n;
end $$;

-- function: note_jobs
-- The tenant database's half of a note. `epochs` are those of the leases that still hold; a note without one is
-- skipped. A job that was leased again meanwhile has another epoch.
create or replace function millpond.note_jobs(
    job_ids uuid[], tokens uuid[], epochs integer[], numbers integer[], types text[], values_ real[], stages text[],
    data jsonb[]
) returns table (job_id uuid, token uuid, is_canceling boolean, seq integer)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    return query
    with item as materialized (
        select distinct on (i.job_id, i.number) i.*
        from unnest(note_jobs.job_ids, tokens, epochs, numbers, types, values_, stages, data) with ordinality
            as i(job_id, token, epoch, number, type, value, stage, data, n)
        where i.epoch is not null
        order by i.job_id, i.number, i.n
    ),
    locked as materialized (
        select j.id, j.epoch, j.noted, j.cancel_requested_at is not null as is_canceling, k.stages, k.firm_stages
        from (
            select j.id, j.kind, j.epoch, j.noted, j.cancel_requested_at from millpond.jobs j
            where j.id = any(note_jobs.job_ids) and j.id >= low and j.id <= high and j.phase = 'leased' order by j.id for update
        ) j
        join millpond.kinds k on k.kind = j.kind
    ),
    fresh as materialized (
        select i.*, row_number() over (partition by i.job_id order by i.number) as nth
        from item i join locked o on o.id = i.job_id and o.epoch = i.epoch
        where i.number > o.noted
    ),
    latest as (
        select i.job_id, i.token, o.stages, max(i.number) as last, max(i.value) as value,
            count(*) filter (where i.number > o.noted) as fresh,
            (array_agg(i.stage order by array_position(o.stages, i.stage) desc) filter (
                where i.stage = any(o.stages) and not (o.is_canceling and i.stage = any(o.firm_stages))
            ))[1] as stage
        from item i join locked o on o.id = i.job_id and o.epoch = i.epoch
        group by i.job_id, i.token, o.stages
    ),
    noted as (
        update millpond.jobs j
        set events = j.events + l.fresh,
            noted = greatest(j.noted, l.last),
            progress = greatest(j.progress, l.value),
            stage = case
                when coalesce(array_position(l.stages, l.stage), 0) > coalesce(array_position(l.stages, j.stage), 0) then l.stage
                else j.stage
            end
        from latest l
        where j.id = any(note_jobs.job_ids) and j.id >= low and j.id <= high and l.job_id = j.id
        returning j.id, l.token, j.tenant, j.state, j.events, j.events - l.fresh as before,
            j.cancel_requested_at is not null as is_canceling
    ),
    logged as (
        insert into millpond.events (job_id, seq, at, type, state, tenant, data)
        select n.id, n.before + f.nth, present, f.type, n.state, n.tenant, f.data
        from noted n join fresh f on f.job_id = n.id
    )
    select id, token, is_canceling, events from noted;
end $$;

-- function: abandon
-- Gives back all jobs that a token still holds, as interruptions: its worker stops, or never received the answer to its
-- claim.
create or replace function millpond.abandon(token uuid)
returns table (
    job_id uuid, tenant text, kind text, queue text, from_state text, state text, fate text, price integer, captured integer
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    ids uuid[];
begin
    select l.job_ids into ids from millpond.leases l where l.token = abandon.token for update;
    if ids is null then
        return;
    end if;
    return query
    select * from millpond.requeue(
        'interruption', false, ids, array_fill(abandon.token, array[cardinality(ids)]), null,
        array_fill('{"code": "interrupted", "message": "The worker was interrupted."}'::jsonb, array[cardinality(ids)])
    );
    delete from millpond.leases l where l.token = abandon.token;
end $$;

-- name: claim :many
select job_id, token, tenant, account, kind, queue, rank, turn, from_state, state, epoch, attempts, run, seq, price,
    progress, stage, input, memo, answer, created_at, expires_at, parent_id, depth
from millpond.claim(
    $1::text[], $2::smallint[], $3::smallint[], $4::bigint[], $5::uuid[],
    $6::integer[], $7::uuid[], $8::text[], $9::interval, $10::text[], null
);

-- name: finish :many
select job_id, tenant, kind, from_state, state, price, captured
from millpond.finish($1, $2::uuid[], $3::uuid[], $4::jsonb[], $5::jsonb[], $6::integer[], $7::text[]);

-- name: requeue :many
select job_id, tenant, kind, queue, from_state, state, fate, price, captured
from millpond.requeue($1, true, $2::uuid[], $3::uuid[], $4::interval[], $5::jsonb[], $6::text[]);

-- name: park :many
select job_id, tenant, kind, from_state, state from millpond.park($1::uuid[], $2::uuid[], $3::jsonb[]);

-- name: proceed :many
select job_id, tenant, kind, from_state, state
from millpond.proceed($1::uuid[], $2::uuid[], $3::jsonb[], $4::jsonb[]);

-- name: note :many
select job_id, token, is_canceling, seq
from millpond.note($1::uuid[], $2::uuid[], $3::integer[], $4::text[], $5::real[], $6::text[], $7::jsonb[]);

-- name: abandon :many
select job_id, tenant, kind, queue, from_state, state, fate, price, captured from millpond.abandon($1);

-- name: ended :many
-- Which of these jobs ended with this outcome and in this epoch, when the answer to their finish was lost. A lifecycle
-- may have one state for two outcomes, so the last event decides.
select j.id as job_id, j.state
from millpond.jobs j
join unnest($1::uuid[], $2::integer[], $3::text[]) as i(job_id, epoch, outcome)
    on i.job_id = j.id and i.epoch = j.epoch
join millpond.events e on e.job_id = j.id and e.seq = j.events and e.type = i.outcome
where j.id = any($1::uuid[]) and e.job_id = any($1::uuid[]) and j.phase = 'ended';

-- name: lapse :many
select job_id, tenant, kind, queue, from_state, state, fate, price, captured, worker from millpond.lapse($1);

-- name: held :many
-- Which of these jobs are leased, with the token, the worker and the expiry of the lease. Database: central.
select d.job_id, l.token, l.worker, l.expires_at
from millpond.dispatches d join millpond.leases l on l.token = d.lease_token
where d.job_id = any($1::uuid[]);
