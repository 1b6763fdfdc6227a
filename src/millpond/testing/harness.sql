-- Harness: queries of tests over all tenants. Database: tenant, and central for next_wake.

-- name: jobs :many
select j.tenant, j.id as job_id from millpond.jobs j order by j.id;

-- name: tenant :maybe
select j.tenant from millpond.jobs j where j.id = $1;

-- name: next_wake :one
-- The next time at which something is due: a start time, a deadline, or the end of a lease.
select least(
    (select min(d.wakes_at) from millpond.dispatches d where d.wakes_at > millpond.clock()),
    (select min(l.expires_at) from millpond.leases l where l.expires_at > millpond.clock())
) as at;
