-- Queues: their depth, and whether they are paused. Database: central.

-- name: pause :maybe
update millpond.queues set paused_at = coalesce(paused_at, millpond.clock()) where queue = $1 returning queue, paused_at;

-- name: resume :maybe
update millpond.queues set paused_at = null where queue = $1 returning queue, paused_at;

-- name: list :many
-- Depth is counted up to a limit: a long queue need not be counted exactly.
select q.queue, exists (select from millpond.kinds k where k.queue = q.queue and k.is_fair) as is_fair, q.paused_at,
    (select count(*) from (select from millpond.ready r where r.queue = q.queue limit $1) r) as depth
from millpond.queues q
order by q.queue;
