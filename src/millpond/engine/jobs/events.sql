-- Events: what happened to each job, in order. Database: tenant.
-- Invariants: append-only; numbered 1..n per job, by a counter on the job's row, so a reader that saw n has seen
-- all up to n.

-- name: after :many
select seq, at, type, state, data from millpond.events
where job_id = $1 and tenant = $2 and seq > $3
order by seq
limit $4;

-- name: histories :many
-- A summary of the events of these jobs. A start does not count as an attempt if it continued a parked job with its
-- answer, or ended in an interruption.
select e.job_id, max(e.at) as changed_at, max(e.at) filter (where e.type = 'started') as started_at,
    sum(a.counted) as attempts, coalesce(sum(a.counted) filter (where e.seq > r.seq), 0) as attempts_since_retry
from unnest($1::uuid[]) as i(job_id)
cross join lateral (
    select coalesce(max(e.seq), 0) as seq from millpond.events e where e.job_id = i.job_id and e.type = 'retried'
) r
join millpond.events e on e.job_id = i.job_id and e.tenant = $2
cross join lateral (
    select case
        when e.type = 'started' then 1
        when e.type = 'answered' or e.type = 'requeued' and e.data ->> 'cause' = 'interruption' then -1
        else 0
    end as counted
) a
group by e.job_id;
