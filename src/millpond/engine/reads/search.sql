-- Search: finds anything by id, by the beginning of an id, or by name. A lookup by id reads a bounded number of rows in
-- the order of the index, the newest first, and only then filters them by tenant.

-- name: jobs :many
-- Database: tenant.
select j.id, j.tenant, j.kind || ', ' || j.state as title
from (
    select j.id, j.tenant, j.kind, j.state from millpond.jobs j where j.id >= $1 and j.id <= $2 order by j.id desc limit $4
) j
where $3::text is null or j.tenant = $3
limit $5;

-- name: batches :many
-- Database: tenant.
select b.id, b.tenant, case when b.name = '' then 'batch' else b.name end || ', ' || b.total || ' jobs' as title
from (
    select b.id, b.tenant, b.name, b.total from millpond.batches b where b.id >= $1 and b.id <= $2 order by b.id desc limit $4
) b
where $3::text is null or b.tenant = $3
limit $5;

-- name: endpoints :many
-- Database: tenant.
select e.id, e.tenant, coalesce(e.url, '') as title
from (
    select e.id, e.tenant, e.url from millpond.endpoints e where e.id >= $1 and e.id <= $2 order by e.id desc limit $4
) e
where $3::text is null or e.tenant = $3
limit $5;

-- name: deliveries :many
-- Database: tenant.
select d.id, d.tenant, d.event || ', ' || d.fate as title
from (
    select d.id, d.tenant, d.event, d.fate from millpond.deliveries d
    where d.id >= $1 and d.id <= $2 order by d.id desc limit $4
) d
where $3::text is null or d.tenant = $3
limit $5;

-- name: artifacts :many
-- Database: tenant.
select a.id, a.tenant, a.name as title
from (
    select a.id, a.tenant, a.name, a.deleted_at from millpond.artifacts a
    where a.id >= $1 and a.id <= $2 order by a.id desc limit $4
) a
where a.deleted_at is null and ($3::text is null or a.tenant = $3)
limit $5;

-- name: predictions :many
-- The jobs of predictions with these ids. Database: tenant.
select s.job_id as id, s.tenant, s.provider || ', ' || s.status as title
from (
    select s.id, s.job_id, s.tenant, s.provider, s.status from millpond.predictions s
    where s.id >= $1 and s.id <= $2 order by s.id desc limit $4
) s
where $3::text is null or s.tenant = $3
limit $5;

-- name: keys :many
-- Database: central.
select k.id, k.tenant, coalesce(k.name, k.hint) || ', ' || k.scope as title
from (
    select k.id, k.tenant, k.name, k.hint, k.scope from millpond.keys k
    where k.id >= $1 and k.id <= $2 order by k.id desc limit $4
) k
where $3::text is null or k.tenant = $3
limit $5;

-- name: audit :many
-- Database: central.
select a.id, a.tenant, a.action as title
from (
    select a.id, a.tenant, a.action from millpond.audit a where a.id >= $1 and a.id <= $2 order by a.id desc limit $4
) a
where $3::text is null or a.tenant = $3
limit $5;

-- name: bulk_operations :many
-- Database: central.
select e.id, e.tenant, e.action as title
from (
    select e.id, e.tenant, e.action from millpond.bulk_operations e where e.id >= $1 and e.id <= $2 order by e.id desc limit $4
) e
where $3::text is null or e.tenant = $3
limit $5;

-- name: schedules :many
-- Database: central.
select s.id, s.tenant, s.name || ', ' || s.kind as title
from (
    select s.id, s.tenant, s.name, s.kind from millpond.schedules s where s.id >= $1 and s.id <= $2 order by s.id desc limit $4
) s
where $3::text is null or s.tenant = $3
limit $5;

-- name: by_external_id :many
-- The jobs of predictions with this id at their provider. Database: tenant.
select s.job_id as id, s.tenant, s.provider || ', ' || s.status as title
from (select s.job_id, s.tenant, s.provider, s.status from millpond.predictions s where s.external_id = $1 limit $3) s
where $2::text is null or s.tenant = $2
limit $4;

-- name: keyed :many
-- The jobs of an idempotency key. Database: tenant.
select k.job_id as id, k.tenant, k.scope as title
from (select k.job_id, k.tenant, k.scope from millpond.idempotency k where k.key = $1 limit $3) k
where $2::text is null or k.tenant = $2
limit $4;

-- name: workers :many
-- By id or by name. Database: central.
(
    select w.id, w.worker as title from millpond.workers w
    where w.id >= $1 and w.id < $1 || '~' order by w.id desc limit $2
)
union
(
    select w.id, w.worker from millpond.workers w
    where w.worker >= $1 and w.worker < $1 || '~' order by w.worker limit $2
)
order by title;

-- name: queues :many
-- Database: central.
select q.queue as id from millpond.queues q where q.queue >= $1 and q.queue < $1 || '~' order by q.queue limit $2;

-- name: tenants :many
-- Database: central.
select t.tenant as id from millpond.tenants t where t.tenant >= $1 and t.tenant < $1 || '~' order by t.tenant limit $2;

-- name: named_schedules :many
-- Schedules by the beginning of their name: of one tenant, or of the first $3 tenants that have any. Database: central.
with recursive owner as (
    (select s.tenant, 1 as n from millpond.schedules s where s.tenant >= coalesce($2::text, '') order by s.tenant limit 1)
    union all
    select s.tenant, o.n + 1 from owner o cross join lateral (
        select s.tenant from millpond.schedules s where s.tenant > o.tenant order by s.tenant limit 1
    ) s
    where $2::text is null and o.n < $3
)
select s.id, s.tenant, s.name || ', ' || s.kind as title from owner o cross join lateral (
    select s.id, s.tenant, s.name, s.kind from millpond.schedules s
    where s.tenant = o.tenant and s.name >= $1 and s.name < $1 || '~' order by s.name limit $4
) s
where $2::text is null or o.tenant = $2
limit $4;

-- name: accounts :many
-- Accounts by the beginning of their name: of one tenant, or of the first $3 tenants that have any. Database: tenant.
with recursive owner as (
    (select a.tenant, 1 as n from millpond.accounts a where a.tenant >= coalesce($2::text, '') order by a.tenant limit 1)
    union all
    select a.tenant, o.n + 1 from owner o cross join lateral (
        select a.tenant from millpond.accounts a where a.tenant > o.tenant order by a.tenant limit 1
    ) a
    where $2::text is null and o.n < $3
)
select a.tenant, a.account as id from owner o cross join lateral (
    select a.tenant, a.account from millpond.accounts a
    where a.tenant = o.tenant and a.account >= $1 and a.account < $1 || '~' order by a.account limit $4
) a
where $2::text is null or o.tenant = $2
limit $4;
