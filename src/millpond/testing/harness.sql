-- Harness: queries of tests over all tenants. Database: tenant, and central for the two last ones.

-- name: jobs :many
select j.tenant, j.id as job_id from millpond.jobs j order by j.id;

-- name: tenant :maybe
select j.tenant from millpond.jobs j where j.id = $1;

-- name: next_wake :one
-- The next time at which something is due: a start time, a deadline, the end of a lease, or a schedule.
select least(
    (select min(s.next_at) from millpond.schedules s where s.next_at > millpond.clock()),
    (select min(d.wakes_at) from millpond.dispatches d where d.wakes_at > millpond.clock()),
    (select min(l.expires_at) from millpond.leases l where l.expires_at > millpond.clock())
) as at;

-- name: forget_schedules :exec
delete from millpond.schedules where source = 'code';
