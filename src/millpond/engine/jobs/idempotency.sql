-- Idempotency: repeated requests with a key receive the first answer. Database: tenant.
-- Invariant: a key and its job are written together. The stored answer consists of this row and the job's own first
-- events, which nothing can change; `request` is stored only if it differs from the job's input and tags.

-- function: answers
-- The first answer to each key, given when its job was created, and whether this is the same request.
create or replace function millpond.answers(
    tenants text[], scopes text[], keys text[], kinds text[], inputs jsonb[], requests jsonb[],
    tags jsonb[] default null
) returns table (
    n bigint, job_id uuid, kind text, price integer, created_at timestamptz, expires_at timestamptz, state text,
    available bigint, is_same boolean
)
language sql stable as $$
    select i.n, k.job_id, j.kind, j.price, j.created_at, k.expires_at, e.state, h.available_after,
        j.kind = i.kind and coalesce(k.request, j.input) = coalesce(i.request, i.input)
            and (k.request is not null or j.tags is not distinct from i.tags)
    from unnest(tenants, scopes, keys, kinds, inputs, requests, tags) with ordinality
        as i(tenant, scope, key, kind, input, request, tags, n)
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
from millpond.answers($1::text[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::jsonb[], $7::jsonb[]);

-- name: prune :many
-- Deletes keys past their window whose job has ended, a limited number at a time.
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
