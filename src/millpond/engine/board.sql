-- Board: what is amiss with webhooks, for one tenant or for all. Home: tenant.

-- name: webhooks :one
-- How many deliveries of a tenant are pending, and how many of them have failed before; beyond this many it does not count.
select count(*) as pending, count(*) filter (where d.tries > d.tries_before) as failing
from (
    select d.tries, d.tries_before from millpond.deliveries d where d.tenant = $1 and d.fate = 'pending' order by d.id limit $2
) d;

-- name: failing :many
-- Endpoints that take nothing.
select e.id, e.tenant, e.failing_since, millpond.clock() as present from millpond.endpoints e
where e.failing_since is not null and e.disabled_at is null and ($1::text is null or e.tenant = $1)
order by e.failing_since, e.id limit $2;
