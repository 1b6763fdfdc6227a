-- Studio_jobs: the jobs of the studio contract, as far as the engine does not tell of them itself. Home: tenant.

-- name: keyed :maybe
-- The job that answers a key.
select k.job_id from millpond.idempotency k where k.key = $3 and k.scope = $2 and k.tenant = $1;

-- name: told :many
-- When something last happened to jobs, and how often they were tried since they were last begun anew. One that waits
-- for its provider is handed out again when that has answered, and one that is given back was not tried.
select e.job_id, max(e.at) as updated_at,
    count(*) filter (where e.type = 'started' and e.seq > r.seq)
        - count(*) filter (where e.type = 'answered' and e.seq > r.seq)
        - count(*) filter (where e.type = 'requeued' and e.data ->> 'cause' = 'interruption' and e.seq > r.seq) as attempts
from unnest($1::uuid[]) as i(job_id)
cross join lateral (
    select coalesce(max(e.seq), 0) as seq from millpond.events e where e.job_id = i.job_id and e.type = 'retried'
) r
join millpond.events e on e.job_id = i.job_id
group by e.job_id;
