-- Steps: what a run of a job has recorded, by name. Database: tenant.
-- Invariant: a step is recorded once. An attempt writes only while it holds the job; a later one finds what it wrote.

-- function: record
-- Records steps, and returns them as they are recorded now: another attempt may have been first. A step is missing in
-- the result if its job is not held in this epoch any more.
create or replace function millpond.record(
    job_ids uuid[], epochs integer[], names text[], positions integer[], types text[], details jsonb[], waits interval[],
    results jsonb[]
) returns table (n bigint, name text, "position" integer, type text, batch_id uuid, due_at timestamptz, is_done boolean, is_due boolean, result jsonb, submitted integer)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
begin
    return query
    with held as materialized (
        select i.*, j.run, j.tenant
        from (
            select j.id, j.run, j.tenant, j.epoch from millpond.jobs j
            where j.id = any(record.job_ids) and j.id >= low and j.id <= high and j.phase = 'leased'
        ) j
        join unnest(record.job_ids, epochs, names, positions, types, record.details, waits, results) with ordinality
            as i(job_id, epoch, name, position, type, details, wait, result, n) on i.job_id = j.id and i.epoch = j.epoch
    ),
    written as (
        insert into millpond.steps as s (job_id, run, name, tenant, position, type, at, due_at, details, done_at, result)
        select h.job_id, h.run, h.name, h.tenant, h.position, h.type, present, present + h.wait, h.details,
            case when h.type = 'call' then present end, h.result
        from held h order by h.job_id, h.name
        on conflict (job_id, run, name) do nothing
        returning s.job_id, s.name, s.position, s.type, s.due_at, s.done_at, s.result
    ),
    marked as (
        update millpond.jobs j set depth = 0
        where j.id = any(record.job_ids) and j.id >= low and j.id <= high and j.depth is null and j.id = any(array(select w.job_id from written w))
    ),
    earlier as (
        select h.n, s.* from held h cross join lateral (
            select s.name, s.position, s.type, s.batch_id, s.due_at, s.done_at, s.result from millpond.steps s
            where s.job_id = h.job_id and s.run = h.run and s.name = h.name limit 1
        ) s
    )
    select h.n, w.name, w.position, w.type, null::uuid, w.due_at, w.done_at is not null, coalesce(w.due_at <= present, false), w.result, 0
    from held h join written w on w.job_id = h.job_id and w.name = h.name
    union all
    select e.n, e.name, e.position, e.type, e.batch_id, e.due_at, e.done_at is not null, coalesce(e.due_at <= present, false), e.result, 0
    from earlier e;
end $$;

-- function: suspend
-- Parks jobs until what a step waits for has come: the end of its batch, a time, or an answer. A job for which it has
-- come already is ready again at once.
create or replace function millpond.suspend(job_ids uuid[], tokens uuid[], names text[], untils timestamptz[])
returns table (job_id uuid, tenant text, kind text, from_state text, state text, is_resumed boolean)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    ids uuid[] := array(select p.job_id from millpond.park_dispatches(suspend.job_ids, tokens, untils) p);
begin
    return query
    select s.job_id, s.tenant, s.kind, s.from_state, s.state, s.is_resumed
    from millpond.suspend_jobs(ids, suspend.job_ids, names) s;
end $$;

-- function: suspend_jobs
-- The tenant database's half, for those of the jobs that are held. A batch is locked after its parent, as by the end of
-- its last job: either this finds that the batch has ended, or that end finds the parent parked.
create or replace function millpond.suspend_jobs(held uuid[], job_ids uuid[], names text[])
returns table (job_id uuid, tenant text, kind text, from_state text, state text, is_resumed boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
    ids uuid[];
    reasons text[];
    batches uuid[];
    over uuid[];
begin
    select array_agg(s.job_id), array_agg(case s.type when 'sleep' then 'time' else s.type end), array_agg(s.batch_id)
    into ids, reasons, batches
    from (
        select j.id, j.run from millpond.jobs j
        where j.id = any(held) and j.id >= low and j.id <= high order by j.id for update
    ) j
    join unnest(suspend_jobs.job_ids, names) as i(job_id, name) on i.job_id = j.id
    cross join lateral (
        select s.job_id, s.type, s.batch_id from millpond.steps s
        where s.job_id = j.id and s.run = j.run and s.name = i.name limit 1
    ) s;
    if ids is null then
        return;
    end if;

    perform from millpond.batches b where b.id = any(batches) order by b.id for update;
    over := array(
        select j.id from millpond.jobs j
        join unnest(suspend_jobs.job_ids, names) as i(job_id, name) on i.job_id = j.id
        cross join lateral (
            select s.done_at, s.due_at, s.batch_id from millpond.steps s
            where s.job_id = j.id and s.run = j.run and s.name = i.name limit 1
        ) s
        left join millpond.batches b on b.id = any(batches) and b.id = s.batch_id
        where j.id = any(ids) and j.id >= low and j.id <= high
            and (s.done_at is not null or s.due_at <= present or b.ended_at is not null or b.fails_fast and b.failed + b.canceled > 0)
    );
    update millpond.batches b set is_awaited = true
    where b.id = any(batches) and b.ended_at is null and not (b.fails_fast and b.failed + b.canceled > 0);

    return query
    select m.job_id, m.tenant, m.kind, m.from_state, m.state, m.job_id = any(over)
    from millpond.transition('parked', 'parked', ids, waits => reasons, was => 'leased') m;
    if cardinality(over) > 0 then
        perform millpond.resume(over);
    end if;
end $$;

-- function: resume
-- Makes parked jobs ready: what they wait for has come. The dispatch of a job in another database is owed: it follows
-- the job (see remote.sql). The caller has locked what the jobs wait for.
create or replace function millpond.resume(job_ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    low uuid := millpond.least_id(job_ids);
    high uuid := millpond.greatest_id(job_ids);
    here uuid[] := array(
        select d.job_id from millpond.dispatches d
        where d.job_id = any(resume.job_ids) and d.phase = 'parked' order by d.job_id for update
    );
    parked uuid[] := array(
        select j.id from millpond.jobs j
        where j.id = any(resume.job_ids) and j.id >= low and j.id <= high and j.phase = 'parked' and j.waits_for is not null
        order by j.id for update
    );
begin
    here := array(select i.job_id from unnest(here) as i(job_id) where i.job_id = any(parked));
    if cardinality(here) > 0 then
        perform millpond.make_ready(here);
    end if;
    if cardinality(parked) > cardinality(here) then
        perform millpond.owe(millpond.clock(), array(select i.job_id from unnest(parked) as i(job_id) where i.job_id <> all(here)));
    end if;
    if cardinality(parked) > 0 then
        perform millpond.transition('resumed', 'ready', parked, was => 'parked');
    end if;
end $$;

-- function: answer_question
-- Records the answer to a question of a job, and resumes the job if it waits for that.
-- Verdicts: 'answered'; 'repeated' (it was given the same answer before); 'late' (its deadline has passed);
-- 'unavailable' (it has another answer, or its run has ended); 'absent'.
create or replace function millpond.answer_question(tenant text, job_id uuid, name text, answer jsonb, actor text)
returns table (verdict text, state text, queue text)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    job record;
    question record;
begin
    perform from millpond.dispatches d where d.job_id = answer_question.job_id for update;
    select j.id, j.run, j.state, j.queue, j.phase into job from millpond.jobs j
    where j.id = answer_question.job_id and j.tenant = answer_question.tenant for update;
    select s.done_at, s.due_at, s.result into question from millpond.steps s
    where s.job_id = job.id and s.run = job.run and s.name = answer_question.name and s.type = 'question' for update;
    if not found then
        return query select 'absent', job.state, job.queue;
    elsif question.done_at is not null or job.phase = 'ended' then
        return query select case when question.result = answer then 'repeated' else 'unavailable' end, job.state, job.queue;
    elsif question.due_at <= millpond.clock() then
        return query select 'late', job.state, job.queue;
    else
        update millpond.steps s set done_at = millpond.clock(), done_by = actor, result = answer
        where s.job_id = job.id and s.run = job.run and s.name = answer_question.name;
        perform millpond.resume(array[job.id]) from millpond.jobs j
        where j.id = job.id and j.phase = 'parked' and j.waits_for = 'question';
        return query select 'answered', j.state, j.queue from millpond.jobs j where j.id = job.id;
    end if;
end $$;

-- name: record :many
select n, name, position, type, batch_id, due_at, is_done, is_due, result, submitted
from millpond.record(
    $1::uuid[], $2::integer[], $3::text[], $4::integer[], $5::text[], $6::jsonb[], $7::interval[], $8::jsonb[]
);

-- name: recall :many
-- What the current run of a job has recorded, by name, after a name. The page ends with the step with which the JSON has
-- reached 4 MiB.
select s.name, s.position, s.type, s.batch_id, s.due_at, s.done_at is not null as is_done,
    coalesce(s.due_at <= millpond.clock(), false) as is_due, s.result, coalesce(b.submitted, 0) as submitted
from (
    select s.*, sum(coalesce(octet_length(s.result::text), 0)) over (
        order by s.name rows between unbounded preceding and 1 preceding
    ) as size_before
    from (
        select s.* from millpond.jobs j
        join millpond.steps s on s.job_id = j.id and s.run = j.run
        where j.id = $1 and j.epoch = $2 and j.phase = 'leased' and s.name > $3
        order by s.name limit $4
    ) s
) s
left join millpond.batches b on b.id = s.batch_id
where coalesce(s.size_before, 0) < 4 * 1024 * 1024
order by s.name;

-- name: step :maybe
select s.name, s.position, s.type, s.batch_id, s.due_at, s.done_at is not null as is_done,
    coalesce(s.due_at <= millpond.clock(), false) as is_due, s.result, coalesce(b.submitted, 0) as submitted
from millpond.jobs j
join millpond.steps s on s.job_id = j.id and s.run = j.run
left join millpond.batches b on b.id = s.batch_id
where j.id = $1 and s.name = $2;

-- name: suspend :many
select job_id, tenant, kind, from_state, state, is_resumed
from millpond.suspend($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[]);

-- name: suspend_jobs :many
select job_id, tenant, kind, from_state, state, is_resumed from millpond.suspend_jobs($1::uuid[], $2::uuid[], $3::text[]);

-- name: questions :many
-- The questions of the current run of a job, the oldest first. Of very many, those that are open and the newest.
select q.name, q.details, q.at, q.due_at, q.done_at, q.done_by, q.result
from (
    select s.name, s.details, s.at, s.due_at, s.done_at, s.done_by, s.result
    from millpond.jobs j
    join millpond.steps s on s.job_id = j.id and s.run = j.run and s.type = 'question'
    where j.id = $1 and j.tenant = $2
    order by s.done_at is null desc, s.at desc, s.name limit 200
) q
order by q.at, q.name;

-- name: answer_question :one
select verdict, state, queue from millpond.answer_question($1, $2, $3, $4::jsonb, $5);
