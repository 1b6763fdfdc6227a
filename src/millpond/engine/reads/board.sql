-- Board: problems with webhooks, for one tenant or for all. Database: tenant.

-- name: webhooks :one
-- How many deliveries of a tenant are pending, and how many of those have failed before. Counts no more than $2.
select count(*) as pending, count(*) filter (where d.tries > d.tries_before) as failing
from (
    select d.tries, d.tries_before from millpond.deliveries d where d.tenant = $1 and d.fate = 'pending' order by d.id limit $2
) d;

-- name: failing :many
-- Enabled endpoints whose deliveries fail.
select e.id, e.tenant, e.failing_since, millpond.clock() as present from millpond.endpoints e
where e.failing_since is not null and e.disabled_at is null and ($1::text is null or e.tenant = $1)
order by e.failing_since, e.id limit $2;
