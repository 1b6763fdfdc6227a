-- Videos: uploaded files and their jobs. Database: tenant.
-- Invariant: what a video shows of a job is read from the job. Reads for users are isolated twice, by the condition on
-- the tenant and by row-level security: a statement first sets its caller, in a subquery on which the rest depends, and
-- the role that reads for clients sees no other rows.

-- name: read :maybe
select v.id, v.tenant, v.account, v.original_file_id, v.title, v.job_ids, v.created_at
from (select set_config('millpond.callers', $1, true) as tenant offset 0) c
cross join lateral (
    select v.* from millpond.effects_videos v where v.id = $3 and v.tenant = c.tenant and v.account = $2 limit 1
) v;

-- name: list :many
-- Newest first, below an id.
select v.id, v.tenant, v.account, v.original_file_id, v.title, v.job_ids, v.created_at
from (select set_config('millpond.callers', $1, true) as tenant offset 0) c
cross join lateral (
    select v.* from millpond.effects_videos v
    where v.tenant = c.tenant and v.account = $2 and v.id < $3
    order by v.id desc limit $4
) v
order by v.id desc;

-- name: make :one
insert into millpond.effects_videos (id, tenant, account, original_file_id, title, created_at)
values ($1, $2, $3, $4, $5, millpond.clock())
returning id, tenant, account, original_file_id, title, job_ids, created_at;

-- name: link :exec
-- Adds a job that is about to be created. Its id has no effect until the job exists.
update millpond.effects_videos set job_ids = job_ids || $3::uuid where tenant = $1 and id = $2;

-- name: unlink :exec
-- Removes a job that was not created.
update millpond.effects_videos set job_ids = array_remove(job_ids, $3::uuid) where tenant = $1 and id = $2;
