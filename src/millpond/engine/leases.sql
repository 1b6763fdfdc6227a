-- Leases: what a worker may do with a job it holds. Each function is a whole verb: the queue's half (central
-- home) first, then the job's half (tenant home) for exactly the jobs that were really held. A job that is left
-- out of an answer was not held any more: its worker must drop what it has.

-- function: claim
-- Jobs of other databases, which are handed out only to who says that he knows them (`away`), are told without what
-- their home knows of them: there they have not started yet.
create or replace function millpond.claim(
    queues text[], ranks smallint[], ranks_max smallint[], turns bigint[], afters uuid[],
    wants integer[], tokens uuid[], workers text[], duration interval, origins text[], away text[]
) returns table (
    job_id uuid, token uuid, tenant text, account text, kind text, queue text, rank smallint, turn bigint, from_state text,
    state text, epoch integer, attempts smallint, run smallint, seq integer, price integer, progress real, stage text,
    input jsonb, memo jsonb, answer jsonb, created_at timestamptz, expires_at timestamptz
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    ids uuid[];
    epochs integer[];
    turns_ bigint[];
    tokens_ uuid[];
    strays uuid[];
    own uuid[];
begin
    select l.job_ids, l.epochs, l.turns_, l.tokens_, l.strays into ids, epochs, turns_, tokens_, strays
    from millpond.lease(
        claim.queues, ranks, ranks_max, claim.turns, afters, wants, tokens, workers, duration, origins, away
    ) l;
    if ids is null then
        return;
    end if;
    own := ids;
    if strays is not null then
        return query
        select d.job_id, d.lease_token, d.tenant, d.account, d.kind, d.queue, d.rank, d.turn, null::text, null::text, d.epoch,
            d.attempts, null::smallint, null::integer, null::integer, null::real, null::text, null::jsonb, null::jsonb,
            null::jsonb, null::timestamptz, d.expires_at
        from millpond.dispatches d where d.job_id = any(strays);
        select array_agg(i.job_id), array_agg(i.epoch) into own, epochs
        from unnest(ids, epochs) as i(job_id, epoch) where i.job_id <> all(strays);
        if own is null then
            return;
        end if;
    end if;
    return query
    select m.job_id, case when tokens_ is null then tokens[1] else tokens_[array_position(ids, m.job_id)] end,
        m.tenant, m.account, m.kind, m.queue, -m.priority,
        case when turns_ is null then 0 else turns_[array_position(ids, m.job_id)] end,
        m.from_state, m.state, m.epoch, m.attempts_, m.run, m.seq, m.price, m.progress, m.stage, m.input, m.memo, m.answer,
        m.created_at, m.expires_at
    from millpond.move('started', 'leased', own, epochs, null, null, null, null, null, null, null, 'ready') m;
end $$;

-- function: finish
-- Ends jobs as their worker says: 'succeeded', 'failed', 'canceled' or 'blocked'.
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
    from millpond.move(finish.outcome, 'ended', ids, null, null, outputs_, errors_, captures_, null, null, null, 'leased') m;
end $$;

-- function: requeue
-- Jobs that did not end go back into the queue, or end where their counter has reached its cap. The cause is
-- 'attempt', 'interruption' or 'lapse' (see give_back); the error is kept on the job.
create or replace function millpond.requeue(
    cause text, is_wish boolean, job_ids uuid[], tokens uuid[], delays interval[], errors jsonb[],
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
            array_agg(jsonb_strip_nulls(jsonb_build_object('cause', cause, 'count', g.counted, 'error', i.error))) as notes
        from millpond.give_back(requeue.cause, is_wish, job_ids, tokens, delays, origins) g
        join unnest(job_ids, errors) as i(job_id, error) on i.job_id = g.job_id
        group by g.fate, g.phase
    loop
        return query
        select m.job_id, m.tenant, m.kind, m.queue, m.from_state, m.state, fates.fate, m.price, m.captured
        from millpond.move(
            fates.fate, case when fates.fate = 'requeued' then fates.phase else 'ended' end,
            fates.ids, null, fates.attempts, null, fates.errors, null, null, null, fates.notes, 'leased'
        ) m;
    end loop;
end $$;

-- function: lapse
-- Takes back what silent workers hold, up to `most` leases at a time. It starts from the lease itself and also
-- serves jobs at their cap, so nothing can be held for ever. All jobs are locked before the first account is.
create or replace function millpond.lapse(most integer)
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
            select l.token from millpond.leases l where l.expires_at <= millpond.clock() and not l.is_away
            order by l.expires_at limit most for update skip locked
        ))
        returning l.token, l.worker, l.job_ids
    )
    select array_agg(i.job_id), array_agg(g.token), array_agg(g.worker) into ids, tokens, workers
    from gone g
    cross join unnest(g.job_ids) as i(job_id)
    cross join lateral (  -- still under this lease; a job that went back may stand in a later one as well
        select from millpond.dispatches d where d.job_id = i.job_id and d.lease_token = g.token limit 1
    ) d;
    if ids is null then
        return;
    end if;
    return query
    select r.*, w.worker
    from millpond.requeue(
        'lapse', false, ids, tokens, null,
        array_fill('{"code": "lease_lost", "message": "Its worker fell silent."}'::jsonb, array[cardinality(ids)])
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
    from millpond.set_aside(job_ids, tokens) p
    join unnest(job_ids, memos) as i(job_id, memo) on i.job_id = p.job_id;
    if ids is null then
        return;
    end if;
    return query
    select m.job_id, m.tenant, m.kind, m.from_state, m.state
    from millpond.move('parked', 'parked', ids, null, null, null, null, null, memos_, null, null, 'leased') m;
end $$;

-- function: proceed
-- Takes jobs through the moment in which they are answered without their worker letting go of them: what they would
-- wait for is there already.
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
-- The tenant's half, for those of the jobs that are held. One that has this answer already is told where it is.
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
        from millpond.move('answered', 'leased', ids, null, null, null, null, null, memos_, answers_, null, 'leased') m;
    end if;
end $$;

-- function: note
-- Progress, stage and log lines of jobs that are being worked on. The notes of a lease are numbered and come in
-- order, so that one which comes twice is written once; one that never came leaves no gap in the job's events.
-- Progress and stage never go back. A job whose cancel was asked for is told so, and does not enter a stage that
-- refuses cancels.
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
-- The tenant's half of a note. The epochs are those of the leases that still hold; a note without one is left out.
-- A job that was handed out again meanwhile has another epoch.
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
-- Gives back everything that a token still holds, as an interruption: a worker that leaves, or one that never
-- heard the answer to its claim.
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
        array_fill('{"code": "interrupted", "message": "Its worker had to go."}'::jsonb, array[cardinality(ids)])
    );
    delete from millpond.leases l where l.token = abandon.token;
end $$;

-- name: claim :many
select job_id, token, tenant, account, kind, queue, rank, turn, from_state, state, epoch, attempts, run, seq, price,
    progress, stage, input, memo, answer, created_at, expires_at
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
-- Which of these jobs ended in this way under this very epoch, when the answer to their finish was lost. A
-- lifecycle may call two ends by one name: what happened stands in the last event.
select j.id as job_id, j.state
from millpond.jobs j
join unnest($1::uuid[], $2::integer[], $3::text[]) as i(job_id, epoch, outcome)
    on i.job_id = j.id and i.epoch = j.epoch
join millpond.events e on e.job_id = j.id and e.seq = j.events and e.type = i.outcome
where j.id = any($1::uuid[]) and e.job_id = any($1::uuid[]) and j.phase = 'ended';

-- name: lapse :many
select job_id, tenant, kind, queue, from_state, state, fate, price, captured, worker from millpond.lapse($1);
