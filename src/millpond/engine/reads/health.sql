-- Health: the state of each queue, and the workers that hold leases. Counts stop at a limit, and nothing reads history.

-- name: queues :many
-- The length of each queue, and the first job of each rank, which has waited longest. Database: central.
select q.queue, q.paused_at, millpond.clock() as present,
    (select count(*) from (select from millpond.ready r where r.queue = q.queue limit $1) r) as ready,
    array(
        with recursive head as (
            (select r.rank, r.job_id from millpond.ready r where r.queue = q.queue order by r.rank, r.turn, r.job_id limit 1)
            union all
            select r.rank, r.job_id from head h cross join lateral (
                select r.rank, r.job_id from millpond.ready r
                where r.queue = q.queue and r.rank > h.rank order by r.rank, r.turn, r.job_id limit 1
            ) r
        ) select job_id from head
    ) as heads
from millpond.queues q
order by q.queue;

-- name: aside :many
-- How many jobs wait for a time or an answer. Each of them has `wakes_at`, at which a service looks at it. Database:
-- central.
select d.queue, count(*) filter (where d.phase = 'waiting') as waiting, count(*) filter (where d.phase = 'parked') as parked
from (
    select d.queue, d.phase from millpond.dispatches d where d.wakes_at is not null order by d.wakes_at limit $1
) d
group by d.queue;

-- name: serving :many
-- The live workers that take jobs of each queue. Database: central.
select s.queue, array_agg(w.id) as workers
from millpond.workers w
cross join lateral (
    select unnest(w.queues) as queue
    union all
    select r.route from millpond.worker_routes r where r.worker_id = w.id
) s
where w.approved_at is not null and w.draining_at is null and w.revoked_at is null
    and w.heard_at > millpond.clock() - coalesce(w.silence, $1::interval)
group by s.queue;

-- name: joined :many
-- When these jobs became ready: the time of the last event of a ready job, except changes of its priority. Database:
-- tenant.
select j.id as job_id, e.at
from millpond.jobs j
cross join lateral (
    select e.at from millpond.events e where e.job_id = j.id and e.type <> 'prioritized' order by e.seq desc limit 1
) e
where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[]);

-- name: workers :many
-- The workers that hold leases, with the jobs that they still hold. Database: central.
select l.worker, count(distinct l.token) as leases, count(d.job_id) as jobs,
    max(l.granted_at) as granted_at, min(l.expires_at) as expires_at
from (
    select l.worker, l.token, l.granted_at, l.expires_at, unnest(l.job_ids) as job_id from millpond.leases l limit $1
) l
left join lateral (
    select d.job_id from millpond.dispatches d where d.job_id = l.job_id and d.lease_token = l.token limit 1
) d on true
group by l.worker
order by l.worker;

-- name: flow :many
-- Of the newest jobs, by queue: how many were submitted and how many ended in the last one and five minutes. The walk
-- is along the primary key, whose ids contain their time, and it ends after $2 jobs: then `since` is the time that it
-- came to. Database: tenant.
with event as materialized (select millpond.clock() as present),
newest as materialized (
    select j.queue, j.created_at, j.finished_at from millpond.jobs j where j.id >= $1::uuid order by j.id desc limit $2::integer
)
select n.queue, m.present, (select count(*) from newest) as walked, (select min(w.created_at) from newest w) as since,
    count(*) filter (where n.created_at > m.present - interval '1 minute') as in_1m,
    count(*) filter (where n.created_at > m.present - interval '5 minutes') as in_5m,
    count(*) filter (where n.finished_at > m.present - interval '1 minute') as out_1m,
    count(*) filter (where n.finished_at > m.present - interval '5 minutes') as out_5m
from newest n cross join event m
group by n.queue, m.present;
