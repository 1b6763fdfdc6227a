-- Health: how each queue is doing, and who works. Counts stop at a limit, and none looks at history.

-- name: queues :many
-- The length of each line and the heads of its ranks, which have waited longest. Home: central.
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
-- How many jobs wait for a time or an answer: each of them has a moment at which a service looks at it. Home: central.
select d.queue, count(*) filter (where d.phase = 'waiting') as waiting, count(*) filter (where d.phase = 'parked') as parked
from (
    select d.queue, d.phase from millpond.dispatches d where d.wakes_at is not null order by d.wakes_at limit $1
) d
group by d.queue;

-- name: joined :many
-- When these jobs joined the line: the last thing that happened to a job that is ready, but for another place in it.
-- Home: tenant.
select j.id as job_id, e.at
from millpond.jobs j
cross join lateral (
    select e.at from millpond.events e where e.job_id = j.id and e.type <> 'prioritized' order by e.seq desc limit 1
) e
where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[]);

-- name: workers :many
-- Those who hold leases, with what they still hold. Home: central.
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
