-- Details: a job with everything that belongs to it. Each query uses an index and is bounded.

-- name: events :many
-- The first and the last $4 events of a job, with only the data that a timeline needs. Database: tenant.
select e.seq, e.at, e.type, e.data ->> 'stage' as stage, e.data ->> 'cause' as cause, e.data -> 'error' ->> 'code' as code
from millpond.events e
where e.job_id = $1 and e.tenant = $2 and e.seq <= $4
union all
select e.seq, e.at, e.type, e.data ->> 'stage', e.data ->> 'cause', e.data -> 'error' ->> 'code'
from millpond.events e
where e.job_id = $1 and e.tenant = $2 and e.seq > greatest($4, $3 - $4) and e.seq <= $3
order by seq;

-- name: entries :many
-- The ledger entries of a job: its holds, their captures and releases, and its refunds, which are found by how their
-- references begin ($5). Database: tenant.
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

-- name: waking :one
-- The end of the next sleep of a run of a job. Database: tenant.
select min(s.due_at) as at from millpond.steps s
where s.job_id = $1 and s.run = $2 and s.type = 'sleep' and s.due_at > millpond.clock();

-- name: predictions :many
-- What providers were asked to do for a job, the oldest first. Database: tenant.
select s.id as prediction_id, s.provider, s.external_id, s.status, s.part, s.run, s.created_at, s.over_at
from millpond.predictions s where s.job_id = $1 and s.tenant = $2
order by s.created_at, s.id limit $3;

-- name: retries :many
-- The retries of this job, among the next $4 jobs of its account: no index has them. Database: tenant.
select j.id as job_id
from (
    select j.id, j.retry_of from millpond.jobs j where j.tenant = $2 and j.account = $3 and j.id > $1 order by j.id limit $4
) j
where j.retry_of = $1
order by j.id;

-- name: holder :maybe
-- The worker that holds a job now. Database: central.
select l.worker, d.epoch from millpond.dispatches d join millpond.leases l on l.token = d.lease_token where d.job_id = $1;

-- name: leased_to :many
-- The fleet workers to which a job was leased, at about these times and with these epochs: the audit has a record of
-- each lease. Database: central.
select i.epoch, a.worker
from unnest($3::timestamptz[], $4::integer[]) as i(at, epoch)
cross join lateral (
    select a.actor as worker from millpond.audit a
    where a.tenant = $1 and a.id >= millpond.first_id(i.at - $5::interval) and a.id < millpond.first_id(i.at + $5::interval)
        and a.subject = $2 and a.action = 'job.leased' and a.data ->> 'epoch' = i.epoch::text
    limit 1
) a;

-- name: names :many
-- The names of fleet workers. Database: central.
select w.id, w.worker from millpond.workers w where w.id = any($1::text[]);
