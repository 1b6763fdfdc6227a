-- Predictions: what providers were asked to do for jobs, and its state. Database: tenant.
-- Invariants: the row is written before the provider is asked. A part of a job has at most one prediction that is held,
-- sending or running; one that another attempt replaces is unwanted, and is canceled at the provider as soon as its
-- external id is known. Every prediction that is not finished is due at some time: if a process dies, the reconciler
-- looks at it again. A stored result is final: whatever becomes of the attempt, the job gets the same result.

-- function: begin_prediction
-- The prediction that an attempt continues with for a part of its job: the one that is held or that the provider knows,
-- or a new one. One that an earlier attempt sent without receiving a response is unwanted from now on. No row if the
-- attempt has lost its job.
create or replace function millpond.begin_prediction(
    tenant text, job_id uuid, epoch integer, fresh uuid, provider text, part text, mark interval
) returns table (id uuid, status text, external_id text, seconds_left float8, looks integer, kept jsonb)
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
    where j.id = begin_prediction.job_id and j.tenant = begin_prediction.tenant and j.epoch = begin_prediction.epoch
        and j.phase = 'leased'
    for update;
    if job.run is null then
        return;
    end if;
    seconds := extract(epoch from job.expires_at - present);
    select s.id, s.status, s.external_id, s.looks, s.kept into found_ from millpond.predictions s
    where s.job_id = begin_prediction.job_id and s.run = job.run and s.part = begin_prediction.part
        and s.status <> 'unwanted'
    order by s.created_at desc, s.id desc limit 1  -- the database's clock: ids have that of the client
    for update;
    if found_.status = 'held' then
        update millpond.predictions s set status = 'sending', due_at = present + mark where s.id = found_.id;
        return query select found_.id, 'sending', null::text, seconds, found_.looks, null::jsonb;
    elsif found_.external_id is null then
        update millpond.predictions s set status = 'unwanted', due_at = present
        where s.job_id = begin_prediction.job_id and s.part = begin_prediction.part
            and s.status in ('held', 'sending', 'running');
        insert into millpond.predictions (id, tenant, job_id, run, part, provider, status, created_at, expires_at, due_at)
        values (
            fresh, begin_prediction.tenant, begin_prediction.job_id, job.run, begin_prediction.part,
            begin_prediction.provider, 'sending', present, job.expires_at, present + mark
        );
        return query select fresh, 'sending', null::text, seconds, 0, null::jsonb;
    else
        return query select found_.id, found_.status, found_.external_id, seconds, found_.looks, found_.kept;
    end if;
end $$;

-- name: begin :maybe
select id, status, external_id, seconds_left, looks, kept
from millpond.begin_prediction($1, $2, $3, $4, $5, $6, $7::interval);

-- name: sent :one
-- The provider has accepted it under this id. A prediction that is unwanted by now is canceled by that id.
update millpond.predictions
set external_id = coalesce(external_id, $2), status = case status when 'sending' then 'running' else status end,
    due_at = case status when 'sending' then millpond.clock() + $3::interval when 'over' then due_at else millpond.clock() end
where id = $1
returning status, external_id;

-- name: hold :exec
-- The provider takes no calls now: the prediction was not sent, and is due after this time, or at the deadline.
update millpond.predictions
set status = 'held', due_at = greatest(least(millpond.clock() + $2::interval, expires_at), millpond.clock())
where id = $1 and status = 'sending';

-- name: refuse :exec
-- The provider rejects it for good.
update millpond.predictions set status = 'over', over_at = millpond.clock(), due_at = null
where id = $1 and status = 'sending';

-- name: keep :maybe
-- Stores the result of a part, and that its prediction is finished. The first result stays: every attempt continues
-- with it. No row if the prediction was deleted by now.
update millpond.predictions
set kept = coalesce(kept, $2::jsonb), status = 'over', over_at = coalesce(over_at, millpond.clock()), due_at = null
where id = $1
returning kept;

-- name: poll_now :exec
-- Makes the predictions of this job due at once, because something happened to the job.
update millpond.predictions set due_at = millpond.clock() where job_id = $1 and due_at > millpond.clock();

-- name: poll_finished_now :exec
-- This job was parked just now, and may have missed predictions that were over by then.
update millpond.predictions set due_at = millpond.clock()
where job_id = $1 and status = 'over' and due_at > millpond.clock();

-- name: take :many
-- Claims due predictions of a provider, which keeps them from other reconcilers until the mark, and returns them with
-- the state of their job.
with picked as materialized (
    select id from millpond.predictions where due_at <= millpond.clock() and provider = $1
    order by due_at limit $2 for update skip locked
),
taken as (
    update millpond.predictions s set due_at = millpond.clock() + $3::interval, looks = s.looks + 1
    where s.id = any(array(select id from picked))
    returning s.id, s.tenant, s.job_id, s.run, s.status, s.external_id, s.looks, s.created_at, s.expires_at, s.due_at
)
select t.id, t.tenant, t.job_id, t.status, t.external_id, t.looks, t.due_at as mark,
    t.expires_at <= millpond.clock() as is_past, coalesce(j.phase, 'ended') = 'ended' or j.run <> t.run as is_ended,
    coalesce(j.phase, 'ended') as phase
from taken t
left join lateral (select j.phase, j.run from millpond.jobs j where j.id = t.job_id limit 1) j on true;

-- name: later :exec
-- Makes a prediction due after this time, or at the deadline. A look that was requested meanwhile stays requested.
update millpond.predictions s
set due_at = case
    when s.expires_at > millpond.clock() then least(millpond.clock() + $3::interval, s.expires_at)
    else millpond.clock() + $3::interval
end
where s.id = $1 and s.due_at = $2;

-- name: over :exec
-- The provider is done with it; its job is still to be answered.
update millpond.predictions set status = 'over', over_at = coalesce(over_at, millpond.clock())
where id = $1 and status = 'running';

-- name: close :exec
-- Finishes a prediction. One that was sent without a response stays unwanted: a callback may still provide its id.
update millpond.predictions
set status = case when external_id is null then 'unwanted' else 'over' end,
    over_at = case when external_id is null then null else coalesce(over_at, millpond.clock()) end,
    due_at = null
where id = $1 and external_id is not distinct from $2;

-- name: strangers :many
-- The providers, other than these, whose predictions have been due for longer than $2.
select provider from millpond.predictions
where due_at < millpond.clock() - $2::interval and provider <> all($1::text[])
group by provider order by provider;

-- name: close_abandoned :many
-- Finishes predictions that have been due for longer than $2, of providers other than these, if their job has ended.
update millpond.predictions s
set status = case when s.external_id is null then 'unwanted' else 'over' end,
    over_at = case when s.external_id is null then null else coalesce(s.over_at, millpond.clock()) end,
    due_at = null
where s.id = any(array(
    select o.id from millpond.predictions o
    where o.due_at < millpond.clock() - $2::interval and o.provider <> all($1::text[]) and not exists (
        select from millpond.jobs j where j.id = o.job_id and j.run = o.run and j.phase <> 'ended'
    )
    limit $3 for update skip locked
))
returning s.provider;

-- name: prune :many
delete from millpond.predictions s
where s.id = any(array(
    select id from millpond.predictions where due_at is null and created_at < millpond.clock() - $1::interval
    order by created_at limit $2 for update skip locked
))
returning id;
