-- Lab: what a test asks about all tenants at once. Home: tenant, and central for what is still to come.

-- name: jobs :many
select j.tenant, j.id as job_id from millpond.jobs j order by j.id;

-- name: tenant :maybe
select j.tenant from millpond.jobs j where j.id = $1;

-- name: next_wake :one
-- When something happens by itself: a job's time or deadline comes, or a lease runs out.
select least(
    (select min(d.wakes_at) from millpond.dispatches d where d.wakes_at > millpond.clock()),
    (select min(l.expires_at) from millpond.leases l where l.expires_at > millpond.clock())
) as at;
