-- Admin: the queue as operators see it. Home: central.

-- name: dispatches :many
-- What is known of jobs that have not ended, and who holds them.
select d.job_id, d.lease_token, l.expires_at as lease_expires_at, l.worker
from millpond.dispatches d
left join millpond.leases l on l.token = d.lease_token
where d.job_id = any($1::uuid[]);
