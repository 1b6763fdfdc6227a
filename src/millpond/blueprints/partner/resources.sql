-- Resources: what jobs make for a project, containers and influencers. Home: tenant.
-- Invariant: only the attempt that holds the job writes what it made. Whether that counts is written in the transaction
-- in which the job ends (`partner_settle`), for the resource is there when nobody knows the job any more.

-- name: link :exec
-- What a job that exists will make. Whoever answers for the job writes it: who comes second changes nothing.
-- It may have ended before; while this looks it does not end.
with job as materialized (
    select j.state, j.phase from millpond.jobs j where j.id = $5 and j.tenant = $2 for share
)
insert into millpond.partner_resources (id, tenant, account, project_id, job_id, kind, status, created_at)
select $1, $2, $3, $4, $5, $6, (select j.state from job j where j.phase = 'ended'), millpond.clock()
on conflict (id) do nothing;

-- name: keep :maybe
-- What the job has made, while this attempt at it holds it; no row: it does not any more. Where another job at the same
-- order came to nothing, this one is the one that makes it.
with held as materialized (
    select j.id, j.account, j.created_at from millpond.jobs j
    where j.id = $1 and j.tenant = $2 and j.epoch = $3 and j.phase = 'leased' for update
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
-- The newest first, below an id.
select r.id, r.tenant, r.account, r.project_id, r.job_id, r.kind, r.made, r.created_at, r.status
from (select set_config('millpond.callers', $1, true) as tenant offset 0) c
cross join lateral (
    select r.* from millpond.partner_resources r
    where r.tenant = c.tenant and r.account = $2 and r.project_id = $3 and r.kind = $4 and r.id < $5
    order by r.id desc limit $6
) r
order by r.id desc;
