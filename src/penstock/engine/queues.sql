-- Queues: how long the line is and whether it moves. Home: central.

-- name: pause :maybe
update penstock.queues set paused_at = coalesce(paused_at, penstock.clock()) where queue = $1 returning queue, paused_at;

-- name: resume :maybe
update penstock.queues set paused_at = null where queue = $1 returning queue, paused_at;

-- name: list :many
-- Depth is counted no further than a limit: a long line need not be measured exactly.
select q.queue, exists (select from penstock.kinds k where k.queue = q.queue and k.is_fair) as is_fair, q.paused_at,
    (select count(*) from (select from penstock.ready r where r.queue = q.queue limit $1) r) as depth
from penstock.queues q
order by q.queue;
