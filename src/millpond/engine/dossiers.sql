-- Dossiers: a job with all that belongs to it. Each look is by an index, and stops somewhere.

-- name: events :many
-- The first and the last events of a job, so many at each end; of their data no more than a timeline needs. Home: tenant.
select e.seq, e.at, e.type, e.data ->> 'stage' as stage, e.data ->> 'cause' as cause, e.data -> 'error' ->> 'code' as code
from millpond.events e
where e.job_id = $1 and e.tenant = $2 and e.seq <= $4
union all
select e.seq, e.at, e.type, e.data ->> 'stage', e.data ->> 'cause', e.data -> 'error' ->> 'code'
from millpond.events e
where e.job_id = $1 and e.tenant = $2 and e.seq > greatest($4, $3 - $4) and e.seq <= $3
order by seq;

-- name: entries :many
-- The money of a job: its holds, what became of them, and what was given back later, which is known by how its
-- references begin. Home: tenant.
select e.seq, e.at, e.type, e.available, e.held, e.outside, e.available_after, e.held_after, e.job_id, e.run, e.reference,
    e.reason
from (
    (select e.* from millpond.entries e where e.job_id = $1 and e.type = 'hold' order by e.run desc limit $3)
    union all
    (select e.* from millpond.entries e where e.job_id = $1 and e.type in ('capture', 'release') order by e.run desc limit $3)
    union all
    (
        select e.* from millpond.entries e
        where e.tenant = $2 and e.account = $4 and e.reference > $5 and e.reference < $5 || ';' and e.job_id = $1
        order by e.reference limit $3
    )
) e
where e.tenant = $2
order by e.seq;

-- name: submissions :many
-- What providers were asked to do for a job, the first first. Home: tenant.
select s.id as submission_id, s.provider, s.prediction_id, s.status, s.part, s.run, s.created_at, s.over_at
from millpond.submissions s where s.job_id = $1 and s.tenant = $2
order by s.created_at, s.id limit $3;

-- name: retries :many
-- The jobs that were made from this one, among so many of its account that came next: no index knows of them. Home: tenant.
select j.id as job_id
from (
    select j.id, j.retry_of from millpond.jobs j where j.tenant = $2 and j.account = $3 and j.id > $1 order by j.id limit $4
) j
where j.retry_of = $1
order by j.id;

-- name: holder :maybe
-- Who holds a job now. Home: central.
select l.worker, d.epoch from millpond.dispatches d join millpond.leases l on l.token = d.lease_token where d.job_id = $1;

-- name: leased_to :many
-- To which workers of the fleet a job was leased, at about these times and under these epochs: the audit has a line for
-- each. Home: central.
select i.epoch, a.worker
from unnest($3::timestamptz[], $4::integer[]) as i(at, epoch)
cross join lateral (
    select a.actor as worker from millpond.audit a
    where a.tenant = $1 and a.id >= millpond.first_id(i.at - $5::interval) and a.id < millpond.first_id(i.at + $5::interval)
        and a.subject = $2 and a.action = 'job.leased' and a.data ->> 'epoch' = i.epoch::text
    limit 1
) a;

-- name: names :many
-- What workers of the fleet are called. Home: central.
select w.id, w.worker from millpond.workers w where w.id = any($1::text[]);
