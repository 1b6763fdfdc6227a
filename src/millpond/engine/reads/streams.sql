-- Streams: the changes of watched jobs. Database: tenant.
-- One statement serves the watches of many tenants: each job is looked up with its tenant, and found under no other.
-- A watch without a tenant may see all jobs.

-- name: look :many
-- The jobs whose number of events is not the known one, and which of them may emit more text: a job that begins to does
-- so with an event. A job that does not exist has null columns.
select i.n, j.events, j.state, j.outcome, j.phase = 'ended' as is_ended,
    j.phase = 'leased' and exists (select from millpond.chunks c where c.job_id = j.id) as is_emitting
from unnest($1::uuid[], $2::text[], $3::integer[]) with ordinality as i(job_id, tenant, known, n)
left join (
    select j.id, j.tenant, j.events, j.state, j.outcome, j.phase from millpond.jobs j
    where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[])
) j on j.id = i.job_id and (i.tenant is null or j.tenant = i.tenant)
where j.id is null or j.events <> i.known;

-- name: after :many
-- The first events of each job after the seen position, in order, and the chunks between them if they are wanted. A
-- chunk has the number of the event before it and one of its own; an event has the chunk number 0.
select i.n, f.seq, f.number, f.at, f.type, f.state, f.data
from unnest($1::uuid[], $2::text[], $3::integer[], $4::integer[], $5::boolean[]) with ordinality
    as i(job_id, tenant, seen, seen_chunk, with_chunks, n)
cross join lateral (
    (
        select e.seq, 0 as number, e.at, e.type, e.state, e.data::text as data from millpond.events e
        where e.job_id = i.job_id and (i.tenant is null or e.tenant = i.tenant) and e.seq > i.seen
        order by e.seq limit $6
    )
    union all
    (
        select c.after, c.number, c.at, null, null, c.text from millpond.chunks c
        where i.with_chunks and c.job_id = i.job_id and (i.tenant is null or c.tenant = i.tenant)
            and (c.after, c.number) > (i.seen, i.seen_chunk)
        order by c.after, c.number limit $6
    )
    order by seq, number limit $6
) f
order by i.n, f.seq, f.number;

-- name: ended :many
-- The ended jobs with their output, for forms whose last frame contains it.
select i.n, j.events, j.state, j.outcome, j.output
from unnest($1::uuid[], $2::text[]) with ordinality as i(job_id, tenant, n)
join (
    select j.id, j.tenant, j.events, j.state, j.outcome, j.output, j.phase from millpond.jobs j
    where j.id = any($1::uuid[]) and j.id >= millpond.least_id($1::uuid[]) and j.id <= millpond.greatest_id($1::uuid[])
) j on j.id = i.job_id and (i.tenant is null or j.tenant = i.tenant)
where j.phase = 'ended';
