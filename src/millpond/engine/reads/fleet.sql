-- Fleet: what each worker is doing.

-- name: held :many
-- The jobs that workers hold now, at most $1. Database: central.
select l.worker, d.job_id, d.tenant, d.kind, l.granted_at
from (
    select l.worker, l.token, l.granted_at, unnest(l.job_ids) as job_id from millpond.leases l limit $1
) l
cross join lateral (
    select d.job_id, d.tenant, d.kind from millpond.dispatches d where d.job_id = l.job_id and d.lease_token = l.token limit 1
) d
order by l.granted_at, d.job_id;

-- name: doing :many
-- The stage and progress of these jobs. Database: tenant.
select j.id as job_id, j.stage, j.progress::numeric::float8 as progress from millpond.jobs j
where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[]);

-- name: clock :one
select millpond.clock() as present;
