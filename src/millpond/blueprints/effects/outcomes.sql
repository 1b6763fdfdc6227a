-- Outcomes: what happened to jobs, as far as their rows do not tell. Home: tenant.

-- name: leased :many
-- How often jobs were handed out, but for when they were given back, and when for the last time.
select e.job_id, max(e.at) filter (where e.type = 'started') as leased_at,
    count(*) filter (where e.type = 'started')
        - count(*) filter (where e.type = 'requeued' and e.data ->> 'cause' = 'interruption') as attempts
from millpond.events e
where e.job_id = any($1::uuid[]) and e.type in ('started', 'requeued')
group by e.job_id;
