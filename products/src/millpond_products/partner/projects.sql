-- Projects: what partners create content for, and the context of each. Database: tenant.
-- Invariant: only the attempt that holds a job merges its facts, and only if no newer job has merged some since.
-- Reads for clients are protected twice, as views are: by their conditions and by row-level security, for which each
-- statement first sets its caller.

-- name: read :maybe
select p.id, p.tenant, p.account, p.name, p.description, p.context, p.created_at, p.updated_at
from (select set_config('millpond.callers', $1, true) as tenant offset 0) c
cross join lateral (
    select p.* from millpond.partner_projects p where p.id = $3 and p.tenant = c.tenant and p.account = $2 limit 1
) p;

-- name: list :many
-- Newest first, below an id. The contexts contain the named facts only, because whole contexts are large.
select p.id, p.tenant, p.account, p.name, p.description, s.context, p.created_at, p.updated_at
from (select set_config('millpond.callers', $1, true) as tenant offset 0) c
cross join lateral (
    select p.* from millpond.partner_projects p
    where p.tenant = c.tenant and p.account = $2 and p.id < $3
    order by p.id desc limit $4
) p
cross join lateral (
    select coalesce(jsonb_object_agg(s.key, f.facts), '{}') as context
    from jsonb_each(p.context) s
    cross join lateral (
        select jsonb_object_agg(f.key, f.value) as facts from jsonb_each(s.value) f where f.key = any($5::text[])
    ) f
) s
order by p.id desc;

-- name: make :maybe
-- No row: the key has made one already.
insert into millpond.partner_projects (id, tenant, account, name, description, key, request, created_at, updated_at)
select $1, $2, $3, $4, $5, $6, $7::jsonb, t.present, t.present from millpond.clock() as t(present)
on conflict (tenant, account, key) where key is not null do nothing
returning id, tenant, account, name, description, context, created_at, updated_at;

-- name: keyed :maybe
-- What a key has made, in its first state, and whether the request is the same.
select id, tenant, account, name, description, '{}'::jsonb as context, created_at, created_at as updated_at,
    request = $4::jsonb as is_same
from millpond.partner_projects where tenant = $1 and account = $2 and key = $3;

-- name: merge :maybe
-- Merges the facts that a job has found, if this attempt holds the job. No row: it no longer does.
with held as materialized (
    select j.id from millpond.lock_attempt($1, $2, $3) j
),
merged as (
    update millpond.partner_projects p
    set context = p.context || jsonb_build_object($5::text, $6::jsonb),
        sources = p.sources || jsonb_build_object($5::text, h.id),
        updated_at = millpond.clock()
    from held h
    where p.id = $4 and p.tenant = $2 and coalesce((p.sources ->> $5::text)::uuid <= h.id, true)
)
select h.id as job_id from held h;
