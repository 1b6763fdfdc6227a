-- Videos: what a user uploaded, and the jobs that were made of it. Home: tenant.
-- Invariant: what a video shows of a job is read from the job. What a user reads goes through both walls: a statement
-- first names its caller, by a subquery on which all the rest waits, and the role that reads for clients sees no other.

-- name: read :maybe
select v.id, v.tenant, v.account, v.original_file_id, v.title, v.job_ids, v.created_at
from (select set_config('millpond.callers', $1, true) as tenant offset 0) c
cross join lateral (
    select v.* from millpond.effects_videos v where v.id = $3 and v.tenant = c.tenant and v.account = $2 limit 1
) v;

-- name: list :many
-- The newest first, below an id.
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
-- A job that may be about to be: its id counts from when it exists.
update millpond.effects_videos set job_ids = job_ids || $3::uuid where tenant = $1 and id = $2;

-- name: unlink :exec
-- A job that will not be.
update millpond.effects_videos set job_ids = array_remove(job_ids, $3::uuid) where tenant = $1 and id = $2;
