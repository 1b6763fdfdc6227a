-- Streams: the changes of watched jobs. Database: tenant.
-- One statement serves the watches of many tenants: each job is looked up with its tenant, and found under no other.
-- A watch without a tenant may see all jobs.

-- name: look :many
-- The jobs whose number of events is not the known one. A job that does not exist has null columns.
select i.n, j.events, j.state, j.outcome, j.phase = 'ended' as is_ended
from unnest($1::uuid[], $2::text[], $3::integer[]) with ordinality as i(job_id, tenant, known, n)
left join (
    select j.id, j.tenant, j.events, j.state, j.outcome, j.phase from millpond.jobs j
    where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[])
) j on j.id = i.job_id and (i.tenant is null or j.tenant = i.tenant)
where j.id is null or j.events <> i.known;

-- name: after :many
-- The first events of each job after the seen number, in order.
select i.n, e.seq, e.at, e.type, e.state, e.data
from unnest($1::uuid[], $2::text[], $3::integer[]) with ordinality as i(job_id, tenant, seen, n)
cross join lateral (
    select e.seq, e.at, e.type, e.state, e.data from millpond.events e
    where e.job_id = i.job_id and (i.tenant is null or e.tenant = i.tenant) and e.seq > i.seen
    order by e.seq limit $4
) e
order by i.n, e.seq;

-- name: ended :many
-- The ended jobs with their output, for forms whose last frame contains it.
select i.n, j.events, j.state, j.outcome, j.output
from unnest($1::uuid[], $2::text[]) with ordinality as i(job_id, tenant, n)
join (
    select j.id, j.tenant, j.events, j.state, j.outcome, j.output, j.phase from millpond.jobs j
    where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[])
) j on j.id = i.job_id and (i.tenant is null or j.tenant = i.tenant)
where j.phase = 'ended';
