-- Fires: what schedules did at their due times. Database: central, and tenant for the states of jobs.
-- Invariants: of the fires of a schedule, at most one for each due time is pending or submitted; a submitted one names
-- its job. A pending fire is committed before its job, with the id and the idempotency key that the job will have, so
-- whichever process submits it, and however often, it is one job.

-- fragment: columns
f.id as fire_id, f.schedule_id, f.tenant, f.due_at, f.cause, f.outcome, f.job_id, f.reason, f.message, f.until, f.times,
    f.actor, f.tries, f.at

-- name: due :many
-- Locks schedules that fire now, but for those that another process decides on. The kinds are those of this process.
select {schedules.columns}, millpond.clock() as present from millpond.schedules s
where s.next_at <= (select millpond.clock()) and s.kind = any($1::text[])
order by s.next_at limit $2 for update skip locked;

-- name: move :exec
-- Moves schedules to their next due times; none if there is none.
update millpond.schedules s set due_at = i.due_at, next_at = i.next_at
from unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[]) as i(schedule_id, due_at, next_at)
where s.id = i.schedule_id;

-- name: decide :many
-- Writes fires in this order. A due time that has a job, or will have one, gets no second one. $12 is how long the
-- caller has to submit what is pending.
insert into millpond.fires as f (
    id, schedule_id, tenant, due_at, cause, outcome, job_id, reason, message, until, times, actor, key, tries, try_at, at
)
select millpond.uuid7(), i.schedule_id, i.tenant, i.due_at, $10, case when i.job_id is null then 'skipped' else 'pending' end,
    i.job_id, i.reason, i.message, i.until, i.times, $11, $13, case when i.job_id is not null then 1 end,
    case when i.job_id is not null then t.present + $12::interval end, t.present
from unnest(
    $1::uuid[], $2::text[], $3::timestamptz[], $4::uuid[], $5::text[], $6::text[], $7::timestamptz[], $8::integer[], $9::integer[]
) as i(schedule_id, tenant, due_at, job_id, reason, message, until, times, n)
cross join millpond.clock() as t(present)
order by i.n
on conflict do nothing
returning {fires.columns};

-- name: take :many
-- Takes over pending fires whose process has not submitted them in time, for a while.
update millpond.fires f set try_at = millpond.clock() + $3::interval, tries = least(f.tries + 1, 1000)
where f.id = any(array(
    select p.id from millpond.fires p join millpond.schedules s on s.id = p.schedule_id
    where p.try_at <= (select millpond.clock()) and s.kind = any($1::text[])
    order by p.try_at, p.id limit $2 for update of p skip locked
))
returning {fires.columns};

-- name: previous :many
-- For each of these fires, the one before it of the same schedule that has submitted a job, or is about to.
select i.fire_id, p.outcome, p.job_id
from unnest($1::uuid[], $2::uuid[]) as i(fire_id, schedule_id)
cross join lateral (
    select f.outcome, f.job_id from millpond.fires f
    where f.schedule_id = i.schedule_id and f.id < i.fire_id and f.outcome in ('pending', 'submitted')
    order by f.id desc limit 1
) p;

-- name: settle :many
-- Records what came of pending fires. That a job exists is recorded in any case: the process that submitted it may have
-- been slower than one that took the fire over.
update millpond.fires f
set outcome = i.outcome, job_id = i.job_id, reason = i.reason, message = i.message, tries = null, try_at = null
from unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::text[]) as i(fire_id, outcome, job_id, reason, message)
where f.id = i.fire_id and (
    f.outcome = 'pending'
    or i.outcome = 'submitted' and f.outcome <> 'submitted' and not exists (
        select from millpond.fires o
        where o.schedule_id = f.schedule_id and o.due_at = f.due_at and o.outcome in ('pending', 'submitted')
    )
)
returning f.id as fire_id, f.outcome, millpond.clock() as present;

-- name: postpone :exec
-- Lets pending fires be tried again after a while: the database of their tenant cannot be reached.
update millpond.fires f set try_at = millpond.clock() + i.delay
from unnest($1::uuid[], $2::interval[]) as i(fire_id, delay)
where f.id = i.fire_id and f.outcome = 'pending';

-- name: read :maybe
select {fires.columns} from millpond.fires f where f.id = $1;

-- name: known :maybe
-- The fire that was requested with a key.
select {fires.columns} from millpond.fires f
where f.schedule_id = $1 and f.key = $2 and f.outcome in ('pending', 'submitted');

-- name: list :many
-- The fires of a schedule below an id, the last one first.
select {fires.columns} from millpond.fires f
where f.schedule_id = $1 and f.id < $2 and ($3::text is null or f.outcome = $3)
order by f.id desc limit $4;

-- name: last :many
-- The last fire of each of these schedules.
select {fires.columns}
from unnest($1::uuid[]) as i(schedule_id)
cross join lateral (
    select l.* from millpond.fires l where l.schedule_id = i.schedule_id order by l.id desc limit 1
) f;

-- name: prune :many
-- Deletes fires that are old enough, a limited number at a time.
delete from millpond.fires f
where f.id = any(array(
    select o.id from millpond.fires o
    where o.id < (select millpond.first_id(millpond.clock() - $1::interval)) and o.outcome <> 'pending'
    order by o.id limit $2
))
returning f.id;

-- name: submitted :many
-- Fires that have submitted a job with at least this id, above an id.
select f.id as fire_id, f.schedule_id, f.tenant, f.due_at, f.job_id from millpond.fires f
where f.outcome = 'submitted' and f.job_id >= $1 and f.id > $2
order by f.id limit $3;

-- name: missing :one
-- How many of these due times of a schedule have no job, and will have none.
select count(*) as due_times from unnest($2::timestamptz[]) as i(due_at)
where not exists (
    select from millpond.fires f
    where f.schedule_id = $1 and f.due_at = i.due_at and f.outcome in ('pending', 'submitted')
);

-- name: keys :many
-- Jobs with at least this id, above another id, that schedules have submitted within a day. The key of each begins with
-- the id of its schedule. Database: tenant.
select k.job_id, k.tenant, split_part(k.key, ':', 1) as schedule_id from millpond.idempotency k
where k.scope = '#schedules' and k.created_at > millpond.clock() - interval '1 day' and k.job_id >= $1 and k.job_id > $2
order by k.job_id limit $3;

-- name: unrecorded :many
-- Those of these jobs that no fire of their schedule names. Database: central.
select i.job_id, i.tenant, s.name
from unnest($1::uuid[], $2::text[], $3::text[]) as i(job_id, tenant, schedule_id)
join millpond.schedules s on s.id::text = i.schedule_id
where not exists (
    select from millpond.fires f
    where f.schedule_id = s.id and f.tenant = i.tenant and f.job_id = i.job_id and f.outcome in ('pending', 'submitted')
)
order by i.job_id;

-- name: states :many
-- The states of these jobs. Database: tenant.
select j.id as job_id, j.state, j.phase, j.outcome, j.started_at, j.finished_at from millpond.jobs j
where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[]);
