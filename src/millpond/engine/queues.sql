-- Queues: how long the line is and whether it moves. Home: central.

-- name: pause :maybe
update millpond.queues set paused_at = coalesce(paused_at, millpond.clock()) where queue = $1 returning queue, paused_at;

-- name: resume :maybe
update millpond.queues set paused_at = null where queue = $1 returning queue, paused_at;

-- name: list :many
-- Depth is counted no further than a limit: a long line need not be measured exactly.
select q.queue, exists (select from millpond.kinds k where k.queue = q.queue and k.is_fair) as is_fair, q.paused_at,
    (select count(*) from (select from millpond.ready r where r.queue = q.queue limit $1) r) as depth
from millpond.queues q
order by q.queue;
