-- Estimates: queues, workers and past runs, from which the end of a job is estimated. Each query is bounded: the head
-- of a queue, the current leases, a fixed number of past runs for each kind.

-- name: line :maybe
-- The first jobs of a queue, in order, and whether the queue is paused. Database: central.
select millpond.clock() as present, q.paused_at is not null as is_paused, r.ranks, r.turns, r.job_ids
from millpond.queues q
cross join lateral (
    select coalesce(array_agg(r.rank), '{}') as ranks, coalesce(array_agg(r.turn), '{}') as turns,
        coalesce(array_agg(r.job_id), '{}') as job_ids
    from (
        select r.rank, r.turn, r.job_id from millpond.ready r where r.queue = q.queue
        order by r.rank, r.turn, r.job_id limit $2
    ) r
) r
where q.queue = $1;

-- name: leased :many
-- What workers hold, by queue and kind. It starts from the leases, so its cost depends on what is held, not on what
-- waits. Database: central.
select d.queue, d.kind, count(*) as jobs, array_agg(distinct l.worker) as workers,
    max(l.granted_at) as claimed_at, min(l.expires_at) as expires_at
from (
    select l.token, l.worker, l.granted_at, l.expires_at, unnest(l.job_ids) as job_id from millpond.leases l limit $1
) l
cross join lateral (
    select d.queue, d.kind from millpond.dispatches d where d.job_id = l.job_id and d.lease_token = l.token limit 1
) d
group by d.queue, d.kind;

-- name: durations :many
-- How long jobs of each kind ran lately, the shortest first. Database: tenant.
select kind, array_agg(seconds order by seconds) as seconds from millpond.durations group by kind;

-- name: learn :exec
-- Stores how long these jobs ran, each in its slot. Database: tenant.
insert into millpond.durations (kind, slot, seconds, ended_at)
select distinct on (j.kind, i.slot) j.kind, i.slot, extract(epoch from j.finished_at - j.started_at), j.finished_at
from unnest($1::uuid[], $2::smallint[]) as i(job_id, slot)
join millpond.jobs j on j.id = i.job_id
where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[])
    and j.outcome = 'succeeded' and j.started_at is not null
order by j.kind, i.slot  -- a fixed order, so that two processes cannot deadlock
on conflict (kind, slot) do update set seconds = excluded.seconds, ended_at = excluded.ended_at;
