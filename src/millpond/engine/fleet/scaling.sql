-- Scaling: the workers of each route. Database: central.

-- name: routes :many
-- The live workers of each route by status, and the slots of those that take jobs; without unready ones. Its cost depends on what is
-- registered and held, not on what waits.
with held as materialized (
    select distinct l.worker from millpond.leases l
    cross join unnest(l.job_ids) as j(job_id)
    cross join lateral (
        select from millpond.dispatches d where d.job_id = j.job_id and d.lease_token = l.token limit 1
    ) d
    where l.worker like 'worker\_%' and length(l.worker) = 33
),
worker as (
    select r.route, w.slots, w.draining_at is not null as is_draining, h.worker is not null as is_busy
    from millpond.worker_routes r
    join millpond.workers w on w.id = r.worker_id
    left join held h on h.worker = w.id
    where w.approved_at is not null and w.revoked_at is null and w.unready_at is null
        and w.heard_at > millpond.clock() - $1::interval
)
select q.queue as route,
    count(*) filter (where w.is_draining) as draining,
    count(*) filter (where w.is_busy and not w.is_draining) as busy,
    count(*) filter (where not w.is_busy and not w.is_draining) as idle,
    coalesce(sum(w.slots) filter (where not w.is_draining), 0) as slots
from millpond.queues q
left join worker w on w.route = q.queue
where q.is_route
group by q.queue
order by q.queue;
