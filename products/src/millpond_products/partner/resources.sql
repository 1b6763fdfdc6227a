-- Resources: what jobs make for a project, containers and influencers. Database: tenant.
-- Invariant: only the attempt that holds the job writes what it made. The final status is written in the transaction in
-- which the job ends (`partner_settle`), because the resource outlives the job.

-- name: link :exec
-- What a job that exists will make. Each response to the submission writes it; only the first one has an effect.
-- The job may have ended already; it does not end during this statement.
insert into millpond.partner_resources (id, tenant, account, project_id, job_id, kind, status, created_at)
select $1, $2, $3, $4, $5, $6, millpond.final_state($5, $2), millpond.clock()
on conflict (id) do nothing;

-- name: keep :maybe
-- Stores what the job has made, if this attempt holds it. No row: it no longer does. If another job for the same order
-- was not completed, the resource now belongs to this one.
with held as materialized (
    select j.id, j.account, j.created_at from millpond.lock_attempt($1, $2, $3) j
),
kept as (
    insert into millpond.partner_resources as r (id, tenant, account, project_id, job_id, kind, made, created_at)
    select $4, $2, h.account, $5, h.id, $6, $7::jsonb, h.created_at from held h
    on conflict (id) do update set made = excluded.made, job_id = excluded.job_id, status = null
    where r.status is distinct from 'completed'
)
select h.id as job_id from held h;

-- name: read :maybe
select r.id, r.tenant, r.account, r.project_id, r.job_id, r.kind, r.made, r.created_at, r.status
from (select set_config('millpond.callers', $1, true) as tenant offset 0) c
cross join lateral (
    select r.* from millpond.partner_resources r
    where r.id = $4 and r.tenant = c.tenant and r.account = $2 and r.project_id = $3 and r.kind = $5 limit 1
) r;

-- name: list :many
-- Newest first, below an id.
select r.id, r.tenant, r.account, r.project_id, r.job_id, r.kind, r.made, r.created_at, r.status
from (select set_config('millpond.callers', $1, true) as tenant offset 0) c
cross join lateral (
    select r.* from millpond.partner_resources r
    where r.tenant = c.tenant and r.account = $2 and r.project_id = $3 and r.kind = $4 and r.id < $5
    order by r.id desc limit $6
) r
order by r.id desc;
