-- Idempotency: the first answer to a key is the answer to all. Home: tenant.
-- Invariant: a key and the job that answers it are written together. The stored answer is what stands here and in
-- the job's own first events, which nothing can change; `request` is kept only where it is not the job's input.

-- function: answers
-- The answer each key was given when its job was born, and whether this is the same request.
create or replace function millpond.answers(
    tenants text[], scopes text[], keys text[], kinds text[], inputs jsonb[], requests jsonb[]
) returns table (
    n bigint, job_id uuid, kind text, price integer, created_at timestamptz, expires_at timestamptz, state text,
    available bigint, is_same boolean
)
language sql stable as $$
    select i.n, k.job_id, j.kind, j.price, j.created_at, k.expires_at, e.state, h.available_after,
        j.kind = i.kind and coalesce(k.request, j.input) = coalesce(i.request, i.input)
    from unnest(tenants, scopes, keys, kinds, inputs, requests) with ordinality
        as i(tenant, scope, key, kind, input, request, n)
    join millpond.idempotency k on k.tenant = i.tenant and k.scope = i.scope and k.key = i.key
    join millpond.jobs j on j.id = k.job_id
    cross join lateral (
        select e.state from millpond.events e
        where e.job_id = j.id and e.seq <= 2 and e.at = j.created_at order by e.seq desc limit 1
    ) e
    left join millpond.entries h on h.job_id = j.id and h.run = 1 and h.type = 'hold'
$$;

-- name: answers :many
select n, job_id, kind, price, created_at, expires_at, state, available, is_same
from millpond.answers($1::text[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::jsonb[]);

-- name: prune :many
-- Forgets keys past their window whose job has ended, a bounded number at a time.
with old as (
    select k.tenant, k.scope, k.key from millpond.idempotency k
    where k.created_at < millpond.clock() - $1::interval
        and not exists (select from millpond.jobs j where j.id = k.job_id and j.phase <> 'ended')
    limit $2
)
delete from millpond.idempotency k
using old o
where k.tenant = o.tenant and k.scope = o.scope and k.key = o.key
returning k.job_id;
