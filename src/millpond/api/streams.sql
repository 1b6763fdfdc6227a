-- Streams: what is new about the jobs that somebody watches. Home: tenant.
-- One statement serves the watchers of many tenants: each job is asked for with its tenant, and found under it alone.
-- A watcher without a tenant may see all.

-- name: look :many
-- The jobs that have more events than are known of them, and, without any, those that are not there.
select i.n, j.events, j.state, j.outcome, j.phase = 'ended' as is_ended
from unnest($1::uuid[], $2::text[], $3::integer[]) with ordinality as i(job_id, tenant, known, n)
left join (
    select j.id, j.tenant, j.events, j.state, j.outcome, j.phase from millpond.jobs j
    where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[])
) j on j.id = i.job_id and (i.tenant is null or j.tenant = i.tenant)
where j.id is null or j.events <> i.known;

-- name: after :many
-- The first events of each job after the number that was seen, in order.
select i.n, e.seq, e.at, e.type, e.state, e.data
from unnest($1::uuid[], $2::text[], $3::integer[]) with ordinality as i(job_id, tenant, seen, n)
cross join lateral (
    select e.seq, e.at, e.type, e.state, e.data from millpond.events e
    where e.job_id = i.job_id and (i.tenant is null or e.tenant = i.tenant) and e.seq > i.seen
    order by e.seq limit $4
) e
order by i.n, e.seq;

-- name: ended :many
-- How jobs ended, with what came of them: for those who tell that at the end.
select i.n, j.events, j.state, j.outcome, j.output
from unnest($1::uuid[], $2::text[]) with ordinality as i(job_id, tenant, n)
join (
    select j.id, j.tenant, j.events, j.state, j.outcome, j.output, j.phase from millpond.jobs j
    where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[])
) j on j.id = i.job_id and (i.tenant is null or j.tenant = i.tenant)
where j.phase = 'ended';
