-- Submissions: what providers were asked to do for jobs, and where that stands. Home: tenant.
-- Invariants: the row is there before the provider is asked. A part of a job has one submission at most that is held,
-- sending or running; what another attempt replaces is unwanted, and canceled at the provider as soon as its name there is
-- known. Every submission that is not done with is due at some time: whoever dies, the reconciler looks at it again. A part
-- that is kept is done with: whatever becomes of the attempt, its job is told the same of it.

-- function: begin_submission
-- The submission that an attempt goes on with for a part of its job: the one that the provider has heard of, or a new one.
-- What an earlier attempt sent without hearing an answer is unwanted from now on. No row where the attempt has lost its job.
create or replace function millpond.begin_submission(
    tenant text, job_id uuid, epoch integer, fresh uuid, provider text, part text, mark interval
) returns table (id uuid, status text, prediction_id text, seconds_left float8, looks integer, kept jsonb)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    present timestamptz := millpond.clock();
    job record;
    seconds float8;
    found_ record;
begin
    select j.run, j.expires_at into job from millpond.jobs j
    where j.id = begin_submission.job_id and j.tenant = begin_submission.tenant and j.epoch = begin_submission.epoch
        and j.phase = 'leased'
    for update;
    if job.run is null then
        return;
    end if;
    seconds := extract(epoch from job.expires_at - present);
    select s.id, s.status, s.prediction_id, s.looks, s.kept into found_ from millpond.submissions s
    where s.job_id = begin_submission.job_id and s.run = job.run and s.part = begin_submission.part
        and s.status <> 'unwanted'
    order by s.created_at desc, s.id desc limit 1  -- by one clock: its id is of the machine that asked
    for update;
    if found_.status = 'held' then
        update millpond.submissions s set status = 'sending', due_at = present + mark where s.id = found_.id;
        return query select found_.id, 'sending', null::text, seconds, found_.looks, null::jsonb;
    elsif found_.prediction_id is null then
        update millpond.submissions s set status = 'unwanted', due_at = present
        where s.job_id = begin_submission.job_id and s.part = begin_submission.part
            and s.status in ('held', 'sending', 'running');
        insert into millpond.submissions (id, tenant, job_id, run, part, provider, status, created_at, expires_at, due_at)
        values (
            fresh, begin_submission.tenant, begin_submission.job_id, job.run, begin_submission.part,
            begin_submission.provider, 'sending', present, job.expires_at, present + mark
        );
        return query select fresh, 'sending', null::text, seconds, 0, null::jsonb;
    else
        return query select found_.id, found_.status, found_.prediction_id, seconds, found_.looks, found_.kept;
    end if;
end $$;

-- name: begin :maybe
select id, status, prediction_id, seconds_left, looks, kept
from millpond.begin_submission($1, $2, $3, $4, $5, $6, $7::interval);

-- name: sent :one
-- The provider has taken it and tells what it calls it. One that is unwanted by now is canceled under that name.
update millpond.submissions
set prediction_id = coalesce(prediction_id, $2), status = case status when 'sending' then 'running' else status end,
    due_at = case status when 'sending' then millpond.clock() + $3::interval when 'over' then due_at else millpond.clock() end
where id = $1
returning status, prediction_id;

-- name: hold :exec
-- The provider takes no calls now: it was not sent, and will be after this time; it is looked at by the deadline.
update millpond.submissions
set status = 'held', due_at = greatest(least(millpond.clock() + $2::interval, expires_at), millpond.clock())
where id = $1 and status = 'sending';

-- name: refuse :exec
-- The provider does not want it, and never will.
update millpond.submissions set status = 'over', over_at = millpond.clock(), due_at = null
where id = $1 and status = 'sending';

-- name: keep :maybe
-- What came of a part, and that there is no more to do. What was kept first stays: every attempt goes on with that. No row
-- where all about the job was forgotten by now.
update millpond.submissions
set kept = coalesce(kept, $2::jsonb), status = 'over', over_at = coalesce(over_at, millpond.clock()), due_at = null
where id = $1
returning kept;

-- name: hurry :exec
-- Something happened to this job: the reconciler is to look at once.
update millpond.submissions set due_at = millpond.clock() where job_id = $1 and due_at > millpond.clock();

-- name: hurry_over :exec
-- This job was parked just now: it may not have seen what the provider was done with meanwhile.
update millpond.submissions set due_at = millpond.clock()
where job_id = $1 and status = 'over' and due_at > millpond.clock();

-- name: take :many
-- Those of a provider that are due, each kept from the other reconcilers until the mark, with where its job is.
with picked as materialized (
    select id from millpond.submissions where due_at <= millpond.clock() and provider = $1
    order by due_at limit $2 for update skip locked
),
taken as (
    update millpond.submissions s set due_at = millpond.clock() + $3::interval, looks = s.looks + 1
    where s.id = any(array(select id from picked))
    returning s.id, s.tenant, s.job_id, s.run, s.status, s.prediction_id, s.looks, s.created_at, s.expires_at, s.due_at
)
select t.id, t.tenant, t.job_id, t.status, t.prediction_id, t.looks, t.due_at as mark,
    t.expires_at <= millpond.clock() as is_past, coalesce(j.phase, 'ended') = 'ended' or j.run <> t.run as is_ended,
    coalesce(j.phase, 'ended') as phase
from taken t
left join lateral (select j.phase, j.run from millpond.jobs j where j.id = t.job_id limit 1) j on true;

-- name: later :exec
-- Looks again after this time, and at the deadline at the latest. What was hurried meanwhile stays so.
update millpond.submissions s
set due_at = case
    when s.expires_at > millpond.clock() then least(millpond.clock() + $3::interval, s.expires_at)
    else millpond.clock() + $3::interval
end
where s.id = $1 and s.due_at = $2;

-- name: over :exec
-- Nothing more will come of it at the provider; its job is still to be told.
update millpond.submissions set status = 'over', over_at = coalesce(over_at, millpond.clock())
where id = $1 and status = 'running';

-- name: close :exec
-- There is no more to do. One that was sent and never answered stays unwanted: a callback may still name it.
update millpond.submissions
set status = case when prediction_id is null then 'unwanted' else 'over' end,
    over_at = case when prediction_id is null then null else coalesce(over_at, millpond.clock()) end,
    due_at = null
where id = $1 and prediction_id is not distinct from $2;

-- name: strangers :many
-- The providers that are not among these, and at whose submissions nobody has looked for so long.
select provider from millpond.submissions
where due_at < millpond.clock() - $2::interval and provider <> all($1::text[])
group by provider order by provider;

-- name: forsake :many
-- Closes those of providers that are not among these, whose job has ended and at which nobody has looked for so long.
update millpond.submissions s
set status = case when s.prediction_id is null then 'unwanted' else 'over' end,
    over_at = case when s.prediction_id is null then null else coalesce(s.over_at, millpond.clock()) end,
    due_at = null
where s.id = any(array(
    select o.id from millpond.submissions o
    where o.due_at < millpond.clock() - $2::interval and o.provider <> all($1::text[]) and not exists (
        select from millpond.jobs j where j.id = o.job_id and j.run = o.run and j.phase <> 'ended'
    )
    limit $3 for update skip locked
))
returning s.provider;

-- name: prune :many
delete from millpond.submissions s
where s.id = any(array(
    select id from millpond.submissions where due_at is null and created_at < millpond.clock() - $1::interval
    order by created_at limit $2 for update skip locked
))
returning id;
